# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: run_logs
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Fetch the logs and measurements of a run from a node
description:
  - Packs the launcher's log, the logs of all ranks, the events, the status of a run and the GPU samples (C(gpus.csv))
    on the node, and unpacks them on the controller.
  - Also fetches the measurements of the job. These are all files below C(measured) in its run directory
    (C($MUSTER_RUN_DIRECTORY/measured)); TensorBoard event files, C(metrics.csv) and C(trainer_state.json) anywhere in
    the run directory, in O(muster.training.launch_plan#module:outputs), and, if they changed during the run, in the
    working directory (the latter two as C(outputs/NAME)); and from the rank 0 node all results that the job reported
    by C(MUSTER_RESULT) (C(job_results.jsonl)). At most 64 MiB per node are fetched, smallest files first. Files that
    exceed this limit are listed in C(left_out.json) and reported.
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
      - Directory on the controller for the logs, with C(nodeRANK) below it for each node. Created if missing.
    type: path
    required: true
  required:
    description: Fail if the logs cannot be fetched. Otherwise only warn.
    type: bool
    default: true
  selection:
    description:
      - V(logs) fetches all of these files.
      - V(measured) fetches only the measurements of the job, the GPU samples, the events, and the last 8 MiB of each
        log of rank 0.
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
    The directory with the logs. V(null) if the node does not have the run, or if nothing could be fetched and
    O(required) is V(false).
  returned: success
  type: str
  sample: logs/first-try
"""
