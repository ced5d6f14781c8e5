# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The operations of ranks as logged by torch's flight recorder, in node reports; used on nodes and the controller."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.module_utils._run.hang_analysis import text_of
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import RANK, conforms

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Any, Dict, Iterable

    Data = Dict[str, Any]

WAITING, COMPLETED = "waiting", "completed"
ROW = {"rank": RANK, "number": range(10**15), "state": (WAITING, COMPLETED)}
TEXTS = ("group", "description", "operation", "sizes")
MAX_TEXT = 100  # number of characters of each text
MAX_ROWS_PER_RANK = 4


def validate_operations(value: Any, ranks: Iterable[int]) -> list[Data]:
    """Return the valid rows of a node's report. ranks: the ranks that the node may report."""
    allowed = set(ranks)
    limit = MAX_ROWS_PER_RANK * len(allowed)
    return [
        {**{name: row[name] for name in ROW}, **{name: text_of(row.get(name), MAX_TEXT) for name in TEXTS}}
        for row in (value[:limit] if isinstance(value, list) else [])
        if isinstance(row, dict) and conforms(row, ROW) and row["rank"] in allowed
    ]
