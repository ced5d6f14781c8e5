# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The clock of a node's recorded times: clock.json in its archive.

nvidia-smi writes the node's local time without a zone, which the controller, in another zone, could not interpret.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import TypedDict

    class NodeClock(TypedDict):
        """How a node's local time relates to UTC."""

        utc_offset: int  # seconds ahead of UTC, positive east of Greenwich
        now: float  # seconds since 1970 when utc_offset was read
        zone: str  # name of the time zone, such as Europe/Berlin; "" if unknown


FILE = "clock.json"
LOCALTIME = "/etc/localtime"


def zone_name(path: str = LOCALTIME) -> str:
    """Return the name of this machine's time zone, from TZ or the link that glibc follows, or an empty string."""
    variable = os.environ.get("TZ", "").lstrip(":")
    if variable:
        return variable
    return os.path.realpath(path).partition("/zoneinfo/")[2]


def read_clock() -> NodeClock:
    """Return this node's current clock."""
    now = time.time()
    return {"utc_offset": time.localtime(now).tm_gmtoff, "now": now, "zone": zone_name()}
