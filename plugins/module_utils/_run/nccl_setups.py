# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What NCCL has set up for the ranks of a node, as in its report; used on nodes and the controller."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.module_utils._run.hang_analysis import text_of

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Any, Dict, Iterable

    Data = Dict[str, Any]

TEXTS = ("network", "link", "plugin", "version", "interface", "address")
MAX_SETUPS = 8  # different setups on a node
MAX_TEXT = 100  # characters of each text
MAX_RANKS = 10_000


def validate_setups(value: Any, ranks: Iterable[int]) -> list[Data]:
    """Return the valid setups of a node's report. ranks: the ranks that the node may report."""
    allowed = set(ranks)
    setups = []
    for entry in value[:MAX_SETUPS] if isinstance(value, list) else []:
        numbers = entry.get("ranks") if isinstance(entry, dict) else None
        numbers = numbers[:MAX_RANKS] if isinstance(numbers, list) else []
        own = {number for number in numbers if isinstance(number, int) and not isinstance(number, bool)}
        if own & allowed:
            texts = {name: text_of(entry.get(name), MAX_TEXT) for name in TEXTS}
            setups.append({"ranks": sorted(own & allowed), **texts})
    return setups
