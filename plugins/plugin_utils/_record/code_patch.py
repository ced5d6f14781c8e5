# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The changes of a run's code that are not committed, as a patch, and the code restored from a commit and a patch.

Uses git with an index and objects of its own, so that the user's repository stays as it is.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ansible_collections.muster.training.plugins.module_utils._code.compare import (
    HASH_LIMIT,
    entry_of,
    hash_of,
    is_file,
)
from ansible_collections.muster.training.plugins.plugin_utils._record.code_tree import make_code_tree
from ansible_collections.muster.training.plugins.plugin_utils._record.secret_scan import find_secret
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import single_line

if TYPE_CHECKING:
    from ansible_collections.muster.training.plugins.module_utils._code.compare import Tree

MAX_PATCH = 16 << 20  # bytes
MAX_CHANGED = 64 << 20  # bytes of files outside a commit
TIMEOUT = 60.0  # seconds; 0.05 is usual


class CodePatch(NamedTuple):
    """A patch, or why there is none."""

    text: bytes
    problem: str = ""


class GitError(Exception):
    """Git is missing or has failed; the message says why."""


class ScratchRepository:
    """A git repository with the commits of a directory's checkout, whose index and new objects are temporary."""

    def __init__(self, source: Path, temporary: Path) -> None:
        """Raise GitError if git is missing."""
        self.source, self.prefix = source, ""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        self.environment = {**kept, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"}
        try:
            options = ["--show-toplevel", "--show-prefix", "--absolute-git-dir", "--git-path", "objects"]
            lines = self.run(["rev-parse", *options]).decode().split("\n")
            objects = os.path.join(source, lines[3])
            self.prefix = lines[1]
            settings = {"GIT_DIR": lines[2], "GIT_WORK_TREE": lines[0], "GIT_ALTERNATE_OBJECT_DIRECTORIES": objects}
            settings["GIT_OBJECT_DIRECTORY"] = str(temporary / "objects")
            (temporary / "objects").mkdir()
            self.is_checkout = True
        except GitError:
            self.run(["init", "--quiet", "--bare", str(temporary / "git")])
            settings = {"GIT_DIR": str(temporary / "git"), "GIT_WORK_TREE": str(source)}
            self.is_checkout = False
        self.environment.update(settings, GIT_INDEX_FILE=str(temporary / "index"))

    def run(self, arguments: list[str], standard_input: bytes = b"") -> bytes:
        """Return the output of a git command in the directory. Raise GitError."""
        argv = ["git", "-c", "core.fsmonitor=false", "-c", "color.ui=false", "-c", "core.quotePath=true", *arguments]
        try:
            completed = subprocess.run(
                argv,
                cwd=self.source,
                env=self.environment,
                input=standard_input,
                capture_output=True,
                timeout=TIMEOUT,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise GitError(f"git {arguments[0]}: {error}") from error
        if completed.returncode:
            raise GitError(f"git {arguments[0]}: {single_line(completed.stderr.decode(errors='replace'), 200)}")
        return completed.stdout

    def read_commit(self, commit: str) -> None:
        """Fill the index with the files of a commit; without one, leave it empty."""
        self.run(["read-tree", commit] if commit else ["read-tree", "--empty"])


@contextmanager
def scratch_repository(source: Path) -> Iterator[ScratchRepository]:
    """Yield a scratch repository, which is removed afterwards. Raise GitError."""
    with tempfile.TemporaryDirectory(prefix="muster-code-") as directory:
        yield ScratchRepository(source, Path(directory))


def encode_names(names: Iterable[str]) -> bytes:
    """Return names as git reads them from its standard input."""
    return b"".join(os.fsencode(name) + b"\0" for name in names)


def make_patch(source: str, names: Iterable[str], commit: str) -> CodePatch:
    """Return the difference between a commit (all files if it is empty) and the files of these names.

    No patch is returned if it is too large, or if it may contain a secret.
    """
    files = sorted(name for name in names if not name.endswith("/"))
    size = sum((Path(source) / name).lstat().st_size for name in files if os.path.lexists(Path(source) / name))
    if not commit and size > MAX_CHANGED:
        return CodePatch(b"", f"{source} is not in a git checkout and has {size >> 20} MiB: commit it, or exclude data")
    try:
        with scratch_repository(Path(source)) as repository:
            base = commit if repository.is_checkout else ""
            repository.read_commit(base)
            repository.run(["update-index", "--add", "-z", "--stdin"], encode_names(files))
            options = ["--cached", "--relative", "--no-ext-diff", "--no-textconv"]
            against = [base or repository.run(["hash-object", "-t", "tree", "-w", "--stdin"]).decode().strip()]
            changed = repository.run(["diff", *options, "--name-only", "-z", "--diff-filter=d", *against])
            text = repository.run(["diff", *options, "--binary", "--full-index", "--diff-filter=d", *against])
    except GitError as error:
        return CodePatch(b"", str(error))
    if len(text) > MAX_PATCH:
        return CodePatch(b"", f"the uncommitted changes have {len(text) >> 20} MiB: commit them, or exclude data")
    secret = find_secret_in_changes(Path(source), [os.fsdecode(name) for name in changed.split(b"\0") if name], text)
    if secret:
        return CodePatch(b"", f"{secret} may contain a secret: move it to the job's environment, or commit the change")
    return CodePatch(text)


def find_secret_in_changes(source: Path, names: list[str], patch: bytes) -> str:
    """Return the first line of changed files that may contain a secret, "" if there is none.

    The patch also has lines that were removed, and a binary patch hides the content.
    """
    for name in names:
        path = source / name
        content = os.fsencode(os.readlink(path)) if path.is_symlink() else path.read_bytes()
        line = find_secret(name, content.decode("utf-8", "replace"))
        if line:
            return f"{single_line(name, 100)}, line {line},"
    removed = b"\n".join(line[1:] for line in patch.split(b"\n") if line.startswith(b"-"))
    return "a line that was removed" if find_secret("removed.py", removed.decode("utf-8", "replace")) else ""


def fingerprints(directory: Path, names: Iterable[str]) -> dict[str, str]:
    """Return the fingerprint of each existing file, as a record has it."""
    tree: Tree = {}
    for name in names:
        path = str(directory / name)
        try:
            entry = entry_of(path)
            if entry and is_file(entry) and entry[0] <= HASH_LIMIT:
                entry[3] = hash_of(path)
        except OSError:
            continue
        tree[name] = entry
    return make_code_tree("", tree)["files"]


def restore_code(
    source: Path, files: Mapping[str, str], commit: str, patch: Path | None, target: Path
) -> tuple[Path, dict[str, str]]:
    """Write the recorded files into a new directory; return it, and the reason for each file that is not as recorded.

    Files that are still unchanged in the source are copied, with their time. The others come from the commit and patch.
    """
    unchanged = {name for name, value in fingerprints(source, files).items() if files[name] == value}
    problem = ""
    try:
        with scratch_repository(source) as repository:
            base = commit if repository.is_checkout else ""
            if commit and not base:
                raise GitError(f"{source} is no git checkout any more")
            repository.read_commit(base)
            prefix = repository.prefix
            if patch is not None and patch.stat().st_size:
                directory = [f"--directory={prefix}"] if prefix else []
                repository.run(["apply", "--cached", "--whitespace=nowarn", *directory, str(patch.resolve())])
            wanted = [prefix + name for name in files if name not in unchanged]
            index = repository.run(["ls-files", "-z", "--full-name"]).split(b"\0")
            listed = {os.fsdecode(name) for name in index}
            repository.run(
                [
                    "-C",
                    str(repository.environment["GIT_WORK_TREE"]),
                    "checkout-index",
                    "-z",
                    "--stdin",
                    f"--prefix={target}/",
                ],
                encode_names(name for name in wanted if name in listed),
            )
    except (GitError, OSError) as error:
        prefix, problem = "", str(error)
    directory_of_code = target / prefix
    directory_of_code.mkdir(parents=True, exist_ok=True)
    for name in unchanged:
        (directory_of_code / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source / name, directory_of_code / name, follow_symlinks=False)
    restored = fingerprints(directory_of_code, files)
    return directory_of_code, {
        name: problem or ("missing" if name not in restored else "different")
        for name, value in files.items()
        if restored.get(name) != value
    }
