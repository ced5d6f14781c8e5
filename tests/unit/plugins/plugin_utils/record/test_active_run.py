"""Selection of a run by commands without a run name."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._record.active_run import (
    choose_run,
    nodes_to_query,
    open_runs,
)

MEMBERS = ["node1", "node2", "node3"]


def record(directory: Path, run_id: str, *names: str, number: int, result: Any = None) -> None:
    """Write a record with a start time in the order of the numbers; without a result, the run is active."""
    path = directory / run_id
    path.mkdir()
    plan = path / "plan.json"
    plan.write_text(json.dumps({"run_id": run_id, "nodes": [{"name": name} for name in names]}))
    os.utime(plan, (number, number))
    (path / ("token" if result is None else "result.json")).write_text(json.dumps(result))
    link = directory / "latest"
    link.unlink(missing_ok=True)
    link.symlink_to(run_id)


def end(state: str) -> dict[str, Any]:
    return {"state": state, "ended": time.mktime((2026, 11, 27, 10, 43, 0, 0, 0, -1))}


def test_active_run_is_chosen_even_if_a_later_one_has_ended(tmp_path: Path) -> None:
    record(tmp_path, "a", "node1", "node2", number=1)
    record(tmp_path, "b", "node3", number=2, result=end("succeeded"))
    runs = open_runs(tmp_path, MEMBERS)
    assert nodes_to_query(runs, "b") == ["node1"], "it may have ended while nobody watched it"
    assert nodes_to_query(runs, "a") == [], "the command is about it in any case"
    assert choose_run(tmp_path, MEMBERS, {"node1": {"active": []}}, stop=True).run_id == "b"
    chosen = choose_run(tmp_path, MEMBERS, {}, stop=True)
    assert (chosen.run_id, chosen.is_active) == ("a", True)
    assert chosen.note == "run a is active; b, launched later, ended (succeeded) at 2026-11-27 10:43"


def test_all_nodes_are_queried_about_a_run_that_another_node_may_lead(tmp_path: Path) -> None:
    record(tmp_path, "a", *MEMBERS, number=1)
    plan = tmp_path / "a" / "plan.json"
    plan.write_text(json.dumps({**json.loads(plan.read_text()), "restart": {}}))
    os.utime(plan, (1, 1))
    record(tmp_path, "b", "node1", number=2, result=end("succeeded"))
    runs = open_runs(tmp_path, MEMBERS)
    assert nodes_to_query(runs, "b") == MEMBERS
    replies = {"node1": {"active": []}, "node2": {"active": ["a"]}, "node3": {"active": []}}
    assert choose_run(tmp_path, MEMBERS, replies, stop=True).run_id == "a"
    replies["node2"] = {"active": []}
    assert choose_run(tmp_path, MEMBERS, replies, stop=True).run_id == "b"
    del replies["node2"]  # this node is not responding
    assert choose_run(tmp_path, MEMBERS, replies, stop=True).run_id == "a"


def test_only_existing_run_is_not_mentioned(tmp_path: Path) -> None:
    assert choose_run(tmp_path, MEMBERS, {}, stop=True) == ("", False, "")
    record(tmp_path, "a", "node1", number=1)
    assert choose_run(tmp_path, MEMBERS, {}, stop=True) == ("a", True, "")


def test_last_run_is_chosen_if_none_is_active(tmp_path: Path) -> None:
    record(tmp_path, "a", "node1", number=1, result=end("succeeded"))
    record(tmp_path, "b", "node1", number=2, result=end("failed"))
    assert choose_run(tmp_path, MEMBERS, {}, stop=True) == (
        "b",
        False,
        "nothing to stop: b ended (failed) at 2026-11-27 10:43",
    )
    choice = choose_run(tmp_path, MEMBERS, {}, stop=False)
    assert choice.note == "no run is active; the last one, b, ended (failed) at 2026-11-27 10:43"


def test_nodes_of_several_open_runs_are_queried(tmp_path: Path) -> None:
    record(tmp_path, "a", "node1", "node2", number=1)
    record(tmp_path, "b", "gone", "node3", number=2)
    record(tmp_path, "c", "node1", number=3)
    assert nodes_to_query(open_runs(tmp_path, MEMBERS), "c") == ["node1", "node3"]
    replies: dict[str, Any] = {"node1": {"active": ["a"]}, "node3": {"active": []}}
    assert choose_run(tmp_path, MEMBERS, replies, stop=True) == (
        *("a", True),
        "run a is active; c, launched later, has ended",
    )
    silent = {"node1": {"active": ["a"]}, "node3": {"unreachable": True}}
    assert choose_run(tmp_path, MEMBERS, silent, stop=True) == (
        *("b", True),
        "run b is active; c, launched later, has ended\nthis is about b; also active: a on node1, node2",
    )


def test_run_that_ended_unwatched_is_queried_on_its_nodes(tmp_path: Path) -> None:
    record(tmp_path, "a", "node1", number=1)
    record(tmp_path, "b", "node1", number=2)
    assert choose_run(tmp_path, MEMBERS, {"node1": {"active": []}}, stop=True) == ("b", True, "")


def test_runs_of_other_inventories_are_ignored(tmp_path: Path) -> None:
    record(tmp_path, "a", "node1", number=1)
    record(tmp_path, "b", "elsewhere", number=2)
    assert choose_run(tmp_path, MEMBERS, {}, stop=True) == ("a", True, "")
    assert choose_run(tmp_path, ["other"], {}, stop=True) == ("b", True, ""), "which is refused with its own message"
