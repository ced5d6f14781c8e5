"""DeepSpeed configurations in a job's arguments."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.module_utils._facts.deepspeed_config import config_path, read_config
from tests.unit.hostile import BAD_FILES, make_bad_file

T = "train_batch_size"


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        ([], ""),
        (["--deepspeed", "configs/zero2.json", "--bf16", "true"], "configs/zero2.json"),
        (["--deepspeed=ds.json"], "ds.json"),
        (["--deepspeed", "--deepspeed_config", "ds.json"], "ds.json"),
        (["--deepspeed_config=ds.json", "--deepspeed"], "ds.json"),
        (["--deepspeed"], ""),
        (["--deepspeed", "--fp16"], ""),
        (["--lr", "--deepspeedy", "x"], ""),
    ],
)
def test_config_path_is_read_from_the_arguments(arguments: list[str], path: str) -> None:
    assert config_path(arguments) == path


@pytest.mark.parametrize(
    ("content", "error"),
    [(b"{", "invalid JSON: "), (b"[1]", "not a JSON object"), (b"\xff", "invalid JSON: ")],
)
def test_invalid_or_missing_config_is_reported(tmp_path: Path, content: bytes, error: str) -> None:
    (tmp_path / "ds.json").write_bytes(content)
    read = read_config(str(tmp_path / "ds.json"))
    assert read["config"] is None and read["error"].startswith(error)
    assert read_config(str(tmp_path / "none.json"))["error"] == "No such file or directory"


@pytest.mark.parametrize("kind", [*BAD_FILES])
def test_hostile_config_is_reported_and_does_not_block(tmp_path: Path, kind: str) -> None:
    make_bad_file(tmp_path / "ds.json", kind)
    (tmp_path / "target").write_text("mine")
    read = read_config(str(tmp_path / "ds.json"))
    assert (
        bool(read["error"]) == (kind not in ("another type", "digits", "nan", "newlines")) == (read["config"] is None)
    )


def test_config_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text(json.dumps({T: 8}))
    (tmp_path / "ds.json").symlink_to("data.json")
    assert read_config(str(tmp_path / "ds.json"))["config"] == {T: 8}


def test_a_configuration_is_read(tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    path.write_text(json.dumps({T: 8}))
    assert read_config(str(path)) == {"path": str(path), "config": {T: 8}, "error": ""}
