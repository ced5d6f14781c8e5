# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Attributes of modules, in addition to the fragments of ansible.builtin, which describe them.

A module documents where it deviates.
"""

from __future__ import annotations


class ModuleDocFragment:
    """One fragment per execution model."""

    # A module that only reads a node.
    INFO = r"""
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
  platform: {platforms: posix}
"""

    # An action that runs only on the controller.
    CONTROLLER = r"""
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

    # An action that runs only on the controller and shows what it changes.
    CONTROLLER_DIFF = r"""
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

    # An action that runs this collection's code on the node, in one round trip.
    NODE = r"""
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

    # An action that follows a long-running command on the node.
    LONG = r"""
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
