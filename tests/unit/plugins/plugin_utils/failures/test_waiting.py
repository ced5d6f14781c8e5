"""A rank with a timeout was waiting: the rank it waited for failed first."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._failures.catalogue import explain_failure
from ansible_collections.muster.training.plugins.plugin_utils._failures.first_failure import first_failure
from ansible_collections.muster.training.plugins.plugin_utils._failures.verdict import verdict_from_hub
from ansible_collections.muster.training.plugins.plugin_utils._failures.verdict_text import render_verdict
from tests.unit.plugins.plugin_utils.failures.results import CLOSED, rank, report, result

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


def failure(run_result: dict[str, Any]) -> tuple[int | None, str, str]:
    """Return the rank that failed first, its error, and the entry that explains it."""
    first = first_failure(run_result)
    assert first is not None
    explanation = explain_failure(first["error"], first["last_lines"])
    return first["rank"], first["error"], explanation["id"] if explanation else ""


def test_the_only_rank_without_a_timeout_is_the_first_failure() -> None:
    run_result = result(
        report(1, rank(0, 1, GLOO), rank(1, 1, OTHER_GLOO)),
        report(TERMINATED, rank(2, 1, GLOO), {**rank(3, TERMINATED), "ended_by_us": True}, ended_by_us=True),
        first="node0",
    )
    number, error, entry = failure(run_result)
    assert (number, entry) == (3, "rank-never-arrived")
    assert error.startswith("did not arrive where 3 other ranks waited for it; rank 0: RuntimeError: ")


def test_only_rank_without_an_error_failed_before_the_ranks_that_lost_their_connection_to_it() -> None:
    """For example, only one node has the checkpoint, so that its rank resumes and exits at once."""
    run_result = result(report(-9, rank(0, None), ended_by_us=True), report(1, rank(1, 1, CLOSED)), first="node1")
    number, error, entry = failure(run_result)
    assert (number, entry) == (0, "rank-left-early")
    assert error.startswith("had no error of its own when rank 1 lost the connection to it: RuntimeError: ")
    ended = result(report(0, rank(0, 0)), report(1, rank(1, 1, CLOSED), rank(2, 1, CLOSED)), first="node1")
    assert failure(ended)[1].startswith("exited with 0 when all 2 other ranks lost the connection to it: ")


def test_rank_without_an_error_is_not_blamed_if_others_have_none_or_its_node_ran_out_of_memory() -> None:
    peers = report(1, rank(1, 1, CLOSED), rank(2, None))
    stopped = report(TERMINATED, rank(0, None), ended_by_us=True)
    assert failure(result(stopped, peers, first="node1"))[::2] == (1, "gloo-peer-gone")
    killed = report(TERMINATED, rank(0, None), ended_by_us=True, oom_kills=1)
    assert failure(result(killed, report(1, rank(1, 1, CLOSED)), first="node1"))[0] == 1


def test_single_timeout_does_not_blame_the_other_rank() -> None:
    silent = {**rank(1, TERMINATED), "ended_by_us": True}
    assert failure(result(report(1, rank(0, 1, GLOO), silent), first="node0"))[::2] == (0, "gloo-timed-out")


@pytest.mark.parametrize(("error", "number"), [("KeyError: 'loss'", 2), (CLOSED, 2)])
def test_the_only_rank_with_an_error_other_than_a_timeout_is_the_first_failure(error: str, number: int) -> None:
    run_result = result(report(1, rank(0, 1, GLOO), rank(1, 1, GLOO)), report(1, rank(2, 1, error)), first="node0")
    assert failure(run_result)[:2] == (number, error)


@pytest.mark.parametrize("waiting", [GLOO, watchdog(4021, "ALLTOALL_BASE")])
def test_rank_that_exited_with_0_early_failed_first(waiting: str) -> None:
    run_result = result(report(0, rank(0, 0)), report(1, rank(1, 1, waiting)), first="node1")
    number, error, entry = failure(run_result)
    assert (number, entry) == (0, "rank-ended-early")
    assert error.startswith("exited with 0 while rank 1 waited for it: ")


def test_rank_that_exited_with_0_is_not_blamed_for_another_error() -> None:
    run_result = result(report(0, rank(0, 0)), report(1, rank(1, 1, "ValueError: boom")), first="node1")
    assert failure(run_result)[:2] == (1, "ValueError: boom")


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
def test_error_that_names_its_cause_is_not_a_consequence(error: str) -> None:
    run_result = result(report(1, rank(0, 1, CLOSED)), report(1, rank(1, 1, error)), first="node0")
    assert failure(run_result)[:2] == (1, error)


def test_ranks_that_only_reacted_are_counted() -> None:
    ranks = [rank(number, 1, CLOSED) for number in range(4)]
    run_result = result(report(1, *ranks, rank(4, 1, "ValueError: boom")), first="node0")
    verdict = verdict_from_hub({}, run_result)
    assert verdict["reactions"] == 4
    text = render_verdict(verdict, "", {})
    assert "rank 4: ValueError: boom" in text
    assert "  consequences: 4 other ranks waited for it in vain or lost the connection to it" in text


def watchdog_log(number: int, operation: str, group: str = "") -> str:
    """Return the end of the log of a rank that NCCL's watchdog aborted without an exception."""
    return f"epoch 6: saving\n[rank0]:[E522 03:12:41.118 ProcessGroupNCCL.cpp:632] {group}{watchdog(number, operation)}"


def aborted(number: int, text: str) -> dict[str, Any]:
    """Return the report of a node whose only rank was aborted."""
    return {**report(1, rank(number, -signal.SIGABRT)), "last_log": f"/run/{number}.log", "last_lines": text}


def test_different_collectives_are_detected_in_the_logs_of_aborted_ranks() -> None:
    run_result = result(
        aborted(0, watchdog_log(9121, "_ALLGATHER_BASE")), aborted(1, watchdog_log(9121, "_REDUCE_SCATTER_BASE"))
    )
    number, error, entry = failure(run_result)
    assert (number, entry) == (0, "ranks-out-of-step")
    assert "rank 0 in _ALLGATHER_BASE 9121, rank 1 in _REDUCE_SCATTER_BASE 9121" in error


def test_rank_that_only_observed_others_timeouts_is_the_first_failure() -> None:
    """Since torch 2.7, the log may contain no other line of the watchdog."""
    local = "[PG ID 0 Rank 1] Received a dump signal due to a collective timeout from this local rank and we will try"
    observed = "[PG ID 0 Rank 0] Observed flight recorder dump signal from another rank via TCPStore."
    run_result = result(silent(0, observed), aborted(1, local), aborted(2, local), first="node1")
    assert failure(run_result)[::2] == (0, "rank-never-arrived")


@pytest.mark.parametrize(
    ("item", "second"),
    [
        (watchdog_log(5, "SEND"), watchdog_log(5, "RECV")),
        (watchdog_log(5, "ALLREDUCE", "[PG ID 0 PG GUID 0] "), watchdog_log(9, "BROADCAST", "[PG ID 2 PG GUID 7] ")),
        (watchdog_log(5, "ALLREDUCE"), watchdog_log(5, "ALLREDUCE")),
    ],
    ids=["point to point", "two groups", "the same"],
)
def test_ranks_waiting_in_operations_that_may_differ_are_not_out_of_step(item: str, second: str) -> None:
    assert failure(result(aborted(0, item), aborted(1, second)))[2] == "nccl-time-out"


def silent(number: int, text: str) -> dict[str, Any]:
    """Return the report of a node whose rank was terminated with the run, with the rank's last output."""
    ranks = {**rank(number, TERMINATED), "ended_by_us": True}
    return {**report(TERMINATED, ranks, ended_by_us=True), "last_log": f"/run/{number}.log", "last_lines": text}


@pytest.mark.parametrize(
    ("output", "entry"),
    [
        ("train: Scanning labels... 41%|####      | 1204133/2930021 [30:02<43:11, 666.01it/s]", "rank-still-worked"),
        ("0%|\rRunning tokenizer on dataset: 9%|7  | 280000/2969526", "rank-still-worked"),
        ("[2026-05-22 03:12:41] INFO run finished", "rank-had-finished"),
        ("step 4021 loss 2.31", "nccl-time-out"),
        ("", "nccl-time-out"),
    ],
)
def test_last_output_of_the_rank_without_a_timeout_shows_its_activity(output: str, entry: str) -> None:
    waiting = report(1, rank(1, 1, watchdog(4021, "ALLREDUCE")))
    number, error, explained = failure(result(silent(0, output), waiting, first="node1"))
    assert (number, explained) == (int(entry == "nccl-time-out"), entry)
    assert (" when rank 1 gave up waiting for it, its last output: " in error) == (entry != "nccl-time-out")


def test_last_output_that_the_waiting_rank_also_printed_is_not_evidence() -> None:
    waiting = aborted(1, f"Saving checkpoint to out\n{watchdog(4021, 'ALLREDUCE')}")
    assert failure(result(silent(0, "Saving checkpoint to out"), waiting, first="node1"))[::2] == (1, "nccl-time-out")
    number, error, entry = failure(
        result(silent(0, "Saving checkpoint to out\n1/3 files written"), waiting, first="node1")
    )
    assert (number, entry) == (0, "rank-still-worked") and "its last output: 1/3 files written" in error


def test_rank_that_did_not_arrive_is_named_with_its_activity() -> None:
    output = "[eval] dataset 28/30: 0.77 (204.6 s)"
    run_result = result(silent(0, output), *(aborted(n, watchdog_log(88, "BROADCAST")) for n in (1, 2)), first="node1")
    number, error, entry = failure(run_result)
    assert (number, entry) == (0, "rank-still-worked")
    assert error.startswith(
        f"was still working when 2 other ranks gave up waiting for it, its last output: {output}; rank 1: "
    )


def test_rank_that_has_not_started_the_others_collective_is_the_first_failure() -> None:
    where = "[PG ID 0 PG GUID 0(default_pg) Rank {}] "
    timed_out = watchdog(21937, "_ALLGATHER_BASE").partition("] ")[2]
    peers = [aborted(n, f"[rank{n}]:[E625 ProcessGroupNCCL.cpp:632] [Rank {n}] {timed_out}") for n in (0, 2)]
    dump_signal = (
        f"{where.format(1)}Observed flight recorder dump signal from another rank via "
        f"TCPStore.\n{where.format(1)}Received "
        "a dump signal due to a collective timeout from  rank 0 and we will try our best to dump the debug info. Last "
        "enqueued NCCL work: 21936, last completed NCCL work: 21936."
    )
    run_result = result(peers[0], aborted(1, dump_signal), peers[1], first="node0")
    number, error, entry = failure(run_result)
    assert (number, entry) == (1, "rank-behind")
    assert error.startswith(
        "ranks are not at the same step: rank 0 in _ALLGATHER_BASE 21937, rank 1 after 21936, behind: rank 1;"
    )
    explanation = explain_failure(error, [])
    assert explanation is not None and "Rank 1 never started the collective" in explanation["cause"]


def test_known_cause_is_preferred_over_a_rank_whose_log_is_truncated() -> None:
    text = 'Traceback (most recent call last):\n  File "/job/train.py", line 7, in train\n    logits = model(batch)'
    error = "ended with exit code 1, its last output: logits = model(batch)"
    cut_off = {**report(1, rank(2, 1, error)), "last_log": "/run/2.log", "last_lines": text}
    full = report(1, rank(5, 1, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB."))
    assert failure(result(cut_off, full, first="node0"))[::2] == (5, "cuda-out-of-memory")
    unknown = report(1, rank(5, 1, "ValueError: boom"))
    assert failure(result(cut_off, unknown, first="node0"))[0] == 2
