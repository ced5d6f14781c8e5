"""Copies of a source tree to the first node, and from there to its peers."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._code import copy
from ansible_collections.muster.training.plugins.module_utils._code.copy import TreeError
from tests.unit.hostile import BAD_FILES, make_bad_file

LIST = ".muster-code.json"
PATTERNS = ["/outputs/", "*.pyc", f"/{LIST}", f"/{LIST}.*"]


def prepared(source: Path, first: Path, **more: Any) -> list[str]:
    new = json.loads(json.dumps(copy.list_source(str(source), PATTERNS)))
    return copy.prepare(str(first), new, PATTERNS, **{"delete": False, **more})


def copy_to_peer(first: Path, peer: Path, delete: bool = False) -> list[str]:
    removed, copied = copy.copy_tree(str(peer), str(first), PATTERNS, delete, [], "false")
    return [f"removed {name}" for name in removed] + copied.splitlines()


def hashed(directory: Path, git: bool = False) -> dict[str, str]:
    return copy.hashes(str(directory), PATTERNS, git)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    (source / "package").mkdir(parents=True)
    (source / "empty").mkdir()
    (source / "outputs").mkdir()
    for name in ("train.py", "old.py", "package/a.py", "a name with ä", "outputs/step.pt", "x.pyc"):
        (source / name).write_text(name)
    (source / "link").symlink_to("train.py")
    os.mkfifo(source / "pipe")
    return source


def copy_code(source: Path, first: Path, *peers: Path, delete: bool = False) -> list[list[str]]:
    """Copy the tree as the role does; return the output lines of each node."""
    for node in (first, *peers):
        node.mkdir(exist_ok=True)
    lines = [[f"removed {name}" for name in prepared(source, first, delete=delete)]]
    excludes = [f"--exclude={pattern}" for pattern in PATTERNS]
    subprocess.run(["rsync", "--archive", *excludes, f"{source}/", f"{first}/"], check=True)
    return lines + [copy_to_peer(first, peer, delete) for peer in peers]


def names(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*")} - {LIST, "pipe"}


EXPECTED_NAMES = {"train.py", "old.py", "package", "package/a.py", "empty", "a name with ä", "link"}


def test_nodes_get_exactly_the_files_of_the_source(source: Path, tmp_path: Path) -> None:
    first, peer = tmp_path / "first", tmp_path / "peer"
    copy_code(source, first, peer)
    assert names(first) == names(peer) == EXPECTED_NAMES
    assert os.readlink(peer / "link") == "train.py"
    assert hashed(first) == hashed(peer)
    assert copy_code(source, first, peer) == [[], []], "a second time changes nothing"


def test_files_written_by_a_job_are_kept(source: Path, tmp_path: Path) -> None:
    first, peer = tmp_path / "first", tmp_path / "peer"
    copy_code(source, first, peer)
    (first / "ckpt.pt").write_text("step 20")
    (first / "package" / "cache").write_text("made")
    (peer / "ckpt.pt").write_text("step 5")
    (source / "train.py").write_text("new")
    (source / "old.py").unlink()
    copy_code(source, first, peer)
    assert (first / "ckpt.pt").read_text() == "step 20"
    assert (peer / "ckpt.pt").read_text() == "step 5"
    assert names(peer) == EXPECTED_NAMES - {"old.py"} | {"ckpt.pt"}
    assert (peer / "train.py").read_text() == "new"
    assert hashed(first) == hashed(peer)
    assert "ckpt.pt" not in hashed(first)


def test_files_changed_on_a_node_are_not_removed(source: Path, tmp_path: Path) -> None:
    first, peer = tmp_path / "first", tmp_path / "peer"
    copy_code(source, first, peer)
    (peer / "old.py").write_text("changed by a job")
    (peer / "package" / "result").write_text("in a directory that the source no longer has")
    (source / "old.py").unlink()
    (source / "package" / "a.py").unlink()
    (source / "package").rmdir()
    output = copy_code(source, first, peer)
    assert names(first) == EXPECTED_NAMES - {"old.py", "package", "package/a.py"}
    assert names(peer) == EXPECTED_NAMES - {"package/a.py"} | {"package/result"}
    assert set(output[0]) == {"removed package/a.py", "removed package/", "removed old.py"}


def test_file_that_a_job_removed_from_the_first_node_is_not_copied(source: Path, tmp_path: Path) -> None:
    first, peer, joining = (tmp_path / name for name in ("first", "peer", "joining"))
    copy_code(source, first, peer)
    (first / "package/a.py").unlink()
    joining.mkdir()
    copy_to_peer(first, joining)
    assert names(joining) == EXPECTED_NAMES - {"package/a.py"}


def test_directory_replaces_file_and_file_replaces_directory(source: Path, tmp_path: Path) -> None:
    first, peer = tmp_path / "first", tmp_path / "peer"
    copy_code(source, first, peer)
    (source / "old.py").unlink()
    (source / "old.py").mkdir()
    (source / "old.py" / "inner").write_text("")
    (source / "package" / "a.py").unlink()
    (source / "package").rmdir()
    (source / "package").write_text("a file")
    copy_code(source, first, peer)
    assert names(first) == names(peer) == EXPECTED_NAMES - {"package/a.py"} | {"old.py/inner"}


def test_delete_removes_extra_files_but_keeps_excluded_ones(source: Path, tmp_path: Path) -> None:
    first, peer = tmp_path / "first", tmp_path / "peer"
    copy_code(source, first, peer)
    for node in (first, peer):
        (node / "extra" / "deep").mkdir(parents=True)
        (node / "extra" / "deep" / "one").write_text("")
        (node / "outputs").mkdir()
        (node / "outputs" / "step.pt").write_text("")
    copy_code(source, first, peer, delete=True)
    assert names(first) == names(peer) == EXPECTED_NAMES | {"outputs", "outputs/step.pt"}


def test_forged_list_removes_nothing_outside_the_tree(source: Path, tmp_path: Path) -> None:
    first, peer, outside = tmp_path / "first", tmp_path / "peer", tmp_path / "outside"
    copy_code(source, first, peer)
    outside.write_text("mine")
    entry = [4, int(outside.stat().st_mtime)]
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "one").write_text("mine")
    (peer / "way").symlink_to(tmp_path / "elsewhere")
    old = json.loads((peer / LIST).read_text())
    linked_entry = [4, int((tmp_path / "elsewhere" / "one").stat().st_mtime)]
    (peer / LIST).write_text(json.dumps({**old, "../outside": entry, str(outside): entry, "way/one": linked_entry}))
    forged = json.loads((first / LIST).read_text())
    (first / LIST).write_text(json.dumps({**forged, "../outside": entry}))
    copy_to_peer(first, peer)
    assert outside.read_text() == "mine"
    assert (tmp_path / "elsewhere" / "one").read_text() == "mine"
    assert names(peer) == EXPECTED_NAMES | {"way"}


@pytest.mark.parametrize("kind", [*BAD_FILES, "5", '{"train.py": 5, "\\ud800": null}'])
def test_list_that_a_job_replaced_is_written_again(kind: str, source: Path, tmp_path: Path) -> None:
    first, peer = tmp_path / "first", tmp_path / "peer"
    copy_code(source, first, peer)
    for node in (first, peer):
        make_bad_file(node / LIST, kind) if kind in BAD_FILES else (node / LIST).write_text(kind)
    assert hashed(first) == {}
    with pytest.raises(TreeError, match="Run this once without --limit"):
        copy_to_peer(first, peer)
    assert names(peer) >= EXPECTED_NAMES
    copy_code(source, first, peer)
    assert hashed(first) == hashed(peer) and hashed(first)


def test_copying_from_a_first_node_without_code_is_refused(tmp_path: Path) -> None:
    for name in ("first", "peer"):
        (tmp_path / name).mkdir()
    with pytest.raises(TreeError, match="the first node has no copy of the code yet. Run this once without --limit"):
        copy_to_peer(tmp_path / "first", tmp_path / "peer")


def test_only_tracked_files_of_a_repository_are_hashed(tmp_path: Path) -> None:
    arguments = ["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=n@example.com"]
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    (tmp_path / "train.py").write_text("1")
    subprocess.run([*arguments, "add", "."], check=True)
    subprocess.run([*arguments, "commit", "--quiet", "-m", "one"], check=True)
    (tmp_path / "ckpt.pt").write_text("of a job")
    assert list(hashed(tmp_path, git=True)) == ["train.py"]


def test_check_mode_lists_removals_and_removes_nothing(source: Path, tmp_path: Path) -> None:
    first = tmp_path / "first"
    assert prepared(source, first, check=True) == [] and not first.exists(), "a node to which nothing was brought"
    copy_code(source, first)
    (source / "old.py").unlink()
    assert prepared(source, first, check=True) == ["old.py"]
    assert names(first) == EXPECTED_NAMES
    assert prepared(source, first) == ["old.py"]
    assert names(first) == EXPECTED_NAMES - {"old.py"}


def test_file_names_that_are_not_utf8_are_copied(source: Path, tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(source) + b"/\xff")).write_text("bytes")
    first, peer = tmp_path / "first", tmp_path / "peer"
    copy_code(source, first, peer)
    assert hashed(first) == hashed(peer) and "\udcff" in hashed(peer)
