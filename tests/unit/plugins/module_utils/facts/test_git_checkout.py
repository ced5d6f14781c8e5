"""The commit that a job starts from, read from real checkouts and compared with git's output."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.module_utils._facts import git_checkout
from ansible_collections.muster.training.plugins.module_utils._facts.git_checkout import (
    CheckoutQuery,
    commit_of,
    git_directory,
)

OTHER_COMMIT = "b" * 40


def git(directory: Path, *arguments: str) -> str:
    """Run git in the checkout, without any user's configuration."""
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    identity = ["-c", "user.name=a", "-c", "user.email=a@localhost", "-c", "init.defaultBranch=main"]
    command = ["git", *identity, *arguments]
    return subprocess.run(
        command, cwd=directory, env=environment, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a checkout with one commit."""
    project = tmp_path / "project"
    (project / "deep" / "down").mkdir(parents=True)
    git(project, "init")
    (project / "train.py").write_text("pass\n")
    git(project, "add", "train.py")
    git(project, "commit", "--message=first")
    return project


def test_checkout_is_located_from_any_directory_in_it(checkout: Path) -> None:
    expected = {"commit": git(checkout, "rev-parse", "HEAD"), "dirty": False}
    assert CheckoutQuery(str(checkout)).result() == expected
    (checkout / "notes.txt").write_text("git does not know it")
    assert CheckoutQuery(str(checkout / "deep" / "down")).result() == expected
    (checkout.parent / "link").symlink_to(checkout / "deep")
    assert CheckoutQuery(str(checkout.parent / "link")).result() == expected


def test_uncommitted_changes_are_reported_if_git_is_installed(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (checkout / ".git" / "index").read_bytes()
    (checkout / "train.py").write_text("raise SystemExit\n")
    result = CheckoutQuery(str(checkout / "deep")).result()
    assert result is not None and result["dirty"] is True
    git(checkout, "add", "train.py")
    result = CheckoutQuery(str(checkout)).result()
    assert result is not None and result["dirty"] is True, "a commit is still missing"
    assert (checkout / ".git" / "index").read_bytes() != before
    monkeypatch.setenv("PATH", "/nowhere")
    assert CheckoutQuery(str(checkout)).result() == {**result, "dirty": None}


def test_dirty_is_unknown_if_git_hangs_or_refuses(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = checkout.parent / "git"
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(git_checkout, "GIT_TIMEOUT", 0.0)
    for body in ("exec sleep 60", "echo 'fatal: detected dubious ownership'; exit 128"):
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
        result = CheckoutQuery(str(checkout)).result()
        assert result is not None and result["dirty"] is None and len(result["commit"]) == 40


def test_commit_is_read_from_packed_refs_detached_heads_and_worktrees(checkout: Path) -> None:
    first = git(checkout, "rev-parse", "HEAD")
    git(checkout, "pack-refs", "--all")
    assert not (checkout / ".git" / "refs" / "heads" / "main").exists()
    assert commit_of(git_directory(str(checkout))) == first
    git(checkout, "commit", "--allow-empty", "--message=second")
    second = git(checkout, "rev-parse", "HEAD")
    assert commit_of(git_directory(str(checkout))) == second, "the file counts before what was packed"
    git(checkout, "worktree", "add", "-b", "feature/a.b", "../other", first)
    assert commit_of(git_directory(str(checkout.parent / "other"))) == first
    git(checkout, "pack-refs", "--all")
    assert commit_of(git_directory(str(checkout.parent / "other"))) == first
    git(checkout, "checkout", "--detach", first)
    assert commit_of(git_directory(str(checkout))) == first


@pytest.mark.parametrize(
    "head",
    [
        "",
        "ref: refs/heads/none",  # a checkout without any commits
        "ref: refs/heads/.invalid",  # the content of HEAD if references are stored in a different format
        "ref: ../../secret",
        "ref: refs/../../secret",
        "ref: refs/heads/loop",
        "a" * 39,
        "A" * 40,
    ],
)
def test_invalid_head_gives_no_commit_and_reads_no_other_file(tmp_path: Path, head: str) -> None:
    (tmp_path / "secret").write_text(OTHER_COMMIT)
    git_files = tmp_path / "project" / ".git"
    (git_files / "refs" / "heads").mkdir(parents=True)
    (git_files / "refs" / "heads" / "loop").write_text("ref: refs/heads/loop\n")
    (git_files / "HEAD").write_text(head)
    assert CheckoutQuery(str(git_files.parent)).result() is None


def test_directory_without_checkout_has_no_result(tmp_path: Path) -> None:
    assert git_directory(str(tmp_path)) == "" and CheckoutQuery(str(tmp_path)).result() is None
    os.mkfifo(tmp_path / ".git")
    assert CheckoutQuery(str(tmp_path)).result() is None
