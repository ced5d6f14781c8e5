"""Selection of the final result if several nodes have led a run."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._record.final_result import final_result

NAMES = ("gpu1", "gpu2", "gpu3")
PLAN: dict[str, Any] = {"run_id": "first", "restart": {"restarts": 1}, "nodes": [{"name": name} for name in NAMES]}


def result(hub: int | None, state: str = "failed", **fields: Any) -> dict[str, Any]:
    nodes = [
        {"name": name, "node_rank": rank, "state": "ended", "since": 5.0, "report": None, "launcher_log": ""}
        for rank, name in enumerate(NAMES)
    ]
    usual = {"run_id": "first", "reason": "", "first_node": None, "world_size": 3, "nnodes": 3}
    times = {"started": 1.0, "ended": 2.0}
    return {**usual, **times, "state": state, "nodes": nodes, **({} if hub is None else {"hub": hub}), **fields}


def run(state: str, hub: int = 0, written: Any = None) -> dict[str, Any]:
    fields = {"message": "", "directory": "/runs/first/node0", "report": None}
    return {"run_id": "first", "state": state, "hub": hub, "result": written, **fields}


def test_watched_result_is_used_without_querying_others() -> None:
    assert final_result(PLAN, result(None), {"gpu1": None}) is not None
    assert final_result(PLAN, None, {}) is None


def test_last_node_to_lead_the_run_decides_the_result() -> None:
    reads = {"gpu1": run("failed", 0, result(0)), "gpu2": run("succeeded", 1, result(1, "succeeded")), "gpu3": None}
    chosen = final_result(PLAN, result(0), reads)
    assert chosen is not None and chosen["state"] == "succeeded"


def test_isolated_node_does_not_decide_while_other_nodes_continue() -> None:
    cut_off = result(0, cut_off=True)
    assert final_result(PLAN, cut_off, {"gpu2": run("running", 1), "gpu3": run("running", 1)}) is None
    ended = final_result(PLAN, cut_off, {"gpu2": run("failed"), "gpu3": None})
    assert ended is not None and ended["cut_off"]


@pytest.mark.parametrize("written", [result(1, run_id="other"), result(2, "succeeded"), {"state": "succeeded"}, 7])
def test_result_of_another_run_or_node_is_ignored(written: Any) -> None:
    chosen = final_result(PLAN, result(0), {"gpu2": run("succeeded", 1, written)})
    assert chosen is not None and chosen["state"] == "failed"


def test_only_node_0_counts_if_no_other_node_can_lead_the_run() -> None:
    plan = {key: value for key, value in PLAN.items() if key != "restart"}
    assert final_result(plan, None, {"gpu2": run("succeeded", 1, result(1, "succeeded"))}) is None


@pytest.mark.parametrize("hub", [3, 999_999])
def test_result_whose_leader_is_not_in_the_plan_is_ignored(hub: int) -> None:
    assert final_result(PLAN, result(hub), {}) is None
    chosen = final_result(PLAN, result(hub), {"gpu1": run("succeeded", 0, result(0, "succeeded"))})
    assert chosen is not None and chosen["state"] == "succeeded"


def test_result_without_a_start_time_has_an_unknown_start_time() -> None:
    without = {name: value for name, value in result(0).items() if name != "started"}
    chosen = final_result(PLAN, without, {})
    assert chosen is not None and chosen["started"] is None
