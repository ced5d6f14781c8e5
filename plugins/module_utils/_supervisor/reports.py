# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check the fields of a node report on arrival, and shorten it before it is sent."""

from __future__ import annotations

import json
import signal

from ansible_collections.muster.training.plugins.module_utils._supervisor.lifeline import MAX_LINE

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node some milliseconds
    from typing import Any, Mapping

    from ansible_collections.muster.training.plugins.module_utils._run.documents import NodeReport

# The fields of a report, their types, and the default for a missing value or one of another type.
REPORT_FIELDS: tuple[tuple[str, type, Any], ...] = (
    ("exit_code", int, None),
    ("reason", str, ""),
    ("state", str, "ended"),
    ("ended", float, None),
    ("ranks", list, []),
    ("launcher_error", str, ""),
    ("launcher_log", str, ""),
    ("oom_kills", int, 0),
    ("limit_hits", int, 0),
    ("stuck", list, []),
    ("mounts", dict, {}),
    ("gpus", str, ""),
    ("ended_by_us", bool, False),
    ("container", str, ""),
    ("unwritten", str, ""),
    ("shortened", str, ""),
    ("last_log", str, ""),
    ("last_lines", str, ""),
)
RANK_FIELDS: tuple[tuple[str, type, Any], ...] = (
    ("rank", int, -1),
    ("local_rank", int, -1),
    ("exit_code", int, None),
    ("error", str, ""),
    ("log", str, ""),
)
MARKS = ("closed", "first", "ended_by_us")  # of a rank, present only if true


def is_exit_code(code: object) -> bool:
    """Return whether a value is an exit code in Popen's form."""
    return isinstance(code, int) and not isinstance(code, bool) and -128 < code < 256


def is_a(kind: type, value: object) -> bool:
    """Return whether a value from JSON is of this type; true and false are not numbers."""
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def checked_report(received: Mapping[str, Any]) -> NodeReport:
    """Return another node's report with each field converted to its type, so that it cannot crash its readers."""
    report: Any = {
        name: received[name] if is_a(kind, received.get(name)) else default for name, kind, default in REPORT_FIELDS
    }
    if not is_exit_code(report["exit_code"]):
        report["exit_code"] = None
    report["ranks"] = [
        {
            **{name: rank[name] if is_a(kind, rank.get(name)) else other for name, kind, other in RANK_FIELDS},
            **{mark: True for mark in MARKS if rank.get(mark) is True},
        }
        for rank in report["ranks"]
        if isinstance(rank, dict)
    ]
    for rank in report["ranks"]:
        if not is_exit_code(rank["exit_code"]):
            rank["exit_code"] = None
    report["stuck"] = [pid for pid in report["stuck"] if is_a(int, pid)]
    report["mounts"] = {point: error for point, error in report["mounts"].items() if isinstance(error, str)}
    return report


def shorten_report(report: NodeReport) -> None:
    """Fit a report into one line of the lifeline: shorten texts, then keep only the most telling ranks."""
    for limit in (2000, 500, 0):
        if len(json.dumps(report)) < MAX_LINE - 1024:
            return
        report["last_lines"] = report["last_lines"][-limit:] if limit else ""
        for rank in report["ranks"]:
            rank["error"] = rank["error"][:limit]
    if len(json.dumps(report)) >= MAX_LINE - 1024:  # hundreds of ranks: the paths of their logs alone are too long
        ended_by_others = (0, None, -signal.SIGTERM)
        report["ranks"].sort(key=lambda rank: rank["exit_code"] in ended_by_others)
        del report["ranks"][100:]
