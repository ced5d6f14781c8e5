# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Limits on a cluster's age and on its machines' idle time."""

from __future__ import annotations

import re

from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import PlanRefusedError

_UNITS = {"m": 60.0, "h": 3600.0, "d": 86400.0}
_MIN_SECONDS = 15 * 60.0  # seconds; logged-in users are warned this long before the end


def normalize_limit(name: str, value: str) -> str:
    """Return a limit in the idle watch's format: 30m, 24h, 2d or off. YAML parses off as False.

    Raises:
        PlanRefusedError: the limit is invalid.
    """
    limit = value.strip().lower()
    limit = "off" if limit == "false" else limit
    seconds = limit_seconds(limit)
    if limit != "off" and (seconds is None or seconds < _MIN_SECONDS):
        raise PlanRefusedError(
            f"{name} is {ascii(value)[:40]}. Use a number with a unit, such as 30m, 24h or 2d (at least 15m), or off"
        )
    return limit


def limit_seconds(limit: str) -> float | None:
    """Return a limit in seconds, or None if it is off or invalid."""
    match = re.fullmatch(r"([0-9]{1,6})([mhd])", limit, re.ASCII)
    return int(match[1]) * _UNITS[match[2]] if match else None
