# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare the activity of a run's ranks, and name the ranks that others are waiting for; used on nodes and the
controller.
"""

from __future__ import annotations

import posixpath

from ansible_collections.muster.training.plugins.module_utils._run.ended_ranks import locate_ranks
from ansible_collections.muster.training.plugins.module_utils._run.stack_dump import (
    CODE,
    COLLECTIVE,
    IN_BACKWARD,
    KINDS,
    MAX_NAME,
    MAX_PATH,
    MAX_SHOWN,
    NO_STACK,
    ON_GPU,
    STOPPED,
)
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import RANK, TIME, conforms

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Any, Dict, Iterable, Mapping, Sequence

    Data = Dict[str, Any]

HANG = "hang: "  # prefix of the reason given for a run that was ended because it hung
WAITING = (COLLECTIVE, IN_BACKWARD, ON_GPU)
STATES = ("", "R", "S", "D", "T", "t", "I", "Z", "X", "W", "P", "K")  # states of a process, as in /proc/PID/stat
GPU_WAITS = "waits"  # a group's `gpu` if its ranks' GPUs are busy at low power: see gpu_waits.py
CPU = ("", "moving", "still")  # whether its CPU time increased between two samples
MAX_GROUPS = 64  # number of groups in a run
MAX_WORKERS = 8  # number of worker processes of a rank
GROUP = {"ranks": [RANK], "kind": KINDS, "line": range(10**9), "state": STATES, "cpu": CPU}
TEXTS = (("call", MAX_NAME), ("function", MAX_NAME), ("file", MAX_PATH), ("text", MAX_PATH))
KEY = ("kind", "call", "function", "file", "line")


def text_of(value: Any, limit: int) -> str:
    """Return a text from another node as one bounded line."""
    text = value[: 4 * limit] if isinstance(value, str) else ""
    return "".join(character if character.isprintable() else "?" for character in text)[:limit]


def texts_of(value: Any, number: int) -> list[str]:
    """Return a list of strings from another node, bounded in number and length."""
    return [text_of(text, MAX_NAME + MAX_PATH) for text in value[:number]] if isinstance(value, list) else []


def validate_groups(value: Any, ranks: Iterable[int] | None = None) -> list[Data]:
    """Return the valid groups of a node's message or report. ranks: those the node may report about; None: any."""
    allowed = None if ranks is None else set(ranks)
    groups = []
    for group in value[:MAX_GROUPS] if isinstance(value, list) else []:
        if not isinstance(group, dict) or not conforms(group, GROUP):
            continue
        members = sorted({rank for rank in group["ranks"] if allowed is None or rank in allowed})
        if members:
            groups.append(
                {
                    "ranks": members,
                    "kind": group["kind"],
                    "line": group["line"],
                    "state": group["state"],
                    "cpu": group["cpu"],
                    "gpu": GPU_WAITS if group.get("gpu") == GPU_WAITS else "",
                    **{name: text_of(group.get(name), limit) for name, limit in TEXTS},
                    "frames": texts_of(group.get("frames"), MAX_SHOWN),
                    "workers": texts_of(group.get("workers"), MAX_WORKERS),
                }
            )
    return groups


def validate_hang(value: Any) -> Data | None:
    """Return the description of a hang from one of a run's documents, or None if it is missing or invalid."""
    if not isinstance(value, dict) or not isinstance(value.get("text"), str):
        return None
    culprits = value.get("awaited_ranks")
    return {
        "text": text_of(value["text"], 2000),
        "since": value["since"] if conforms(value.get("since"), TIME) else None,
        "awaited_ranks": [rank for rank in culprits[:10000] if conforms(rank, RANK)]
        if isinstance(culprits, list)
        else [],
        "groups": validate_groups(value.get("groups")),
    }


def merge_groups(groups: Iterable[Mapping[str, Any]]) -> list[Data]:
    """Return the groups, merging those with the same activity, largest first."""
    merged: dict[tuple[Any, ...], Data] = {}
    for group in groups:
        key = tuple(group[name] for name in KEY)
        if key in merged:
            merged[key]["ranks"] = sorted({*merged[key]["ranks"], *group["ranks"]})
            merged[key]["workers"] = (merged[key]["workers"] + group["workers"])[:MAX_WORKERS]
            merged[key]["state"] = group["state"] if group["state"] == "D" else merged[key]["state"]
            merged[key]["cpu"] = group["cpu"] if group["cpu"] == "moving" else merged[key]["cpu"]
            # only if all of them are waiting
            merged[key]["gpu"] = merged[key].get("gpu", "") if group.get("gpu") else ""
        else:
            merged[key] = dict(group)
    return sorted(merged.values(), key=lambda group: (-len(group["ranks"]), group["ranks"]))[:MAX_GROUPS]


def find_differing_ranks(groups: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the ranks of all groups that are smaller than the largest; none if no group is the largest."""
    sizes = sorted((len(group["ranks"]) for group in groups), reverse=True)
    if len(sizes) < 2 or sizes[0] == sizes[1]:
        return []
    return sorted(rank for group in groups if len(group["ranks"]) < sizes[0] for rank in group["ranks"])


def find_culprits(groups: Sequence[Mapping[str, Any]], ended: Iterable[int] = ()) -> list[int]:
    """Return the ranks that the others are waiting for, or none if that cannot be determined.

    In this order: ranks that are stopped; ranks that do something else while others wait in a collective; ranks that
    have ended while others wait; ranks that differ from the majority. groups: merged. ended: ranks that exited with 0.
    """
    stopped = sorted(rank for group in groups if group["kind"] == STOPPED for rank in group["ranks"])
    if stopped:
        return stopped
    waiting = [group for group in groups if group["kind"] in WAITING]
    working = [group for group in groups if group["kind"] == CODE]
    if waiting and working:
        return sorted(rank for group in working for rank in group["ranks"])
    if ended and (waiting or working):
        return sorted(ended)
    without_stack = sorted(rank for group in groups if group["kind"] == NO_STACK for rank in group["ranks"])
    collectives = [group for group in waiting if group["kind"] == COLLECTIVE]
    if waiting and without_stack and len(without_stack) < sum(len(group["ranks"]) for group in waiting):
        return without_stack
    return find_differing_ranks(
        collectives if len(collectives) == len(waiting) and not working else [*waiting, *working]
    )


def location(group: Mapping[str, Any]) -> str:
    """Return a group's position in the user's code: "train.py:88"."""
    return f"{posixpath.basename(group['file'])}:{group['line']}"


def activity(group: Mapping[str, Any]) -> str:
    """Return the activity of a group, as a clause after "rank 3 on gpu1" or "3 of 4 ranks"."""
    many = len(group["ranks"]) > 1
    is_, wait = ("are", "wait") if many else ("is", "waits")
    kind = group["kind"]
    if kind == STOPPED:
        return f"{is_} stopped (process state T: by SIGSTOP or a debugger)"
    if kind == NO_STACK:
        return f"{'have' if many else 'has'} no Python stack"
    if kind == COLLECTIVE:
        clause = f"{wait} in {group['call']} ({location(group)})"
    elif kind == IN_BACKWARD:
        clause = f"{is_} in the backward pass ({location(group)})"
    elif kind == ON_GPU:
        clause = f"{wait} for the GPU in {group['call']} ({location(group)})"
    elif group["call"]:
        clause = f"{is_} in {group['call']}, called by {group['function']} ({location(group)})"
    else:
        clause = f"{is_} in {group['function']} ({location(group)})"
    if group["state"] == "D":
        clause += ", in uninterruptible sleep (process state D: a disk or network file system is not responding)"
    if group.get("gpu"):
        clause += ", and the GPU is busy at low power, as in an NCCL wait"
    if group["workers"]:
        clause += f", and its worker process in {group['workers'][0]}"
    return clause


def describe(
    groups: Sequence[Mapping[str, Any]], nodes: Sequence[Mapping[str, Any]], ended: Iterable[int] = ()
) -> tuple[str, list[int]]:
    """Describe the activity of a run's ranks in one sentence, and return the ranks that the others are waiting for.

    Args:
        groups: merged.
        nodes: all nodes of the run, with name, first_rank and slots.
        ended: ranks that have exited with 0 while others run.
    """
    ended = sorted(ended)
    world = sum(node["slots"] for node in nodes)
    culprits = find_culprits(groups, ended)
    others = [group for group in groups if not set(group["ranks"]) & set(culprits)]
    named = [group for group in groups if set(group["ranks"]) & set(culprits)]
    clauses = []
    for group in others[:3]:
        number = len(group["ranks"])
        if number == world:
            subject = f"all {world} ranks" if world > 1 else f"rank {group['ranks'][0]}"
        elif number > 2 or (culprits and number > 1):
            subject = f"{number} of {world} ranks"
        else:
            subject = locate_ranks(group["ranks"], nodes)
        clauses.append(f"{subject} {activity(group)}")
    if len(others) > 3:
        number = sum(len(group["ranks"]) for group in others[3:])
        clauses.append(f"{number} other ranks are elsewhere")
    clauses += [f"{locate_ranks(group['ranks'], nodes)} {activity(group)}" for group in named[:3]]
    if ended:
        clauses.append(f"{locate_ranks(ended, nodes)} exited with code 0 earlier")
    return "; ".join(clauses), culprits
