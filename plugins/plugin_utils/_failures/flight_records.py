# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compare the operations of ranks as logged by torch's flight recorder, and describe them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._run.ended_ranks import format_ranks
from ansible_collections.muster.training.plugins.module_utils._run.flight_records import COMPLETED, WAITING

MAX_SHOWN = 4  # number of different operations in a message
UNNAMED = ("", "undefined")  # descriptions of process groups that have none of their own


def group_by_process_group(rows: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Return the rows of each process group in which a rank is waiting, starting with the group with the most waiting
    ranks.
    """
    groups: dict[str, dict[int, Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["group"], {})[row["rank"]] = row
    waiting = [list(ranks.values()) for ranks in groups.values()]
    counts = [sum(row["state"] == WAITING for row in group) for group in waiting]
    order = sorted(range(len(waiting)), key=lambda index: -counts[index])
    return [waiting[index] for index in order if counts[index]]


def position(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the values that are equal for all ranks of the same operation."""
    return row["number"], row["state"], row["operation"], row["sizes"]


def find_ranks_behind(rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the ranks of a process group that the others are waiting for, or none if that is unknown.

    They have launched fewer operations than the others or, at the same number, a different operation from most.
    """
    front = max(row["number"] for row in rows if row["state"] == WAITING)
    late = sorted(row["rank"] for row in rows if row["number"] < front)
    if late:
        return late
    counts: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        counts.setdefault((row["operation"], row["sizes"]), []).append(row["rank"])
    sizes = sorted((len(ranks) for ranks in counts.values()), reverse=True)
    if len(sizes) < 2 or sizes[0] == sizes[1]:
        return []
    return sorted(rank for ranks in counts.values() if len(ranks) < sizes[0] for rank in ranks)


def describe_position(rows: Sequence[Mapping[str, Any]], with_sizes: bool) -> str:
    """Describe ranks at the same position: "ranks 0-2 wait in all_reduce 7"."""
    row, many = rows[0], len(rows) > 1
    ranks = format_ranks(sorted(row["rank"] for row in rows))
    operation = f"{row['operation'] or 'operation'} {row['number']}"
    if row["state"] == COMPLETED:
        return f"{ranks} {'have' if many else 'has'} completed {operation} and launched nothing since"
    sizes = f" of sizes {row['sizes']}" if with_sizes and row["sizes"] else ""
    return f"{ranks} {'wait' if many else 'waits'} in {operation}{sizes}"


def describe_operations(rows: Sequence[Mapping[str, Any]]) -> tuple[str, list[int]]:
    """Describe the operations in which ranks are waiting ("" if none are), and return the ranks that they are waiting
    for.

    It covers the process group with the most waiting ranks, preferably one whose ranks differ.
    """
    groups = [(group, group_by_position(group)) for group in group_by_process_group(rows)]
    if not groups:
        return "", []
    group, positions = next(((group, positions) for group, positions in groups if len(positions) > 1), groups[0])
    operations = {(row["number"], row["operation"]) for row in group if row["state"] == WAITING}
    with_sizes = len(operations) < sum(key[1] == WAITING for key in positions)
    ordered = sorted(positions.values(), key=lambda members: (-len(members), members[0]["rank"]))
    clauses = [describe_position(members, with_sizes) for members in ordered[:MAX_SHOWN]]
    description = group[0]["description"]
    name = f" of {description}" if description not in UNNAMED else ""
    return f"flight recorder{name}: {', '.join(clauses)}", find_ranks_behind(group)


def group_by_position(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[Any, ...], list[Mapping[str, Any]]]:
    """Return the rows of a process group by position."""
    positions: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        positions.setdefault(position(row), []).append(row)
    return positions
