"""Differences between two runs, next to their outcomes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._record.code_patch import fingerprints, make_patch
from ansible_collections.muster.training.plugins.plugin_utils._record.reader import read_record
from ansible_collections.muster.training.plugins.plugin_utils._record.run_diff import read_run, render_diff
from ansible_collections.muster.training.plugins.plugin_utils._record.snapshot import NO_CODE
from ansible_collections.muster.training.plugins.plugin_utils._report.report import compose_report
from tests.unit.plugins.plugin_utils.record.test_code_patch import hostile_repository
from tests.unit.plugins.plugin_utils.record.test_snapshot import planned, snapshot


def write_run(directory: Path, name: str, text: str, loss: float, **changes: Any) -> Path:
    """Write the record of a run whose code is one file, and return its directory."""
    record, source = directory / name, directory / "code"
    record.mkdir()
    source.mkdir(exist_ok=True)
    (source / "train.py").write_text(text)
    files = fingerprints(source, ["train.py"])
    (record / "code.json").write_text(json.dumps({"source": str(source), "files": files}))
    (record / "code.patch").write_bytes(make_patch(str(source), files, "").text)
    code = {**NO_CODE, "source": str(source), "digest": text, "patch": "code.patch"}
    (record / "snapshot.json").write_text(json.dumps(snapshot(code=code, **changes)))
    plan = {**planned(), "run_id": name, "currency": "USD"}
    (record / "plan.json").write_text(json.dumps(plan))
    result = {"run_id": name, "state": "succeeded", "started": 1.7e9, "ended": 1.7e9 + 60, "nodes": []}
    (record / "result.json").write_text(json.dumps({**result, "job_results": {"loss": loss}}))
    return record


def compare(records: list[Path], show_lines: bool = False) -> str:
    reports = [compose_report(read_record(record, record.name), 1.8e9) for record in records]
    return render_diff([read_run(record) for record in records], reports, show_lines)


def rows(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_settings_code_and_outcomes_are_shown_side_by_side(tmp_path: Path) -> None:
    settings = {"launch_args": ["--seed", "8"], "launch_script": "train.py"}
    first = write_run(tmp_path, "first", "a = 1\nb = 2\n", 0.5)
    second = write_run(tmp_path, "second", "a = 1\nb = 3\nc = 4\n", 0.25, settings=settings, plan=planned(driver="570"))
    text = compare([first, second])
    assert 'setting: launch_args ["--seed", "7"] ["--seed", "8"]' in rows(text)
    assert "node: node 0: driver 550 570" in rows(text)
    assert "code: train.py changed, +2 -1 -" in rows(text)
    assert "state succeeded succeeded" in rows(text) and "loss 0.5 0.25" in rows(text)
    assert "b = 3" not in text
    assert text.endswith("ansible-playbook diff.yml -e run_id=first -e other_run=second -e lines=true")
    lines = compare([first, second], show_lines=True).splitlines()
    assert {"-b = 2", "+b = 3", "+c = 4"} <= {*lines}


def test_equal_runs_are_compared_and_secrets_in_code_are_hidden(tmp_path: Path) -> None:
    first = write_run(tmp_path, "first", "a = 1\n", 0.5)
    second = write_run(tmp_path, "second", "a = 1\n", 0.5)
    assert compare([first, second]).startswith("no differences are recorded")
    third = write_run(tmp_path, "third", 'a = 1\napi_key = "abc123def456"\n', 0.5)
    assert "abc123def456" not in compare([first, third], show_lines=True)


def test_record_of_an_older_release_is_compared_where_possible(tmp_path: Path) -> None:
    first = write_run(tmp_path, "first", "a = 1\n", 0.5)
    second = write_run(tmp_path, "second", "a = 2\n", 0.5)
    (first / "snapshot.json").unlink()
    text = compare([first, second])
    assert "packages and data were not compared: the record of first has no snapshot.json" in text
    (first / "code.json").write_text("{")
    assert "the code was not compared: the record of first has none" in compare([first, second])


def test_hostile_record_is_shown_as_text(tmp_path: Path) -> None:
    first = write_run(tmp_path, "first", "a = 1\n", 0.5)
    second = write_run(tmp_path, "second", "a = 1\n", 0.5)
    hostile = snapshot()
    hostile["settings"] = {"\x1b]0;title\x07": "\x1b[31m" + "x" * 10_000}
    (second / "snapshot.json").write_text(json.dumps(hostile))
    text = compare([first, second])
    assert "\x1b" not in text and "\x07" not in text and max(map(len, text.splitlines())) < 200


def test_secret_in_an_older_records_arguments_is_not_shown(tmp_path: Path) -> None:
    records = [write_run(tmp_path, name, "a = 1\n", 0.5) for name in ("first", "second")]
    for record, seed in zip(records, ("7", "8"), strict=True):
        raw = snapshot()
        raw["settings"] = {"launch_args": ["--api-key", "abc123def456", "--seed", seed]}
        (record / "snapshot.json").write_text(json.dumps(raw))
    text = compare(records)
    assert "abc123def456" not in text and "[removed]" in text and '"8"' in text


def test_comparison_runs_no_commands_from_a_repository_in_a_record(tmp_path: Path) -> None:
    records = [write_run(tmp_path, name, f"a = {name!r}\n", 0.5) for name in ("first", "second")]
    source = records[0] / "hostile" / "code"
    commit = hostile_repository(source)
    (source / "train.py").write_text("changed\n")
    code = {**NO_CODE, "source": str(source), "digest": "x", "commit": commit}
    (records[0] / "snapshot.json").write_text(json.dumps(snapshot(code=code)))
    assert "code: train.py" in compare(records)
    assert [path.name for path in source.parent.iterdir()] == ["code"]
