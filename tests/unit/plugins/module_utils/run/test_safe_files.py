"""Files that are read and written safely."""

from __future__ import annotations

import os
from pathlib import Path

from ansible_collections.muster.training.plugins.module_utils._files.bounded import read_json
from ansible_collections.muster.training.plugins.module_utils._run.safe_files import (
    TAIL_BYTES,
    read_tail,
    write_json,
)


def test_tail_of_a_log_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert read_tail(str(log)) == ""
    log.write_bytes(b"abc\xffdef")
    assert read_tail(str(log)) == "abc\ufffddef"
    assert read_tail(str(log), 3) == "def"
    log.write_bytes(b"x" * 100000 + b"end")
    assert len(read_tail(str(log))) == TAIL_BYTES and read_tail(str(log)).endswith("end")


def test_json_files_are_replaced_whole_and_readable_only_by_their_owner(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    write_json(str(path), {"a": 1})
    write_json(str(path), {"a": [2, None, "é"]})
    assert read_json(str(path)) == {"a": [2, None, "é"]}
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["status.json"]
