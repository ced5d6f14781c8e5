# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: dcgm_diagnostic
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Run NVIDIA's diagnostic of a node's GPUs
description:
  - If dcgmi is installed, runs C(dcgmi diag -r 1), which takes seconds and puts no load on the GPUs. Changes nothing.
  - A failed test does not fail the task.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.node
options: {}
seealso:
  - module: muster.training.benchmark
"""

EXAMPLES = r"""
- name: Run NVIDIA's diagnostic
  muster.training.dcgm_diagnostic:
  register: diagnostic
"""

RETURN = r"""
installed:
  description: Whether dcgmi is installed.
  returned: always, except in check mode
  type: bool
  sample: true
tests:
  description: The tests.
  returned: always, except in check mode
  type: list
  elements: dict
  contains:
    name:
      description: Name of the test, as dcgmi shows it.
      type: str
      sample: Page Retirement/Row Remap
    result:
      description: V(Pass), V(Fail), V(Warn), V(Skip) or V(Not run).
      type: str
      sample: Fail
    details:
      description: Details that dcgmi reports.
      type: str
      sample: "Error: GPU 3 had memory errors and row remappings are pending"
failure:
  description: Why there are no results. Empty otherwise.
  returned: always, except in check mode
  type: str
  sample: ""
"""
