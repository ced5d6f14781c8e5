"""The runs of a node: listed, and removed after their end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._run import find_runs, list_runs, running_supervisors
from tests.unit.supervised import Run, end_by_force, eventually, make_run


def on_node(run: Run, *remove: str, check: bool = False) -> dict[str, Any]:
    return list_runs.main(run.request(0, remove=list(remove), check=check))


def make_ended_run(directory: Path, run_id: str, state: str) -> Run:
    """Create a run on this node that has reached this state and has written 1000 additional bytes."""
    run = make_run(directory, [["/bin/true"]], run_id=run_id)
    node = run.node(0)
    node.mkdir(parents=True)
    (node / "plan.json").write_text(json.dumps(run.plans[0]))
    (node / "status.json").write_text(json.dumps({"state": state, "message": "", "since": 5.0}))
    (node / "launcher.log").write_text("x" * 1000)
    return run


def test_runs_are_listed_and_those_named_are_removed(tmp_path: Path) -> None:
    run = make_ended_run(tmp_path, "first", "succeeded")
    make_ended_run(tmp_path, "second", "running")  # a run whose supervisor has exited
    reply = on_node(run)
    assert {item["run_id"]: item["state"] for item in reply["runs"]} == {"first": "succeeded", "second": "died"}
    assert all(item["size"] > 1000 and not item["alive"] for item in reply["runs"])
    assert reply["removed"] == [] and not reply["changed"]

    assert on_node(run, "first", check=True)["removed"] == ["first"]
    assert run.node(0).is_dir()
    reply = on_node(run, "first", "nosuch", "../second")
    assert (reply["changed"], reply["removed"]) == (True, ["first"])
    assert not run.node(0).parent.exists() and [item["run_id"] for item in reply["runs"]] == ["second"]


def test_runs_are_described_by_job_project_and_outcome(tmp_path: Path) -> None:
    run = make_ended_run(tmp_path, "first", "failed")
    run.plans[0].update(program="train.py", arguments=["--name", "a b"], working_directory="/home/me/toy")
    (run.node(0) / "plan.json").write_text(json.dumps(run.plans[0]))
    (run.node(0) / "job_results.jsonl").write_text('{"loss": 0.5, "text": "x"}\n{"loss": 0.25, "step": 7}\n')
    (listed,) = on_node(run)["runs"]
    assert (listed["job"], listed["project"]) == ("train.py --name 'a b'", "/home/me/toy")
    assert listed["outcome"] == "loss 0.25, step 7"
    ranks = [{"rank": 0, "error": ""}, {"rank": 1, "error": "ValueError: boom\nmore", "first": True}]
    view = {"state": "ended", "since": 2.0, "launcher_log": ""}
    nodes = [
        {**view, "name": "other", "node_rank": 1, "report": None},
        {**view, "name": "node0", "node_rank": 0, "report": {"ranks": ranks}},
    ]
    result = {"run_id": "first", "state": "failed", "first_node": "node0", "nodes": nodes, "ended": 2.0}
    result.update(world_size=2, nnodes=2, started=1.0, reason="the launcher ended")
    (run.node(0) / "result.json").write_text(json.dumps(result))
    assert on_node(run)["runs"][0]["outcome"] == "ValueError: boom"
    cut_off = {"rank": 2, "error": "RuntimeError: Connection closed by peer", "first": True}
    first = {**view, "name": "node2", "node_rank": 2, "report": {"ranks": [cut_off]}}
    both = {**result, "first_node": "node2", "nodes": [*nodes, first]}
    (run.node(0) / "result.json").write_text(json.dumps(both))
    assert on_node(run)["runs"][0]["outcome"] == "ValueError: boom", "a lost connection is a consequence"
    (run.node(0) / "result.json").write_text(json.dumps({**result, "nodes": [7]}))
    assert on_node(run)["runs"][0]["outcome"] == "loss 0.25, step 7", "an invalid result is ignored"
    assert on_node(run) | {"runs": []} == {"changed": False, "runs": [], "removed": []}


def test_active_runs_are_listed_by_their_supervisors(tmp_path: Path) -> None:
    run = make_run(tmp_path, [["/bin/sleep", "300"]])
    assert run.run_id not in list_runs.main({"active": True})["active"]
    run.start(0)
    try:
        eventually(lambda: run.run_id in list_runs.main({"active": True})["active"])
    finally:
        end_by_force(run)


def test_active_runs_are_unknown_if_processes_of_other_users_are_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """With hidepid on /proc, the reply must not report the end of another account's run."""
    assert not running_supervisors.has_hidden_processes()
    monkeypatch.setattr(running_supervisors, "command_line", lambda _pid: [])
    assert running_supervisors.has_hidden_processes()
    assert list_runs.main({"active": True}) == {"changed": False}


def test_hidden_processes_are_detected_by_an_ordinary_account() -> None:
    module = running_supervisors.__name__
    become = "import os; os.setgroups([]); os.setgid(65534); os.setuid(65534)"
    program = f"from {module} import *; {become}; raise SystemExit(has_hidden_processes() + 20)"
    for options, code in (("hidepid=0", 20), ("hidepid=2", 21)):
        mount = f'mount -t proc -o {options} proc /proc && exec "$@"'
        argv = ["unshare", "--mount", "sh", "-c", mount, "sh", sys.executable, "-c", program]
        assert subprocess.run(argv, check=False).returncode == code, options


def test_live_run_is_not_removed(tmp_path: Path) -> None:
    run = make_run(tmp_path, [["/bin/sleep", "300"]])
    run.start(0)
    try:
        eventually(lambda: on_node(run)["runs"][0]["alive"])
        reply = on_node(run, run.run_id)
        assert (reply["changed"], reply["removed"]) == (False, [])
        assert reply["runs"][0]["state"] in ("starting", "running") and run.node(0).is_dir()
    finally:
        end_by_force(run)


def test_run_directory_that_cannot_be_removed_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_ended_run(tmp_path, "first", "succeeded")

    def refuse(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(find_runs, "remove_tree", refuse)
    assert on_node(run, "first") == {
        "error": f"cannot remove {run.node(0)}: Permission denied. Check its owner on this node"
    }


@pytest.mark.parametrize(("written", "started"), [(9e18, 1e11), (-9e18, -1e11), (1.5e9, 1.5e9)])
def test_impossible_time_of_a_file_does_not_make_the_list_invalid(
    written: float, started: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job can set it on file systems with 64-bit times, such as btrfs."""
    with monkeypatch.context() as patch:
        patch.setattr("os.lstat", lambda _path: SimpleNamespace(st_mtime=written))
        shown = find_runs.modification_time("plan.json")
    assert shown == started
