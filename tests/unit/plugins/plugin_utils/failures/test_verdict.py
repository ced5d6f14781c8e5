"""The verdict on a run: its outcome, nodes and ranks, also if rank 0 is lost."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._failures.verdict import (
    verdict_from_hub,
    verdict_without_hub,
)
from tests.unit.plugins.plugin_utils.failures.results import CLOSED, TERMINATED, rank, report, result


@pytest.mark.parametrize("state", ["succeeded", "stopped", "interrupted"])
def test_succeeded_or_stopped_run_names_no_failure(state: str) -> None:
    run_result = result(report(1, rank(0, 1, "ValueError: boom")), None, state=state)
    assert verdict_from_hub({}, run_result)["first_failure"] is None


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


PLAN = {"run_id": "first", "world_size": 4, "nodes": [{"name": "node0"}, {"name": "node1"}, {"name": "node2"}]}


def run_state(state: str, message: str = "", of: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"state": state, "message": message, "report": of, "directory": "/home/u/runs/first/node"}


def test_lost_rank_0_is_reported_by_its_peers() -> None:
    lost = "node0 is lost: no sign of life for 10 s (powered off, or cut off from the network)"
    reads = {
        "node0": None,
        "node1": run_state("failed", lost, report(1, rank(1, 1, CLOSED))),
        "node2": run_state("failed", lost),
    }
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
        "node0": run_state("died", "the supervisor died"),
        "node1": run_state("failed", "node0 is lost: closed"),
        "node2": None,
    }
    verdict = verdict_without_hub(PLAN, reads, 5000.0)
    assert verdict["reason"] == "node0 is lost: closed"
    assert verdict["first_failure"]["node"] == "node0"
    assert [node["state"] for node in verdict["nodes"]] == ["lost", "failed", "lost"]


@pytest.mark.parametrize("state", ["succeeded", "stopped"])
def test_peers_report_the_outcome_when_rank_0_cannot_be_reached(state: str) -> None:
    reads = {
        "node0": None,
        "node1": run_state(state, "" if state == "succeeded" else "stopped on request"),
        "node2": None,
    }
    verdict = verdict_without_hub(PLAN, reads, 5000.0)
    assert (verdict["state"], verdict["first_failure"]) == (state, None)
    assert verdict["reason"] == ("" if state == "succeeded" else "stopped on request")


def test_node_that_left_an_elastic_run_does_not_make_it_stopped() -> None:
    stopped = run_state("stopped", "node1 was stopped (SIGTERM)", report(TERMINATED, reason="node1 was stopped"))
    lost = "node0 is lost: no sign of life"
    verdict = verdict_without_hub(PLAN, {"node0": None, "node1": stopped, "node2": run_state("failed", lost)}, 5000.0)
    assert (verdict["state"], verdict["first_failure"]["node"]) == ("failed", "node0")


def test_rank_0_is_reported_lost_if_no_node_gives_a_reason() -> None:
    verdict = verdict_without_hub(PLAN, {"node0": None, "node1": run_state("died"), "node2": None}, 5000.0)
    assert verdict["reason"] == "node0 is lost: it is not responding"
    verdict = verdict_without_hub(
        PLAN, {"node0": run_state("died", "the supervisor died"), "node1": None, "node2": None}, 5000.0
    )
    assert verdict["first_failure"]["error"] == "node0 is lost: the supervisor died"
    assert verdict["first_failure"]["log"] == "/home/u/runs/first/node/launcher.log"
