"""A run whose job is requeued: the outcomes that justify it, and the start of the next life."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import unit_name
from ansible_collections.muster.training.plugins.module_utils._slurm import lives, queue, queued_run
from ansible_collections.muster.training.plugins.module_utils._supervisor.restart_policy import NO_REQUEUE

LIMIT = 2
REPORT = {
    "gpus": "",
    "ranks": [],
    "exit_code": 1,
    "oom_kills": 0,
    "health": [],
    "shutdown": False,
    "launcher_error": "",
}


def result(state: str, **changes: Any) -> dict[str, Any]:
    """Return the result of a run with two nodes; by default its first node failed with an exit code."""
    nodes = [
        {"name": "node0", "state": "ended", "report": REPORT},
        {"name": "node1", "state": "ended", "report": REPORT},
    ]
    return {"state": state, "first_node": "node0", "nodes": nodes, "attempts": [], "notice": None, **changes}


LOST = [{"name": "node0", "state": "ended", "report": REPORT}, {"name": "node1", "state": "lost", "report": None}]


@pytest.mark.parametrize(
    ("end", "code", "life", "expected"),
    [
        (result("failed"), 1, 0, False),  # a rank failed: it would fail again
        (result("failed", first_node="node1", nodes=LOST), 1, 0, True),
        (result("failed", first_node="node1", nodes=LOST), 1, LIMIT, False),
        (result("failed", first_node="node1", nodes=LOST), NO_REQUEUE, 0, False),
        (result("failed", attempts=[{"end_class": "hang"}]), 1, 0, True),
        (result("failed", attempts=[{"end_class": "deterministic"}]), 1, 0, False),
        (result("interrupted", notice={"source": "slurm"}), 1, 1, True),
        (result("interrupted", notice={"source": "launch_cost_limit"}), 1, 0, False),
        (result("succeeded"), 0, 0, False),
        (result("stopped", first_node=None), 1, 0, False),
    ],
)
def test_endings_that_justify_a_requeue_are_recognized(
    end: dict[str, Any], code: int, life: int, expected: bool
) -> None:
    assert lives.is_worth_requeueing(end, code, life, LIMIT) is expected


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return the run directory of a node, as a launch writes it."""
    path = tmp_path / "bert" / "node0"
    path.mkdir(mode=0o700, parents=True)
    (tmp_path / "checkpoints").mkdir()
    plan = {
        "run_id": "bert",
        "unit": unit_name("bert"),
        "rank_logs": "ranks",
        "node": {"name": "node0", "node_rank": 0, "first_rank": 0, "slots": 1},
        "nodes": [{"name": "node0"}],
        "world_size": 1,
        "working_directory": "/",
        "timeouts": {"grace": 5},
        "checkpoints": str(tmp_path / "checkpoints"),
        "checkpoint": "",
        "files": {"hostfile": "node0 slots=1\n"},
    }
    for name, text in {"plan.json": json.dumps(plan), "token": "secret", "hostfile": "node0 slots=1\n"}.items():
        (path / name).write_text(text)
    memory = tmp_path / "memory"
    memory.mkdir()
    (memory / "environment.json").write_text('{"KEY": "value"}')
    (path / "environment.json").symlink_to(memory / "environment.json")
    queued_run.mark_as_queued(str(path), LIMIT)
    return path


def end_first_life(directory: Path) -> None:
    """Change the plan and files of the first life, and remove its secrets."""
    for name in ("token", "environment.json"):
        (directory / name).unlink()
    (directory / "ranks").mkdir()
    (directory / "ranks" / "0.log").write_text("step 5\n")
    for name, text in {"result.json": "{}", "status.json": "{}", "hostfile": "changed", "plan.json": "{}"}.items():
        (directory / name).write_text(text)
    (directory / "measured").mkdir()


def test_requeued_job_has_the_files_of_the_first_job(directory: Path) -> None:
    before = json.loads((directory / "plan.json").read_text())
    lives.begin_life(str(directory), {"SLURM_JOB_ID": "12"})
    saved = directory / "requeue"
    assert saved.stat().st_mode & 0o777 == 0o700 and (saved / "token").stat().st_mode & 0o777 == 0o600
    end_first_life(directory)

    lives.begin_life(str(directory), {"SLURM_JOB_ID": "12", "SLURM_RESTART_COUNT": "1"})
    assert json.loads((directory / "plan.json").read_text()) == before
    assert (directory / "token").read_text() == "secret"
    assert json.loads((directory / "environment.json").read_text()) == {"KEY": "value"}
    assert (directory / "hostfile").read_text() == "node0 slots=1\n"
    assert not (directory / "result.json").exists() and list((directory / "ranks").iterdir()) == []
    assert (directory / "measured").is_dir(), "what the job wrote stays"
    assert (directory / "earlier" / "0" / "ranks" / "0.log").read_text() == "step 5\n"


def test_next_life_ignores_files_of_earlier_lives(directory: Path) -> None:
    """Examples are requests of a launcher such as mpirun, and numbered samples."""
    lives.begin_life(str(directory), {})
    end_first_life(directory)
    (directory / "asked").mkdir()
    files = ["asked/1.once", "samples.jsonl", "ranks.json", "debugger.json", "slurm-end", "nccl.gpu1.7.log"]
    for name in (*files, "flight_recorder_rank_0"):
        (directory / name).touch()
    (directory / "save").mkdir()  # the job's
    before = {"bin", "measured", "save", "checkpoints"}
    lives.begin_life(str(directory), {"SLURM_RESTART_COUNT": "1"})
    expected = {"plan.json", "token", "environment.json", "hostfile", "ranks", "requeue", "earlier", queued_run.MARKER}
    assert {path.name for path in directory.iterdir()} - before == expected
    assert (directory / "earlier" / "0" / "asked" / "1.once").exists()


def test_next_life_resumes_from_the_newest_checkpoint(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lives.begin_life(str(directory), {})
    monkeypatch.setattr(lives, "newest_local_checkpoint", lambda plan: f"{plan['checkpoints']}/step-40")
    lives.begin_life(str(directory), {"SLURM_RESTART_COUNT": "1"})
    assert json.loads((directory / "plan.json").read_text())["checkpoint"].endswith("/checkpoints/step-40")


def test_run_that_must_not_be_requeued_keeps_no_secrets(directory: Path) -> None:
    (directory / queued_run.MARKER).write_text("{}\n")
    lives.begin_life(str(directory), {})
    assert not (directory / "requeue").exists()
    assert lives.end_life(str(directory), 1, {"SLURM_JOB_ID": "12"}) == ""


def write_end(directory: Path, state: str, **changes: Any) -> None:
    """Write the full result of a life."""
    since = {"node_rank": 0, "since": 1.0, "launcher_log": ""}
    nodes = [{**since, "name": "node0", "state": "ended", "report": REPORT}]
    nodes.append({**since, "node_rank": 1, "name": "node1", "state": "lost", "report": None})
    end = {"run_id": "bert", "reason": "", "first_node": "node1", "world_size": 1, "nnodes": 2, "ended": 2.0}
    (directory / "result.json").write_text(json.dumps({**end, "state": state, "nodes": nodes, **changes}))
    status = {"state": state, "message": "", "since": 1.0}
    (directory / "status.json").write_text(json.dumps(status))


def fake_scontrol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int = 0) -> Path:
    (tmp_path / "scontrol").write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/calls\nexit {code}\n')
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path / "calls"


def test_job_is_requeued_after_a_loss(directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = fake_scontrol(tmp_path, monkeypatch)
    lives.begin_life(str(directory), {})
    write_end(directory, "failed")
    assert lives.end_life(str(directory), 1, {"SLURM_JOB_ID": "12"}) == "Slurm job 12 was requeued (1 of 2)"
    assert calls.read_text() == "requeue 12\n" and (directory / "requeue" / "token").exists()
    fake_scontrol(tmp_path, monkeypatch, 1)
    assert "could not be requeued" in lives.end_life(str(directory), 1, {"SLURM_JOB_ID": "12"})


def test_run_stopped_by_slurm_may_restart_but_not_a_run_stopped_by_a_person(directory: Path) -> None:
    lives.begin_life(str(directory), {})
    write_end(directory, "stopped")
    assert lives.end_life(str(directory), 1, {"SLURM_JOB_ID": "12"}) == ""
    assert (directory / "requeue" / "token").exists(), "it may have been preempted"
    (directory / "stop").touch()
    lives.end_life(str(directory), 1, {"SLURM_JOB_ID": "12"})
    assert not (directory / "requeue").exists()


@pytest.mark.parametrize(("queued", "remains"), [("12|PENDING|BeginTime|N/A", True), ("", False)])
def test_secrets_of_a_cancelled_job_are_removed_by_the_next_start(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, queued: str, remains: bool
) -> None:
    lives.begin_life(str(directory), {})
    (tmp_path / "squeue").write_text(f"#!/bin/sh\necho '{queued}'\n")
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    queued_run.remove_ended_files(str(tmp_path))
    assert (directory / "requeue").exists() is remains


def test_run_between_two_lives_can_be_removed_from_the_queue(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lives.begin_life(str(directory), {})
    (directory / "supervisor.json").write_text("{}")
    write_end(directory, "interrupted")
    for name, text in {"squeue": f'cat "{tmp_path}/queue"', "scancel": f'echo "$*" > {tmp_path}/cancelled'}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "queue").write_text("")
    assert queued_run.is_waiting(str(directory))
    queued_run.cancel(str(directory), "bert")
    assert not (tmp_path / "cancelled").exists(), "its job has ended"

    (tmp_path / "queue").write_text("12|PENDING|BeginTime|N/A\n")
    queued_run.cancel(str(directory), "bert")
    assert "--name=bert" in (tmp_path / "cancelled").read_text() and not queued_run.is_waiting(str(directory))
    assert json.loads((directory / "status.json").read_text())["state"] == "stopped"


def test_success_ends_the_sequence_of_lives(directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = fake_scontrol(tmp_path, monkeypatch)
    lives.begin_life(str(directory), {})
    write_end(directory, "succeeded")
    assert lives.end_life(str(directory), 0, {"SLURM_JOB_ID": "12"}) == ""
    assert not calls.exists() and not (directory / "requeue").exists()


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (result("failed", first_node="node1", nodes=LOST), "USR2"),
        (result("succeeded", nodes=LOST), "HUP"),  # an elastic run, or a restarted one
        (result("failed"), ""),
        ({}, ""),
    ],
)
def test_job_ends_without_waiting_for_lost_nodes(
    directory: Path, monkeypatch: pytest.MonkeyPatch, end: dict[str, Any], expected: str
) -> None:
    monkeypatch.setattr(lives, "read_result", lambda _directory: end or None)
    calls: list[tuple[str, ...]] = []

    def note_call(*argv: str) -> str:
        calls.append(argv)
        return ""

    monkeypatch.setattr(queue, "run", note_call)
    lives.end_job_of_lost_nodes(str(directory), {"SLURM_JOB_ID": "12"})
    assert calls == ([("scancel", "--batch", f"--signal={expected}", "12")] if expected else [])
