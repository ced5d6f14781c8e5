"""Runs whose job removes or replaces files of its run directory: all commands keep working."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._run import (
    archive_selection,
    dispatch,
    find_runs,
    list_runs,
    outputs,
    running_supervisors,
    stored_documents,
)
from tests.unit.hostile import BAD_FILES, make_bad_file, nested_directories
from tests.unit.supervised import Run, end_by_force, eventually, make_run

DOCUMENTS = ("plan.json", "supervisor.json", "status.json", "result.json")
FILES = (
    *DOCUMENTS,
    "events.jsonl",
    "job_results.jsonl",
    "gpus.csv",
    "logs.tar.gz",
    "left_out.json",
    "launcher.log",
    "stop",
)


def node_request(run: Run, operation: str, **more: Any) -> dict[str, Any]:
    """Return the node's reply to a request, after a JSON round trip."""
    fields = {"operation": operation, "wait": 0, "cursors": {}, "local_rank": 0, "selection": "logs", **more}
    reply: dict[str, Any] = json.loads(json.dumps(dispatch.main(run.request(0, **fields))))
    assert "error" not in reply, reply
    return reply


def stop_supervisor(run: Run) -> int:
    """Stop the supervisor, so that it cannot restore anything; return its pid."""
    pid = run.supervisor(0)
    os.kill(pid, signal.SIGSTOP)
    return pid


@pytest.fixture
def alive(tmp_path: Path) -> Iterator[Run]:
    """Start a run that only a request can end."""
    run = make_run(tmp_path, [["/bin/sleep", "600"]], timeouts={"heartbeat": 0.1})
    run.start()
    run.wait_for("running")
    yield run
    end_by_force(run)


@pytest.fixture
def ended(tmp_path: Path) -> Run:
    run = make_run(tmp_path, [["/bin/sh", "-c", "echo 'MUSTER_RESULT {\"loss\": NaN}'"]])
    run.start()
    run.wait_for("succeeded")
    eventually(lambda: not run.processes())
    return run


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in ("launcher.log", "result.json") else pytest.mark.thorough)
        for name in FILES
    ],
)
def test_requests_survive_any_file_left_by_an_ended_run(ended: Run, tmp_path: Path, name: str) -> None:
    intact = shutil.copytree(ended.node(0), tmp_path / "intact")
    for kind in BAD_FILES:
        make_bad_file(ended.node(0) / name, kind)
        for operation in ("read", "watch", "pack", "stop"):
            if operation == "watch" and name == "plan.json":
                continue  # in that case the run does not exist
            node_request(ended, operation)
        assert list_runs.main({**ended.request(0), "remove": []})["removed"] == []
        if kind == "link":
            assert (ended.node(0) / "target").read_text() == "mine"
        shutil.rmtree(ended.node(0))
        shutil.copytree(intact, ended.node(0))


def test_live_run_is_detected_whatever_its_documents_contain(alive: Run) -> None:
    pid = stop_supervisor(alive)
    for kind in BAD_FILES:
        for name in DOCUMENTS:
            make_bad_file(alive.node(0) / name, kind)
        assert node_request(alive, "read")["run"]["state"] == "starting"
        assert node_request(alive, "watch")["active"]
        (listed,) = list_runs.main({**alive.request(0), "remove": [alive.run_id]})["runs"]
        assert listed["alive"]
    os.kill(pid, signal.SIGCONT)
    assert node_request(alive, "stop")["stopped"] == [alive.run_id]
    assert not alive.processes()


@pytest.mark.parametrize("damage", ["plan", "every file", "directory", "locked", "writable", "link"])
def test_supervisor_restores_its_files_and_reports_the_restoration(alive: Run, damage: str) -> None:
    node = alive.node(0)
    pid = stop_supervisor(alive)
    if damage == "plan":
        (node / "plan.json").unlink()
    elif damage == "every file":
        for path in node.glob("*.json*"):
            path.unlink()
    elif damage == "directory":
        shutil.rmtree(node.parent)
    elif damage == "locked":
        node.chmod(0)
    elif damage == "writable":
        node.chmod(0o777)
    else:
        shutil.rmtree(node)
        (alive.directory / "elsewhere").mkdir()
        node.symlink_to(alive.directory / "elsewhere")
    assert [plan["run_id"] for _path, plan in find_runs.node_directories(alive.request(0))] == [alive.run_id]
    os.kill(pid, signal.SIGCONT)
    eventually(lambda: find_runs.private_plan(str(node)) == alive.plans[0])
    eventually(lambda: (node / "events.jsonl").exists() and any("removed, replaced" in text for text in alive.events()))
    assert node_request(alive, "read")["run"]["state"] == "running"
    assert node_request(alive, "stop")["stopped"] == [alive.run_id]
    eventually(lambda: alive.read(0, "result.json"))
    assert alive.read(0, "result.json")["state"] == "stopped"


def test_damaged_run_is_stopped_and_removed_by_a_replacement(alive: Run) -> None:
    frozen_pid = stop_supervisor(alive)
    (alive.node(0) / "plan.json").unlink()
    os.kill(frozen_pid, signal.SIGCONT)
    replacement = make_run(alive.directory, [["/bin/true"]])
    replacement.plans[0]["node"] = alive.plans[0]["node"]
    (reply,) = replacement.start(replace=True)
    try:
        assert reply["stopped"] == [alive.run_id]
        assert not alive.processes()
    finally:
        end_by_force(replacement)


@pytest.mark.parametrize("plan", ["another run", "another node", "another unit"])
def test_another_programs_plan_is_ignored(ended: Run, plan: str) -> None:
    changes: dict[str, Any] = {
        "another run": {"run_id": "another", "unit": "muster-another"},
        "another node": {"node": {**ended.plans[0]["node"], "node_rank": 5}},
        "another unit": {"unit": "sshd"},
    }
    path = ended.node(0) / "plan.json"
    path.write_text(json.dumps({**ended.plans[0], **changes[plan]}))
    assert stored_documents.read_plan(str(ended.node(0))) is None
    path.write_text(json.dumps(ended.plans[0]))
    assert stored_documents.read_plan(str(ended.node(0))) == ended.plans[0]


def test_deep_directories_are_measured_packed_and_removed(ended: Run) -> None:
    (ended.node(0) / "measured" / "good").write_text("1")
    with nested_directories(ended.node(0) / "measured" / "deep", 1800):
        assert node_request(ended, "pack", selection="measured")["last"]
        reply = outputs.main({**ended.request(0), "operation": "tell", "outputs": []})
        assert reply["incomplete"] and "run/measured/good" in [file["name"] for file in reply["files"]]
        (listed,) = list_runs.main({**ended.request(0), "remove": []})["runs"]
        assert listed["size"] > 0
        assert list_runs.main({**ended.request(0), "remove": [ended.run_id]})["removed"] == [ended.run_id]
        assert not ended.node(0).exists()


def test_number_of_measured_files_is_limited(ended: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_selection, "MEASURED_COUNT", 3)
    for number in range(10):
        (ended.node(0) / "measured" / f"{number}").write_text("")
    omitted = node_request(ended, "pack", selection="measured")["left_out"]
    assert (omitted["count"], omitted["limit_count"]) == (7, 3)


def test_supervisors_pid_is_a_number_in_range(tmp_path: Path) -> None:
    for text, pid in (('{"pid": 12}', 12), ('{"pid": true}', None), ('{"pid": -1}', None), ('{"pid": 1e9}', None)):
        (tmp_path / "supervisor.json").write_text(text)
        assert stored_documents.read_supervisor_pid(str(tmp_path)) == pid
        assert not running_supervisors.is_alive(str(tmp_path))
