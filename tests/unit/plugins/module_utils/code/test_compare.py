# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Comparison of a node's copy of the code with the controller's, apart from files that a job wrote."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._code import compare
from ansible_collections.muster.training.plugins.module_utils._code.compare import installed_requirements, read_code
from ansible_collections.muster.training.plugins.plugin_utils._project import local_code
from ansible_collections.muster.training.plugins.plugin_utils._project.local_code import read_local_code
from tests.unit.hostile import BAD_FILES, make_bad_file

PATTERNS = ["/outputs/", "*.pyc", "/.muster-code.json"]
NOW = 1_700_000_000


@pytest.fixture
def source(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    (source / "package").mkdir(parents=True)
    (source / "empty").mkdir()
    (source / "outputs").mkdir()
    for name in ("train.py", "old.py", "package/a.py", "a name with ä", "outputs/step.pt", "x.pyc"):
        (source / name).write_text(name)
        os.utime(source / name, (NOW, NOW))
    (source / "link").symlink_to("train.py")
    return source


@pytest.fixture
def node(source: Path, tmp_path: Path) -> Path:
    """Simulate the code role on a node on which a job has since written files."""
    node = tmp_path / "node"
    shutil.copytree(source, node, symlinks=True, ignore=shutil.ignore_patterns("outputs", "*.pyc"))
    recorded_files: dict[str, Any] = {
        path.relative_to(node).as_posix(): [path.stat().st_size, NOW]
        for path in node.rglob("*")
        if path.is_file() and not path.is_symlink()
    }
    recorded_files |= {"link": ["link", "train.py"], "package/": None, "empty/": None}
    (node / ".muster-code.json").write_text(json.dumps(recorded_files))
    (node / "ckpt.pt").write_text("step 20")
    (node / "package" / "cache").write_text("made")
    return node


def compared(source: Path, node: Path, script: str = "train.py") -> dict[str, Any]:
    here = read_local_code(str(source), PATTERNS, str(node), "").code
    assert not here["problem"]
    return dict(read_code(str(node), here, str(node / script), ""))


def test_files_written_by_a_job_do_not_make_the_copy_differ(source: Path, node: Path) -> None:
    result = compared(source, node)
    assert result["same"] and result["script"] and result["counts"] == result["names"] == {}
    assert result["path"] == str(node)


def test_differing_files_are_listed_by_kind_of_difference(source: Path, node: Path) -> None:
    (source / "train.py").write_text("edited")
    (source / "new.py").write_text("new")
    (node / "package" / "a.py").write_text("edited there")
    os.utime(node / "package" / "a.py", (NOW + 9, NOW + 9))
    (node / "a name with ä").chmod(0o755)
    (source / "old.py").unlink()
    os.utime(node / "train.py", (NOW - 9, NOW - 9))
    result = compared(source, node, "new.py")
    assert not result["same"] and result["script"]
    assert result["names"] == {
        "missing": ["new.py"],
        "older": ["train.py"],
        "newer": ["package/a.py"],
        "other": ["a name with ä"],
        "extra": ["old.py"],
    }


def test_node_without_the_code_reports_all_of_it_missing(source: Path, tmp_path: Path) -> None:
    result = compared(source, tmp_path / "nothing")
    assert result["counts"] == {"missing": 7} and len(result["names"]["missing"]) == 3
    assert result["script"] and not compared(source, tmp_path / "nothing", "other.py")["script"]


def test_different_mtime_alone_is_ignored(source: Path, node: Path) -> None:
    """Times differ after a `git checkout` of another branch and back, or in a fresh clone."""
    os.utime(source / "train.py", (NOW + 50, NOW + 50))
    assert compared(source, node)["same"]


def test_copied_file_that_a_job_changed_is_not_reported_as_extra(source: Path, node: Path) -> None:
    (source / "old.py").unlink()
    (node / "old.py").write_text("a job's own")
    assert compared(source, node)["same"]


@pytest.mark.parametrize("name", ["train.py", "link", "empty"])
def test_path_of_a_different_file_type_differs(name: str, source: Path, node: Path) -> None:
    path = node / name
    path.rmdir() if path.is_dir() else path.unlink()
    path.write_text("x") if name != "train.py" else path.mkdir()
    result = compared(source, node)
    assert result["names"] == {"other": ["empty/" if name == "empty" else name]}


def test_large_tree_is_compared_by_a_single_hash(source: Path, node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_code, "MAX_SENT", 10)
    assert compared(source, node)["same"]
    (source / "new.py").write_text("new")
    result = compared(source, node)
    assert not result["same"] and result["counts"] == {} and result["script"]
    (source / "new.py").unlink()
    (node / "old.py").unlink()
    assert not compared(source, node)["same"]


HOSTILE_LISTS = ("[1]", "5", '"x"', "[]", "{",
    '{"../../x": [1, 2], "/etc/passwd": [1, 2], "\\ud800": [1, 2], "": null}',
    '{"a": 5, "b": "link", "c": [1], "d": ["link", 5], "e": [[1], 2], "f": {"x": 1}}')  # fmt: skip


@pytest.mark.parametrize("kind", [*BAD_FILES, *HOSTILE_LISTS])
def test_invalid_or_hostile_record_of_copied_files_is_ignored(
    kind: str, source: Path, node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = node / ".muster-code.json"
    make_bad_file(path, kind) if kind in BAD_FILES else path.write_text(kind)
    assert compare.read_list(str(node)) == {}
    assert compared(source, node)["same"]
    monkeypatch.setattr(local_code, "MAX_SENT", 10)
    assert not compared(source, node)["same"], "a tree that is compared by one hash of the files in the list"


def test_pipe_that_replaced_an_empty_file_differs(source: Path, node: Path) -> None:
    (source / "package" / "__init__.py").touch()
    os.mkfifo(node / "package" / "__init__.py")
    assert compared(source, node)["names"] == {"other": ["package/__init__.py"]}


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: None, "does not exist on this machine"),
        (lambda path: path.write_text("x"), "is not a directory"),
    ],
)
def test_code_source_that_is_not_a_directory_is_reported(make: Any, reason: str, tmp_path: Path) -> None:
    make(tmp_path / "project")
    problem = read_local_code(str(tmp_path / "project"), [], "project", "").code["problem"]
    assert problem == f"code_source is {tmp_path}/project, which {reason}"


def test_installed_requirements_are_read_next_to_the_interpreter(tmp_path: Path) -> None:
    python = tmp_path / "env" / "bin" / "python"
    assert installed_requirements(str(python)) == installed_requirements("") == (None, "")
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / ".muster").write_text("uv")
    assert installed_requirements(str(python)) == ("", "")
    (tmp_path / "installed").mkdir()
    record = '{"project": "abc", "project_name": "toy"}'
    for text, result in (
        ("[]", ("", "")),
        ("an old record", ("", "")),
        ('{"key": "k"}', ("", "")),
        ('{"project": "abc"}', ("abc", "")),
        (record, ("abc", "toy")),
    ):
        (tmp_path / "installed" / "requirements").write_text(text)
        assert installed_requirements(str(python)) == result
    for kind in BAD_FILES:
        make_bad_file(tmp_path / "installed" / "requirements", kind)
        assert installed_requirements(str(python)) == ("", "")
