"""A run is repeated from a record of untrusted origin."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.muster.training.plugins.action.run_repeat import ActionModule, CodeToRepeat
from ansible_collections.muster.training.plugins.plugin_utils._record.code_patch import fingerprints
from ansible_collections.muster.training.plugins.plugin_utils._record.code_tree import digest_of_files
from ansible_collections.muster.training.plugins.plugin_utils._user_error import UserError
from tests.make_site import CHECKOUT


def record_of(tmp_path: Path, source: Path, name: str = "train.py") -> tuple[Path, dict[str, Any]]:
    """Write the record of a run with one file; return it and the snapshot."""
    record = tmp_path / "runs" / "first"
    source.mkdir(parents=True)
    record.mkdir(parents=True, exist_ok=True)
    (source / "train.py").write_text("x = 1\n")
    value = fingerprints(source, ["train.py"])["train.py"]
    (record / "plan.json").write_text("{}")
    (record / "code.json").write_text(json.dumps({"source": "", "files": {name: value}}))
    code = {"source": str(source), "commit": "", "digest": digest_of_files({name: value}), "exclude": [".git/"]}
    snapshot = {"settings": {}, "code": code}
    (record / "snapshot.json").write_text(json.dumps(snapshot))
    return record, snapshot


def test_unchanged_code_is_used_directly(tmp_path: Path) -> None:
    record, snapshot = record_of(tmp_path, tmp_path / "code")
    assert CodeToRepeat(record, snapshot, record / "restored_code").find() == (str(tmp_path / "code"), [])


def test_code_in_a_record_is_copied_without_its_repository(tmp_path: Path) -> None:
    source = tmp_path / "runs" / "first" / "code"
    record, snapshot = record_of(tmp_path, source)
    (source / ".git").mkdir()
    directory, differences = CodeToRepeat(record, snapshot, record / "restored_code").find()
    assert (directory, differences) == (str(record / "restored_code"), [])
    assert [path.name for path in Path(directory).iterdir()] == ["train.py"]


def test_paths_in_a_record_cannot_escape_the_restored_code(tmp_path: Path) -> None:
    record, snapshot = record_of(tmp_path, tmp_path / "a" / "b" / "c", "../../../rc.sh")
    (tmp_path / "rc.sh").write_text("x = 1\n")
    before = sorted(tmp_path.rglob("*"))
    CodeToRepeat(record, snapshot, record / "restored_code").find()
    assert sorted(tmp_path.rglob("*")) == sorted([*before, record / "restored_code"])


def test_record_with_a_repository_is_refused(tmp_path: Path) -> None:
    record, _snapshot = record_of(tmp_path, tmp_path / "code")
    action = ActionModule.__new__(ActionModule)
    action.directory, action.args = record.parent, {"like": "first"}
    assert action.like()[0] == record
    (record / ".git").mkdir()
    with pytest.raises(UserError, match="contains .git, which a launch never writes"):
        action.like()


def test_code_with_a_url_of_the_runs_notifications_is_not_recorded(tmp_path: Path) -> None:
    """The job file is next to the script; the launch passes the URLs to the task."""
    (tmp_path / "job.yml").write_text("job: {script: train.py, notify: 'https://ntfy.example.org/topic'}\n")
    action = ActionModule.__new__(ActionModule)
    action.directory = tmp_path / "runs"
    code = {"source": str(tmp_path), "files": fingerprints(tmp_path, ["job.yml"])}
    action.args = {"code": code, "code_directory": "", "code_exclude": [], "notify": ""}
    assert action.describe_code()[1]
    action.args["notify"] = [{"url": "https://ntfy.example.org/topic", "kind": "ntfy"}]
    recorded, patch = action.describe_code()
    assert patch == b"" and "launch_notify" in recorded["without_patch"]
    tasks = yaml.safe_load((CHECKOUT / "roles/launch/tasks/start.yml").read_text())
    (arguments,) = [task["muster.training.run_repeat"] for task in tasks if "muster.training.run_repeat" in task]
    assert arguments["notify"] == "{{ __launch_notify }}"
