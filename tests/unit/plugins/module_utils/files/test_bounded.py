"""Bounded access to paths at which a job may have replaced a file or directory."""

from __future__ import annotations

import errno
import json
import math
import os
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.module_utils._files import bounded
from tests.unit.hostile import BAD_FILES, DIGITS, make_bad_file, nested_directories


@pytest.mark.parametrize("kind", BAD_FILES)
def test_bad_json_file_is_treated_as_missing(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "status.json"
    make_bad_file(path, kind)
    value = bounded.read_json(str(path))
    assert value is None or kind in ("another type", "a list", "digits", "nan", "newlines")


def test_nesting_check_ignores_brackets_in_strings() -> None:
    text = json.dumps({"a": "[" * 1000, "b\\": ['"[[[', "\\"]})
    assert bounded.nesting_depth(text) == 2
    assert bounded.parse_json(text) == json.loads(text)


@pytest.mark.parametrize(("depth", "accepted"), [(bounded.MAX_JSON_DEPTH, True), (bounded.MAX_JSON_DEPTH + 1, False)])
def test_nesting_is_limited(depth: int, accepted: bool) -> None:
    text = "[" * depth + "]" * depth
    if accepted:
        assert bounded.parse_json(text) == json.loads(text)
        return
    with pytest.raises(ValueError, match="nested too deeply"):
        bounded.parse_json(text)


def test_number_with_thousands_of_digits_is_not_an_integer() -> None:
    assert bounded.parse_json(f"[{DIGITS}, -{DIGITS}, {2**64}]") == [math.inf, -math.inf, 2**64]


def test_nan_and_infinity_become_null() -> None:
    value = {"a": math.nan, "b": [math.inf, 1.5, {"c": -math.inf}], "d": "NaN"}
    assert bounded.replace_non_finite(value) == {"a": None, "b": [None, 1.5, {"c": None}], "d": "NaN"}


@pytest.mark.parametrize("kind", [kind for kind in BAD_FILES if kind not in ("device", "huge")])
def test_any_existing_file_is_replaced(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "result.json"
    make_bad_file(path, kind)
    make_bad_file(Path(f"{path}.{os.getpid()}.tmp"), kind)
    bounded.write_atomically(str(path), "{}")
    assert path.read_text() == "{}" and not path.is_symlink()
    assert (tmp_path / "target").read_text() == "mine" if kind == "link" else True


@pytest.mark.parametrize(
    ("kind", "number"),
    [("pipe", errno.ENXIO), ("link", errno.ELOOP), ("directory", errno.EISDIR), ("device", errno.ELOOP)],
)
def test_only_regular_files_are_opened_for_writing(tmp_path: Path, kind: str, number: int) -> None:
    path = tmp_path / "events.jsonl"
    make_bad_file(path, kind)
    with (
        pytest.raises(OSError, match=os.strerror(number)),
        open(path, "w", encoding="utf-8", opener=bounded.open_regular),
    ):
        pass


def test_tree_of_any_depth_is_removed(tmp_path: Path) -> None:
    deep, untouched = tmp_path / "deep", tmp_path / "kept"
    untouched.mkdir()
    with nested_directories(deep, 3000):
        (deep / "locked").mkdir()
        (deep / "locked" / "file").write_text("")
        (deep / "locked").chmod(0)
        (deep / "link").symlink_to(untouched)
        bounded.remove_tree(str(deep))
        assert list(tmp_path.iterdir()) == [untouched]


def test_directory_walk_is_bounded(tmp_path: Path) -> None:
    with nested_directories(tmp_path / "deep", 3000):
        (tmp_path / "a").write_text("x")
        (tmp_path / "deep" / "b").write_text("x")
        (tmp_path / "loop").symlink_to(tmp_path)
        os.mkfifo(tmp_path / "pipe")
        walk = bounded.FileWalk(str(tmp_path), 1000)
        assert [path for path, _status in walk] == ["a", "deep/b"] and walk.truncated
        walk = bounded.FileWalk(str(tmp_path), 1)
        assert list(walk)[1:] == [] and walk.truncated
