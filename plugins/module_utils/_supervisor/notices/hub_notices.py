# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rank 0's handling of notices: which notice is in force, the deadline for the ranks to save, and the run's limits."""

from __future__ import annotations

import time

from ansible_collections.muster.training.plugins.module_utils._supervisor.notices.limits import (
    WARNING_SHARE,
    is_hung_too_long,
    run_limits,
    save_moment,
)

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Any, Mapping

    from ansible_collections.muster.training.plugins.module_utils._run.documents import Plan, SaveNotice

DEFAULT_GRACE = 100.0  # seconds; used for a plan without notices
MAX_TEXT = 500  # number of characters of a notice's text


def validate_notice(value: Mapping[str, Any], node: str) -> SaveNotice:
    """Return a notice from another node with each field converted to its type."""
    seconds = value.get("seconds")
    valid = isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and 0 < seconds < 86400
    return {
        "source": str(value.get("source", ""))[:40],
        "node": node,
        "text": " ".join(str(value.get("text", "")).split())[:MAX_TEXT],
        "ends": value.get("ends") is True,
        "machine": value.get("machine") is True,
        "seconds": float(seconds) if valid and seconds is not None else 0.0,
        "time": time.time(),
    }


class HubNotices:
    """A run's notices, as known to rank 0's supervisor."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.settings: Mapping[str, Any] = plan.get("notices") or {}
        self.limits = run_limits(plan)
        self.warned: set[str] = set()  # names of limits for which a warning has been given
        self.reached: set[str] = set()
        self.current: SaveNotice | None = None  # the notice that ends the run, or else the last one
        self.number = 0  # number of notices that have been sent to the nodes
        self.deadline: float | None = None  # time until which the ranks may save before they are ended
        self.hang_since: float | None = None  # monotonic time at which the hang began; set by the hang detection
        self.started: float | None = None  # monotonic time at which the run started

    def elapsed(self) -> float:
        """Return the seconds since the run started."""
        return time.monotonic() - self.started if self.started is not None else 0.0

    def forget(self) -> None:
        """Forget the notice that ended an attempt, since another attempt follows."""
        self.current = self.deadline = self.hang_since = None

    def note_hang(self, now: float, hangs: bool) -> None:
        """Record whether the run is currently hanging."""
        self.hang_since = (now if self.hang_since is None else self.hang_since) if hangs else None

    @property
    def ends_run(self) -> bool:
        """Return whether the current notice ends the run."""
        return self.current is not None and self.current["ends"]

    def reason(self) -> str:
        """Return why a notice ends the run, or "" if none does."""
        return self.current["text"] if self.current is not None and self.current["ends"] else ""

    def is_saving(self, now: float) -> bool:
        """Return whether ranks may still be saving before the end, so that a failed node must not end the others."""
        return self.ends_run and self.deadline is not None and now < self.deadline

    def is_late(self, now: float) -> bool:
        """Return whether the ranks have had their time to save before the end."""
        return self.ends_run and self.deadline is not None and now >= self.deadline

    def shorten(self, deadline: float) -> None:
        """End the ranks no later than this time, since they have saved."""
        if self.deadline is not None:
            self.deadline = min(self.deadline, deadline)

    def accept(self, notice: SaveNotice, now: float) -> bool:
        """Put a notice into force; return whether the nodes must be told about it.

        While the ranks save before the end, another notice can only shorten their time.
        """
        grace = float(self.settings.get("grace", DEFAULT_GRACE))
        if notice["ends"]:
            stop_grace = self.plan["timeouts"]["grace"]
            if notice["seconds"]:  # SIGTERM must be sent early enough to leave time for the stop grace period
                grace = min(grace, max(notice["seconds"] - stop_grace, notice["seconds"] / 2))
            deadline = now + grace
            if self.ends_run and self.deadline is not None:
                self.deadline = min(self.deadline, deadline)
                return False
            self.deadline = deadline
        elif self.ends_run:
            return False
        self.current = notice
        self.number += 1
        return True

    def warnings(self, now: float) -> list[str]:
        """Return one warning for each limit that the run has nearly reached, at the first call after that."""
        texts = []
        for limit in self.limits:
            elapsed = now - self.started if self.started is not None else 0.0
            if elapsed >= WARNING_SHARE * limit.seconds and limit.name not in self.warned:
                self.warned.add(limit.name)
                remaining = max(0.0, save_moment(limit, self.grace()) - elapsed)
                texts.append(
                    f"{elapsed / limit.seconds:.0%} of {limit.name} ({limit.text}) has been used; the run will save "
                    f"and end in {format_seconds(remaining)}"
                )
        return texts

    def grace(self) -> float:
        return float(self.settings.get("grace", DEFAULT_GRACE))

    def due(self, now: float) -> list[SaveNotice]:
        """Return a notice, once, for each limit that the run has reached."""
        notices = []
        elapsed = now - self.started if self.started is not None else 0.0
        for limit in self.limits:
            if elapsed >= save_moment(limit, self.grace()) and limit.name not in self.reached:
                self.reached.add(limit.name)
                remaining = max(1.0, limit.seconds - elapsed)
                text = f"{limit.name} ({limit.text}) has been reached"
                notices.append(self.own_notice(limit.name, text, remaining))
        stall_limit = float(self.settings.get("stall_limit", 0))
        if is_hung_too_long(stall_limit, self.hang_since, now) and "launch_stall_limit" not in self.reached:
            self.reached.add("launch_stall_limit")
            text = f"the run has hung for {format_seconds(stall_limit)} (launch_stall_limit)"
            notices.append(self.own_notice("launch_stall_limit", text, 0.0))
        return notices

    def own_notice(self, source: str, text: str, seconds: float) -> SaveNotice:
        return validate_notice({"source": source, "text": text, "ends": True, "seconds": seconds}, "")


def format_seconds(seconds: float) -> str:
    """Return a duration such as "90 s", "12 min" or "3.5 h"."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"
