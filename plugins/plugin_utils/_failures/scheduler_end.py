# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Report the scheduler's message as the failure of a run whose ranks the scheduler ended: none of them failed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._failures.node_output import last_lines_of

CANCELLED = re.compile(
    r"(?:slurmstepd|srun): (?:error: )?\*{3} (?:JOB|STEP) \S{1,60} ON \S{1,255} CANCELLED AT \S{1,40} DUE TO "
    r"(?:TIME LIMIT|PREEMPTION|NODE FAILURE)"
)


def find_scheduler_end(nodes: Iterable[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the scheduler's message as a failure, or None if no log ends with it.

    Args:
        nodes: Of the result, in which no rank failed.
    """
    for node in nodes:
        report = node.get("report") or {}
        if report.get("ended_by_us"):
            continue
        lines = last_lines_of(report, str(report.get("last_log") or ""))
        message = next((line for line in reversed(lines) if CANCELLED.search(line)), None)
        if message is not None:
            return {
                "node": node["name"],
                "node_rank": node["node_rank"],
                "rank": None,
                "error": message.strip(),
                "log": report.get("last_log") or None,
                "last_lines": lines,
            }
    return None
