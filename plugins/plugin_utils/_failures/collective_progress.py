# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compare the collectives in which ranks timed out, as reported by NCCL's watchdog."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._text.name_list import format_list

WORK = re.compile(
    r"(?:\bRank (?P<rank>\d{1,7})\] )?(?:Watchdog c|C)aught collective operation timeout: WorkNCCL\("
    r"(?:SeqNum=(?P<number>\d{1,12}), )?OpType=(?P<name>\w{1,60})(?:, NumelIn=(?P<elements>\d{1,15}))?"
)
GROUP = re.compile(r"\[PG (?:ID )?(?P<group>\d{1,6})\b")  # the process group of an operation, reported since torch 2.3
# The number of collectives that a rank has started, as it reports when any rank times out.
STARTED = re.compile(
    r"\bRank (?P<rank>\d{1,7})\][^\n]{0,300}[Ll]ast enqueued (?:NCCL )?work: (?P<number>\d{1,12}), last completed"
)
POINT_TO_POINT = ("SEND", "RECV", "COALESCED")  # these differ between two ranks that communicate with each other
# Operations for which all ranks must pass the same number of elements.
EQUAL_SIZES = ("ALLREDUCE", "BROADCAST", "REDUCE", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE")
# minimum number of ranks in the same operation for a single rank in another one to count as the deviating one
MIN_OTHERS = 2
MAX_NAMED = 4  # number of ranks to name of each kind
MAX_WORKS = 64  # number of operations to read from one log


@dataclass(frozen=True)
class Work:
    """The operation in which a rank was waiting. number: in the process group, None in old versions of torch."""

    rank: int
    group: str
    number: int | None
    name: str
    elements: int | None


def read_works(failures: Iterable[Mapping[str, Any]]) -> list[Work]:
    """Return the operation in which each rank was waiting, based on its error or log, including ranks that share a log.

    Excludes ranks that report several different operations, and point-to-point operations, which differ between ranks.
    """
    works: dict[int, set[Work]] = {}
    for failure in failures:
        text = "\n".join([failure["error"], *failure["last_lines"]])
        matches = list(WORK.finditer(text))[:MAX_WORKS]
        # otherwise the number may be the one in its process group
        shared = len({match["rank"] for match in matches}) > 1
        for match in matches:
            rank = int(match["rank"]) if shared and match["rank"] else failure["rank"]
            works.setdefault(rank, set()).add(read_work(match, text, rank))
    single = [next(iter(items)) for items in works.values() if len(items) == 1]
    return [work for work in single if work.name not in POINT_TO_POINT]


def read_work(match: re.Match[str], text: str, rank: int) -> Work:
    """Parse the operation in a line from NCCL's watchdog."""
    line = text[text.rfind("\n", 0, match.start()) + 1 : match.end()]
    group = GROUP.search(line) or GROUP.search(text)
    return Work(
        rank,
        group["group"] if group else "",
        int(match["number"]) if match["number"] else None,
        match["name"],
        int(match["elements"]) if match["elements"] else None,
    )


def describe_unstarted_ranks(works: list[Work], failures: Iterable[Mapping[str, Any]]) -> tuple[str, list[int]]:
    """Describe which ranks have not started the collective that others wait in, and return them; else ("", []).

    Args:
        works: The operations in which ranks wait.
        failures: All failures, including those of ranks that did not wait.
    """
    if not works or len({(work.group, work.number) for work in works}) > 1 or works[0].number is None:
        return "", []
    started: dict[int, int] = {}
    for failure in failures:
        for match in list(STARTED.finditer("\n".join(failure["last_lines"])))[:MAX_WORKS]:
            group = GROUP.search(match.string[match.string.rfind("\n", 0, match.start()) + 1 : match.end()])
            if not works[0].group or (group and group["group"] == works[0].group):
                started.setdefault(int(match["rank"]), int(match["number"]))
    waiting = {work.rank for work in works}
    behind = sorted(rank for rank, number in started.items() if number < works[0].number and rank not in waiting)
    if not behind:
        return "", []
    named = f"rank {works[0].rank} in {operation(works[0])}, rank {behind[0]} after {started[behind[0]]}"
    return f"ranks are not at the same step: {named}, behind: {name_ranks(behind)}", behind


def describe_difference(works: list[Work]) -> tuple[str, list[int]]:
    """Describe how the ranks' operations differ, and return the ranks to blame; "" and [] if they do not differ.

    These are the ranks that are behind the others, or the only one that is in another operation than all others.
    """
    known_groups = {work.group for work in works} - {""}
    if len(known_groups) > 1 or len(works) < 2:
        return "", []
    numbers = {work.number for work in works if work.number is not None}
    if len({work.name for work in works}) > 1 or len(numbers) > 1:
        behind = ranks_behind(works) if len(numbers) > 1 else []
        texts = list(dict.fromkeys(operation(work) for work in works))
        first_ranks = [next(work.rank for work in works if operation(work) == text) for text in texts]
        named = [f"rank {rank} in {text}" for rank, text in zip(first_ranks, texts, strict=True)][:MAX_NAMED]
        clause = f", behind: {name_ranks(behind)}" if behind else ""
        alone = [] if behind else rank_alone(works)
        clause += f", alone: rank {alone[0]}" if alone else ""
        what = "wait in different collectives" if len({work.name for work in works}) > 1 else "are not at the same step"
        return f"ranks {what}: {', '.join(named)}{clause}", behind or alone
    sizes = {work.elements: work.rank for work in reversed(works) if work.elements is not None}
    if len(sizes) > 1 and works[0].name in EQUAL_SIZES and numbers:
        parts = [f"rank {rank} passes {size} elements" for size, rank in sorted(sizes.items())[:MAX_NAMED]]
        alone = rank_alone(works)
        clause = f", alone: rank {alone[0]}" if alone else ""
        return f"ranks pass different sizes to {operation(works[0])}: {', '.join(parts)}{clause}", alone
    return "", []


def describe_agreement(works: list[Work], ranks: int) -> str:
    """Describe that all ranks are waiting in the same collective; "" if they are not or their number is unknown.

    Args:
        works: The operations in which ranks wait.
        ranks: The number of ranks of the run.
    """
    same = {(work.group, work.number, work.name, work.elements) for work in works}
    if ranks < 2 or len({work.rank for work in works}) != ranks or len(same) > 1 or works[0].number is None:
        return ""
    return f"all {ranks} ranks wait in {operation(works[0])}"


def rank_alone(works: list[Work]) -> list[int]:
    """Return the only rank whose operation differs from that of several other ranks, or []."""
    kinds: dict[tuple[str, int | None, int | None], list[int]] = {}
    for work in works:
        kinds.setdefault((work.name, work.number, work.elements), []).append(work.rank)
    groups = sorted(kinds.values(), key=len)
    return groups[0] if len(groups) == 2 and len(groups[0]) == 1 and len(groups[1]) >= MIN_OTHERS else []


def operation(work: Work) -> str:
    """Format an operation with its number, such as "ALLREDUCE 315"."""
    return f"{work.name} {'' if work.number is None else work.number}".rstrip()


def ranks_behind(works: list[Work]) -> list[int]:
    """Return the ranks that have completed fewer collectives than others, if they are in the minority."""
    last = max(work.number or 0 for work in works)
    behind = sorted(work.rank for work in works if work.number is not None and work.number < last)
    return behind if 2 * len(behind) <= len(works) or len(works) - len(behind) == 1 else []


def name_ranks(ranks: list[int]) -> str:
    """Format ranks for display to the user, at most MAX_NAMED."""
    return f"rank{'' if len(ranks) == 1 else 's'} {format_list(map(str, ranks), MAX_NAMED)}"
