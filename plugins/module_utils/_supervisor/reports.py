# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shorten a node report before it is sent."""

from __future__ import annotations

import json
import signal

from ansible_collections.muster.training.plugins.module_utils._supervisor.lifeline import MAX_LINE

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node some milliseconds
    from ansible_collections.muster.training.plugins.module_utils._run.documents import NodeReport


def shorten_report(report: NodeReport) -> None:
    """Fit a report into one line of the lifeline: shorten texts, then keep only the most telling ranks."""
    for limit in (2000, 500, 0):
        if len(json.dumps(report)) < MAX_LINE - 1024:
            return
        report["stacks"] = [{**group, "frames": group["frames"][: limit // 200]} for group in report["stacks"]]
        report["last_lines"] = report["last_lines"][-limit:] if limit else ""
        for rank in report["ranks"]:
            rank["error"] = rank["error"][:limit]
    if len(json.dumps(report)) >= MAX_LINE - 1024:  # hundreds of ranks: the paths of their logs alone are too long
        ended_by_others = (0, None, -signal.SIGTERM)
        report["ranks"].sort(key=lambda rank: rank["exit_code"] in ended_by_others)
        del report["ranks"][100:]
