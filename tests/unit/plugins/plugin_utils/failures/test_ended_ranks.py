"""Ranks terminated with the run after an error of their own, and errors in the logs of other ranks of a node."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._failures.first_failure import (
    CLEARLY_EARLIER,
    STOPPED_AFTER_ERROR,
)
from ansible_collections.muster.training.plugins.plugin_utils._failures.node_output import last_lines_of
from ansible_collections.muster.training.plugins.plugin_utils._failures.verdict import verdict_from_hub
from tests.unit.plugins.plugin_utils.failures.results import CLOSED, rank, report, result
from tests.unit.plugins.plugin_utils.failures.test_first_failure import cause
from tests.unit.plugins.plugin_utils.failures.test_hang import NODES
from tests.unit.plugins.plugin_utils.failures.test_waiting import GLOO, failure, watchdog

TERMINATED = -signal.SIGTERM
LOST = "torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error"
DECISIVE = "gpu1:4711:4802 [0] NCCL WARN Call to ibv_create_cq failed with error Cannot allocate memory"


def ended(number: int, error: str, seconds: float, code: int | None = TERMINATED, **more: Any) -> dict[str, Any]:
    """Return a rank that was terminated with the run, this many seconds after an error of its own."""
    return {**rank(number, code, error), "own_error": True, "before_end": seconds, **more}


@pytest.mark.parametrize(
    "marks",
    [
        {"code": TERMINATED, "ended_by_us": True},
        {"code": -signal.SIGKILL, "ended_by_us": True},
        {"code": None},
        {"code": TERMINATED, "closed": True},
    ],
    ids=["by us", "killed by us", "by its launcher", "by torchrun"],
)
def test_exception_of_a_rank_that_was_ended_comes_before_the_timeouts_of_others(marks: dict[str, Any]) -> None:
    hung = report(1, ended(2, "ValueError: boom", 600.0, **marks))
    run_result = result(report(1, rank(0, 1, GLOO), rank(1, 1, GLOO)), hung, first="node0")
    assert cause(run_result) == ("node1", 2, "ValueError: boom")
    run_result["nodes"][1]["report"]["ranks"][0].pop("own_error")
    killed_by_us = marks["code"] == -signal.SIGKILL  # its error counts in any case
    assert (cause(run_result)[2] == "ValueError: boom") == killed_by_us


def test_killed_rank_with_an_error_of_its_own_did_not_run_out_of_memory() -> None:
    killed = ended(2, "ValueError: boom", 600.0, -signal.SIGKILL, ended_by_us=True)
    run_result = result(
        report(1, rank(0, 1, GLOO)), report(TERMINATED, killed, ended_by_us=True, oom_kills=1), first="node0"
    )
    assert cause(run_result) == ("node1", 2, "ValueError: boom")


@pytest.mark.parametrize(("seconds", "number"), [(CLEARLY_EARLIER, 0), (CLEARLY_EARLIER + 3.0, 2)])
def test_error_of_a_rank_that_was_ended_comes_first_if_it_is_clearly_earlier(seconds: float, number: int) -> None:
    failed = {**rank(0, 1, "KeyError: 'x'"), "before_end": 2.0}
    hung = ended(2, "ValueError: boom", seconds, ended_by_us=True)
    later = ended(4, "ValueError: later", seconds - 1.0, ended_by_us=True)
    nodes = [report(TERMINATED, item, ended_by_us=True) for item in (later, hung)]
    assert cause(result(report(1, failed), *nodes, first="node0"))[1] == number
    undated = result(report(1, rank(0, 1, "KeyError: 'x'")), *nodes, first="node0")
    assert cause(undated)[1] == 0, "it is not known when rank 0 failed"


def test_earliest_of_several_errors_of_ended_ranks_is_the_cause_whichever_report_arrives_first() -> None:
    errors = [ended(2 * n, f"ValueError: {n}", 100.0 * n, ended_by_us=True) for n in (1, 2)]
    reports = [report(TERMINATED, item, ended_by_us=True) for item in errors]
    assert cause(result(report(1, rank(0, 1, GLOO)), *reports, first="node0"))[1] == 4


def test_timeouts_that_were_cut_off_count_as_those_of_ranks_that_waited() -> None:
    """Otherwise, rank 2, whose timeout message is truncated, would be the only rank without an error."""
    same = watchdog(7, "ALLREDUCE")
    cut_off = report(TERMINATED, ended(2, same, 0.5, ended_by_us=True), ended_by_us=True)
    run_result = result(report(1, rank(0, 1, same), rank(1, 1, same)), cut_off, first="node0")
    number, error, _entry = failure(run_result)
    assert number == 0 and error.endswith("; all 3 ranks wait in ALLREDUCE 7")
    run_result["nodes"][1]["report"]["ranks"][0] = {**rank(2, TERMINATED), "ended_by_us": True}
    assert failure(run_result)[0] == 2
    plan = {"nodes": NODES}
    assert verdict_from_hub(plan, run_result)["first_failure"]["rank"] == 2


def test_rank_that_torchrun_closed_is_counted_if_it_lost_its_connection() -> None:
    closed = ended(1, CLOSED, 0.1, closed=True)
    verdict = verdict_from_hub({}, result(report(1, rank(0, 1, "ValueError: boom"), closed), first="node0"))
    assert (verdict["first_failure"]["rank"], verdict["reactions"]) == (0, 1)


@pytest.mark.parametrize("early", [[], [3]])
def test_rank_that_torchrun_does_not_list_had_ended_although_all_others_lost_their_connections(
    early: list[int],
) -> None:
    """torchrun terminated one of the other ranks just before its own failure."""
    disconnected = report(1, rank(0, 1, CLOSED), ended(1, CLOSED, 0.1, closed=True))
    run_result = result(disconnected, report(1, rank(2, 1, CLOSED), rank(3, None)), first="node0", ended_early=early)
    first = verdict_from_hub({"nodes": NODES}, run_result)["first_failure"]
    assert first["rank"] == 3 and "had already ended with exit code 0" in first["error"]


def with_outputs(*ranks: dict[str, Any], outputs: dict[int, str], **more: Any) -> dict[str, Any]:
    """Return the report of a node with the last lines of its ranks, by rank; the first rank is the one that failed."""
    first, *remaining = outputs.items()
    excerpts = [{"log": f"/run/{number}.log", "lines": text} for number, text in remaining]
    return report(1, *ranks, last_log=f"/run/{first[0]}.log", last_lines=first[1], outputs=excerpts, **more)


@pytest.mark.parametrize("end", [{"exit_code": TERMINATED, "closed": True}, {"exit_code": None}])
def test_message_of_another_rank_of_the_node_explains_a_reaction(end: dict[str, Any]) -> None:
    closed = {**rank(0, TERMINATED), **end}
    run_result = result(with_outputs(closed, rank(3, 1, LOST), outputs={3: LOST, 0: DECISIVE}), first="node0")
    number, error, entry = failure(run_result)
    assert (number, error, entry) == (0, STOPPED_AFTER_ERROR, "rdma-locked-memory")
    harmless = result(with_outputs(closed, rank(3, 1, LOST), outputs={3: LOST, 0: "OSError: x"}), first="node0")
    assert failure(harmless)[0] == 3
    unrelated = result(
        with_outputs(closed, rank(3, 1, "ValueError: boom"), outputs={3: "x", 0: DECISIVE}), first="node0"
    )
    assert failure(unrelated)[0] == 3, "rank 3 did not react"


def test_collectives_are_read_from_the_logs_of_all_ranks_of_a_node() -> None:
    aborted = [rank(number, -signal.SIGABRT) for number in (0, 1)]
    texts = {0: watchdog(7, "ALLREDUCE"), 1: watchdog(9, "BROADCAST")}
    number, error, _entry = failure(result(with_outputs(*aborted, outputs=texts), first="node0"))
    assert "rank 0 in ALLREDUCE 7, rank 1 in BROADCAST 9" in error


def test_last_lines_of_each_log_are_bounded() -> None:
    outputs = {0: "a", 1: "\n".join(str(n) * 1000 for n in range(100, 300))}
    node = with_outputs(outputs=outputs)
    assert last_lines_of(node, "/run/0.log") == ["a"]
    lines = last_lines_of(node, "/run/1.log")
    assert len(lines) == 120 and {len(line) for line in lines} == {500}
    assert last_lines_of(node, "/run/2.log") == last_lines_of(None, "/run/0.log") == last_lines_of({}, "") == []
