# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: training_run
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Start, stop, remove or inspect a run on a node
description:
  - Brings one node's part of a run into the desired state, in one call.
  - A supervisor on the node keeps it alive, in a systemd unit C(muster-RUN_ID) if systemd is available. The supervisors
    of a run stay in contact, so that it ends on all nodes when it ends on one, even if nobody is watching.
  - Needs only Python 3.8 or newer on the node.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.node
attributes:
  diff_mode:
    support: partial
    details:
      - In check mode, O(state=started) shows each file as it would be written, with secrets hidden. Of this
        collection's own programs, it shows only the number of lines.
options:
  state:
    description:
      - V(started) writes the run directory and starts the run. Nothing is changed if the same plan is already running.
      - V(saved) asks all ranks of the run to save, and returns what the supervisors reported. Only the first node of
        the run takes the request; on others, nothing is changed.
      - V(stopped) ends all processes of the run, including those that ignore SIGTERM or have detached themselves, and
        returns once they have exited. Nothing is changed if none is running.
      - V(absent) does the same and removes the run directory with all logs.
      - If omitted, nothing is changed, and RV(run) returns the status of the run.
    type: str
    choices: [started, saved, stopped, absent]
  run_id:
    description:
      - Name of the run. Not used with O(state=started), since O(plan) contains it.
      - If empty, O(state=stopped) and O(state=absent) apply to each run that belongs to this node, and without a state
        the newest run is inspected.
    type: str
    default: ""
  plan:
    description:
      - The node's plan, from RV(muster.training.launch_plan#module:nodes). Required for O(state=started).
    type: dict
  environment:
    description:
      - Environment of the job, in addition to the variables that O(plan) sets. The values are kept out of logs, process
        lists and diffs, and hidden from other users.
    type: dict
    default: {}
  token:
    description:
      - Secret with which the nodes of this run authenticate each other, the same on all of them. Required for
        O(state=started).
      - Generate a new one for each run, such as 64 random hexadecimal digits, as M(muster.training.run_record) does.
    type: str
  notify:
    description:
      - With O(state=started), where the first node reports events of the run, as
        O(muster.training.launch_plan#module:notify). The URLs are kept out of logs, process lists and diffs, and hidden
        from other users.
    type: raw
    default: []
  stop:
    description:
      - With O(state=saved), end the run once its ranks have saved. Its state is then V(interrupted).
    type: bool
    default: false
  runs_directory:
    description:
      - Directory of the runs on the node. C(RUN_ID/nodeRANK) is created below it. A leading C(~) means the home
        directory of the run's user.
    type: str
    default: ~/.muster/runs
  user:
    description:
      - User who runs the job. If empty, defaults to the login user. For any other user, the task needs C(become) to
        root.
    type: str
    default: ""
  replace:
    description:
      - With O(state=started), first end each run that belongs to this node.
    type: bool
    default: false
  share:
    description:
      - With O(state=started), start alongside other runs on this node, which must not compete for its GPUs and ports.
    type: bool
    default: false
  scheduler:
    description:
      - What starts the supervisor with O(state=started). With V(slurm), only the run directory is written; the job of
        M(muster.training.slurm_job) starts the supervisors of all nodes.
    type: str
    choices: [ssh, slurm]
    default: ssh
  requeue:
    description:
      - How often Slurm may restart the run, with O(scheduler=slurm). The run directory then keeps its secrets until the
        run has finally ended.
    type: int
    default: 0
  wait:
    description:
      - Seconds to wait for the run on this node to end before it is inspected. Used without O(state).
      - RV(run) is returned as soon as the run has ended.
    type: int
    default: 0
  hub:
    description:
      - The C(node_rank) of the node that led the run and was lost. With it, O(wait) also ends once another node leads
        the run.
    type: int
seealso:
  - module: muster.training.slurm_job
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

- name: Read the status of the newest run
  muster.training.training_run:
  register: newest

- name: Ask all ranks of a run to save
  muster.training.training_run:
    state: saved
    run_id: first-try

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
node_unreachable:
  description: Whether the node could not be reached, in a task with C(ignore_unreachable). RV(msg) has the reason.
  returned: when O(state) is omitted
  type: bool
  sample: true
msg:
  description: Error message of the connection.
  returned: if RV(node_unreachable)
  type: str
run:
  description: Status of the run on this node. V(null) if there is none.
  returned: when O(state) is omitted
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
      description: Rank of the node in the run, from 0.
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
        - V(starting), V(running), V(stopping), V(ended) (this node has finished, others may not have), V(succeeded),
          V(failed), V(stopped) or V(interrupted) (a notice ended it, after its ranks could save).
        - V(died) if the supervisor terminated without reporting an end.
      type: str
      sample: running
    message:
      description: Why it is in this state. Empty if there is nothing to report.
      type: str
      sample: ""
    since:
      description: When it entered this state, in seconds since 1970.
      type: float
      sample: 1795234086.7
    started:
      description: When its supervisor was started, in seconds since 1970. V(null) if not reported yet.
      type: float
      sample: 1795234080.2
    last_line:
      description: The last line written by the first rank of this node.
      type: str
      sample: step 120 loss 0.31
    seconds_since_output:
      description:
        - Seconds since the first rank of the node last wrote something. V(null) unless the run is running, and if
          nothing has been written yet.
      type: float
      sample: 2.5
    job:
      description: On rank 0's node, its program with the arguments, and the directory in which it started.
      type: str
      sample: train.py --epochs 3 in /home/ubuntu/project
    hang:
      description:
        - On the first node of a run that hangs, what its ranks do (C(text), C(groups)) and for which of them the others
          wait (C(awaited_ranks)). V(null) on other nodes, and if the run does not hang.
      type: dict
      sample:
        text: 3 of 4 ranks wait in all_reduce (train.py:88); rank 3 on node2 is in load (data.py:41)
        since: 1795234086.7
        awaited_ranks: [3]
        groups: []
    missing:
      description: Lost nodes of the run that can be replaced. Empty unless this node leads the run.
      type: list
      elements: dict
      sample: [{node_rank: 2, name: gpu3, excluded: false}]
    ended_ranks:
      description: Seconds since each of its ranks exited with 0, by global rank, while its launcher waits for others.
      type: dict
      sample: {"0": 184.2}
    gpus:
      description:
        - Latest sample of the node's GPUs, with one entry each in C(devices), its C(age) in seconds, and the mean
          utilization of recent minutes in C(trend). Taken every 15 s, and stored as C(gpus.csv) in the run directory.
          V(null) without a GPU, or if the run is not active.
      type: dict
      sample:
        age: 4.2
        trend: [88.0, 91.5]
        devices:
          - index: 0
            utilization_percent: 97
            memory_used_mib: 72914
            memory_total_mib: 81559
            temperature_celsius: 64
            power_watts: 641.27
            power_limit_watts: 700
    tail:
      description: The end of the first rank's output. Only on the node that leads the run, while it is active.
      type: str
      sample: "step 120 loss 0.31\n"
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
      description: How the whole run ended, on the rank 0 node only. V(null) elsewhere and while it runs.
      type: dict
    job_results:
      description:
        - Results that the job reported in C(MUSTER_RESULT {...}) lines of rank 0, with the last value of each key. On
          the rank 0 node only, and once the run has ended. All lines are stored as C(job_results.jsonl) in the run
          directory.
      type: dict
      sample: {accuracy: 0.97}
directory:
  description: The run directory on the node.
  returned: when O(state=started), not in check mode
  type: str
  sample: /home/ubuntu/.muster/runs/first-try/node1
supervision:
  description: The systemd unit or guard process that ends the run's processes if the supervisor itself is killed.
  returned: when O(state=started), not in check mode
  type: str
  sample: unit muster-first-try
command:
  description: The command that would be started.
  returned: when O(state=started), in check mode
  type: list
  elements: str
  sample: [/usr/bin/python3, train.py]
events:
  description: What the supervisors of the run reported about the request.
  returned: when O(state=saved)
  type: list
  elements: str
  sample: ["requested to save and continue", "node1: wrote the notice file for 8 ranks"]
stopped:
  description: Names of the runs that were running on this node.
  returned: when O(state) is V(started), V(stopped) or V(absent)
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
