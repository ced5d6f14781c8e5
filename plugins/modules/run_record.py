# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: run_record
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Keep the record of a run beside the inventory
description:
  - Keeps C(runs/RUN_ID) on the controller, with C(plan.json), the run's token while it is alive, and C(result.json)
    after its end. C(runs/latest) names the run that was opened last.
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
      - V(opened) makes the record, with a fresh token that only its owner can read. Fails where O(run_id) is taken.
      - V(dropped) removes the record of a run that could not be started, so that its name is free again.
      - V(read) looks a run up, the latest where O(run_id) is empty. The beginning of a name will do where it is that of
        one run.
      - V(closed) writes the verdict, shows it, and fails where the run has not succeeded (unless O(fail) leaves that to
        a later task), or where it was lost sight of.
      - V(succeeded) fails where a run has not succeeded, by O(verdict). It shows and writes nothing.
      - V(judged) is for a run that nobody has watched to its end. It shows the verdict, and writes it where it is not
        there yet. It does nothing where the run goes on (but tells what it costs, where the prices are known), where
        the node of rank 0 and another one could not be read, or without a record. How the run went fails no task.
    type: str
    choices: [opened, dropped, read, closed, judged, succeeded]
    required: true
  directory:
    description:
      - Where the records lie on the controller.
      - If empty, what C(launch_runs_directory) of the first host of O(group) says, else C(runs).
      - A relative path begins beside the inventory of this host.
    type: path
    default: ""
  run_id:
    description: Name of the run. Needed for V(opened), V(dropped) and V(closed). Else the run that was opened last.
    type: str
    default: ""
  plan:
    description:
      - The plan of the node of rank 0, from M(muster.training.launch_plan). Needed for V(opened) and V(closed).
    type: dict
  result:
    description:
      - How the run ended, from RV(muster.training.training_watch#module:result). Left out where the node of rank 0
        was lost.
    type: dict
  reads:
    description:
      - By the name of a node, RV(muster.training.training_run#module:run) as it was read there, V(null) where it
        could not be read.
      - What O(state=judged) goes by, and O(state=closed) without O(result).
    type: dict
    default: {}
  said:
    description:
      - What the job reported, from RV(muster.training.training_watch#module:said). It is shown, and kept with the
        verdict.
    type: dict
    default: {}
  fail:
    description: Whether O(state=closed) fails where the run has not succeeded.
    type: bool
    default: true
  verdict:
    description: How the run went, from RV(verdict). Needed for O(state=succeeded).
    type: dict
seealso:
  - module: muster.training.training_watch
"""

EXAMPLES = r"""
# `planned` is the registered result of muster.training.launch_plan, `watched` that of muster.training.training_watch.
- name: Open the record, before the start
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
    said: "{{ watched.said }}"
  run_once: true

- name: Look up the latest run
  muster.training.run_record:
    state: read
  register: latest
  run_once: true
"""

RETURN = r"""
run_id:
  description: Name of the run, empty where none was found.
  returned: when O(state) is V(opened) or V(read)
  type: str
  sample: first-try
record:
  description: The record's directory, or after V(closed) and V(judged) the file that holds the verdict.
  returned: success
  type: str
  sample: /home/me/cluster/runs/first-try
goes_on:
  description: What shows the run and what ends it, as this user has to type it.
  returned: when O(state=opened), outside check mode
  type: str
  sample: "  status:  ansible-playbook status.yml -e run_id=first-try"
plan:
  description: The plan of the node of rank 0, V(null) where there is no record.
  returned: when O(state=read)
  type: dict
names:
  description: The nodes of the run, or all hosts of O(group) where there is no record.
  returned: when O(state=read)
  type: list
  elements: str
  sample: [node0, node1]
verdict:
  description: How the run went.
  returned: >-
    when O(state=closed), and the run has succeeded or O(fail) is V(false); when O(state=judged), V(null) where there
    is none yet
  type: dict
  contains:
    run_id:
      description: Name of the run.
      type: str
      sample: first-try
    state:
      description: V(succeeded), V(failed) or V(stopped).
      type: str
      sample: succeeded
    reason:
      description: Why the run ended, empty where it succeeded.
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
      description: When rank 0's supervisor started, in seconds since 1970. V(null) where it could not be asked.
      type: float
      sample: 1795234086.7
    ended:
      description: When the run ended, in seconds since 1970.
      type: float
      sample: 1795234112.8
    cost:
      description:
        - What the run has cost, from C(started) to C(ended), by the prices in its plan. V(null) where the price of one
          of the nodes, or the start, is not known.
      type: float
      sample: 0.42
    currency:
      description: Currency of it.
      type: str
      sample: USD
    first_failure:
      description:
        - What failed first, with C(node), C(node_rank), C(rank), C(error), C(log) and C(last_lines), at most 20 of that
          log. V(null) where nothing failed.
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
          that do not end), C(mounts) (that died), C(gpus) (what C(nvidia-smi) said once they failed), C(unwritten) (why
          the run directory could not be written), C(shortened) (what was done to logs beyond their limit), C(oom_kills)
          (processes that the kernel has ended there for lack of memory during the run, V(null) where the node does not
          tell) and C(ranks).
      type: list
      elements: dict
"""
