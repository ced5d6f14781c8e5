# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: driver_decision
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Decide what to do about the NVIDIA driver of a node
description:
  - Takes the state of a node and returns the next action, with the reason. After that action, read the node again.
  - C(action) is C(nothing), C(load), C(reload), C(rebuild), C(reinstall), C(install), C(purge), C(reboot) or
    C(refuse).
positional: _input
options:
  _input:
    description: RV(muster.training.node_state#module:nvidia_driver) of the node.
    type: dict
    required: true
  branch:
    description:
      - Requested driver branch, such as V(570). If empty, defaults to the installed branch, otherwise the newest
        available.
    type: str
    default: ""
  min_version:
    description: Minimum driver version, such as V(550.54). If empty, any version is accepted.
    type: str
    default: ""
  cuda:
    description:
      - Version of CUDA that the driver must support, such as V(12.4), which implies a minimum driver version. Empty
        means no requirement.
    type: str
    default: ""
  package:
    description: Name of the package, with the placeholder C(BRANCH). If empty, it depends on the distribution.
    type: str
    default: ""
  server:
    description: Use Ubuntu's server branch.
    type: bool
    default: false
  open:
    description: Use the open kernel modules.
    type: bool
    default: false
  reboot:
    description: Allow a reboot of the node.
    type: bool
    default: false
  hold_kernel:
    description: Hold the kernel packages as well.
    type: bool
    default: false
seealso:
  - module: muster.training.node_state
"""

EXAMPLES = r"""
- name: Show what would be done
  ansible.builtin.debug:
    msg: "{{ node.nvidia_driver | muster.training.driver_decision(branch='570') }}"
  vars:
    node:
      nvidia_driver:
        runs: []
        gpus: {pci: 0, driver: {loaded: null, library: null}, smi: {state: absent, output: ""}, processes: []}
        driver: {packages: []}
"""

RETURN = r"""
_value:
  description:
    - C(action) and C(reason), the C(packages) it concerns, the C(kernels) to build the module for, and the packages to
      hold (C(hold)) and already held (C(held)).
  type: dict
  sample:
    action: reload
    reason: driver 535.161.07 is loaded, but 535.183.01 is installed
    packages: []
    kernels: []
    hold: [nvidia-driver-535]
    held: []
"""

from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._software import driver as nvidia_driver


def driver_decision(
    facts: Mapping[str, Any], cuda: str = "", min_version: str = "", hold_kernel: bool = False, **options: Any
) -> dict[str, Any]:
    """Return the next action."""
    options["branch"] = str(options.get("branch", ""))
    desired = nvidia_driver.DesiredDriver(
        minimum_version=nvidia_driver.minimum_driver(str(cuda), str(min_version)), **options
    )
    return {
        **nvidia_driver.decision_as_dict(nvidia_driver.decide(facts, desired)),
        "hold": nvidia_driver.packages_to_hold(facts["driver"], hold_kernel),
        "held": nvidia_driver.held_packages(facts["driver"]),
    }


class FilterModule:
    """Registers the filter."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"driver_decision": driver_decision}
