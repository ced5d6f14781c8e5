# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: driver_removals
author: muster contributors (@muster)
version_added: 0.1.0
short_description: List the other packages that apt would remove along with the NVIDIA driver
description:
  - Takes the output of C(apt-get --simulate) and returns the packages that would be removed but do not belong to the
    driver.
positional: _input
options:
  _input:
    description: The output of C(apt-get --simulate).
    type: str
    required: true
seealso:
  - plugin: muster.training.driver_decision
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Show what else would be removed
  ansible.builtin.debug:
    msg: "{{ 'Purg libnvidia-compute-570 [570.211]\nRemv my-tool [1.0]\n' | muster.training.driver_removals }}"
"""

RETURN = r"""
_value:
  description: Names of the packages, in order.
  type: list
  elements: str
  sample: [my-tool]
"""

from collections.abc import Callable
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._software import driver as nvidia_driver


class FilterModule:
    """Registers the filter."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"driver_removals": nvidia_driver.foreign_removals}
