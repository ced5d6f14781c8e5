# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Limits for a cluster's age and for its machines' idle time. Private to this collection, pure."""

from __future__ import annotations

import re

from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import PlanRefused

_UNITS = {"m": 60.0, "h": 3600.0, "d": 86400.0}
_LEAST = 15 * 60.0  # seconds: logged-in users are warned this long before the end


def limit_word(name: str, told: str) -> str:
    """A limit in the idle watch's form: 30m, 24h, 2d, off. told: YAML reads off as False. Raises PlanRefused."""
    word = told.strip().lower()
    word = "off" if word == "false" else word
    seconds = limit_seconds(word)
    if word != "off" and (seconds is None or seconds < _LEAST):
        raise PlanRefused(
            f"{name} is {ascii(told)[:40]}. Needed: a number and its unit, such as 30m, 24h or 2d, at least 15m, or off"
        )
    return word


def limit_seconds(word: str) -> float | None:
    """A limit in seconds, None for off or an invalid word."""
    match = re.fullmatch(r"([0-9]{1,6})([mhd])", word, re.ASCII)
    return int(match[1]) * _UNITS[match[2]] if match else None
