"""What failed first: causes precede consequences, regardless of who reported first."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._run.error_text import final_message
from ansible_collections.muster.training.plugins.module_utils._supervisor.rank_reports import rank_reports
from ansible_collections.muster.training.plugins.plugin_utils._failures.catalogue import explain
from ansible_collections.muster.training.plugins.plugin_utils._failures.explanation import Explanation
from ansible_collections.muster.training.plugins.plugin_utils._failures.verdict import (
    first_failure,
    render_last_lines,
    render_verdict,
    verdict_from_hub,
    verdict_without_hub,
)
from ansible_collections.muster.training.plugins.plugin_utils._text.duration import format_duration

CLOSED = (
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.10]:41234"
)
TORCHRUN = Path(__file__).resolve().parents[3] / "fixtures" / "torchrun"
TERMINATED = -signal.SIGTERM


def rank(number: int, code: int | None, error: str = "") -> dict[str, Any]:
    return {"rank": number, "local_rank": number % 2, "exit_code": code, "error": error, "log": f"/run/{number}.log"}


def report(code: int | None, *ranks: Any, said: str = "", **more: Any) -> dict[str, Any]:
    return {
        "exit_code": code,
        "state": "ended",
        "ranks": list(ranks),
        "launcher_error": said,
        "launcher_log": "/run/launcher.log",
        "oom_kills": 0,
        "stuck": [],
        **more,
    }


def result(
    *reports: dict[str, Any] | None, first: str | None = None, reason: str = "why", **more: Any
) -> dict[str, Any]:
    """Return what rank 0's supervisor writes; a node without a report is lost."""
    return {
        "run_id": "first",
        "state": "failed",
        "reason": reason,
        "first_node": first,
        "world_size": 2 * len(reports),
        "nnodes": len(reports),
        "started": 1000.0,
        "ended": 1075.0,
        "nodes": [
            {
                "name": f"node{n}",
                "node_rank": n,
                "state": "lost" if item is None else "ended",
                "since": 1.0,
                "report": item,
                "launcher_log": f"/home/u/node{n}/launcher.log",
            }
            for n, item in enumerate(reports)
        ],
        **more,
    }


def cause(made: dict[str, Any]) -> tuple[str, int | None, str]:
    failure = first_failure(made)
    assert failure is not None
    return failure["node"], failure["rank"], failure["error"]


def test_cause_is_the_rank_that_raised_not_the_peers_that_noticed() -> None:
    made = result(
        report(1, rank(0, 1, CLOSED), rank(1, 1, CLOSED)),
        report(1, rank(2, TERMINATED), rank(3, 1, "ValueError: boom")),
        first="node0",  # the node whose launcher ended first
    )
    assert cause(made) == ("node1", 3, "ValueError: boom")


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
    made = result(report(1, rank(0, 1, message)), report(1, rank(2, 1, "KeyError: 'x'")), first="node0")
    assert cause(made) == ("node1", 2, "KeyError: 'x'")


@pytest.mark.parametrize(
    ("other", "number"),
    [("RuntimeError: Detected mismatch between collectives on ranks.", 2), ("ValueError: boom", 0), (CLOSED, 0)],
)
def test_rank_that_exited_without_output_is_passed_over_only_for_a_known_cause(other: str, number: int) -> None:
    made = result(report(1, rank(0, 1)), report(1, rank(2, 1, other)), first="node0")
    assert cause(made)[1] == number


def test_consequence_is_reported_if_no_cause_is_known() -> None:
    stopped = report(
        1, rank(2, TERMINATED), said="torch.distributed.elastic...SignalException: Process 1 got signal: 15"
    )
    assert cause(result(report(1, rank(0, 1, CLOSED)), stopped)) == ("node0", 0, CLOSED)


def test_killed_rank_is_the_cause() -> None:
    made = result(
        report(1, rank(0, 1, CLOSED), rank(1, 1, CLOSED)), report(1, rank(2, -9), rank(3, TERMINATED)), first="node0"
    )
    assert cause(made) == ("node1", 2, "was killed by SIGKILL")


def test_error_of_a_rank_without_exit_code_comes_before_a_consequence() -> None:
    stopped = report(TERMINATED, rank(1, None, "ValueError: boom"), said="SignalException: got signal: 15")
    assert cause(result(report(1, rank(0, 1, CLOSED)), stopped, first="node0")) == ("node1", 1, "ValueError: boom")


def test_error_caught_by_a_stopped_rank_is_not_the_cause() -> None:
    stopped = report(TERMINATED, rank(1, None, "KeyError: 'caught'"))
    made = result(report(1, rank(0, 1, "ValueError: boom")), stopped, first="node1")
    assert cause(made) == ("node0", 0, "ValueError: boom")


def test_killed_launcher_comes_before_an_error_its_rank_caught() -> None:
    made = result(report(-signal.SIGKILL, rank(0, None, "KeyError: 'caught'")), report(TERMINATED), first="node0")
    assert cause(made) == ("node0", None, "the launcher was killed by SIGKILL")


@pytest.mark.parametrize("launcher", [0, 1, TERMINATED, -signal.SIGKILL, 143])
@pytest.mark.parametrize("code", [1, 70, TERMINATED, -signal.SIGKILL, 137, 143])
def test_rank_ended_by_muster_is_not_the_cause_regardless_of_its_exit_code(code: int, launcher: int) -> None:
    """A rank that ignores SIGTERM is killed by us, a shell that heeds it exits with 143, a script with any code."""
    timeout = "TimeoutError: timed out"  # looks like an effect of other ranks' exits
    ended = report(launcher, {**rank(0, code), "ended_by_us": True}, ended_by_us=True)
    made = result(ended, report(1, rank(2, 1, timeout)), first="node1")
    assert cause(made) == ("node1", 2, timeout)


def test_error_of_a_stopped_rank_comes_before_consequences_only() -> None:
    """It may have raised before it was told, or because of it."""
    output = report(1, {**rank(2, 1, "ValueError: boom"), "ended_by_us": True}, ended_by_us=True)
    assert cause(result(report(1, rank(0, 1, CLOSED)), output, first="node0")) == ("node1", 2, "ValueError: boom")
    assert cause(result(report(1, rank(0, -9)), output, first="node0")) == ("node0", 0, "was killed by SIGKILL")
    lost = result(report(1, rank(0, 1, CLOSED)), output, None, first="node0", reason="node2 is lost: silent")
    assert cause(lost) == ("node2", None, "node2 is lost: silent")


def test_rank_killed_by_muster_alongside_a_failed_rank_is_not_the_cause() -> None:
    killed = {**rank(1, -signal.SIGKILL), "ended_by_us": True}
    failed = report(TERMINATED, {**rank(0, 1, CLOSED), "first": True}, killed)
    made = result(failed, report(1, rank(2, 1, "ValueError: boom")), first="node0")
    assert cause(made) == ("node1", 2, "ValueError: boom")
    assert cause(result(failed, report(TERMINATED, rank(2, TERMINATED)), first="node0")) == ("node0", 0, CLOSED)


def test_rank_killed_while_its_node_was_stopping_is_the_cause() -> None:
    """Its peers may notice before its own torchrun, which marks the ranks that it has ended itself."""
    closed = {**rank(3, -signal.SIGKILL), "closed": True}
    made = result(report(1, rank(0, 1, CLOSED)), report(1, rank(2, -9), closed, ended_by_us=True), first="node0")
    assert cause(made) == ("node1", 2, "was killed by SIGKILL")


def test_first_failed_rank_of_a_node_is_reported() -> None:
    later = {**rank(1, 1, "ValueError: boom"), "first": True}
    assert cause(result(report(1, rank(0, -9), later))) == ("node0", 1, "ValueError: boom")


def test_first_failure_that_reached_rank_0_is_reported() -> None:
    """If the node that ended the run only noticed the failure of others; the nodes' own clocks are ignored."""
    later, sooner = (report(1, rank(n, 1, f"ValueError: {n}"), ended=1000.0 - n) for n in (2, 4))
    made = result(report(1, rank(0, 1, CLOSED)), later, sooner, first="node0")
    made["nodes"][1]["since"], made["nodes"][2]["since"] = 1004.0, 1003.0
    assert cause(made) == ("node2", 4, "ValueError: 4")


def test_gpu_failures_are_reported_in_addition_to_the_cause() -> None:
    failed = report(1, rank(0, 1, "RuntimeError: CUDA error"), gpus="GPU is lost.")
    text = render_verdict(verdict_from_hub({}, result(failed, first="node0")), "", {})
    assert "node0 (node_rank 0), rank 0: RuntimeError: CUDA error" in text
    assert "on node0 the GPUs failed during the run: GPU is lost.; look for 'NVRM: Xid' in dmesg there" in text


def test_rank_killed_for_lack_of_memory_is_the_cause() -> None:
    made = result(report(1, rank(0, 1, CLOSED)), report(1, rank(2, -9), oom_kills=1))
    node, number, error = cause(made)
    assert (node, number) == ("node1", 2)
    assert error.startswith("was killed by SIGKILL (the kernel killed processes for lack of memory")


def test_rank_in_a_container_killed_for_lack_of_memory_is_the_cause() -> None:
    made = result(report(1, rank(0, 1, CLOSED)), report(137, rank(2, 137), oom_kills=1))
    node, number, error = cause(made)
    assert (node, number) == ("node1", 2)
    assert error.startswith("was killed by SIGKILL (exit code 137) (the kernel killed processes for lack of memory")


def test_kill_at_the_memory_limit_of_a_container_is_explained() -> None:
    made = result(report(1, rank(0, 1, CLOSED)), report(137, rank(2, 137), oom_kills=1, limit_hits=1))
    assert "at the memory limit of a container or service on this node" in cause(made)[2]
    assert explain(cause(made)[2])[0].entry.id == "container-out-of-memory"


@pytest.mark.parametrize("message", ["", "Fatal Python error: Aborted"])
def test_silent_abort_of_a_rank_is_a_consequence(message: str) -> None:
    """NCCL's watchdog aborts the process when its peers are gone, which faulthandler may report."""
    made = result(report(1, rank(0, -signal.SIGABRT, message)), report(1, rank(2, -signal.SIGSEGV)), first="node0")
    assert cause(made) == ("node1", 2, "was killed by SIGSEGV")


def test_exit_code_of_a_rank_is_reported_as_the_cause() -> None:
    assert cause(result(report(1, rank(0, 7)))) == ("node0", 0, "ended with exit code 7")


def test_rank_killed_by_torchrun_is_not_the_cause() -> None:
    killed = {**rank(0, -9), "closed": True}
    assert cause(result(report(1, killed, rank(1, 1, "ValueError: boom")))) == ("node0", 1, "ValueError: boom")


def test_error_in_a_shared_log_is_not_attributed_to_one_rank() -> None:
    shared = [{**rank(number, 1, "ValueError: boom"), "log": "/run/launcher.log"} for number in (2, 3)]
    made = result(report(-15, rank(0, None)), report(1, *shared))
    assert cause(made) == ("node1", None, "one of ranks 2 to 3: ValueError: boom")
    lost = {**made, "nodes": [*made["nodes"], {**made["nodes"][0], "name": "node2", "state": "lost", "report": None}]}
    assert cause(lost)[0] == "node1", "it is a rank's word"


def test_lost_node_comes_before_the_errors_of_its_peers() -> None:
    made = result(report(1, rank(0, 1, CLOSED)), None, first="node1", reason="node1 is lost: no sign of life")
    assert cause(made) == ("node1", None, "node1 is lost: no sign of life")


def test_node_lost_as_the_run_ends_does_not_hide_the_cause() -> None:
    made = result(report(1, rank(0, 1, "ValueError: boom")), None, first="node0", reason="the launcher on node0 ended")
    assert cause(made) == ("node0", 0, "ValueError: boom")


def test_killed_launcher_is_the_cause() -> None:
    """Its ranks were ended by us, so they are not mentioned."""
    made = result(
        report(-9, rank(0, None), rank(1, None)),
        report(1, rank(2, 1, CLOSED)),
        first="node0",
        reason="the launcher ...",
    )
    assert cause(made) == ("node0", None, "the launcher was killed by SIGKILL")


def test_launcher_that_could_not_start_is_the_cause() -> None:
    output = "muster: cannot start /nowhere/python in /job: No such file or directory"
    assert cause(result(report(TERMINATED), report(127, said=output))) == ("node1", None, output)


def test_node_that_ended_the_run_decides_between_equal_failures() -> None:
    made = result(report(1, rank(0, 1, "ValueError: a")), report(1, rank(2, 1, "ValueError: b")), first="node1")
    assert cause(made) == ("node1", 2, "ValueError: b")


def test_failure_long_before_the_end_of_an_elastic_run_is_not_the_cause() -> None:
    made = result(report(1, rank(0, 1, CLOSED)), None, report(1, rank(4, 1, "ValueError: long ago")), first="node0")
    for node in made["nodes"][1:]:
        node.update(survived=True, since=900.0)
    made["nodes"][0]["since"] = 1000.0
    assert cause(made) == ("node0", 0, CLOSED)
    made["nodes"][2]["since"] = 990.0  # torch ends the entire elastic run once a rank has used up its restarts
    assert cause(made) == ("node2", 4, "ValueError: long ago")


def test_run_whose_nodes_were_all_stopped_has_no_failure() -> None:
    assert first_failure(result(report(TERMINATED, rank(0, None)), report(None, state="not started"))) is None


@pytest.mark.parametrize("state", ["succeeded", "stopped", "interrupted"])
def test_succeeded_or_stopped_run_names_no_failure(state: str) -> None:
    made = result(report(1, rank(0, 1, "ValueError: boom")), None, state=state)
    assert verdict_from_hub({}, made)["first_failure"] is None


def test_interrupted_run_is_explained_with_the_command_to_continue() -> None:
    made = result(report(0, rank(0, 0)), report(TERMINATED, rank(1, None)), state="interrupted", reason="b: taken away")
    shown = render_verdict(verdict_from_hub({}, {**made, "run_id": "first"}), "/r", {})
    assert shown.startswith("run first interrupted")
    assert "\n  reason: b: taken away\n" in shown
    assert "exit code 0 does not mean that the job is complete" in shown
    assert "to continue, run ansible-playbook report.yml -e run_id=first to see the command" in shown


def test_cost_is_reported_only_if_all_prices_are_known() -> None:
    made = {**result(report(0, rank(0, 0)), state="succeeded", reason=""), "started": 1000.0, "ended": 1600.0}
    prices = [{"price_per_hour": 2.52}, {"price_per_hour": 2.52}]
    verdict = verdict_from_hub({"nodes": prices, "currency": "EUR"}, made)
    assert (verdict["cost"], verdict["currency"]) == (pytest.approx(0.84), "EUR")
    assert "\n  cost: 0.84 EUR\n" in render_verdict(verdict, "/r", {"accuracy": 0.9})
    verdict = verdict_from_hub({"nodes": [prices[0], {"price_per_hour": None}]}, made)
    assert (verdict["cost"], verdict["currency"]) == (None, "USD")
    of_a_former_version = {key: value for key, value in verdict.items() if key not in ("cost", "currency")}
    assert "cost" not in render_verdict(verdict, "", {}) + render_verdict(of_a_former_version, "", {})


def test_verdict_lists_each_rank_with_host_exit_code_error_and_log() -> None:
    verdict = verdict_from_hub({}, result(report(1, rank(0, 1, "ValueError: boom")), None, first="node0"))
    assert verdict["nodes"][0]["ranks"] == [
        {"host": "node0", "rank": 0, "local_rank": 0, "exit_code": 1, "error": "ValueError: boom", "log": "/run/0.log"}
    ]
    assert verdict["nodes"][0]["oom_kills"] == 0
    assert verdict["nodes"][1] == {
        "name": "node1",
        "node_rank": 1,
        "state": "lost",
        "exit_code": None,
        "log": "/home/u/node1/launcher.log",
        "stuck": [],
        "mounts": {},
        "gpus": "",
        "health": [],
        "container": "",
        "unwritten": "",
        "shortened": "",
        "oom_kills": None,
        "ranks": [],
    }
    assert (verdict["state"], verdict["world_size"], verdict["nnodes"]) == ("failed", 4, 2)


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
def test_cause_is_found_in_recorded_torchrun_files(case: str, number: int, error: str) -> None:
    """Recorded by tests/record_torchrun.py: the cause among ranks that lost their peer or were stopped."""
    directory = TORCHRUN / case
    plan = {"rank_logs": "torchrun", "node": {"slots": 2, "first_rank": 0}}
    ranks = rank_reports(plan, str(directory), 1)
    output = final_message((directory / "launcher.log").read_text())
    node, matches, text = cause(result(report(1, *ranks, said=output), first="node0"))
    assert (node, matches) == ("node0", number)
    assert text.startswith(error)


def test_stopped_node_is_not_the_cause() -> None:
    directory = TORCHRUN / "terminated"
    plan = {"rank_logs": "torchrun", "node": {"slots": 2, "first_rank": 2}}
    ranks = rank_reports(plan, str(directory), 1)
    output = final_message((directory / "launcher.log").read_text())
    stopped = report(1, *ranks, said=output)
    assert cause(result(report(1, rank(0, 1, CLOSED)), stopped, first="node1")) == ("node0", 0, CLOSED)


# --- Without rank 0's report ------------------------------------------------------------------------------------------

PLAN = {"run_id": "first", "world_size": 4, "nodes": [{"name": "node0"}, {"name": "node1"}, {"name": "node2"}]}


def seen(state: str, message: str = "", of: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"state": state, "message": message, "report": of, "directory": "/home/u/runs/first/node"}


def test_lost_rank_0_is_reported_by_its_peers() -> None:
    lost = "node0 is lost: no sign of life for 10 s (powered off, or cut off from the network)"
    reads = {"node0": None, "node1": seen("failed", lost, report(1, rank(1, 1, CLOSED))), "node2": seen("failed", lost)}
    verdict = verdict_without_hub(PLAN, reads, 5000.0)
    assert (verdict["state"], verdict["reason"], verdict["started"], verdict["ended"]) == ("failed", lost, None, 5000.0)
    assert verdict["first_failure"] == {
        "node": "node0",
        "node_rank": 0,
        "rank": None,
        "error": lost,
        "log": None,
        "last_lines": [],
    }
    assert [node["state"] for node in verdict["nodes"]] == ["lost", "failed", "failed"]


def test_killed_supervisor_of_rank_0_is_the_first_failure() -> None:
    reads = {
        "node0": seen("died", "the supervisor died"),
        "node1": seen("failed", "node0 is lost: closed"),
        "node2": None,
    }
    verdict = verdict_without_hub(PLAN, reads, 5000.0)
    assert verdict["reason"] == "node0 is lost: closed"
    assert verdict["first_failure"]["node"] == "node0"
    assert [node["state"] for node in verdict["nodes"]] == ["lost", "failed", "lost"]


@pytest.mark.parametrize("state", ["succeeded", "stopped"])
def test_peers_report_the_outcome_when_rank_0_cannot_be_reached(state: str) -> None:
    reads = {"node0": None, "node1": seen(state, "" if state == "succeeded" else "stopped on request"), "node2": None}
    verdict = verdict_without_hub(PLAN, reads, 5000.0)
    assert (verdict["state"], verdict["first_failure"]) == (state, None)
    assert verdict["reason"] == ("" if state == "succeeded" else "stopped on request")


def test_node_that_left_an_elastic_run_does_not_make_it_stopped() -> None:
    left = seen("stopped", "node1 was stopped (SIGTERM)", report(TERMINATED, reason="node1 was stopped"))
    lost = "node0 is lost: no sign of life"
    verdict = verdict_without_hub(PLAN, {"node0": None, "node1": left, "node2": seen("failed", lost)}, 5000.0)
    assert (verdict["state"], verdict["first_failure"]["node"]) == ("failed", "node0")


def test_rank_0_is_reported_lost_if_no_node_gives_a_reason() -> None:
    verdict = verdict_without_hub(PLAN, {"node0": None, "node1": seen("died"), "node2": None}, 5000.0)
    assert verdict["reason"] == "node0 is lost: it is not responding"
    verdict = verdict_without_hub(
        PLAN, {"node0": seen("died", "the supervisor died"), "node1": None, "node2": None}, 5000.0
    )
    assert verdict["first_failure"]["error"] == "node0 is lost: the supervisor died"
    assert verdict["first_failure"]["log"] == "/home/u/runs/first/node/launcher.log"


# --- Terminal output --------------------------------------------------------------------------------------------------


def test_failure_message_names_node_rank_error_and_log() -> None:
    made = result(
        report(1, rank(0, 1, CLOSED)),
        report(
            1,
            rank(2, 1, "ValueError: boom"),
            stuck=[4711],
            mounts={"/data": "Transport endpoint is not connected"},
            container="Cannot connect; remove it there with: docker rm --force muster-first-node1",
            unwritten="No space left on device",
        ),
        first="node0",
    )
    text = render_verdict(verdict_from_hub({}, made), "/runs/first/result.json", {})
    assert text == (
        "run first failed after 0:01:15: 2 nodes, world size 4\n"
        "  failed first: node node1 (node_rank 1), rank 2: ValueError: boom\n"
        "  cause:        unknown; the last lines of its log may show it\n"
        "  consequences: 1 other rank waited for it in vain or lost the connection to it\n"
        "  its log:      node1:/run/2.log\n  read it with: ansible-playbook logs.yml -e run_id=first -e rank=2\n"
        "  the run ended because why\n"
        "  on node1 these processes survive even SIGKILL: 4711; the node needs a reboot\n"
        "  on node1 the container may still exist and hold GPUs: Cannot connect; remove it there with: docker rm "
        "--force muster-first-node1\n"
        "  on node1 writing to the run's directory failed at times: No space left on device; free up space, or "
        "set launch_node_directory: /home/u/node1\n"
        "  on node1 the mount /data died during the run: Transport endpoint is not connected; check that its server is "
        "up, then mount it again (site.yml)\n"
        "  record: /runs/first/result.json"
    )


@pytest.mark.parametrize("seen", ["", "Duplicate\x1b[2J GPU detected"])
def test_known_failure_is_explained_with_cause_and_remedy(seen: str) -> None:
    explanation: Explanation = {
        "id": "nccl-duplicate-gpu",
        "cause": "Two on one.",
        "remedy": "one each",
        "evidence": seen,
        "confidence": "log" if seen else "error",
    }
    verdict = verdict_from_hub({}, result(report(1, rank(0, 1, "DistBackendError: NCCL error"))))
    lines = render_verdict(verdict, "", {}, explanation).splitlines()
    assert lines[1:-1] == [
        "  failed first: node node0 (node_rank 0), rank 0: DistBackendError: NCCL error",
        *(
            ["  possibly:     Two on one.", "  because its log says: Duplicate GPU detected"]
            if seen
            else ["  cause:        Two on one."]
        ),
        "  what to do:   one each",
        "  its log:      node0:/run/0.log",
        "  read it with: ansible-playbook logs.yml -e run_id=first -e rank=0",
    ]


def failed_on(node_rank: int, lines: list[str], **more: Any) -> dict[str, Any]:
    """Return the verdict on a run of two nodes in which the first rank of the first or second node has failed."""
    document = {"last_log": f"/run/{2 * node_rank}.log", "last_lines": "\n".join(lines), **more}
    reports = [report(TERMINATED), report(TERMINATED)]
    reports[node_rank] = report(1, {**rank(2 * node_rank, 1, "ValueError: boom"), "local_rank": 0}, **document)
    return verdict_from_hub({}, result(*reports))


def test_last_lines_of_the_failed_rank_are_shown_once() -> None:
    lines = ["Traceback:", "\x1b[31mValueError: boom"]
    shown = "the last lines of rank 2 on node1:\n    Traceback:\n    ValueError: boom"
    assert [render_last_lines(failed_on(1, lines), watched) for watched in ((0, 0), None)] == [shown, shown]
    first = "the last lines of rank 0 on node0:\n    Traceback:"
    assert [render_last_lines(failed_on(0, lines[:1]), watched) for watched in ((0, 0), None)] == ["", first]
    assert render_last_lines(failed_on(1, lines), (1, 0)) == "", "who follows that rank has just seen them"
    assert render_last_lines(failed_on(1, []), None) == ""
    assert render_last_lines(failed_on(1, lines, last_log="/run/3.log"), None) == "", "another rank's"
    assert render_last_lines(verdict_from_hub({}, result(report(0), state="succeeded")), None) == ""


def test_unknown_cause_is_not_mentioned_below_the_traceback_that_shows_it() -> None:
    traceback = ["Traceback (most recent call last):", '  File "train.py", line 3, in <module>', "ValueError: boom"]
    for lines, expected in ((traceback, False), (["ValueError: boom"], True), (traceback[:2], True), ([], True)):
        text = render_verdict(failed_on(1, lines), "", {})
        assert ("cause:        unknown" in text) == expected, lines


def test_overlong_last_lines_of_a_node_are_cut() -> None:
    failure = failed_on(1, [str(n) * 1000 for n in range(100, 300)])["first_failure"]
    assert [line[:3] for line in failure["last_lines"]] == [str(n) for n in range(180, 300)]
    assert {len(line) for line in failure["last_lines"]} == {500}


def test_job_output_cannot_move_the_cursor_or_forge_lines() -> None:
    verdict = verdict_from_hub({}, result(report(1, rank(0, 1, "ValueError: \x1b[2J\r\n  record: /etc/shadow"))))
    text = render_verdict(verdict, "", {"accuracy": "\x1b]0;owned\x07\n  record: /etc/passwd"})
    assert all(line.isprintable() for line in text.splitlines())
    assert not [line for line in text.splitlines() if line.startswith("  record:")]


def test_succeeded_run_shows_the_results_of_the_job() -> None:
    verdict = verdict_from_hub({}, result(report(0, rank(0, 0)), state="succeeded", reason=""))
    document = {"accuracy": 0.97777, "samples_per_second": 7675.6, "steps": 460, "checkpoint": "/x.pt"}
    assert render_verdict(verdict, "/r.json", document) == (
        "run first succeeded after 0:01:15: 1 node, world size 2\n"
        "  accuracy: 0.9778\n"
        "  samples per second: 7676\n"
        "  steps: 460\n"
        "  checkpoint: /x.pt\n"
        "  logs: node0:/home/u/node0\n"
        "  record: /r.json"
    )


def test_a_stopped_run_gives_the_reason() -> None:
    verdict = verdict_from_hub(
        {}, result(report(TERMINATED), state="stopped", reason="stopped on request on node0 (SIGTERM)")
    )
    assert "  reason: stopped on request on node0 (SIGTERM)\n" in render_verdict(verdict, "/r.json", {})


def test_elastic_run_shows_which_nodes_it_lost() -> None:
    verdict = verdict_from_hub({}, result(report(0, rank(0, 0)), None, state="succeeded", reason=""))
    assert "  lost during the run: node1\n" in render_verdict(verdict, "/r.json", {})


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00:00"), (59.9, "0:00:59"), (3661, "1:01:01"), (360000, "100:00:00")]
)
def test_durations_are_formatted_as_hours_minutes_seconds(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


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


def test_overlong_error_is_shortened_to_a_readable_line() -> None:
    command = "RuntimeError: Error building extension 'fused_adam': [1/3] c++ " + "-isystem /include " * 200
    failed = report(1, rank(0, 1, command), last_lines="x")
    text = render_verdict(verdict_from_hub({}, result(failed, first="node0", reason=command)), "", {})
    for line in text.splitlines():
        assert len(line) < 400, line
    assert "rank 0: RuntimeError: Error building extension 'fused_adam': [1/3] c++ -isystem" in text
