# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How old a cluster may become, and how long its machines may stay unused. Private to this collection, pure."""

from __future__ import annotations

import re

from ansible_collections.muster.training.plugins.plugin_utils._cluster_plan.ownership import PlanRefused

_UNITS = {"m": 60.0, "h": 3600.0, "d": 86400.0}
_LEAST = 15 * 60.0  # whoever is logged in is warned so long before


def limit_word(name: str, told: str) -> str:
    """A limit as the watch on a node reads it: 30m, 24h, 2d, off. told: YAML makes False of off. Raises PlanRefused."""
    word = told.strip().lower()
    word = "off" if word == "false" else word
    seconds = limit_seconds(word)
    if word != "off" and (seconds is None or seconds < _LEAST):
        raise PlanRefused(
            f"{name} is {ascii(told)[:40]}. Needed: a number and its unit, such as 30m, 24h or 2d, at least 15m, or off"
        )
    return word


def limit_seconds(word: str) -> float | None:
    """Seconds of a limit, None of one that is off."""
    match = re.fullmatch(r"([0-9]{1,6})([mhd])", word, re.ASCII)
    return int(match[1]) * _UNITS[match[2]] if match else None
