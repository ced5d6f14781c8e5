# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options of modules that create machines that power themselves off."""

from __future__ import annotations


class ModuleDocFragment:
    """Time limits after which a machine powers off."""

    DOCUMENTATION = r"""
options:
  idle_after:
    description:
      - With O(power_off), how long a machine must be unused before it powers off, for example V(30m). V(off) disables
        this.
    type: str
    default: 30m
  ttl:
    description:
      - With O(power_off), how long after boot a machine powers off even if users are logged in. V(off) disables this.
    type: str
    default: 24h
"""
