"""A commit and a patch restore a run's code, with real git; the user's repository stays unchanged."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._record.code_patch import (
    RecordedCode,
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
    """Return a subdirectory of a repository, with changes of each kind."""
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
    directory, problems = restore_code(
        source, RecordedCode(recorded, commit, file, tmp_path / "runs"), tmp_path / "target"
    )
    assert problems == {}
    assert fingerprints(directory, NAMES) == recorded
    assert os.readlink(directory / "link") == "a.py" and os.access(directory / "new.sh", os.X_OK)
    assert sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if not path.is_dir()) == sorted(
        NAMES
    )
    assert (source / "a.py").read_text() == "a = 3\n"


def test_file_whose_commit_is_missing_is_named_and_other_files_are_restored(source: Path, tmp_path: Path) -> None:
    commit = git(source, "rev-parse", "HEAD")
    recorded = fingerprints(source, NAMES)
    (tmp_path / "code.patch").write_bytes(make_patch(str(source), NAMES, commit).text)
    (source / "a.py").write_text("a = 3\n")
    directory, problems = restore_code(
        source, RecordedCode(recorded, "0" * 40, tmp_path / "code.patch", tmp_path / "runs"), tmp_path / "target"
    )
    assert list(problems) == ["a.py"] and "git read-tree" in problems["a.py"]
    assert (directory / "b.py").read_text() == "b = 1\n"


def test_code_outside_a_checkout_is_a_patch_of_all_its_files(tmp_path: Path) -> None:
    source = tmp_path / "plain"
    source.mkdir()
    (source / "train.py").write_text("x = 1\n")
    recorded = fingerprints(source, ["train.py"])
    (tmp_path / "code.patch").write_bytes(make_patch(str(source), ["train.py"], "").text)
    (source / "train.py").write_text("x = 2\n")
    directory, problems = restore_code(
        source, RecordedCode(recorded, "", tmp_path / "code.patch", tmp_path / "runs"), tmp_path / "target"
    )
    assert problems == {} and (directory / "train.py").read_text() == "x = 1\n"


@pytest.mark.parametrize("content", [b'api_key = "abc123def456"\n', b'\0\1\2 api_key = "abc123def456"\n'])
def test_patch_with_a_secret_is_refused_with_its_line(source: Path, content: bytes) -> None:
    (source / "b.py").write_bytes(b"b = 1\n" + content)
    patch = make_patch(str(source), NAMES, git(source, "rev-parse", "HEAD"))
    assert patch.text == b"" and patch.problem.startswith("b.py, line 2, may contain a secret")


def test_advice_for_a_secret_outside_a_checkout_is_to_exclude_the_file(tmp_path: Path) -> None:
    (tmp_path / "b.py").write_bytes(b'api_key = "abc123def456"\n')
    problem = make_patch(str(tmp_path), ["b.py"], "").problem
    assert problem.endswith("or exclude the file (code_exclude)") and "commit" not in problem


def test_patch_that_contains_the_runs_notification_url_is_refused(source: Path) -> None:
    """A job file next to the script may contain it, and the URL of a self-hosted server does not look like a secret."""
    (source / "b.py").write_text("job:\n  script: a.py\n  notify: https://ntfy.example.org/topic\n")
    commit = git(source, "rev-parse", "HEAD")
    patch = make_patch(str(source), NAMES, commit, ["https://other.example.org", "https://ntfy.example.org/topic"])
    assert patch.text == b"" and patch.problem.startswith("b.py, line 3, contains a launch_notify URL")
    assert "MUSTER_NOTIFY" in patch.problem and "ntfy.example.org" not in patch.problem
    assert make_patch(str(source), NAMES, commit).problem == ""
    git(source, "add", ".")
    git(source, "commit", "--quiet", "--message", "with the URL")
    (source / "b.py").write_text("b = 1\n")
    removed = make_patch(str(source), NAMES, git(source, "rev-parse", "HEAD"), ["https://ntfy.example.org/topic"])
    assert removed.text == b"" and removed.problem.startswith("a line that was removed")


def test_removed_line_with_a_secret_is_not_kept_either(source: Path) -> None:
    (source / "b.py").write_text('api_key = "abc123def456"\n')
    git(source, "add", ".")
    git(source, "commit", "--quiet", "--message", "with a secret")
    (source / "b.py").write_text("b = 1\n")
    patch = make_patch(str(source), NAMES, git(source, "rev-parse", "HEAD"))
    assert patch.text == b"" and patch.problem.startswith("a line that was removed")


def hostile_repository(directory: Path) -> str:
    """Create a checkout whose configuration and hook would write files next to it; return its commit."""
    directory.mkdir(parents=True)
    git(directory, "init", "--quiet")
    (directory / "train.py").write_text("x = 1\n")
    (directory / ".gitattributes").write_text("* filter=z diff=z ident\n")
    git(directory, "add", ".")
    git(directory, "commit", "--quiet", "--message", "first")
    for name in ("filter.z.smudge", "filter.z.clean", "diff.z.textconv", "diff.external", "core.sshCommand"):
        git(directory, "config", name, f"touch {directory.parent}/ran-{name}; cat")
    git(directory, "config", "core.fsmonitor", f"touch {directory.parent}/ran-monitor; false")
    for name in ("post-index-change", "post-checkout", "reference-transaction"):
        hook = directory / ".git" / "hooks" / name
        hook.write_text(f"#!/bin/sh\ntouch {directory.parent}/ran-{name}\n")
        hook.chmod(0o755)
    return git(directory, "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "rev-parse", "HEAD")


def test_no_code_of_a_hostile_repository_is_executed(tmp_path: Path) -> None:
    source = tmp_path / "hostile" / "code"
    commit = hostile_repository(source)
    recorded = fingerprints(source, ["train.py"])
    (source / "train.py").write_text("x = 2\n")
    patch = make_patch(str(source), ["train.py"], commit)
    assert patch.problem == "" and b"+x = 2" in patch.text
    code = RecordedCode(recorded, commit, None, tmp_path / "runs")
    directory, problems = restore_code(source, code, tmp_path / "target")
    assert problems == {} and (directory / "train.py").read_text() == "x = 1\n"
    assert [path.name for path in source.parent.iterdir()] == ["code"], "nothing ran"


def test_checkout_below_the_records_directory_is_not_used(tmp_path: Path) -> None:
    source = tmp_path / "runs" / "first" / "code"
    commit = hostile_repository(source)
    recorded = fingerprints(source, ["train.py", ".gitattributes"])
    (source / "train.py").write_text("x = 2\n")
    code = RecordedCode(recorded, commit, None, tmp_path / "runs")
    directory, problems = restore_code(source, code, tmp_path / "target")
    assert list(problems) == ["train.py"] and "inside the records directory" in problems["train.py"]
    assert [path.name for path in directory.iterdir()] == [".gitattributes"]


@pytest.mark.parametrize("commit", ["--index-output=x", "HEAD", "main@{1}"])
def test_invalid_commit_is_refused(source: Path, tmp_path: Path, commit: str) -> None:
    code = RecordedCode({"a.py": "0"}, commit, None, tmp_path / "runs")
    _directory, problems = restore_code(source, code, tmp_path / "target")
    assert problems == {"a.py": "the recorded commit is not a commit hash"}


@pytest.mark.parametrize(
    "name", ["../../../rc.sh", "/etc/hostname", "a/../../rc.sh", ".git/config", "sub//x", "./a.py"]
)
def test_path_outside_the_target_is_not_restored(tmp_path: Path, name: str) -> None:
    source = tmp_path / "p" / "q" / "r"
    for directory in ("a", "sub", ".git"):
        (source / directory).mkdir(parents=True)
    for path in (
        tmp_path / "rc.sh",
        source / "x.py",
        source / ".git" / "config",
        source / "sub" / "x",
        source / "a.py",
    ):
        path.write_text("x\n")
    target = tmp_path / "t" / "u" / "v" / "target"
    target.mkdir(parents=True)
    value = fingerprints(source, ["x.py"])["x.py"]
    code = RecordedCode({name: value}, "", None, tmp_path / "runs")
    assert list(restore_code(source, code, target)[1]) == [name]
    assert [path for path in (tmp_path / "t").rglob("*") if not path.is_dir()] == []


def test_nothing_is_written_or_read_through_a_link(source: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "key").write_text("private\n")
    (source / "to_outside").symlink_to(outside)
    assert fingerprints(source, ["to_outside/key"]) == {}
    names = ["to_outside"]
    (tmp_path / "code.patch").write_bytes(make_patch(str(source), names, "").text)
    files = fingerprints(source, names)
    (source / "to_outside").unlink()
    (source / "to_outside").mkdir()
    (source / "to_outside" / "new").write_text("written\n")
    files |= fingerprints(source, ["to_outside/new"])
    code = RecordedCode(files, "", tmp_path / "code.patch", tmp_path / "runs")
    _directory, problems = restore_code(source, code, tmp_path / "target")
    assert list(problems) == ["to_outside/new"] and "is below a link" in problems["to_outside/new"]
    assert os.listdir(outside) == ["key"]


def test_pipe_instead_of_a_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "train.py")
    assert fingerprints(tmp_path, ["train.py"]) == {}


def test_large_files_are_refused_before_git_reads_them(source: Path) -> None:
    commit = git(source, "rev-parse", "HEAD")
    (source / "data.bin").unlink()
    with (source / "data.bin").open("wb") as stream:
        stream.truncate(1 << 40)
    patch = make_patch(str(source), NAMES, commit)
    assert patch.text == b"" and "1048576 MiB of uncommitted files" in patch.problem


def test_many_files_are_refused(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{make_patch.__module__}.MAX_CHANGED_FILES", 3)
    patch = make_patch(str(source), NAMES, git(source, "rev-parse", "HEAD"))
    assert patch.text == b"" and "uncommitted files" in patch.problem


def test_line_endings_are_kept(source: Path, tmp_path: Path) -> None:
    (source / ".gitattributes").write_text("*.py text eol=crlf ident\n")
    (source / "a.py").write_bytes(b"a = 1\r\n# $Id$\n")
    recorded = fingerprints(source, NAMES)
    commit = git(source, "rev-parse", "HEAD")
    (tmp_path / "code.patch").write_bytes(make_patch(str(source), NAMES, commit).text)
    (source / "a.py").write_text("changed")
    code = RecordedCode(recorded, commit, tmp_path / "code.patch", tmp_path / "runs")
    directory, problems = restore_code(source, code, tmp_path / "target")
    assert problems == {} and (directory / "a.py").read_bytes() == b"a = 1\r\n# $Id$\n"
