# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: run_diff
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Show what differs between two runs
description:
  - Shows the settings, arguments, packages, nodes, drivers, images, inputs and files of the code that differ between
    two runs, and below how the runs ended, with their last metrics, duration and cost.
  - Reads the records of the runs on the controller and connects to nothing.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.controller
  - muster.training._group
options:
  run_id:
    description: A run. A unique prefix of its name is enough. If empty, defaults to the most recently launched run.
    type: str
    default: ""
  other_run:
    description: The run to compare it with. If empty, defaults to the run that O(run_id) repeats.
    type: str
    default: ""
  directory:
    description:
      - Directory on the controller with the records of both runs.
      - If empty, defaults to C(launch_runs_directory) of the first host of O(group), otherwise C(runs).
    type: path
    default: ""
  lines:
    description: Also show the lines of the code that differ, 400 at most.
    type: bool
    default: false
seealso:
  - module: muster.training.run_report
  - module: muster.training.run_repeat
"""

EXAMPLES = r"""
- name: Show what differs between two runs
  muster.training.run_diff:
    run_id: first-try
    other_run: second-try
"""

RETURN = r"""
runs:
  description: Names of the two runs.
  returned: success
  type: list
  elements: str
  sample: [first-try, second-try]
differences:
  description: Differences, each with C(part), C(name), C(before), C(after) and C(is_material).
  returned: success
  type: list
  elements: dict
files:
  description: Names of the code's files that differ.
  returned: success
  type: list
  elements: str
"""
