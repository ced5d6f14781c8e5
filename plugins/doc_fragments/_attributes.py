# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Attributes of modules, in addition to the ansible.builtin fragments that describe them.

A module documents where it deviates.
"""

from __future__ import annotations

# Attributes that all modules share. A provider's fragment, which precedes this one in a module, also names its group.
IN_ALL = r"""
  action_group:
    description: Use C(group/muster.training.all) in C(module_defaults) to set defaults for this module.
    support: full
    membership: [muster.training.all]
"""


class ModuleDocFragment:
    """One fragment per execution model, and one per machine provider."""

    # A module that none of the execution models below describes.
    ALL = "attributes:" + IN_ALL

    # A module that uses the Paperspace API.
    PAPERSPACE = r"""
attributes:
  action_group:
    description:
      - Use C(group/muster.training.paperspace) or C(group/muster.training.all) in C(module_defaults) to set defaults
        for this module.
    support: full
    membership: [muster.training.paperspace, muster.training.all]
"""

    # A module that uses the API of any provider.
    CLOUD = r"""
attributes:
  action_group:
    description:
      - Use C(group/muster.training.paperspace), C(group/muster.training.ec2) or C(group/muster.training.all) in
        C(module_defaults) to set defaults for this module.
    support: full
    membership: [muster.training.paperspace, muster.training.ec2, muster.training.all]
"""

    # A module that only reads from a node.
    INFO = (
        r"""
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
  platform: {platforms: posix}
"""
        + IN_ALL
    )

    # An action that runs only on the controller.
    CONTROLLER = (
        r"""
attributes:
  action: {support: full}
  async: {support: none}
  become: {support: none}
  bypass_host_loop: {support: none}
  check_mode: {support: full}
  connection: {support: none}
  delegation: {support: none}
  diff_mode: {support: none}
  platform: {platforms: posix}
"""
        + IN_ALL
    )

    # An action that runs only on the controller and shows what it changes.
    CONTROLLER_DIFF = (
        r"""
attributes:
  action: {support: full}
  async: {support: none}
  become: {support: none}
  bypass_host_loop: {support: none}
  check_mode: {support: full}
  connection: {support: none}
  delegation: {support: none}
  diff_mode: {support: full}
  platform: {platforms: posix}
"""
        + IN_ALL
    )

    # An action that runs this collection's code on the node, in one round trip.
    NODE = (
        r"""
attributes:
  action: {support: full}
  async: {support: none}
  become: {support: full}
  bypass_host_loop: {support: none}
  check_mode: {support: full}
  connection: {support: full}
  delegation: {support: none}
  diff_mode: {support: none}
  platform: {platforms: linux}
"""
        + IN_ALL
    )

    # An action that follows a long-running command on the node.
    LONG = (
        r"""
attributes:
  action: {support: full}
  async: {support: none}
  become: {support: full}
  bypass_host_loop: {support: none}
  check_mode: {support: partial, details: Only reports that the command would run.}
  connection: {support: full}
  delegation: {support: full}
  diff_mode: {support: none}
  platform: {platforms: linux}
"""
        + IN_ALL
    )
