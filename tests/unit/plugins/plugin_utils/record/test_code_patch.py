"""A patch and a commit restore a run's code, with real git; the user's repository stays as it is."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._record.code_patch import (
    fingerprints,
    make_patch,
    restore_code,
)

NAMES = ["a.py", "b.py", "new.sh", "data.bin", "link", "sub/deep.py"]


def git(directory: Path, *arguments: str) -> str:
    identity = ["-c", "user.email=me@example.org", "-c", "user.name=me"]
    completed = subprocess.run(
        ["git", "-C", str(directory), *identity, *arguments], check=True, capture_output=True, text=True
    )
    return completed.stdout.strip()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A directory below the top of a repository, with changes of each kind."""
    repository = tmp_path / "repository"
    directory = repository / "project"
    (directory / "sub").mkdir(parents=True)
    (directory / "a.py").write_text("a = 1\n")
    (directory / "b.py").write_text("b = 1\n")
    (directory / "removed.py").write_text("gone = 1\n")
    (repository / "outside.py").write_text("c = 1\n")
    git(repository, "init", "--quiet")
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "--message", "first")
    (directory / "a.py").write_text("a = 2\n")
    (directory / "sub" / "deep.py").write_text("deep = 1\n")
    (directory / "new.sh").write_text("#!/bin/sh\n")
    (directory / "new.sh").chmod(0o755)
    (directory / "data.bin").write_bytes(bytes(range(256)))
    (directory / "link").symlink_to("a.py")
    (directory / "removed.py").unlink()
    return directory


def test_code_is_restored_after_it_has_changed_and_the_repository_is_untouched(source: Path, tmp_path: Path) -> None:
    repository, commit = source.parent, git(source, "rev-parse", "HEAD")
    before = git(repository, "status", "--porcelain"), sorted((repository / ".git").rglob("*"))
    patch = make_patch(str(source), NAMES, commit)
    assert patch.problem == ""
    assert (git(repository, "status", "--porcelain"), sorted((repository / ".git").rglob("*"))) == before
    recorded = fingerprints(source, NAMES)
    assert sorted(recorded) == sorted(NAMES)
    file = tmp_path / "code.patch"
    file.write_bytes(patch.text)
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "--message", "second")
    (source / "a.py").write_text("a = 3\n")
    for name in ("new.sh", "data.bin", "link"):
        (source / name).unlink()
    (tmp_path / "target").mkdir()
    directory, problems = restore_code(source, recorded, commit, file, tmp_path / "target")
    assert problems == {}
    assert fingerprints(directory, NAMES) == recorded
    assert os.readlink(directory / "link") == "a.py" and os.access(directory / "new.sh", os.X_OK)
    assert sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if not path.is_dir()) == sorted(
        NAMES
    )
    assert (source / "a.py").read_text() == "a = 3\n"


def test_file_whose_commit_is_gone_is_named_and_the_others_are_restored(source: Path, tmp_path: Path) -> None:
    commit = git(source, "rev-parse", "HEAD")
    recorded = fingerprints(source, NAMES)
    (tmp_path / "code.patch").write_bytes(make_patch(str(source), NAMES, commit).text)
    (source / "a.py").write_text("a = 3\n")
    directory, problems = restore_code(source, recorded, "0" * 40, tmp_path / "code.patch", tmp_path / "target")
    assert list(problems) == ["a.py"] and "git read-tree" in problems["a.py"]
    assert (directory / "b.py").read_text() == "b = 1\n"


def test_code_outside_a_checkout_is_a_patch_of_all_its_files(tmp_path: Path) -> None:
    source = tmp_path / "plain"
    source.mkdir()
    (source / "train.py").write_text("x = 1\n")
    recorded = fingerprints(source, ["train.py"])
    (tmp_path / "code.patch").write_bytes(make_patch(str(source), ["train.py"], "").text)
    (source / "train.py").write_text("x = 2\n")
    directory, problems = restore_code(source, recorded, "", tmp_path / "code.patch", tmp_path / "target")
    assert problems == {} and (directory / "train.py").read_text() == "x = 1\n"


@pytest.mark.parametrize("content", [b'api_key = "abc123def456"\n', b'\0\1\2 api_key = "abc123def456"\n'])
def test_patch_with_a_secret_is_refused_with_its_line(source: Path, content: bytes) -> None:
    (source / "b.py").write_bytes(b"b = 1\n" + content)
    patch = make_patch(str(source), NAMES, git(source, "rev-parse", "HEAD"))
    assert patch.text == b"" and patch.problem.startswith("b.py, line 2, may contain a secret")


def test_removed_line_with_a_secret_is_not_kept_either(source: Path) -> None:
    (source / "b.py").write_text('api_key = "abc123def456"\n')
    git(source, "add", ".")
    git(source, "commit", "--quiet", "--message", "with a secret")
    (source / "b.py").write_text("b = 1\n")
    patch = make_patch(str(source), NAMES, git(source, "rev-parse", "HEAD"))
    assert patch.text == b"" and patch.problem.startswith("a line that was removed")
