# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find the rank for which others waited until they gave up.

A rank that waits in a collective ends with a timeout, so the rank with a timeout is not the one to look at: it is the
rank that exited early, or the only rank without a timeout.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Mapping
from typing import Any

TIMEOUT = re.compile(r"timed[ -]?out|time-?out", re.IGNORECASE)
COLLECTIVE = re.compile(r"\bSeqNum=(?P<number>\d{1,12}), OpType=(?P<name>\w{1,60})")
MIN_WAITING = 2  # ranks that timed out: with fewer, the rank without a timeout may only have been ended sooner
MAX_QUOTED = 300  # characters of a waiting rank's error
STOPPED = (None, -signal.SIGTERM, -signal.SIGKILL)


def ranks_of(result: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Yield each node with each of its ranks."""
    for node in result["nodes"]:
        for rank in (node.get("report") or {}).get("ranks", []):
            yield node, rank


def waiting_failures(failures: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the failures that are timeouts of ranks."""
    return [failure for failure in failures if failure["rank"] is not None and TIMEOUT.search(failure["error"])]


def blame(node: Mapping[str, Any], rank: Mapping[str, Any], error: str, since: float) -> dict[str, Any]:
    """Return a rank without an error of its own as the first failure."""
    report = node["report"] or {}
    lines = str(report.get("last_lines") or "").split("\n") if report.get("last_log") == rank["log"] else []
    return {
        "node": node["name"],
        "node_rank": node["node_rank"],
        "rank": rank["rank"],
        "error": error,
        "log": rank["log"],
        "last_lines": lines,
        "since": since,
    }


def exited_early(result: Mapping[str, Any], failures: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the rank that exited with 0 while others waited for it, as the first failure, or None."""
    waiting = waiting_failures(failures)
    exited = [(node, rank) for node, rank in ranks_of(result) if rank["exit_code"] == 0 and not rank["error"]]
    if not waiting or not exited:
        return None
    node, rank = exited[0]
    others = f" (so did {len(exited) - 1} more)" if len(exited) > 1 else ""
    error = f"exited with 0{others} while rank {waiting[0]['rank']} waited for it: {waiting[0]['error'][:MAX_QUOTED]}"
    return blame(node, rank, error, waiting[0]["since"])


def never_arrived(result: Mapping[str, Any], failures: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the only rank without a timeout, as the first failure, or None: the others waited for it."""
    waiting = waiting_failures(failures)
    numbers = [failure["rank"] for failure in waiting]
    others = [(node, rank) for node, rank in ranks_of(result) if rank["rank"] not in numbers]
    if len(waiting) < MIN_WAITING or len(others) != 1:
        return None
    node, rank = others[0]
    if rank["error"]:
        return next((failure for failure in failures if failure["rank"] == rank["rank"]), None)
    if rank["exit_code"] not in STOPPED and not rank.get("ended_by_us"):
        return None
    error = (
        f"did not arrive where {len(waiting)} other ranks waited for it; rank {numbers[0]}: "
        f"{waiting[0]['error'][:MAX_QUOTED]}"
    )
    return blame(node, rank, error, waiting[0]["since"])


def name_different_collectives(first: dict[str, Any], failures: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the first failure, with the collectives in which two ranks waited if these differ."""
    collectives: dict[tuple[str, str], int] = {}
    for failure in waiting_failures(failures):
        match = COLLECTIVE.search(failure["error"])
        if match:
            collectives.setdefault((match["name"], match["number"]), failure["rank"])
    if len({name for name, _number in collectives}) < 2:
        return first
    texts = [f"rank {rank} in {name} {number}" for (name, number), rank in collectives.items()]
    return {**first, "error": f"ranks wait in different collectives: {', '.join(texts[:4])}; {first['error']}"}
