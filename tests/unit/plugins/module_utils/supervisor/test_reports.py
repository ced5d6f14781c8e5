"""The stacks and operations that a node sends: limited in size, and grouped for identical ranks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._run.hang_analysis import (
    MAX_GROUPS,
    merge_groups,
    validate_groups,
)
from ansible_collections.muster.training.plugins.module_utils._run.stack_dump import Frame, classify
from ansible_collections.muster.training.plugins.module_utils._supervisor.lifeline import MAX_LINE
from ansible_collections.muster.training.plugins.module_utils._supervisor.reports import shorten_groups, shorten_report
from ansible_collections.muster.training.plugins.module_utils._supervisor.stack_collector import empty_group

LIBRARY = "/opt/env/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"


def group_of(rank: int, line: int = 88, path: str = "/c/train.py", function: str = "train") -> dict[str, Any]:
    """Return a rank that waits in a collective, 50 calls deep."""
    frames = [Frame(LIBRARY, 3000, "all_reduce"), *[Frame(path, line, function)] * 50]
    return {**empty_group("S", "still"), **classify(frames, "dist.all_reduce(gradients)"), "ranks": [rank]}


def size(groups: list[dict[str, Any]]) -> int:
    return len(json.dumps(groups))


def test_ranks_that_are_doing_the_same_thing_are_sent_as_one_group() -> None:
    """A node sends its groups: each additional rank in a group adds only its number, so the differences determine the
    size.
    """
    alike = [shorten_groups(merge_groups([group_of(rank) for rank in range(ranks)])) for ranks in (1, 8, 64)]
    assert [len(groups) for groups in alike] == [1, 1, 1]
    assert size(alike[0]) < 1000
    assert size(alike[2]) - size(alike[0]) <= 63 * len(", 63")
    different = shorten_groups(merge_groups([*(group_of(rank) for rank in range(7)), group_of(7, line=90)]))
    assert [group["ranks"] for group in different] == [list(range(7)), [7]]
    assert size(different) < 2000


@pytest.mark.parametrize("ranks", [8, 64, 1000])
def test_message_with_a_location_for_each_rank_fits_into_a_lifeline_message(ranks: int) -> None:
    path, function = "/" + "é" * 299, "f" * 100
    groups = merge_groups([group_of(rank, rank, path, function) for rank in range(ranks)])
    sent = shorten_groups(groups)
    assert sent and len(groups) == min(ranks, MAX_GROUPS)
    assert len(json.dumps({"type": "stacks", "groups": sent})) < MAX_LINE - 1024
    assert validate_groups(sent, range(ranks)) == sent


def test_report_with_many_stacks_and_operations_fits_into_a_lifeline_message() -> None:
    row = {"group": "g" * 100, "description": "é" * 100, "operation": "o" * 100, "sizes": "s" * 100}
    report: Any = {
        "stacks": [group_of(rank, rank, "/" + "é" * 300) for rank in range(64)],
        "operations": [{**row, "rank": rank, "number": 1, "state": "waiting"} for rank in range(64)] * 4,
        "last_lines": "x" * 20_000,
        "ranks": [{"rank": rank, "exit_code": 1, "error": "e" * 3000, "log": "/log"} for rank in range(16)],
    }
    shorten_report(report)
    assert len(json.dumps(report)) < MAX_LINE - 1024
    assert report["ranks"][0]["error"]
