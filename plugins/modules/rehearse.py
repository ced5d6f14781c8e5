# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: rehearse
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Launch a job for a few steps and predict the whole run
description:
  - O(state=played) launches the job through the playbook C(muster.training.launch), with the inventory and variables of
    the current playbook. First on two nodes, if there are more, then on all, and with O(resume_args) on all again, from
    the checkpoint that the job reported. Each launch is a run with a record. One that fails ends the rehearsal with its
    error message.
  - O(state=judged) reports the time per step, peak memory, size and duration of a checkpoint, whether the second start
    continued the curve of the first, whether checkpoints fit on the disk, and the duration and cost of the whole run.
    It fails if there is a problem.
  - The job reports the measurements in C(MUSTER_RESULT) lines, as C(samples_per_second) with C(batch_size), or
    C(seconds_per_step), C(peak_memory_mib), C(checkpoint), C(checkpoint_seconds), and at some steps C(step) and
    C(loss).
  - Progress is kept in C(rehearsal.json). Called again after an interruption, it continues from there. A different job
    or different nodes require a new rehearsal with another O(run_id).
  - Options that make Ansible prompt, such as C(--ask-become-pass), are refused, since each launch would prompt.
  - If interrupted, stops the current run on all nodes before exiting.
  - Needs the Python package C(ansible-runner) on the controller.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.controller
  - muster.training._group
  - muster.training._records
options:
  state:
    description: V(played) launches the job. V(judged) evaluates the launches.
    type: str
    choices: [played, judged]
    required: true
  args:
    description:
      - Arguments of the job, a list or a string as in O(muster.training.launch_plan#module:args), with C({steps}) as
        the placeholder of its step limit.
      - C({name}) is the same for the first and second start on all nodes, and new for each rehearsal. Use it to name a
        checkpoint directory.
    type: raw
    default: []
  resume_args:
    description:
      - The same for the second start, with twice as many steps in total, and C({checkpoint}) as the placeholder of the
        path that the job reported.
      - If empty, resuming is not tested.
    type: raw
    default: []
  steps:
    description: Number of steps of the first starts. The second start continues to twice as many.
    type: int
    default: 20
  nnodes:
    description: >-
      Number of nodes of the job, such as V(4), or V(2:4) for an elastic run. If empty, defaults to all of O(nodes),
      otherwise to all of O(group).
    type: str
    default: ""
  nodes:
    description: Names of the nodes to choose from. If empty, defaults to all of O(group).
    type: list
    elements: str
    default: []
  timeout:
    description: Timeout of a launch, in seconds. A launch that exceeds it is stopped, which ends the rehearsal.
    type: float
    default: 1800.0
  total_steps:
    description: Number of steps of the whole job. V(0) means unknown.
    type: int
    default: 0
  checkpoint_steps:
    description: Number of steps between two checkpoints of the whole job. V(0) means unknown.
    type: int
    default: 0
  checkpoints_kept:
    description: Number of checkpoints kept on disk at a time.
    type: int
    default: 1
  loss:
    description: Name of the curve that the second start must continue. If empty, defaults to C(loss).
    type: str
    default: ""
  checkpoint_bytes:
    description: With O(state=judged), the size of the checkpoint in bytes, as printed by C(du).
    type: str
    default: ""
  free_bytes:
    description: With O(state=judged), the free space on the disk of the checkpoint in bytes, as printed by C(df).
    type: str
    default: ""
  run_id:
    description: Name of the rehearsal, and prefix of the names of its launches.
    type: str
    default: rehearsal
seealso:
  - module: muster.training.fit
  - module: muster.training.sweep
"""

EXAMPLES = r"""
- name: Rehearse a job
  muster.training.rehearse:
    state: played
    args: [--max_steps, "{steps}", --checkpoint-dir, "/data/checkpoints/{name}"]
    resume_args: [--max_steps, "{steps}", --checkpoint-dir, "/data/checkpoints/{name}", --resume]
    total_steps: 10000
  run_once: true

- name: Estimate the whole run
  muster.training.rehearse:
    state: judged
  run_once: true
"""

RETURN = r"""
checkpoint:
  description: Path of the checkpoint that the first start on all nodes reported. Empty if there was none.
  returned: with O(state=played)
  type: str
node:
  description: The node that has the checkpoint. Empty if there was none.
  returned: with O(state=played)
  type: str
user:
  description: The user who runs the job on that node. Empty for the login user.
  returned: with O(state=played)
  type: str
rehearsal:
  description:
    - The results, with C(starts), C(checkpoint_bytes), C(free_bytes), C(resumed), C(total_seconds), C(total_cost),
      C(findings) and C(go).
  returned: with O(state=judged)
  type: dict
"""
