"""Results that a job reports by MUSTER_RESULT, extracted from rank 0's log after the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._run import job_results
from ansible_collections.muster.training.plugins.module_utils._run import status as run_status
from tests.unit.supervised import Run, make_run


def make_ended_run(tmp_path: Path, log: str, rank: int = 0, state: str = "succeeded") -> Run:
    """Create an ended run with this log."""
    run = make_run(tmp_path, [["/bin/true"], ["/bin/true"]])
    node = run.node(rank)
    node.mkdir(parents=True)
    (node / "plan.json").write_text(json.dumps(run.plans[rank]))
    (node / "status.json").write_text(json.dumps({"state": state, "message": "", "since": 1.0}))
    (node / "launcher.log").write_text(log)
    return run


def read(run: Run, rank: int = 0) -> Any:
    return run_status.read(run.request(rank, wait=0))["run"]


CURVE = [{"step": number, "loss": 1 / (number + 1)} for number in range(5)]
LOG = "start\n" + "".join(f"step\nMUSTER_RESULT {json.dumps(point)}\n" for point in CURVE)


@pytest.mark.parametrize("state", ["succeeded", "failed", "stopped", "died"])
def test_all_reports_are_kept_and_the_last_value_of_each_key_is_shown(tmp_path: Path, state: str) -> None:
    run = make_ended_run(tmp_path, LOG + 'MUSTER_RESULT {"accuracy": 0.9}\nno MUSTER_RESULT {"loss": 7}\n', state=state)
    assert read(run)["job_results"] == {**CURVE[-1], "accuracy": 0.9}
    recorded = (run.node(0) / "job_results.jsonl").read_text()
    assert [json.loads(line) for line in recorded.splitlines()] == [*CURVE, {"accuracy": 0.9}]
    (run.node(0) / "launcher.log").unlink()
    assert read(run)["job_results"] == {**CURVE[-1], "accuracy": 0.9}, "a log is looked through once"


def test_results_are_read_only_on_the_first_node_after_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_ended_run(tmp_path, LOG, rank=1)
    assert read(run, 1)["job_results"] == {}
    run = make_ended_run(tmp_path, LOG, state="running")
    monkeypatch.setattr(run_status, "is_alive", lambda _directory: True)
    assert read(run)["job_results"] == {}
    assert not list(tmp_path.rglob("job_results.jsonl"))


def test_keys_of_the_newest_report_are_last() -> None:
    lines = ['{"loss": 2, "lr": 0.1}', '{"val": 1}', '{"loss": 1, "lr": 0.2}']
    values = job_results.merge_reports("\n".join(lines))
    assert list(values.items()) == [("val", 1), ("loss", 1), ("lr", 0.2)]


def test_invalid_or_oversized_reports_are_omitted(tmp_path: Path) -> None:
    deep = "[" * 30 + "]" * 30
    lines = ['{"a": 1', "[1]", "{'a': 1}", f'{{"a": {deep}}}', f'{{"a": "{"x" * 70000}"}}', '{"b": "\\u0000"}', "\x00"]
    run = make_ended_run(tmp_path, "".join(f"MUSTER_RESULT {line}\n" for line in lines))
    assert read(run)["job_results"] == {"b": "\x00"}


def test_only_the_last_reports_within_the_limit_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_results, "LIMIT", 1000)
    run = make_ended_run(tmp_path, "".join(f'MUSTER_RESULT {{"step": {number}}}\n' for number in range(1000)))
    assert read(run)["job_results"] == {"step": 999}
    recorded = (run.node(0) / "job_results.jsonl").read_text()
    steps = [json.loads(line)["step"] for line in recorded.splitlines()]
    assert len(recorded) <= 1000 and steps == list(range(1000 - len(steps), 1000)) and len(steps) > 30


def test_results_are_shown_even_if_the_file_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_path: str, _text: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(job_results, "write_private", full)
    run = make_ended_run(tmp_path, LOG)
    assert read(run)["job_results"] == CURVE[-1] and not (run.node(0) / "job_results.jsonl").exists()
