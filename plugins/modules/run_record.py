# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: run_record
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Keep the record of a run next to the inventory
description:
  - Manages C(runs/RUN_ID) on the controller, with C(plan.json), the run's token while it is running, and C(result.json)
    after its end. C(runs/latest) names the most recently opened run.
  - Connects to nothing.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.controller
  - muster.training._group
options:
  state:
    description:
      - V(opened) creates the record, with a new token that only its owner can read. Fails if O(run_id) is taken.
      - V(dropped) removes the record of a run that could not be started, so that its name is free again.
      - V(listed) returns the nodes to ask which of several runs are active, if the records do not say.
      - V(read) looks up a run, by default as O(purpose) says. A unique prefix of its name is enough.
      - V(closed) writes the verdict, shows it, and fails if the run did not succeed (unless O(fail) leaves that to a
        later task) or if contact with it was lost.
      - V(succeeded) fails if the run did not succeed, according to O(verdict). It shows and writes nothing.
      - V(judged) is for a run that nobody watched until its end. It shows the verdict, and writes it if it is missing.
        It does nothing if the run is still active (except to show its cost, if the prices are known), if the rank 0
        node and another node could not be read, or if there is no record. The outcome of the run never fails the task.
    type: str
    choices: [opened, dropped, listed, read, closed, judged, succeeded]
    required: true
  directory:
    description:
      - Directory of the records on the controller.
      - If empty, defaults to C(launch_runs_directory) of the first host of O(group), otherwise C(runs).
      - A relative path is resolved against the directory of this host's inventory.
    type: path
    default: ""
  run_id:
    description:
      - Name of the run. Required for V(opened), V(dropped) and V(closed). Otherwise defaults to the most recently
        opened run.
    type: str
    default: ""
  plan:
    description:
      - Plan of the rank 0 node, from M(muster.training.launch_plan). Required for V(opened) and V(closed).
    type: dict
  code:
    description:
      - For O(state=opened), the fingerprints of the code that the nodes have, from
        RV(muster.training.list_code#module:recorded). Empty if it is unknown.
    type: dict
    default: {}
  origin:
    description:
      - For O(state=opened), where the job comes from on this machine, from
        RV(muster.training.launch_plan#module:origin). Empty if it is unknown.
    type: dict
    default: {}
  result:
    description:
      - How the run ended, from RV(muster.training.training_watch#module:result). Omit it if contact with the rank 0
        node was lost.
    type: dict
  runs_by_node:
    description:
      - For each node by name, RV(muster.training.training_run#module:run) as read there, or V(null) if it could not be
        read.
      - Used by O(state=judged), and by O(state=closed) without O(result).
    type: dict
    default: {}
  job_results:
    description:
      - Results that the job reported, from RV(muster.training.training_watch#module:job_results). They are shown, and
        stored with the verdict.
    type: dict
    default: {}
  displayed_rank:
    description:
      - Rank whose output is already on the screen. O(state=judged) does not repeat its last lines if it failed first.
    type: int
  fail:
    description: Let O(state=closed) fail if the run did not succeed.
    type: bool
    default: true
  verdict:
    description: The verdict, from RV(verdict). Required for O(state=succeeded).
    type: dict
  purpose:
    description:
      - Which run V(read) looks up without O(run_id).
      - V(last) looks up the run opened last.
      - V(show) and V(stop) look up the newest one that is active, and otherwise the last one. They print which it is,
        unless it is the only one that is active, and was opened last.
    type: str
    choices: [last, show, stop]
    default: last
  quiet:
    description: Whether not to print which run it is, as for output that a program reads.
    type: bool
    default: false
  active:
    description:
      - For O(purpose=show) and O(purpose=stop), the results of M(muster.training.node_runs) by node, for
        RV(nodes_to_query).
    type: dict
    default: {}
seealso:
  - module: muster.training.training_watch
"""

EXAMPLES = r"""
# `planned` is the registered result of muster.training.launch_plan, `watched` that of muster.training.training_watch.
- name: Ensure the run has a record before it starts
  muster.training.run_record:
    state: opened
    run_id: "{{ planned.run_id }}"
    plan: "{{ planned.nodes[planned.master].plan }}"
  register: record
  run_once: true

- name: Show how the run ended
  muster.training.run_record:
    state: closed
    run_id: "{{ planned.run_id }}"
    plan: "{{ planned.nodes[planned.master].plan }}"
    result: "{{ watched.result | default(omit, true) }}"
    job_results: "{{ watched.job_results }}"
  run_once: true

- name: Look up the latest run
  muster.training.run_record:
    state: read
  register: latest
  run_once: true
"""

RETURN = r"""
run_id:
  description: Name of the run. Empty if none was found.
  returned: when O(state) is V(opened) or V(read)
  type: str
  sample: first-try
record:
  description: Directory of the record or, for V(closed) and V(judged), the file with the verdict.
  returned: success
  type: str
  sample: /home/me/cluster/runs/first-try
run_commands:
  description: Commands that show and end the run, as this user must enter them.
  returned: when O(state=opened), outside check mode
  type: str
  sample: "  status:  ansible-playbook status.yml -e run_id=first-try"
nodes_to_query:
  description: Nodes that know which runs are active. Empty if the records suffice.
  returned: when O(state=listed)
  type: list
  elements: str
  sample: [node0]
is_active:
  description: Whether the run may be active. V(false) if its record says how it ended, and O(run_id) is empty.
  returned: when O(state=read)
  type: bool
plan:
  description: Plan of the rank 0 node. V(null) if there is no record.
  returned: when O(state=read)
  type: dict
missing:
  description: Message that says which record is missing, and what to do.
  returned: when O(state=read) and there is no record
  type: str
  sample: "no run has been launched from this project yet: /home/me/cluster/runs has no records"
names:
  description: Names of the nodes of the run, or of all hosts of O(group) if there is no record.
  returned: when O(state=read)
  type: list
  elements: str
  sample: [node0, node1]
verdict:
  description: How the run ended, and why.
  returned: >-
    when O(state=closed), and the run succeeded or O(fail) is V(false); when O(state=judged), V(null) if there is none
    yet
  type: dict
  contains:
    run_id:
      description: Name of the run.
      type: str
      sample: first-try
    state:
      description: V(succeeded), V(failed), V(stopped) or V(interrupted).
      type: str
      sample: succeeded
    reason:
      description: Why the run ended. Empty if it succeeded.
      type: str
      sample: ""
    world_size:
      description: Number of processes.
      type: int
      sample: 16
    nnodes:
      description: Number of nodes.
      type: int
      sample: 2
    started:
      description:
        - When rank 0's supervisor started, in seconds since 1970. V(null) if the supervisor could not be queried.
      type: float
      sample: 1795234086.7
    ended:
      description: When the run ended, in seconds since 1970.
      type: float
      sample: 1795234112.8
    cost:
      description:
        - Cost of the run from C(started) to C(ended), according to the prices in its plan. V(null) if the start or the
          price of a node is unknown.
      type: float
      sample: 0.42
    currency:
      description: Currency of the cost.
      type: str
      sample: USD
    first_failure:
      description:
        - The first failure, with C(node), C(node_rank), C(rank), C(error), C(log) and C(last_lines), the last 120 or
          fewer lines of that log. V(null) if nothing failed.
      type: dict
      sample:
        node: node1
        node_rank: 1
        rank: 8
        error: "ValueError: boom"
        log: /home/ubuntu/.muster/runs/first-try/node1/launcher.log
        last_lines: ["ValueError: boom"]
    nodes:
      description:
        - Each node with C(name), C(node_rank), C(state), C(exit_code), C(log) (its launcher's), C(stuck) (processes
          that do not end), C(mounts) (hung mounts), C(gpus) (output of C(nvidia-smi) after they failed), C(unwritten)
          (why the run directory could not be written), C(shortened) (how logs beyond their limit were shortened),
          C(oom_kills) (number of processes that the kernel killed during the run for lack of memory, V(null) if the
          node does not report it) and C(ranks).
      type: list
      elements: dict
"""
