"""The verdict after a torch timeout, based on the ranks' activity before it."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._failures.catalogue import (
    WAITED_FOR_RANK,
    explain_failure,
)
from ansible_collections.muster.training.plugins.plugin_utils._failures.verdict import verdict_from_hub
from tests.unit.plugins.plugin_utils.failures.results import rank, report, result
from tests.unit.plugins.plugin_utils.failures.test_waiting import GLOO

NODES = [{"name": f"node{n}", "first_rank": 2 * n, "slots": 2} for n in range(2)]
TEXTS = {"text": "", "state": "", "cpu": "", "frames": [], "workers": []}
WAITS = {"kind": "collective", "call": "all_reduce", "function": "train", "file": "/c/train.py", "line": 88, **TEXTS}
LOADS = {"kind": "code", "call": "", "function": "load", "file": "/c/data.py", "line": 41, **TEXTS}
ENDED_BY_TORCHRUN = {**rank(3, -signal.SIGTERM), "closed": True}


def verdict_of(last: dict[str, Any], early: list[int]) -> dict[str, Any]:
    """Return the verdict on a torchrun run in which rank 3 ended as in `last`, and the other ranks timed out."""
    run_result = result(
        report(1, rank(0, 1, GLOO), rank(1, 1, GLOO), stacks=[{**WAITS, "ranks": [0, 1]}]),
        report(1, rank(2, 1, GLOO), last, stacks=[{**WAITS, "ranks": [2]}, {**LOADS, "ranks": [3]}]),
        first="node1",
        ended_early=early,
    )
    return verdict_from_hub({"nodes": NODES}, run_result)


@pytest.mark.parametrize(
    ("last", "early", "expected"),
    [
        (ENDED_BY_TORCHRUN, [], "it was in load (data.py:41)"),
        # no rank process was still running: torchrun had just ended them
        (ENDED_BY_TORCHRUN, [0, 1, 2, 3], "it was in load (data.py:41)"),
        (rank(3, None), [3], "had already ended with exit code 0"),
    ],
)
def test_rank_that_torchrun_ended_does_not_count_as_ended_early(
    last: dict[str, Any], early: list[int], expected: str
) -> None:
    if last["exit_code"] is None:  # a rank that exited by itself has no stack
        run_result = result(
            report(1, rank(0, 1, GLOO), rank(1, 1, GLOO)), report(1, rank(2, 1, GLOO), last), ended_early=early
        )
        failure = verdict_from_hub({"nodes": NODES}, run_result)["first_failure"]
    else:
        failure = verdict_of(last, early)["first_failure"]
    assert failure["rank"] == 3
    assert expected in failure["error"]


def test_verdict_keeps_the_stacks_of_all_nodes_for_the_report() -> None:
    verdict = verdict_of(ENDED_BY_TORCHRUN, [])
    assert [(group["ranks"], group["line"]) for group in verdict["stacks"]] == [([0, 1, 2], 88), ([3], 41)]
    assert verdict["hang"] is None


def test_node_cannot_report_the_stacks_of_ranks_on_another_node() -> None:
    run_result = result(report(1, rank(0, 1, GLOO), stacks=[{**WAITS, "ranks": [0, 3]}]), report(1, stacks="x"), hang=7)
    assert [group["ranks"] for group in verdict_from_hub({"nodes": NODES}, run_result)["stacks"]] == [[0]]


# Four NCCL ranks on an H200 (torch 2.11), of which rank 3 had fewer batches: the watchdog aborted each of the others at
# a different line, rank 0 in a synchronize(), and ranks 1 and 2 in their next all_reduce (2026-11-27).
WATCHDOG = (
    "c10::DistBackendError: [PG ID 0 PG GUID 0(default_pg) Rank 0] Process group watchdog thread terminated with "
    "exception: [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=11, OpType=ALLREDUCE)"
)
ABORTED = "torch.distributed.DistBackendError: NCCL communicator was aborted on rank 1."
SYNCHRONIZES = {**WAITS, "kind": "gpu", "call": "synchronize", "line": 90}
IN_BARRIER = {**WAITS, "call": "barrier", "function": "<module>", "line": 95}
WAITING = {"group": "0", "description": "default_pg", "number": 11, "operation": "all_reduce", "state": "waiting"}
COMPLETED = {**WAITING, "rank": 3, "operation": "all_reduce_barrier", "state": "completed"}
EVIDENCE = (
    "flight recorder of default_pg: ranks 0-2 wait in all_reduce 11, "
    "rank 3 has completed all_reduce_barrier 11 and launched nothing since"
)


def nccl_result(with_stacks: bool) -> dict[str, Any]:
    """Return the result of that run."""
    stacks = [
        [{**SYNCHRONIZES, "ranks": [0]}, {**WAITS, "ranks": [1]}],
        [{**WAITS, "ranks": [2]}, {**IN_BARRIER, "ranks": [3]}],
    ]
    aborted = -signal.SIGABRT
    return result(
        report(
            1,
            rank(0, aborted, WATCHDOG),
            rank(1, aborted, ABORTED),
            stacks=stacks[0] if with_stacks else [],
            operations=[{**WAITING, "rank": number} for number in (0, 1)],
        ),
        report(
            -signal.SIGTERM,
            rank(2, None, ABORTED),
            rank(3, None),
            ended_by_us=True,
            stacks=stacks[1] if with_stacks else [],
            operations=[{**WAITING, "rank": 2}, COMPLETED],
        ),
        first="node0",
    )


def test_rank_that_nccls_watchdog_aborted_at_a_different_line_is_not_blamed() -> None:
    failure = verdict_from_hub({"nodes": NODES}, nccl_result(with_stacks=True))["first_failure"]
    assert failure is not None and failure["rank"] == 3
    assert failure["error"].endswith(f"it was waiting in barrier (train.py:95); {EVIDENCE}")
    explanation = explain_failure(failure["error"], [])
    assert explanation is not None and explanation["id"] == WAITED_FOR_RANK["id"]
    assert explanation["cause"].startswith(
        "This rank is waiting in barrier (train.py:95), and the others are waiting in a different "
    )


def test_flight_recorder_names_the_rank_without_stacks() -> None:
    run_result = nccl_result(with_stacks=False)
    run_result["nodes"][1]["report"]["ranks"][1].update(exit_code=1, error="ValueError: not about a timeout")
    failure = verdict_from_hub({"nodes": NODES}, run_result)["first_failure"]
    assert failure is not None and failure["rank"] == 3
    assert EVIDENCE in failure["error"]


@pytest.mark.parametrize("waiting", [1, 2])
def test_rank_without_a_stack_is_blamed_only_if_several_ranks_waited(waiting: int) -> None:
    """After the timeout of a single rank, the other rank may have been terminated before its own timeout."""
    waiting_ranks = [rank(number, 1, GLOO) for number in range(waiting)]
    silent = rank(3, -signal.SIGTERM)
    run_result = result(report(1, *waiting_ranks), report(-signal.SIGTERM, silent, ended_by_us=True), first="node0")
    failure = verdict_from_hub({"nodes": NODES}, run_result)["first_failure"]
    assert failure["rank"] == (0 if waiting == 1 else 3)


def test_node_cannot_report_operations_of_ranks_on_another_node() -> None:
    run_result = nccl_result(with_stacks=True)
    run_result["nodes"][0]["report"]["operations"] += [COMPLETED]
    run_result["nodes"][1]["report"]["operations"] = 7
    failure = verdict_from_hub({"nodes": NODES}, run_result)["first_failure"]
    assert failure is not None
    assert failure["error"].endswith("; flight recorder of default_pg: ranks 0-1 wait in all_reduce 11")
