# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The limits of a run, as written by the user."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)\s*([smhdw]?)\Z")
DURATIONS = ("time_limit", "stall_limit", "restart_wait")  # options of a job


def parse_duration(value: object) -> float:
    """Return a duration such as 90, 90m, 1.5h or 2d in seconds; 0 if it is empty.

    Raise ValueError if it is invalid.
    """
    if value in ("", None):
        return 0.0
    match = None if isinstance(value, bool) else DURATION.match(str(value).strip())
    if match is None:
        raise ValueError(f"{ascii(value)[:40]} is not a duration: use a number and a unit, such as 90m, 12h or 2d")
    return float(match[1]) * UNITS[match[2] or "s"]


def duration_options(args: Mapping[str, Any]) -> dict[str, float]:
    """Return the durations among a job's options in seconds; 0 for invalid ones."""
    seconds = {}
    for name in DURATIONS:
        try:
            seconds[name] = parse_duration(args[name])
        except ValueError:
            seconds[name] = 0.0
    return seconds


def limit_problems(args: Mapping[str, Any]) -> list[str]:
    """Return the problems with a job's limits and with the grace period for saving."""
    problems = []
    for name in DURATIONS:
        try:
            parse_duration(args[name])
        except ValueError as error:
            problems.append(f"launch_{name}: {error}")
    if not args["stacks"] or not args["hang_timeout"]:
        off = "launch_stacks is false" if not args["stacks"] else "launch_hang_timeout is 0"
        without_effect = ["launch_stall_limit"] if args["stall_limit"] not in ("", None, 0) else []
        without_effect += ["launch_on_hang: stop"] if args["on_hang"] == "stop" else []
        problems += [f"{name} has no effect, since {off}, so hangs are not detected" for name in without_effect]
    if args["cost_limit"] < 0:
        problems.append(f"launch_cost_limit is {args['cost_limit']:g}, but must be more than 0, or 0 for no limit")
    if args["notice_grace"] < 1:
        problems.append(f"launch_notice_grace is {args['notice_grace']} s, but must be 1 or more")
    return problems


def unpriced_nodes(cost_limit: float, prices: Mapping[str, float | None], names: Iterable[str]) -> list[str]:
    """Return the nodes whose unknown price rules out a cost limit; none if there is no limit."""
    return [name for name in names if prices.get(name) is None] if cost_limit else []
