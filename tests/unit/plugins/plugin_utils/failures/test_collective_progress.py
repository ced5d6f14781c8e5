"""Timeouts of ranks in different collectives: ranks that are behind, and differing sizes."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._failures.catalogue import explain_failure
from ansible_collections.muster.training.plugins.plugin_utils._failures.collective_progress import (
    describe_difference,
    read_works,
)
from ansible_collections.muster.training.plugins.plugin_utils._failures.waiting import name_different_collectives


def failure(rank: int, number: int, name: str = "ALLREDUCE", elements: int = 8, group: str = "0") -> dict[str, Any]:
    text = (
        f"[PG ID {group} PG GUID 0(default_pg) Rank {rank}] Watchdog caught collective operation timeout: "
        f"WorkNCCL(SeqNum={number}, OpType={name}, NumelIn={elements}, NumelOut=1, Timeout(ms)=600000) ran for 600060"
    )
    return {"rank": rank, "error": "was killed by SIGABRT", "last_lines": ["step 5", text]}


def difference(*failures: dict[str, Any]) -> str:
    return describe_difference(read_works(failures))[0]


def test_rank_that_is_behind_is_named_as_the_first_failure() -> None:
    failures = [failure(0, 315), failure(1, 313), failure(2, 315)]
    first = name_different_collectives(failures[0], failures)
    assert first["rank"] == 1
    assert first["error"] == (
        "ranks are not at the same step: rank 0 in ALLREDUCE 315, rank 1 in ALLREDUCE 313, behind: rank 1; "
        "was killed by SIGABRT"
    )
    explanation = explain_failure(first["error"], first["last_lines"])
    assert explanation is not None and (explanation["id"], explanation["confidence"]) == ("rank-behind", "error")


def test_a_majority_of_ranks_is_not_reported_as_behind() -> None:
    text = difference(failure(0, 315), failure(1, 313), failure(2, 313), failure(3, 315), failure(4, 313))
    assert "behind" not in text and text.startswith("ranks are not at the same step: ")


def test_ranks_that_pass_different_sizes_are_named() -> None:
    text = difference(failure(0, 39, elements=262144), failure(22, 39, elements=1025))
    assert (
        text
        == "ranks pass different sizes to ALLREDUCE 39: rank 22 passes 1025 elements, rank 0 passes 262144 elements"
    )
    explanation = explain_failure(f"{text}; was killed by SIGABRT", [])
    assert explanation is not None and explanation["id"] == "ranks-pass-different-sizes"


@pytest.mark.parametrize(
    "failures",
    [
        [failure(0, 5), failure(1, 5)],
        [failure(0, 5), failure(1, 7, group="3")],
        [failure(0, 5, "SEND"), failure(1, 9, "RECV")],
        [failure(0, 5, "ALLTOALL_BASE", 8), failure(1, 5, "ALLTOALL_BASE", 9)],
        [failure(0, 5)],
    ],
    ids=["same", "other group", "point to point", "sizes may differ", "one rank"],
)
def test_operations_that_may_differ_are_not_compared(failures: list[dict[str, Any]]) -> None:
    assert difference(*failures) == ""


def test_ranks_that_share_a_log_are_distinguished() -> None:
    lines = [line for rank, number in ((4, 12), (5, 11), (6, 12)) for line in failure(rank, number)["last_lines"]]
    assert "behind: rank 5" in difference({"rank": 4, "error": "", "last_lines": lines})


def test_rank_with_operations_of_unnamed_groups_is_not_compared() -> None:
    lines = [failure(0, number)["last_lines"][1].partition("] ")[2] for number in (96120, 96117)]
    several = {"rank": 0, "error": "was killed by SIGABRT", "last_lines": lines}
    assert difference(several, failure(7, 64088)) == ""
