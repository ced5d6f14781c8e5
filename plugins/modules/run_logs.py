# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: run_logs
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Fetch the logs of a run from a node, and what it has measured
description:
  - Packs the launcher's log, the logs of all ranks, the events, the status of a run and what the GPUs did meanwhile
    (C(gpus.csv)) on the node, and unpacks them on the controller.
  - With them comes what the job has measured. That is all below C(measured) in its run directory
    (C($MUSTER_RUN_DIRECTORY/measured)), event files of TensorBoard, C(metrics.csv) and C(trainer_state.json) wherever
    they lie in the run directory or where O(muster.training.launch_plan#module:outputs) says (as C(outputs/NAME)), and
    of the node of rank 0 all that the job reported by C(MUSTER_RESULT)
    (C(said.jsonl)). At most 64 MiB a node are taken of it, the smallest files first. What is left out stands in
    C(left_out.json), and is told.
  - C(clock.json) tells by which clock the node wrote its times, with C(utc_offset) in seconds, C(zone), and C(now) in
    seconds since 1970.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.node
  - muster.training._runs
  - muster.training._runs.run_id
options:
  directory:
    description:
      - Directory on the controller that takes the logs, C(nodeRANK) below it for each node. It is made where it is
        missing.
    type: path
    required: true
  required:
    description: Whether the task fails where the logs cannot be had. Otherwise there is a warning.
    type: bool
    default: true
  what:
    description:
      - V(logs) brings all of this.
      - V(measured) brings only what tells how the run went, which is what the job and the GPUs did, the events, and
        the last 8 MiB of each log of rank 0.
    type: str
    choices: [logs, measured]
    default: logs
seealso:
  - module: muster.training.training_watch
"""

EXAMPLES = r"""
- name: Fetch the logs of all nodes
  muster.training.run_logs:
    run_id: first-try
    directory: logs/first-try
"""

RETURN = r"""
directory:
  description: >-
    The directory that has taken the logs, V(null) where the node knows of no such run, or gave nothing that was not
    O(required).
  returned: success
  type: str
  sample: logs/first-try
"""
