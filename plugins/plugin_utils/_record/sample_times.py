# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""When GPU samples were taken, worked out on another machine than the one that wrote them. Pure. Private to this
collection, controller only."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone, tzinfo
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from ansible_collections.muster.training.plugins.module_utils._run.gpu_samples import time_fields

if TYPE_CHECKING:
    from ansible_collections.muster.training.plugins.module_utils._run.node_clock import Clock

FURTHEST_OFFSET = 24 * 3600  # seconds; datetime takes no greater one
STEP_BACK = 60.0  # seconds by which a sample may lie before the one ahead of it: a clock is set, another GPU is slow


def clock_of(told: Any) -> Clock | None:
    """The content of a node's clock.json, None if it is none: whoever has the node writes it."""
    if not isinstance(told, dict):
        return None
    offset, now, zone = told.get("utc_offset"), told.get("now"), told.get("zone")
    if isinstance(offset, bool) or not isinstance(offset, int) or abs(offset) >= FURTHEST_OFFSET:
        return None
    if isinstance(now, bool) or not isinstance(now, (int, float)) or not 0 <= now < 2**40:
        return None
    return {"utc_offset": offset, "now": float(now), "zone": zone if isinstance(zone, str) else ""}


def zone_of(clock: Clock) -> tzinfo:
    """The zone of a clock: by its name where this machine knows it and it fits the offset, else the offset alone."""
    offset = timedelta(seconds=clock["utc_offset"])
    try:
        zone = ZoneInfo(clock["zone"])
        if datetime.fromtimestamp(clock["now"], zone).utcoffset() == offset:
            return zone
    except (KeyError, ValueError, OSError, OverflowError):  # KeyError: there is no such zone here
        pass
    return timezone(offset)


def epoch_seconds(timestamp: str, clock: Clock, after: float = 0.0) -> float | None:
    """When a sample was taken, in seconds since 1970; None if its time is none.

    timestamp: as nvidia-smi writes it, "2026/11/22 10:15:00.123", in the node's own time.
    clock: the node's clock.json, of whenever its files were packed.
    after: seconds since 1970 of the sample before it in the file. When summer time ends an hour comes twice, and a
    sample of that hour belongs to the second one where it would else lie before its predecessor.
    """
    fields = time_fields(timestamp)
    if fields is None:
        return None
    year, month, day, hour, minute, second = fields
    try:
        local = datetime(year, month, day, hour, minute, tzinfo=zone_of(clock)) + timedelta(seconds=second)
        first, again = local.timestamp(), local.replace(fold=1).timestamp()
    except (ValueError, OverflowError):
        return None
    return again if first < after - STEP_BACK <= again else first
