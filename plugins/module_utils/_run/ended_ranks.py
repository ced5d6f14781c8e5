# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ranks that have exited while others in the run continue; used on nodes and the controller."""

from __future__ import annotations

import re

from ansible_collections.muster.training.plugins.module_utils._files.name_list import format_names
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import TIME, conforms

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Dict, Mapping, Sequence

    Data = Dict[str, Any]

MAX_NODES_LISTED = 3  # number of node names in a message
RANK_NUMBER = re.compile(r"[0-9]{1,7}")  # str.isdigit accepts characters that int() rejects


def ended_ranks(status: Mapping[str, Any], first_rank: int = 0, count: int = 1 << 20) -> dict[int, float]:
    """Return the exit times of ranks in status.json, by the node's clock; only `count` ranks from first_rank on.

    A job can write that file, so anything else in it is ignored.
    """
    entries = status.get("ended_ranks")
    ended = {}
    for rank, since in entries.items() if isinstance(entries, dict) else ():
        if RANK_NUMBER.fullmatch(str(rank)) and conforms(since, TIME):
            ended[int(rank)] = float(since)
    return {rank: since for rank, since in sorted(ended.items()) if first_rank <= rank < first_rank + count}


def format_age(seconds: float) -> str:
    """Return a rounded age, such as "40 s" or "3 min"."""
    return f"{max(0.0, seconds):.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def format_ranks(ranks: Sequence[int]) -> str:
    """Return ascending ranks as text: "rank 3", "ranks 0-2, 5"."""
    spans: list[list[int]] = []
    for rank in ranks:
        if spans and spans[-1][1] == rank - 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    text = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
    return f"rank{'' if len(ranks) == 1 else 's'} {text}"


def locate_ranks(ranks: Sequence[int], nodes: Sequence[Mapping[str, Any]]) -> str:
    """Return ranks with the names of their nodes: "rank 0 on node1". nodes: with name, first_rank and slots."""
    names = [
        str(node["name"])
        for node in nodes
        if any(node["first_rank"] <= rank < node["first_rank"] + node["slots"] for rank in ranks)
    ]
    return f"{format_ranks(ranks)} on {format_names(names, MAX_NODES_LISTED)}"


def describe_ended_ranks(ages: Mapping[int, float], nodes: Sequence[Mapping[str, Any]]) -> str:
    """Describe which ranks of a run have exited and which are still running; return an empty string if none have
    exited.

    Args:
        ages: seconds since each rank exited.
        nodes: all nodes of the run, with name, first_rank and slots.
    """
    if not ages:
        return ""
    ranks = [rank for node in nodes for rank in range(node["first_rank"], node["first_rank"] + node["slots"])]
    running = [rank for rank in ranks if rank not in ages]
    age = format_age(min(ages.values()))
    if not running:
        return f"all ranks exited with code 0 {age} ago, but their launchers are still running"
    still = "runs" if len(running) == 1 else "run"
    return (
        f"{locate_ranks(sorted(ages), nodes)} exited with code 0 {age} ago; {locate_ranks(running, nodes)} still "
        f"{still}"
    )
