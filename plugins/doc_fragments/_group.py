# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Option of modules that select machines by inventory group."""

from __future__ import annotations


class ModuleDocFragment:
    """The inventory group."""

    DOCUMENTATION = r"""
options:
  group:
    description: Inventory group that holds the machines.
    type: str
    default: training
"""
