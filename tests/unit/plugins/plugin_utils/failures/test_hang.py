"""The verdict after a timeout of torch, from what the ranks did before."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._failures.verdict import verdict_from_hub
from tests.unit.plugins.plugin_utils.failures.test_verdict import rank, report, result
from tests.unit.plugins.plugin_utils.failures.test_waiting import GLOO

NODES = [{"name": f"node{n}", "first_rank": 2 * n, "slots": 2} for n in range(2)]
TEXTS = {"text": "", "state": "", "cpu": "", "frames": [], "workers": []}
WAITS = {"kind": "collective", "call": "all_reduce", "function": "train", "file": "/c/train.py", "line": 88, **TEXTS}
LOADS = {"kind": "code", "call": "", "function": "load", "file": "/c/data.py", "line": 41, **TEXTS}
ENDED_BY_TORCHRUN = {**rank(3, -signal.SIGTERM), "closed": True}


def verdict_of(last: dict[str, Any], early: list[int]) -> dict[str, Any]:
    """The verdict of a run of torchrun in which rank 3 ended in this way, and the others timed out."""
    made = result(
        report(1, rank(0, 1, GLOO), rank(1, 1, GLOO), stacks=[{**WAITS, "ranks": [0, 1]}]),
        report(1, rank(2, 1, GLOO), last, stacks=[{**WAITS, "ranks": [2]}, {**LOADS, "ranks": [3]}]),
        first="node1",
        ended_early=early,
    )
    return verdict_from_hub({"nodes": NODES}, made)


@pytest.mark.parametrize(
    ("last", "early", "expected"),
    [
        (ENDED_BY_TORCHRUN, [], "it was in load (data.py:41)"),
        # no process of any rank was running when they were looked for: torchrun had just ended them
        (ENDED_BY_TORCHRUN, [0, 1, 2, 3], "it was in load (data.py:41)"),
        (rank(3, None), [3], "had already ended with exit code 0"),
    ],
)
def test_rank_that_torchrun_ended_does_not_count_as_ended_early(
    last: dict[str, Any], early: list[int], expected: str
) -> None:
    if last["exit_code"] is None:  # it left no stack, as it ended by itself
        made = result(
            report(1, rank(0, 1, GLOO), rank(1, 1, GLOO)), report(1, rank(2, 1, GLOO), last), ended_early=early
        )
        failure = verdict_from_hub({"nodes": NODES}, made)["first_failure"]
    else:
        failure = verdict_of(last, early)["first_failure"]
    assert failure["rank"] == 3
    assert expected in failure["error"]


def test_verdict_keeps_the_stacks_of_all_nodes_for_the_report() -> None:
    verdict = verdict_of(ENDED_BY_TORCHRUN, [])
    assert [(group["ranks"], group["line"]) for group in verdict["stacks"]] == [([0, 1, 2], 88), ([3], 41)]
    assert verdict["hang"] is None


def test_node_cannot_report_the_stacks_of_ranks_of_another() -> None:
    made = result(report(1, rank(0, 1, GLOO), stacks=[{**WAITS, "ranks": [0, 3]}]), report(1, stacks="x"), hang=7)
    assert [group["ranks"] for group in verdict_from_hub({"nodes": NODES}, made)["stacks"]] == [[0]]
