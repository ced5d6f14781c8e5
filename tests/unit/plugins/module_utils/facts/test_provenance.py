"""Identification of a job's packages and inputs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._facts import provenance, software
from ansible_collections.muster.training.plugins.module_utils._facts.software import SoftwareQuery


def query(directory: Path, arguments: list[str], interpreter: str = "") -> dict[str, Any]:
    software = SoftwareQuery(interpreter, "/") if interpreter else None
    return provenance.ProvenanceQuery(software, arguments, str(directory), str(directory), lambda _path: "").result()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--data", "x", "--train-file=y", "--epochs", "3"], {"data": "x", "train-file": "y"}),
        (["--model_name_or_path", "org/model", "--output_dir", "o"], {"model_name_or_path": "org/model"}),
        (["--data_dir", "d", "--save-model", "m", "--logging-dir", "l"], {"data_dir": "d", "save-model": "m"}),
        (["--config", "--data", "s3://b/x", "--deepspeed", "zero.json"], {"deepspeed": "zero.json"}),
    ],
)
def test_inputs_are_identified_by_option_names(arguments: list[str], expected: dict[str, str]) -> None:
    assert provenance.input_arguments(arguments) == expected


def test_input_is_identified_by_its_content_and_names(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "a").write_text("one")
    digests = [query(tmp_path, ["--data", "data"])["inputs"]["data"]["digest"]]
    for name, text in (("a", "two"), ("b", "one")):
        (data / name).write_text(text)
        digests.append(query(tmp_path, ["--data", "data"])["inputs"]["data"]["digest"])
    assert len({*digests}) == 3 and all(digests)
    assert query(tmp_path, ["--data", "data"])["inputs"]["data"] == {
        "path": str(data),
        "files": 2,
        "bytes": 6,
        "digest": digests[2],
    }
    assert query(tmp_path, ["--data", "missing"])["inputs"] == {}


def test_staged_file_is_identified_by_its_checksum_until_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "big"
    path.write_bytes(b"x" * (provenance.MAX_HASHED_FILE + 1))
    unknown = provenance.describe_input(str(tmp_path), 0)[0]["digest"]
    (tmp_path / ".muster-stage").mkdir()
    entry = ["big", path.stat().st_size, path.stat().st_mtime_ns, "checksum"]
    (tmp_path / ".muster-stage" / "index.jsonl").write_text(json.dumps(entry) + "\n")
    staged = provenance.describe_input(str(tmp_path), 0)[0]
    assert staged["digest"] != unknown and staged["files"] == 1
    path.touch()
    assert provenance.describe_input(str(tmp_path), 0)[0]["digest"] == unknown


def test_inputs_with_too_many_files_are_not_identified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "MAX_INPUT_FILES", 2)
    for name in "abcd":
        (tmp_path / name).touch()
    assert provenance.describe_input(str(tmp_path), 100)[0]["digest"] == ""


def test_interpreter_packages_and_environment_locks_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(software, "INTERPRETER_TIMEOUT", 240.0)
    result = query(tmp_path, [], sys.executable)["environment"]
    assert result["python"] == sys.version.split()[0] and result["packages"]["pytest"] == pytest.__version__
    assert result["home"] == ""
    environment = tmp_path / "env"
    (environment / "bin").mkdir(parents=True)
    (environment / ".muster").write_text("uv")
    (environment / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / "locks").mkdir()
    for layer, order in (("late", 20), ("base", 0)):
        (tmp_path / "locks" / f"{layer}.json").write_text(json.dumps({"layer": layer, "order": order, "files": []}))
    (tmp_path / "locks" / "broken.json").write_text("{")
    result = query(tmp_path, [], str(environment / "bin" / "python"))["environment"]
    assert (result["home"], result["manager"]) == (str(tmp_path), "uv")
    assert [lock["layer"] for lock in result["locks"]] == ["base", "late"]


def test_commits_of_models_and_datasets_are_read(tmp_path: Path) -> None:
    hub = tmp_path / ".cache" / "huggingface" / "hub"
    for folder, commit in (("models--org--model", "a" * 40), ("datasets--org--data", "b" * 40), ("models--x", "no")):
        (hub / folder / "refs").mkdir(parents=True)
        (hub / folder / "refs" / "main").write_text(commit)
        (hub / folder / "snapshots" / commit).mkdir(parents=True)
    assert query(tmp_path, [])["repositories"] == {"org/model": "a" * 40, "org/data": "b" * 40}
