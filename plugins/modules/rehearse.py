# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: rehearse
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Launch a job for a few steps, and say what the whole will be like
description:
  - With O(state=played) it launches the job by the playbook C(muster.training.launch), with the inventory and the
    variables that the present playbook was called with. First on two nodes, where there are more, then on all, and with
    O(resume_args) on all again, from the checkpoint that the job has told of. Each launch is a run with a record. One
    that fails ends the rehearsal with its words.
  - With O(state=judged) it says what a step takes, the memory peak, size and time of a checkpoint, whether the second
    start continued the curve of the first, whether checkpoints have room, and what the whole takes and costs. It fails
    where there is a problem.
  - What is measured is what the job reports in lines C(MUSTER_RESULT), as C(samples_per_second) with C(batch_size), or
    C(seconds_per_step), C(peak_memory_mib), C(checkpoint), C(checkpoint_seconds), and at some steps C(step) and
    C(loss).
  - What is known is kept in C(rehearsal.json). Called again after it was cut off, it goes on from there.
    With another job or other nodes it is another rehearsal, and needs another O(run_id).
  - Options by which Ansible asks something, such as C(--ask-become-pass), are refused, for each launch would ask.
  - Interrupted, it stops the present run on all nodes before it ends.
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
    description: What to do.
    type: str
    choices: [played, judged]
    required: true
  args:
    description:
      - Arguments of the job, a list or a text, as O(muster.training.launch_plan#module:args), with C({steps}) where
        its limit of steps belongs.
      - C({name}) is the same for the first start on all nodes and for the second, and new for each rehearsal. It is for
        the name of a directory of checkpoints.
    type: raw
    default: []
  resume_args:
    description:
      - The same for the second start, with twice as many steps in all, and C({checkpoint}) where the path belongs that
        the job has told of.
      - If empty, resuming is not tried.
    type: raw
    default: []
  steps:
    description: Steps of the first starts. The second start goes on to twice as many.
    type: int
    default: 20
  nnodes:
    description: >-
      How many nodes the job takes, such as V(4), or V(2:4) for an elastic run. If empty, all of O(nodes), else of
      O(group).
    type: str
    default: ""
  nodes:
    description: Names of the nodes among which the job is. If empty, all of O(group).
    type: list
    elements: str
    default: []
  timeout:
    description: Seconds after which a launch is stopped, which ends the rehearsal.
    type: float
    default: 1800.0
  total_steps:
    description: Steps of the whole job. V(0), not known.
    type: int
    default: 0
  checkpoint_steps:
    description: Steps between two checkpoints of the whole job. V(0), not known.
    type: int
    default: 0
  checkpoints_kept:
    description: How many checkpoints are on the disk at a time.
    type: int
    default: 1
  loss:
    description: Name of the curve that the second start must continue. If empty, one that is called C(loss).
    type: str
    default: ""
  checkpoint_bytes:
    description: Size of the checkpoint in bytes, as C(du) prints it, with O(state=judged).
    type: str
    default: ""
  free_bytes:
    description: Free bytes of the disk that holds it, as C(df) prints them, with O(state=judged).
    type: str
    default: ""
  run_id:
    description: Name of the rehearsal. Its launches have it before theirs.
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
  run_once: true

- name: Estimate the whole run
  muster.training.rehearse:
    state: judged
    total_steps: 10000
  run_once: true
"""

RETURN = r"""
checkpoint:
  description: Path of the checkpoint that the first start on all nodes has told of, empty where it has told of none.
  returned: with O(state=played)
  type: str
node:
  description: The node on which it lies, empty without a checkpoint.
  returned: with O(state=played)
  type: str
rehearsal:
  description:
    - What is known, with C(starts), C(checkpoint_bytes), C(free_bytes), C(resumed), C(total_seconds), C(total_cost),
      C(findings) and C(go).
  returned: with O(state=judged)
  type: dict
"""
