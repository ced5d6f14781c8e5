# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shorten a node's report before it is sent."""

from __future__ import annotations

import json
import signal

from ansible_collections.muster.training.plugins.module_utils._supervisor.lifeline import MAX_LINE

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from ansible_collections.muster.training.plugins.module_utils._run.documents import Data, NodeReport


def shorten_groups(groups: list[Data], limit: int = MAX_LINE - 4096) -> list[Data]:
    """Return groups of ranks that fit on one line of the lifeline: first with fewer frames, then with fewer groups."""
    for frames in (12, 3, 0):
        groups = [{**group, "frames": group["frames"][:frames]} for group in groups]
        if len(json.dumps(groups)) < limit:
            return groups
    while groups and len(json.dumps(groups)) >= limit:
        groups = groups[: len(groups) // 2]
    return groups


def shorten_report(report: NodeReport) -> None:
    """Fit a report into one line of the lifeline: shorten its texts, then keep only the most informative ranks."""
    for limit in (8000, 2000, 500, 0):
        if len(json.dumps(report)) < MAX_LINE - 1024:
            return
        report["stacks"] = shorten_groups(report.get("stacks", []), 10 * limit)
        report["operations"] = report.get("operations", [])[: limit // 10]
        report["nccl"] = report.get("nccl", []) if limit else []
        report["last_lines"] = report["last_lines"][-limit:] if limit else ""
        report["outputs"] = [
            {**excerpt, "lines": excerpt["lines"][-(limit // 4) :]} for excerpt in report.get("outputs", []) if limit
        ]
        for rank in report["ranks"]:
            rank["error"] = rank["error"][:limit]
    if len(json.dumps(report)) >= MAX_LINE - 1024:  # hundreds of ranks: the paths of their logs alone would be too long
        ended_by_others = (0, None, -signal.SIGTERM)
        report["ranks"].sort(key=lambda rank: rank["exit_code"] in ended_by_others)
        del report["ranks"][100:]
