"""The first failure: causes precede consequences, regardless of the order of reports."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._run.error_text import final_message
from ansible_collections.muster.training.plugins.module_utils._supervisor.rank_reports import rank_reports
from ansible_collections.muster.training.plugins.plugin_utils._failures.catalogue import explain
from ansible_collections.muster.training.plugins.plugin_utils._failures.first_failure import first_failure
from tests.unit.plugins.plugin_utils.failures.results import CLOSED, TERMINATED, rank, report, result

TORCHRUN = Path(__file__).resolve().parents[3] / "fixtures" / "torchrun"


def cause(run_result: dict[str, Any]) -> tuple[str, int | None, str]:
    failure = first_failure(run_result)
    assert failure is not None
    return failure["node"], failure["rank"], failure["error"]


def test_cause_is_the_rank_that_raised_not_the_peers_that_noticed() -> None:
    run_result = result(
        report(1, rank(0, 1, CLOSED), rank(1, 1, CLOSED)),
        report(1, rank(2, TERMINATED), rank(3, 1, "ValueError: boom")),
        first="node0",  # the node whose launcher ended first
    )
    assert cause(run_result) == ("node1", 3, "ValueError: boom")


@pytest.mark.parametrize(
    "message",
    [
        CLOSED,
        "torch.distributed.DistBackendError: NCCL error, remote process exited or there was a network error",
        "torch.distributed.DistNetworkError: The client socket has timed out after 60000ms",
        "RuntimeError: Connection reset by peer",
        "BrokenPipeError: [Errno 32] Broken pipe",
        "torch.distributed.DistStoreError: wait timeout after 300000ms",
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 1 got signal: 15",
        "lightning.pytorch.utilities.exceptions.SIGTERMException",
        "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Terminated. ",
    ],
)
def test_error_from_a_lost_peer_is_a_consequence(message: str) -> None:
    run_result = result(report(1, rank(0, 1, message)), report(1, rank(2, 1, "KeyError: 'x'")), first="node0")
    assert cause(run_result) == ("node1", 2, "KeyError: 'x'")


@pytest.mark.parametrize(
    ("peer_error", "number"),
    [("RuntimeError: Detected mismatch between collectives on ranks.", 2), ("ValueError: boom", 0), (CLOSED, 0)],
)
def test_rank_that_exited_without_output_is_passed_over_only_for_a_known_cause(peer_error: str, number: int) -> None:
    run_result = result(report(1, rank(0, 1)), report(1, rank(2, 1, peer_error)), first="node0")
    assert cause(run_result)[1] == number


def test_consequence_is_reported_if_no_cause_is_known() -> None:
    stopped = report(
        1, rank(2, TERMINATED), launcher_error="torch.distributed.elastic...SignalException: Process 1 got signal: 15"
    )
    assert cause(result(report(1, rank(0, 1, CLOSED)), stopped)) == ("node0", 0, CLOSED)


def test_killed_rank_is_the_cause() -> None:
    run_result = result(
        report(1, rank(0, 1, CLOSED), rank(1, 1, CLOSED)), report(1, rank(2, -9), rank(3, TERMINATED)), first="node0"
    )
    assert cause(run_result) == ("node1", 2, "was killed by SIGKILL")


def test_error_of_a_rank_without_exit_code_comes_before_a_consequence() -> None:
    stopped = report(TERMINATED, rank(1, None, "ValueError: boom"), launcher_error="SignalException: got signal: 15")
    assert cause(result(report(1, rank(0, 1, CLOSED)), stopped, first="node0")) == ("node1", 1, "ValueError: boom")


def test_error_caught_by_a_stopped_rank_is_not_the_cause() -> None:
    stopped = report(TERMINATED, rank(1, None, "KeyError: 'caught'"))
    run_result = result(report(1, rank(0, 1, "ValueError: boom")), stopped, first="node1")
    assert cause(run_result) == ("node0", 0, "ValueError: boom")


def test_killed_launcher_comes_before_an_error_its_rank_caught() -> None:
    run_result = result(report(-signal.SIGKILL, rank(0, None, "KeyError: 'caught'")), report(TERMINATED), first="node0")
    assert cause(run_result) == ("node0", None, "the launcher was killed by SIGKILL")


@pytest.mark.parametrize("launcher", [0, 1, TERMINATED, -signal.SIGKILL, 143])
@pytest.mark.parametrize("code", [1, 70, TERMINATED, -signal.SIGKILL, 137, 143])
def test_rank_ended_by_muster_is_not_the_cause_regardless_of_its_exit_code(code: int, launcher: int) -> None:
    """muster kills a rank that ignores SIGTERM; a shell that handles it exits with 143, a script with any code."""
    timeout = "TimeoutError: timed out"  # looks like an effect of other ranks' exits
    ended = report(launcher, {**rank(0, code), "ended_by_us": True}, ended_by_us=True)
    run_result = result(ended, report(1, rank(2, 1, timeout)), first="node1")
    assert cause(run_result) == ("node1", 2, timeout)


def test_error_of_a_stopped_rank_comes_before_consequences_only() -> None:
    """The rank may have raised before SIGTERM, or because of it."""
    output = report(1, {**rank(2, 1, "ValueError: boom"), "ended_by_us": True}, ended_by_us=True)
    assert cause(result(report(1, rank(0, 1, CLOSED)), output, first="node0")) == ("node1", 2, "ValueError: boom")
    assert cause(result(report(1, rank(0, -9)), output, first="node0")) == ("node0", 0, "was killed by SIGKILL")
    lost = result(report(1, rank(0, 1, CLOSED)), output, None, first="node0", reason="node2 is lost: silent")
    assert cause(lost) == ("node2", None, "node2 is lost: silent")


def test_rank_killed_by_muster_alongside_a_failed_rank_is_not_the_cause() -> None:
    killed = {**rank(1, -signal.SIGKILL), "ended_by_us": True}
    failed = report(TERMINATED, {**rank(0, 1, CLOSED), "first": True}, killed)
    run_result = result(failed, report(1, rank(2, 1, "ValueError: boom")), first="node0")
    assert cause(run_result) == ("node1", 2, "ValueError: boom")
    assert cause(result(failed, report(TERMINATED, rank(2, TERMINATED)), first="node0")) == ("node0", 0, CLOSED)


def test_rank_killed_while_its_node_was_stopping_is_the_cause() -> None:
    """Peers may notice the loss before the node's torchrun, which marks the ranks that it has terminated itself."""
    closed = {**rank(3, -signal.SIGKILL), "closed": True}
    run_result = result(report(1, rank(0, 1, CLOSED)), report(1, rank(2, -9), closed, ended_by_us=True), first="node0")
    assert cause(run_result) == ("node1", 2, "was killed by SIGKILL")


def test_first_failed_rank_of_a_node_is_reported() -> None:
    later = {**rank(1, 1, "ValueError: boom"), "first": True}
    assert cause(result(report(1, rank(0, -9), later))) == ("node0", 1, "ValueError: boom")


def test_first_failure_that_reached_rank_0_is_reported() -> None:
    """The node that ended the run may only have noticed the failure of others; the nodes' clocks are ignored."""
    later, sooner = (report(1, rank(n, 1, f"ValueError: {n}"), ended=1000.0 - n) for n in (2, 4))
    run_result = result(report(1, rank(0, 1, CLOSED)), later, sooner, first="node0")
    run_result["nodes"][1]["since"], run_result["nodes"][2]["since"] = 1004.0, 1003.0
    assert cause(run_result) == ("node2", 4, "ValueError: 4")


def test_rank_killed_for_lack_of_memory_is_the_cause() -> None:
    run_result = result(report(1, rank(0, 1, CLOSED)), report(1, rank(2, -9), oom_kills=1))
    node, number, error = cause(run_result)
    assert (node, number) == ("node1", 2)
    assert error.startswith("was killed by SIGKILL (the kernel killed processes for lack of memory")


def test_rank_in_a_container_killed_for_lack_of_memory_is_the_cause() -> None:
    run_result = result(report(1, rank(0, 1, CLOSED)), report(137, rank(2, 137), oom_kills=1))
    node, number, error = cause(run_result)
    assert (node, number) == ("node1", 2)
    assert error.startswith("was killed by SIGKILL (exit code 137) (the kernel killed processes for lack of memory")


def test_kill_at_the_memory_limit_of_a_container_is_explained() -> None:
    run_result = result(report(1, rank(0, 1, CLOSED)), report(137, rank(2, 137), oom_kills=1, limit_hits=1))
    assert "at the memory limit of a container or service on this node" in cause(run_result)[2]
    assert explain(cause(run_result)[2])[0].entry.id == "container-out-of-memory"


@pytest.mark.parametrize("message", ["", "Fatal Python error: Aborted"])
def test_silent_abort_of_a_rank_is_a_consequence(message: str) -> None:
    """NCCL's watchdog aborts the process when its peers are gone, which faulthandler may report."""
    run_result = result(
        report(1, rank(0, -signal.SIGABRT, message)), report(1, rank(2, -signal.SIGSEGV)), first="node0"
    )
    assert cause(run_result) == ("node1", 2, "was killed by SIGSEGV")


def test_exit_code_of_a_rank_is_reported_as_the_cause() -> None:
    assert cause(result(report(1, rank(0, 7)))) == ("node0", 0, "ended with exit code 7")


def test_rank_killed_by_torchrun_is_not_the_cause() -> None:
    killed = {**rank(0, -9), "closed": True}
    assert cause(result(report(1, killed, rank(1, 1, "ValueError: boom")))) == ("node0", 1, "ValueError: boom")


def test_error_in_a_shared_log_is_not_attributed_to_one_rank() -> None:
    shared = [{**rank(number, 1, "ValueError: boom"), "log": "/run/launcher.log"} for number in (2, 3)]
    run_result = result(report(-15, rank(0, None)), report(1, *shared))
    assert cause(run_result) == ("node1", None, "one of ranks 2 to 3: ValueError: boom")
    lost = {
        **run_result,
        "nodes": [*run_result["nodes"], {**run_result["nodes"][0], "name": "node2", "state": "lost", "report": None}],
    }
    assert cause(lost)[0] == "node1", "it is a rank's word"


def test_lost_node_comes_before_the_errors_of_its_peers() -> None:
    run_result = result(report(1, rank(0, 1, CLOSED)), None, first="node1", reason="node1 is lost: no sign of life")
    assert cause(run_result) == ("node1", None, "node1 is lost: no sign of life")


def test_node_lost_as_the_run_ends_does_not_hide_the_cause() -> None:
    run_result = result(
        report(1, rank(0, 1, "ValueError: boom")), None, first="node0", reason="the launcher on node0 ended"
    )
    assert cause(run_result) == ("node0", 0, "ValueError: boom")


def test_killed_launcher_is_the_cause() -> None:
    """Its ranks were terminated by muster, so they are not mentioned."""
    run_result = result(
        report(-9, rank(0, None), rank(1, None)),
        report(1, rank(2, 1, CLOSED)),
        first="node0",
        reason="the launcher ...",
    )
    assert cause(run_result) == ("node0", None, "the launcher was killed by SIGKILL")


def test_launcher_that_could_not_start_is_the_cause() -> None:
    output = "muster: cannot start /nowhere/python in /job: No such file or directory"
    assert cause(result(report(TERMINATED), report(127, launcher_error=output))) == ("node1", None, output)


def test_node_that_ended_the_run_decides_between_equal_failures() -> None:
    run_result = result(report(1, rank(0, 1, "ValueError: a")), report(1, rank(2, 1, "ValueError: b")), first="node1")
    assert cause(run_result) == ("node1", 2, "ValueError: b")


def test_failure_long_before_the_end_of_an_elastic_run_is_not_the_cause() -> None:
    run_result = result(
        report(1, rank(0, 1, CLOSED)), None, report(1, rank(4, 1, "ValueError: long ago")), first="node0"
    )
    for node in run_result["nodes"][1:]:
        node.update(survived=True, since=900.0)
    run_result["nodes"][0]["since"] = 1000.0
    assert cause(run_result) == ("node0", 0, CLOSED)
    run_result["nodes"][2]["since"] = 990.0  # torch ends the entire elastic run once a rank has used up its restarts
    assert cause(run_result) == ("node2", 4, "ValueError: long ago")


def test_run_whose_nodes_were_all_stopped_has_no_failure() -> None:
    assert first_failure(result(report(TERMINATED, rank(0, None)), report(None, state="not started"))) is None


@pytest.mark.parametrize(
    ("case", "number", "error"),
    [
        ("raise", 1, "ValueError: boom: all of it"),
        ("raise_with_record", 1, "ValueError: boom: all of it"),
        ("exit_code", 0, "ended with exit code 3"),
        ("kill", 1, "was killed by SIGKILL"),
        ("abort", 0, "was killed by SIGABRT"),
        ("restarted_and_failed", 0, "ValueError: boom: attempt 1"),
        ("no_such_script", 0, "ended with exit code 2, its last output: "),
    ],
)
def test_cause_is_identified_in_recorded_torchrun_files(case: str, number: int, error: str) -> None:
    """Recorded by tests/record_torchrun.py: the cause among ranks that lost their peer or were stopped."""
    directory = TORCHRUN / case
    plan = {"rank_logs": "torchrun", "node": {"slots": 2, "first_rank": 0}}
    ranks = rank_reports(plan, str(directory), 1)
    output = final_message((directory / "launcher.log").read_text())
    node, matches, text = cause(result(report(1, *ranks, launcher_error=output), first="node0"))
    assert (node, matches) == ("node0", number)
    assert text.startswith(error)


def test_stopped_node_is_not_the_cause() -> None:
    directory = TORCHRUN / "terminated"
    plan = {"rank_logs": "torchrun", "node": {"slots": 2, "first_rank": 2}}
    ranks = rank_reports(plan, str(directory), 1)
    output = final_message((directory / "launcher.log").read_text())
    stopped = report(1, *ranks, launcher_error=output)
    assert cause(result(report(1, rank(0, 1, CLOSED)), stopped, first="node1")) == ("node0", 0, CLOSED)


def test_lost_node_comes_before_the_launcher_crash_it_caused() -> None:
    """mpirun crashes when one of its daemons is gone, seconds before the node counts as lost."""
    ranks = [{"rank": 0, "local_rank": 0, "exit_code": -15, "error": "", "log": "x"}]
    output = "*** End of error message ***"
    crashed = {"exit_code": -11, "ranks": ranks, "launcher_error": output, "launcher_log": "l", "oom_kills": 0}
    nodes = [
        {"name": "a", "node_rank": 0, "state": "ended", "report": crashed, "since": 1.0, "launcher_log": "l"},
        {
            "name": "b",
            "node_rank": 1,
            "state": "lost",
            "report": None,
            "since": 3.0,
            "lost_reason": "b is lost: killed",
            "launcher_log": "",
        },
    ]
    failure = first_failure({"first_node": "a", "reason": "the launcher on a ended", "ended": 4.0, "nodes": nodes})
    assert failure is not None and (failure["node"], failure["error"]) == ("b", "b is lost: killed")
