# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_job
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Start a run through Slurm's queue
description:
  - Submits the job of a run, whose files M(muster.training.training_run) has written with
    O(muster.training.training_run#module:scheduler=slurm), or waits until Slurm starts it. Slurm then starts the
    supervisor of each node as a task of one step.
  - Can let Slurm choose the nodes first, from a login host or any node. The job holds them while the run is written on
    them, and ends if no run follows within 15 minutes.
  - Runs on the first node of the run, with the rights of the user who runs the job. Does not need root.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.node
options:
  state:
    description:
      - V(submitted) puts the run into the queue.
      - V(started) shows its position in the queue until it starts, and fails if the job ends before that.
      - V(allocated) submits a job for any O(count) nodes of O(group), and shows its position in the queue until it has
        them.
      - V(released) ends such a job.
    type: str
    choices: [submitted, started, allocated, released]
    required: true
  run_id:
    description: Name of the run and of the job. For O(state=submitted) and O(state=started).
    type: str
    default: ""
  group:
    description: Inventory group of the nodes from which Slurm may choose, for O(state=allocated).
    type: str
    default: training
  count:
    description: Number of nodes, for O(state=allocated).
    type: int
    default: 0
  nodes:
    description:
      - RV(muster.training.launch_plan#module:rank_table). Slurm finds each node by its address, or else by its name.
    type: list
    elements: dict
    default: []
  directories:
    description: RV(muster.training.training_run#module:directory) of each node, by name.
    type: dict
    default: {}
  directory:
    description: RV(muster.training.training_run#module:directory) of this node, for O(state=started).
    type: str
    default: ""
  job:
    description:
      - RV(job), for O(state=started) and O(state=released).
      - For O(state=submitted), the job that has the nodes of the run; the task then runs on RV(batch).
    type: str
    default: ""
  notice:
    description:
      - Seconds before the end of the job, at its time limit or when it is preempted, at which the run gets a notice to
        save. V(0) disables the notice. A job shorter than twice this time gets none.
    type: int
    default: 0
  requeue:
    description:
      - How often the job may be requeued, as in M(muster.training.training_run). Not for O(state=allocated).
    type: int
    default: 0
  user:
    description: User who runs the job. If empty, the user of the task.
    type: str
    default: ""
  options:
    description: Options of C(sbatch). Empty ones are omitted.
    type: dict
    default: {}
    suboptions:
      partition: {description: Partition., type: str, default: ""}
      account: {description: Account., type: str, default: ""}
      qos: {description: Quality of service., type: str, default: ""}
      time: {description: Time limit., type: str, default: ""}
      gres: {description: "Resources per node. If empty, all GPUs of a node.", type: str, default: ""}
      exclude: {description: Nodes not to use., type: str, default: ""}
      reservation: {description: Reservation., type: str, default: ""}
      dependency: {description: "Jobs to wait for, such as V(afterok:12).", type: str, default: ""}
"""

EXAMPLES = r"""
- name: Put the run into the queue
  muster.training.slurm_job:
    state: submitted
    run_id: bert
    nodes: "{{ plan.rank_table }}"
    directories:
      gpu1: /home/ubuntu/.muster/runs/bert/node0
      gpu2: /home/ubuntu/.muster/runs/bert/node1
    options:
      partition: training
  register: submission
  run_once: true

- name: Wait until it starts
  muster.training.slurm_job:
    state: started
    run_id: bert
    directory: "{{ start.directory }}"
    job: "{{ submission.job }}"
  run_once: true
"""

RETURN = r"""
job:
  description: Number of the job.
  returned: if O(state=submitted) or O(state=allocated), and not in check mode
  type: str
  sample: "12"
names:
  description: The nodes that Slurm has chosen, by their names in the inventory.
  returned: if O(state=allocated), and not in check mode
  type: list
  elements: str
  sample: [gpu3, gpu7]
batch:
  description: The inventory name of the node that runs the job's script.
  returned: if O(state=allocated), and not in check mode
  type: str
  sample: gpu3
"""
