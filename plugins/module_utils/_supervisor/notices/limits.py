# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Limits on a run's time and cost, and on how long it may hang. Pure: times are in seconds."""

from __future__ import annotations

import collections

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Any, Mapping

WARNING_SHARE = 0.8  # fraction of a limit at which a warning is given
GRACE_SHARE = 0.1  # maximum fraction of a limit that saving may take

# A limit of a run: its name, the number of seconds after which it is reached, and a human-readable text, such as "12
# h".
Limit = collections.namedtuple("Limit", "name seconds text")


def hourly_price(plan: Mapping[str, Any]) -> float | None:
    """Return the hourly price of all nodes, or None if that of any node is unknown."""
    prices = [node.get("price_per_hour") for node in plan["nodes"]]
    if not all(isinstance(price, (int, float)) for price in prices):
        return None
    return float(sum(prices))


def format_limit(seconds: float) -> str:
    """Format a time limit such as "12 h", "90 min" or "45 s"."""
    if seconds < 120:
        return f"{seconds:g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 and seconds % 3600 else f"{seconds / 3600:.3g} h"


def run_limits(plan: Mapping[str, Any]) -> list[Limit]:
    """Return a run's time and cost limits."""
    settings = plan.get("notices") or {}
    limits = []
    if settings.get("time_limit"):
        limits.append(Limit("launch_time_limit", settings["time_limit"], format_limit(settings["time_limit"])))
    price = hourly_price(plan)
    if settings.get("cost_limit") and price:
        text = f"{settings['cost_limit']:g} {plan.get('currency', '')}".strip()
        limits.append(Limit("launch_cost_limit", settings["cost_limit"] / price * 3600, text))
    return limits


def save_moment(limit: Limit, grace: float) -> float:
    """Return after how many seconds a run must save in order to have ended when the limit is reached."""
    return float(limit.seconds - min(grace, GRACE_SHARE * limit.seconds))


def is_hung_too_long(limit: float, hang_since: float | None, now: float) -> bool:
    """Return whether a hang has lasted longer than launch_stall_limit; 0: no limit. hang_since: None without a hang."""
    return limit > 0 and hang_since is not None and now - hang_since >= limit
