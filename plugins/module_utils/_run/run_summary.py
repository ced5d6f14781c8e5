# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A short summary of a run and its outcome, from its directory on a node, where a job may write anything."""

from __future__ import annotations

import os
import shlex

from ansible_collections.muster.training.plugins.module_utils._run.job_results import FILE, merge_reports
from ansible_collections.muster.training.plugins.module_utils._run.lost_peers import SECONDARY
from ansible_collections.muster.training.plugins.module_utils._run.safe_files import read_tail

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Any, Mapping

MAX_TEXT = 1000  # characters of each text
MAX_METRICS = 3


def job_line(plan: Mapping[str, Any]) -> str:
    """Return a run's program with its arguments, as in a shell."""
    arguments = plan.get("arguments")
    words = [plan.get("program", ""), *(arguments if isinstance(arguments, list) else [])]
    return " ".join(shlex.quote(str(word)) for word in words if str(word))[:MAX_TEXT]


def first_error(result: Any) -> str:
    """Return the first line of the error that ended a run, from rank 0's result.json; "" if there is none."""
    if not isinstance(result, dict) or result.get("state") != "failed":
        return ""
    nodes = [node for node in result.get("nodes") or [] if isinstance(node, dict)]
    nodes.sort(key=lambda node: node.get("name") != result.get("first_node"))
    errors = []
    for node in nodes:
        report = node.get("report")
        if not isinstance(report, dict):
            continue
        ranks = [rank for rank in report.get("ranks") or [] if isinstance(rank, dict)]
        ranks.sort(key=lambda rank: not rank.get("first"))
        errors += [rank.get("error") for rank in ranks] + [report.get("launcher_error")]
    texts = [str(error) for error in errors if error]
    texts.sort(key=lambda text: bool(SECONDARY.search(text)))  # stable sort: causes come before their consequences
    text = next(iter(texts), "") or str(result.get("reason") or "")
    return next((line.strip() for line in text.splitlines() if line.strip()), "")[:MAX_TEXT]


def last_metrics(path: str) -> str:
    """Return the last numbers that the job of a finished run reported; path: its directory on rank 0's node."""
    values = merge_reports(read_tail(os.path.join(path, FILE)))
    numbers = [(name, value) for name, value in values.items() if isinstance(value, (int, float))]
    return ", ".join(f"{str(name)[:40]} {value:.5g}" for name, value in numbers[-MAX_METRICS:])
