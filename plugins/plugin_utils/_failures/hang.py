# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Name the rank that the others waited for until they timed out: each of them fails, but that rank does not."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._run.ended_ranks import format_ranks
from ansible_collections.muster.training.plugins.module_utils._run.flight_records import validate_operations
from ansible_collections.muster.training.plugins.module_utils._run.hang_analysis import (
    HANG,
    activity,
    find_culprits,
    location,
    merge_groups,
    validate_groups,
    validate_hang,
)
from ansible_collections.muster.training.plugins.module_utils._run.stack_dump import CODE, COLLECTIVE, NO_STACK
from ansible_collections.muster.training.plugins.plugin_utils._failures.flight_records import describe_operations
from ansible_collections.muster.training.plugins.plugin_utils._failures.node_output import last_lines_of
from ansible_collections.muster.training.plugins.plugin_utils._failures.waiting import MIN_WAITING

TIMED_OUT = re.compile(
    r"timed[ _-]?out|time[ -]?out|Watchdog caught collective|last enqueued work|monitoredBarrier", re.IGNORECASE
)
# Errors on a rank that lost a peer which had itself timed out.
LOST_PEER = re.compile(
    r"connection (was )?(closed|reset|refused)|broken pipe|remote process exited|communicator was aborted", re.I
)
WAITED_FOR = re.compile(r"the other ranks waited for (it|them)\b")
CAUSE = "The ranks did not all take part in the same collective operation, so those that did waited in vain."
REMEDY = (
    "Look at that rank's source line: there may be a loop or input that does not end, a collective in a branch "
    "that only some ranks take, or data loaders of different lengths. docs/hangs.md lists what each location "
    "means"
)
MAX_NAMED = 8  # number of ranks in an error


def recorded_stacks(result: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the stacks in the record: those of the reported hang, and the ranks' activity before the end."""
    groups: list[Mapping[str, Any]] = []
    for node, peer in zip(result["nodes"], nodes, strict=False):
        first_rank, slots = peer.get("first_rank", 0), peer.get("slots", 0)
        groups += validate_groups((node["report"] or {}).get("stacks"), range(first_rank, first_rank + slots))
    return {"hang": validate_hang(result.get("hang")), "stacks": merge_groups(groups)}


class RunRanks:
    """The ranks of a run at its end, according to the nodes' reports."""

    def __init__(self, result: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]]) -> None:
        self.reports: dict[int, Mapping[str, Any]] = {}
        self.nodes: dict[int, Mapping[str, Any]] = {}
        groups: list[Mapping[str, Any]] = []
        operations: list[Mapping[str, Any]] = []
        for node, peer in zip(result["nodes"], nodes, strict=False):
            report = node.get("report") or {}
            numbers = range(peer.get("first_rank", 0), peer.get("first_rank", 0) + peer.get("slots", 0))
            groups += validate_groups(report.get("stacks"), numbers)
            operations += validate_operations(report.get("operations"), numbers)
            for rank in report.get("ranks", []):
                if rank["rank"] in numbers:
                    self.reports[rank["rank"]], self.nodes[rank["rank"]] = rank, node
            # NCCL's watchdog aborts a rank without an exception
            aborted = [
                rank
                for rank in report.get("ranks", [])
                if not rank["error"]
                and rank["exit_code"] not in (0, None, -signal.SIGTERM)
                and TIMED_OUT.search("\n".join(last_lines_of(report, rank["log"])))
            ]
            self.reports.update({rank["rank"]: {**rank, "error": "timed out"} for rank in aborted})
        self.timed_out = {rank for rank, report in self.reports.items() if TIMED_OUT.search(report["error"])}
        self.victims = self.timed_out | {
            rank for rank, report in self.reports.items() if LOST_PEER.search(report["error"])
        }
        self.groups = merge_groups(self.as_waiting(groups))
        self.operations, self.behind = describe_operations(operations)

    def as_waiting(self, groups: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return the groups, with the ranks that timed out counted as waiting, whichever frame raised the error."""
        described = {rank for group in groups for rank in group["ranks"]}
        split = []
        for group in groups:
            waited = [rank for rank in group["ranks"] if rank in self.victims]
            others = [rank for rank in group["ranks"] if rank not in self.victims]
            kind, call = (COLLECTIVE, "a collective") if group["kind"] == CODE else (group["kind"], group["call"])
            split += [{**group, "ranks": waited, "kind": kind, "call": call}] * bool(waited)
            split += [{**group, "ranks": others}] * bool(others)
        unknown = sorted(self.victims - described)
        texts = dict.fromkeys(("call", "function", "file", "text", "state", "cpu"), "")
        empty: dict[str, Any] = {"kind": COLLECTIVE, "line": 0, "frames": [], "workers": []}
        return split + [{**texts, **empty, "ranks": unknown}] * bool(unknown)

    def ended_well(self, early: Sequence[int]) -> list[int]:
        """Return the ranks that exited with 0 while others were waiting."""
        return sorted(
            rank
            for rank, report in self.reports.items()
            if (report["exit_code"] == 0 or rank in early or has_already_exited(self.nodes[rank]["report"], report))
            and report["exit_code"] in (0, None)  # torchrun ended some ranks that were missing for a moment
            and not report["error"]
        )

    def silent(self) -> list[int]:
        """Return the ranks without errors of their own, which were ended because others failed."""
        ended_by_others = (None, -signal.SIGTERM, -signal.SIGKILL)
        return sorted(
            rank
            for rank, report in self.reports.items()
            if not report["error"] and (report["exit_code"] in ended_by_others or report.get("closed"))
        )


def has_already_exited(report: Mapping[str, Any], rank: Mapping[str, Any]) -> bool:
    """Return whether a rank had already exited with 0: torchrun lists all others once one of its ranks has failed."""
    listed = any(other["exit_code"] is not None for other in report["ranks"])
    return bool(report.get("exit_code") == 1 and listed and rank["exit_code"] is None and not rank.get("closed"))


def is_consequence(failure: Mapping[str, Any], ranks: RunRanks) -> bool:
    """Return whether the first failure is only that of a rank that timed out waiting for others."""
    return failure["rank"] in ranks.victims or bool(TIMED_OUT.search(failure["error"]))


def describe_wait(ranks: RunRanks, culprits: Sequence[int]) -> str:
    """Return where most of the other ranks were waiting, such as " in all_reduce (train.py:88)"; empty if unknown."""
    waiting = [
        group
        for group in ranks.groups
        if group["kind"] == COLLECTIVE and group["file"] and not set(group["ranks"]) & set(culprits)
    ]
    return f" in {waiting[0]['call']} ({location(waiting[0])})" if waiting else ""


def describe_culprits(ranks: RunRanks, culprits: Sequence[int], ended: Sequence[int]) -> str:
    """Return the activity of the ranks that the others waited for, as an error."""
    pronoun, was = ("it", "it was") if len(culprits) == 1 else ("them", "they were")
    until = " until they timed out" if ranks.timed_out else ""
    waited = f"the other ranks waited for {pronoun}{describe_wait(ranks, culprits)}{until}"
    shown = f" ({format_ranks(culprits[:MAX_NAMED])})" if culprits[1:] else ""
    groups = [group for group in ranks.groups if set(group["ranks"]) & set(culprits)]
    if set(culprits) <= set(ended):
        return f"{waited}, but {pronoun if pronoun == 'it' else 'they'}{shown} had already ended with exit code 0"
    if not groups:
        only = "the only ranks" if culprits[1:] else "the only rank"
        return f"{waited}{shown}. {was.capitalize()} {only} without an error, and left no stack"
    if groups[0]["kind"] == NO_STACK:
        return f"{waited}{shown}. {'They' if culprits[1:] else 'It'} left no Python stack"
    clause = re.sub(r"^(is|are) ", "", activity({**groups[0], "ranks": [culprits[0]]}))
    clause = re.sub(r"^waits ", "waiting ", clause)
    return f"{waited}{shown}: {was} {clause}"


def choose_culprits(ranks: RunRanks, ended: Sequence[int]) -> list[int]:
    """Return the ranks that the failed ranks were waiting for; none if unknown."""
    if not ranks.timed_out:  # these ranks lost a peer, which only a rank that had ended early explains
        return [rank for rank in ended if rank in ranks.nodes]
    culprits = [rank for rank in find_culprits(ranks.groups, ended) if rank in ranks.nodes]
    # NCCL's watchdog aborts each rank at a different line, so even waiting ranks may differ
    culprits = [rank for rank in culprits if rank not in ranks.victims] or culprits
    if culprits or len(ranks.timed_out) < MIN_WAITING:
        return culprits
    return ranks.silent() if len(ranks.silent()) == 1 else []


def blame_hang(
    result: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]], failure: dict[str, Any] | None
) -> dict[str, Any] | None:
    """Return the first failure: after a timeout, this is the rank that the others waited for, if known.

    Args:
        result: that of the run.
        nodes: those of its plan, with first_rank and slots.
        failure: the first failure by the ranks' exit codes and errors.
    """
    stopped = result["reason"].startswith(HANG)
    if failure is None and not stopped:
        return None
    ranks = RunRanks(result, nodes)
    if failure is not None and not stopped and not is_consequence(failure, ranks):
        return failure
    ended = ranks.ended_well(result.get("ended_early") or [])
    culprits = [] if stopped else choose_culprits(ranks, ended)
    if not culprits:
        hang = validate_hang(result.get("hang")) or {"awaited_ranks": [], "groups": []}
        ranks.groups = merge_groups(hang["groups"])
        culprits = [rank for rank in hang["awaited_ranks"] if rank in ranks.nodes]
    if not culprits:
        culprits = [rank for rank in ranks.behind if rank in ranks.nodes]
    if not culprits:
        return failure and {**failure, "error": failure["error"] + (ranks.operations and f"; {ranks.operations}")}
    rank, node = culprits[0], ranks.nodes[culprits[0]]
    evidence = f"; {ranks.operations}" if ranks.operations else ""
    return {
        "node": node["name"],
        "node_rank": node["node_rank"],
        "rank": rank,
        "error": describe_culprits(ranks, culprits, ended) + evidence,
        "log": ranks.reports[rank]["log"],
        "last_lines": last_lines_of(node.get("report"), ranks.reports[rank]["log"]),
    }
