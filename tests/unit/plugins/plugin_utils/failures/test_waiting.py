"""A rank with a timeout waited: the rank that others waited for is the one that failed first."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._failures.catalogue import explain_failure
from ansible_collections.muster.training.plugins.plugin_utils._failures.verdict import (
    first_failure,
    render_verdict,
    verdict_from_hub,
)
from tests.unit.plugins.plugin_utils.failures.test_verdict import CLOSED, rank, report, result

GLOO = (
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 5000ms for recv "
    "operation to complete"
)
OTHER_GLOO = GLOO.replace("recv", "send")
TERMINATED = -signal.SIGTERM


def watchdog(number: int, operation: str) -> str:
    return (
        f"c10::DistBackendError: [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={number}, "
        f"OpType={operation}, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600060 milliseconds before timing out."
    )


def failure(made: dict[str, Any]) -> tuple[int | None, str, str]:
    """The rank that failed first, its error, and the entry that explains it."""
    first = first_failure(made)
    assert first is not None
    explanation = explain_failure(first["error"], first["last_lines"])
    return first["rank"], first["error"], explanation["id"] if explanation else ""


def test_the_only_rank_without_a_timeout_failed_first() -> None:
    made = result(
        report(1, rank(0, 1, GLOO), rank(1, 1, OTHER_GLOO)),
        report(TERMINATED, rank(2, 1, GLOO), {**rank(3, TERMINATED), "ended_by_us": True}, ended_by_us=True),
        first="node0",
    )
    number, error, entry = failure(made)
    assert (number, entry) == (3, "rank-never-arrived")
    assert error.startswith("did not arrive where 3 other ranks waited for it; rank 0: RuntimeError: ")


def test_one_timeout_does_not_accuse_the_other_rank() -> None:
    silent = {**rank(1, TERMINATED), "ended_by_us": True}
    assert failure(result(report(1, rank(0, 1, GLOO), silent), first="node0"))[::2] == (0, "gloo-timed-out")


@pytest.mark.parametrize(("error", "number"), [("KeyError: 'loss'", 2), (CLOSED, 2)])
def test_the_only_rank_with_another_error_than_a_timeout_failed_first(error: str, number: int) -> None:
    made = result(report(1, rank(0, 1, GLOO), rank(1, 1, GLOO)), report(1, rank(2, 1, error)), first="node0")
    assert failure(made)[:2] == (number, error)


@pytest.mark.parametrize("waiting", [GLOO, watchdog(4021, "ALLTOALL_BASE")])
def test_rank_that_exited_with_0_early_failed_first(waiting: str) -> None:
    made = result(report(0, rank(0, 0)), report(1, rank(1, 1, waiting)), first="node1")
    number, error, entry = failure(made)
    assert (number, entry) == (0, "rank-ended-early")
    assert error.startswith("exited with 0 while rank 1 waited for it: ")


def test_rank_that_exited_with_0_is_not_blamed_for_another_error() -> None:
    made = result(report(0, rank(0, 0)), report(1, rank(1, 1, "ValueError: boom")), first="node1")
    assert failure(made)[:2] == (1, "ValueError: boom")


def test_different_collectives_are_named() -> None:
    errors = (watchdog(619725, "_ALLGATHER_BASE"), watchdog(619727, "_REDUCE_SCATTER_BASE"))
    number, error, entry = failure(result(*(report(1, rank(n, 1, text)) for n, text in enumerate(errors))))
    assert (number, entry) == (0, "ranks-out-of-step")
    assert "rank 0 in _ALLGATHER_BASE 619725, rank 1 in _REDUCE_SCATTER_BASE 619727" in error
    same = [report(1, rank(n, 1, watchdog(7, "ALLREDUCE"))) for n in range(2)]
    assert failure(result(*same))[2] == "nccl-time-out"


@pytest.mark.parametrize(
    "error",
    [
        "wandb.errors.CommError: Run initialization has timed out after 90.0 sec.",
        "torch.distributed.DistBackendError: NCCL error\nLast error:\nDuplicate GPU detected : rank 1 and rank 0",
    ],
)
def test_error_that_names_its_cause_is_no_consequence(error: str) -> None:
    made = result(report(1, rank(0, 1, CLOSED)), report(1, rank(1, 1, error)), first="node0")
    assert failure(made)[:2] == (1, error)


def test_ranks_that_only_reacted_are_counted() -> None:
    ranks = [rank(number, 1, CLOSED) for number in range(4)]
    made = result(report(1, *ranks, rank(4, 1, "ValueError: boom")), first="node0")
    verdict = verdict_from_hub({}, made)
    assert verdict["reactions"] == 4
    text = render_verdict(verdict, "", {})
    assert "rank 4: ValueError: boom" in text
    assert "  consequences: 4 other ranks waited for it in vain or lost the connection to it" in text
