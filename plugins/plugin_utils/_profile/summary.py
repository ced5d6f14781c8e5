# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Summarize the profiles of all ranks: step times, waits in collectives, and the operations that took longest."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict

from ansible_collections.muster.training.plugins.module_utils._run.profile_trace import MAX_COLLECTIVES
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import (
    NAME,
    RANK,
    TIME,
    Between,
    conforms,
)
from ansible_collections.muster.training.plugins.plugin_utils._profile.collectives import (
    match_ranks,
    waiting_seconds,
)
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import printable

FILE = "profile.json"  # file in the run's record
MAX_OPERATIONS = 20
MAX_SHOWN_OPERATIONS = 10
MAX_SHOWN_RANKS = 32
LATE_SHARE = 0.1  # fraction of a step: a rank that the others wait for longer than this is named
SECONDS = Between(0, 1e9)
COLLECTIVE = {"name": str, "start": TIME, "seconds": SECONDS}
OPERATION = {"name": str, "device": ("cpu", "gpu"), "count": range(10**12), "seconds": SECONDS}
RANK_RESULT = {
    "rank": RANK,
    "pid": range(2**22 + 1),
    "error": str,
    "steps": [TIME],
    "size": range(2**40),
    "operations": [OPERATION],
    "collectives": [COLLECTIVE],
}
REPLY = {
    "node": {"name": NAME, "first_rank": RANK, "slots": RANK},
    "id": str,
    "ranks": [RANK_RESULT],
}
ANALYSED = {"collective_seconds": SECONDS, "gpu_seconds": SECONDS}


class RankSummary(TypedDict):
    """A rank's profile. Seconds are per step; None if unknown."""

    rank: int
    node: str
    steps: int
    step_seconds: float
    collective_seconds: float
    waiting_seconds: float | None
    gpu_seconds: float
    clock_offset: float  # seconds by which its clock is ahead of the first rank's


class Operation(TypedDict):
    """An operation in the profile. Seconds and count are per step, averaged over the ranks."""

    name: str
    device: str
    count: float
    seconds: float


class Profile(TypedDict):
    """The content of profile.json in a record."""

    run_id: str
    time: float
    timeline: str  # path relative to the record; "" if there is none
    ranks: list[RankSummary]
    operations: list[Operation]
    late: list[int]  # the ranks that the others wait for
    missing: list[str]  # which ranks were not profiled, and why


def validate_ranks(reply: Any) -> list[dict[str, Any]] | None:
    """Return the results of a node's ranks after checking them, or None if the reply is invalid."""
    if not conforms(reply, REPLY):
        return None
    node = reply["node"]
    ranks = range(node["first_rank"], node["first_rank"] + node["slots"])
    results = [result for result in reply["ranks"] if result["rank"] in ranks]
    valid = all(
        result["error"] or (conforms(result, ANALYSED) and len(result["collectives"]) <= MAX_COLLECTIVES)
        for result in results
    )
    return results if valid else None


def unknown_ranks(requested: Sequence[int], replies: Iterable[Any]) -> list[str]:
    """Return a message about requested ranks that do not exist in the run; [] if a node's reply is missing.

    replies: those of all nodes.
    """
    nodes = [reply["node"] if conforms(reply, {"node": REPLY["node"]}) else None for reply in replies]
    ranges = [range(node["first_rank"], node["first_rank"] + node["slots"]) for node in nodes if node and node["slots"]]
    unknown = [rank for rank in requested if not any(rank in ranks for ranks in ranges)]
    if not unknown or not ranges or None in nodes:
        return []
    first, *others = unknown
    subject = f"rank {first} does" if not others else f"ranks {', '.join(map(str, unknown[:MAX_SHOWN_RANKS]))} do"
    lowest, highest = min(ranks[0] for ranks in ranges), max(ranks[-1] for ranks in ranges)
    return [f"{subject} not exist: the run has ranks {lowest} to {highest}"]


def step_seconds(result: Mapping[str, Any]) -> float:
    """Return the mean time per step; 0 if unknown."""
    steps = result["steps"]
    return max(0.0, (steps[-1] - steps[0]) / (len(steps) - 1)) if len(steps) > 1 else 0.0


def find_late_ranks(profiles: Sequence[RankSummary]) -> list[int]:
    """Return the ranks that the others wait for, which are those that wait much less than the median."""
    waits = [(profile, wait) for profile in profiles if (wait := profile["waiting_seconds"]) is not None]
    if len(waits) < 2:
        return []
    usual = statistics.median_high(wait for _profile, wait in waits)
    return [profile["rank"] for profile, wait in waits if usual - wait > LATE_SHARE * profile["step_seconds"]]


def sum_operations(results: Sequence[Mapping[str, Any]]) -> list[Operation]:
    """Return the operations that took longest per step, averaged over the ranks; GPU operations come first."""
    sums: dict[tuple[str, str], list[float]] = {}
    for result in results:
        steps = max(1, len(result["steps"]) - 1)
        for entry in result["operations"]:
            name = printable(entry["name"])[:120]
            total = sums.setdefault((entry["device"], name), [0.0, 0.0])
            total[0] += entry["count"] / steps / len(results)
            total[1] += entry["seconds"] / steps / len(results)
    order = sorted(sums, key=lambda key: (key[0] != "gpu", -sums[key][1]))
    chosen = [key for device in ("gpu", "cpu") for key in [key for key in order if key[0] == device][:MAX_OPERATIONS]]
    return [
        {"name": name, "device": device, "count": sums[device, name][0], "seconds": sums[device, name][1]}
        for device, name in chosen
    ]


def summarize(run_id: str, now: float, nodes: Mapping[str, Sequence[Mapping[str, Any]]], missing: list[str]) -> Profile:
    """Return the profile of a run. nodes: the ranks' results, by node name."""
    by_rank = {result["rank"]: (name, result) for name, results in nodes.items() for result in results}
    good = {rank: result for rank, (_name, result) in sorted(by_rank.items()) if not result["error"]}
    collectives = {rank: result["collectives"] for rank, result in good.items()}
    matches = match_ranks(collectives)
    waits = waiting_seconds(collectives, matches)
    profiles: list[RankSummary] = []
    for rank, result in good.items():
        steps = max(1, len(result["steps"]) - 1)
        wait = waits.get(rank)
        profiles.append(
            {
                "rank": rank,
                "node": by_rank[rank][0],
                "steps": steps,
                "step_seconds": step_seconds(result),
                "collective_seconds": result["collective_seconds"] / steps,
                "waiting_seconds": None if wait is None else wait / steps,
                "gpu_seconds": result["gpu_seconds"] / steps,
                "clock_offset": matches[rank].offset if rank in matches else 0.0,
            }
        )
    failed = [
        f"rank {rank} on {name}: {printable(result['error'])[:300]}"
        for rank, (name, result) in sorted(by_rank.items())
        if result["error"]
    ]
    return {
        "run_id": run_id,
        "time": now,
        "timeline": "",
        "ranks": profiles,
        "operations": sum_operations(list(good.values())),
        "late": find_late_ranks(profiles),
        "missing": failed + missing,
    }


def format_seconds(seconds: float | None) -> str:
    """Format the time that a step takes."""
    if seconds is None:
        return "-"
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.1f} ms"


def format_count(count: float) -> str:
    """Format how many times an operation runs per step; some do not run in every step."""
    return f"{count:.{0 if count >= 1 else 1}f}"


def format_share(part: float | None, whole: float) -> str:
    """Format a time together with its share of a step."""
    if part is None or not whole:
        return format_seconds(part)
    return f"{format_seconds(part)} ({100 * part / whole:.0f} %)"


def format_profile(profile: Profile) -> list[str]:
    """Return the profile as lines for a terminal."""
    ranks = profile["ranks"]
    if not ranks:
        return ["no rank was profiled", *profile["missing"]]
    steps, typical = ranks[0]["steps"], statistics.median(entry["step_seconds"] for entry in ranks)
    lines = [f"{len(ranks)} rank{'s' * (len(ranks) > 1)}, {steps} steps of {format_seconds(typical)}"]
    rows = [["rank", "node", "step", "in collectives", "waiting for others", "GPU busy"]]
    for entry in ranks[:MAX_SHOWN_RANKS]:
        whole = entry["step_seconds"]
        rows.append(
            [
                str(entry["rank"]),
                entry["node"],
                format_seconds(whole),
                format_share(entry["collective_seconds"], whole),
                format_share(entry["waiting_seconds"], whole),
                format_share(entry["gpu_seconds"] or None, whole),
            ]
        )
    lines += format_columns(rows)
    if len(ranks) > MAX_SHOWN_RANKS:
        lines.append(f"and {len(ranks) - MAX_SHOWN_RANKS} other ranks")
    if profile["late"]:
        lines.append(f"the other ranks wait for rank {', '.join(map(str, profile['late']))}")
    for device in ("gpu", "cpu"):
        operations = [entry for entry in profile["operations"] if entry["device"] == device][:MAX_SHOWN_OPERATIONS]
        if operations:
            lines += ["", f"longest {device.upper()} operations in a step:"]
            rows = [
                [format_seconds(item["seconds"]), f"{format_count(item['count'])}x", item["name"]]
                for item in operations
            ]
            lines += format_columns(rows)
    return [*lines, *(f"not profiled: {text}" for text in profile["missing"])]


def format_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows with aligned columns."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    padded = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]
    return [("  " + "  ".join(cells)).rstrip() for cells in padded]
