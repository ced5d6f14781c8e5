# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: training_run
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Start, stop, remove or look at a run on a node
description:
  - Brings one node's part of a run into the wanted state, in one call.
  - A supervisor on the node keeps it alive, in a systemd unit C(muster-RUN_ID) where there is systemd. The
    supervisors of a run know of each other, so that it ends on all nodes when it ends on one, also when nobody is
    watching.
  - Needs Python 3.8 or newer on the node, and nothing else there.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.node
attributes:
  diff_mode:
    support: partial
    details:
      - In check mode O(state=started) shows each file as it would be written, with secrets hidden, and of this
        collection's own programs the number of their lines.
options:
  state:
    description:
      - V(started) writes the run directory and starts the run. Nothing is changed where this very plan is running
        already.
      - V(stopped) ends all processes of the run, also those that ignore SIGTERM or have detached themselves, and
        returns once they are gone. Nothing is changed where none is alive.
      - V(absent) does the same and removes the run directory with all logs.
      - If omitted, nothing is changed, and RV(run) tells where the run stands.
    type: str
    choices: [started, stopped, absent]
  run_id:
    description:
      - Name of the run. Of no use with O(state=started), where O(plan) has it.
      - If empty, O(state=stopped) and O(state=absent) mean each run that belongs to this node, and without a state the
        newest is looked at.
    type: str
    default: ""
  plan:
    description:
      - What this node is to do, from RV(muster.training.launch_plan#module:nodes). Needed for O(state=started).
    type: dict
  environment:
    description:
      - Environment of the job, besides what O(plan) sets. The values are kept from logs, process lists, diffs and
        other users.
    type: dict
    default: {}
  token:
    description:
      - Secret by which the nodes of this run know each other, the same text on each of them. Needed for
        O(state=started).
      - Make a new one for each run, such as 64 random hexadecimal digits. M(muster.training.run_record) does so.
    type: str
  runs_directory:
    description:
      - Where the runs lie on the node. C(RUN_ID/nodeRANK) is made below it. A leading C(~) is the home of the run's
        user.
    type: str
    default: ~/.muster/runs
  user:
    description:
      - User who runs the job. If empty, the one who is logged in. For another one the task needs root by C(become).
    type: str
    default: ""
  replace:
    description:
      - With O(state=started), end each run that belongs to this node first.
    type: bool
    default: false
  share:
    description:
      - With O(state=started), start beside other runs of this node, which must agree on its GPUs and ports.
    type: bool
    default: false
  wait:
    description:
      - Seconds to wait for the end of the run on this node before it is looked at. Of use without O(state).
      - RV(run) comes as soon as the run has ended.
    type: int
    default: 0
seealso:
  - module: muster.training.launch_plan
  - module: muster.training.training_watch
"""

EXAMPLES = r"""
# `planned` is the registered result of muster.training.launch_plan, `record` that of muster.training.run_record.
- name: Start the run on each node
  muster.training.training_run:
    state: started
    plan: "{{ planned.nodes[inventory_hostname].plan }}"
    environment:
      WANDB_API_KEY: "{{ wandb_api_key }}"
    token: "{{ lookup('ansible.builtin.file', record.record ~ '/token') }}"

- name: Read the state of the newest run
  muster.training.training_run:
  register: newest

- name: End a run
  muster.training.training_run:
    state: stopped
    run_id: first-try

- name: End it and remove its logs, as the user who ran it
  muster.training.training_run:
    state: absent
    run_id: first-try
    user: trainer
  become: true
"""

RETURN = r"""
unreached:
  description: That the node could not be reached, in a task with C(ignore_unreachable); RV(msg) says why.
  returned: when O(state) is left out
  type: bool
  sample: true
msg:
  description: What the connection said.
  returned: when RV(unreached)
  type: str
run:
  description: Where the run stands on this node, V(null) where there is none.
  returned: when O(state) is left out
  type: dict
  contains:
    run_id:
      description: Name of the run.
      type: str
      sample: first-try
    node:
      description: Name of the node.
      type: str
      sample: node1
    node_rank:
      description: Its place in the run, from 0.
      type: int
      sample: 1
    ranks:
      description: Global ranks of its processes.
      type: list
      elements: int
      sample: [8, 9, 10, 11, 12, 13, 14, 15]
    nnodes:
      description: Number of nodes of the run.
      type: int
      sample: 2
    world_size:
      description: Number of processes of the run.
      type: int
      sample: 16
    state:
      description:
        - V(starting), V(running), V(stopping), V(ended) (this node is through, others may not be), V(succeeded),
          V(failed) or V(stopped).
        - V(died) where the supervisor is gone without a last word.
      type: str
      sample: running
    message:
      description: Why it is in this state, empty where there is nothing to say.
      type: str
      sample: ""
    since:
      description: When it came into this state, in seconds since 1970.
      type: float
      sample: 1795234086.7
    started:
      description: When its supervisor was started, in seconds since 1970. V(null) where it has not said so yet.
      type: float
      sample: 1795234080.2
    last_line:
      description: The last line that the first rank of this node has written.
      type: str
      sample: step 120 loss 0.31
    silence:
      description:
        - Seconds since the first rank of the node has written something. V(null) while the run does not run, and where
          nothing was written yet.
      type: float
      sample: 2.5
    gpus:
      description:
        - What the node's GPUs do, C(devices) with one entry each, and how many seconds ago that was (C(age)). Taken
          every 15 s, and kept as C(gpus.csv) in the run directory. V(null) where there is no GPU, and while the run
          does not run.
      type: dict
      sample:
        age: 4.2
        devices:
          - index: 0
            utilization_percent: 97
            memory_used_mib: 72914
            memory_total_mib: 81559
            temperature_celsius: 64
            power_watts: 641.27
            power_limit_watts: 700
    directory:
      description: The run directory on the node.
      type: str
      sample: /home/ubuntu/.muster/runs/first-try/node1
    report:
      description:
        - How this node's part ended, with the exit code, first error and log of each of its ranks. V(null) while it
          runs.
      type: dict
      sample:
        exit_code: 1
        ranks:
          - rank: 8
            local_rank: 0
            exit_code: 1
            error: "ValueError: boom"
            log: /home/ubuntu/.muster/runs/first-try/node1/launcher.log
    result:
      description: How the whole run ended, on the node of rank 0 only. V(null) elsewhere and while it runs.
      type: dict
    said:
      description:
        - What the job itself reported by lines C(MUSTER_RESULT {...}) of rank 0, the last value of each key. On the
          node of rank 0 only, and once the run is over. All of them are kept as C(said.jsonl) in the run directory.
      type: dict
      sample: {accuracy: 0.97}
directory:
  description: The run directory on the node.
  returned: when O(state=started), not in check mode
  type: str
  sample: /home/ubuntu/.muster/runs/first-try/node1
supervision:
  description: What ends the run's processes should the supervisor itself be killed, a systemd unit or a guard process.
  returned: when O(state=started), not in check mode
  type: str
  sample: unit muster-first-try
command:
  description: The command that would be started.
  returned: when O(state=started), in check mode
  type: list
  elements: str
  sample: [/usr/bin/python3, train.py]
stopped:
  description: Names of the runs that were alive here.
  returned: when O(state) is given
  type: list
  elements: str
  sample: [first-try]
removed:
  description: The run directories that were removed.
  returned: when O(state=absent)
  type: list
  elements: str
  sample: [/home/ubuntu/.muster/runs/first-try/node1]
"""
