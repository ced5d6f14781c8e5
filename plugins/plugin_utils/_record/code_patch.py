# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The uncommitted changes in a run's code, as a patch, and the code restored from a commit and a patch.

Uses git with a separate repository, which borrows the objects of the user's repository: the latter stays unchanged, and
nothing in it is executed: no hook, filter or other command of its configuration. A source from a record may be hostile.
"""

from __future__ import annotations

import os
import posixpath
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ansible_collections.muster.training.plugins.module_utils._code.compare import (
    HASH_LIMIT,
    entry_of,
    hash_of,
    is_file,
)
from ansible_collections.muster.training.plugins.module_utils._facts.git_checkout import (
    COMMIT,
    git_directory,
    read_text,
)
from ansible_collections.muster.training.plugins.module_utils._files.bounded import read_bytes
from ansible_collections.muster.training.plugins.plugin_utils._record.code_tree import is_safe_name, make_code_tree
from ansible_collections.muster.training.plugins.plugin_utils._record.secret_scan import find_secret
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import single_line

if TYPE_CHECKING:
    from ansible_collections.muster.training.plugins.module_utils._code.compare import Tree

MAX_PATCH = 16 << 20  # bytes
MAX_CHANGED = 64 << 20  # bytes of files that are not part of a commit
MAX_TRACKED = 1 << 30  # bytes of files that git reads to find out whether they differ from a commit
MAX_SCANNED = 32 << 20  # bytes of changed files that are searched for secrets
MAX_CHANGED_FILES = 10_000
MAX_RESTORED = 1 << 30  # total bytes of files restored from a commit and a patch
MAX_BATCH = 32 << 20  # bytes that are read at once
TIMEOUT = 60.0  # seconds; 0.05 is typical
NOTHING_RUNS = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "core.pager=cat")
PLAIN = "* -text -eol -ident -working-tree-encoding"  # attributes: files as they are, with their line endings
LINK, EXECUTABLE, FILE = b"120000", b"100755", b"100644"  # modes in an index


class CodePatch(NamedTuple):
    """A patch, or the reason why there is none."""

    text: bytes
    problem: str = ""


class Checkout(NamedTuple):
    """The location of a directory in a git checkout."""

    top: str
    prefix: str  # prefix of its files' names in the repository; "" at the top level
    objects: str


class Blob(NamedTuple):
    """A file in a git index."""

    mode: bytes
    identity: bytes
    size: int


class GitError(Exception):
    """Git is missing or has failed; the message gives the reason."""


def find_checkout(source: Path) -> Checkout | None:
    """Return a directory's position in a git checkout, without running git, which would use the checkout's
    configuration.
    """
    real = Path(os.path.realpath(source))
    git = git_directory(str(real))
    top = next((path for path in (real, *real.parents) if (path / ".git").exists()), None)
    if not git or top is None:
        return None
    common = os.path.join(git, read_text(git, "commondir").strip())  # for a worktree, the repository's directory
    prefix = "" if top == real else f"{real.relative_to(top)}/"
    return Checkout(str(top), prefix, os.path.join(common, "objects"))


def is_below(path: str | Path, directory: Path) -> bool:
    """Return whether a path, after resolving all links, is a directory or inside it."""
    parent = os.path.realpath(directory)
    return os.path.commonpath([os.path.realpath(path), parent]) == parent


class ScratchRepository:
    """A temporary git repository that has its own index and configuration, and uses the objects of a checkout."""

    def __init__(self, temporary: Path, checkout: Checkout | None, commit: str, work_tree: Path | None) -> None:
        """Raise GitError if git is missing.

        Args:
            temporary: an empty directory.
            checkout: the checkout whose objects are used, or None.
            commit: a commit in it, or "".
            work_tree: directory with files to add; None to restore, which also ignores the user's configuration.
        """
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        fixed = {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_REPLACE_OBJECTS": "1"}
        self.environment = {**kept, **fixed}
        self.directory = work_tree or temporary
        if work_tree is None:
            self.environment.update(GIT_CONFIG_NOSYSTEM="1", GIT_ATTR_NOSYSTEM="1", GIT_CONFIG_GLOBAL=os.devnull)
            self.environment.update(HOME=str(temporary), XDG_CONFIG_HOME=str(temporary))
        git, top = temporary / "git", temporary / "tree"
        top.mkdir()
        kind = ["--object-format=sha256"] if len(commit) == 64 else []
        self.run(["init", "--quiet", "--bare", "--template=", *kind, str(git)])
        (git / "info").mkdir(exist_ok=True)
        (git / "info" / "attributes").write_text(PLAIN + ("\n" if work_tree else " -filter\n"))
        if checkout is not None:
            (git / "objects" / "info").mkdir(parents=True, exist_ok=True)
            (git / "objects" / "info" / "alternates").write_bytes(os.fsencode(checkout.objects) + b"\n")
        if work_tree is not None:
            top = Path(checkout.top) if checkout else work_tree
        self.environment.update(GIT_DIR=str(git), GIT_WORK_TREE=str(top))

    def run(self, arguments: list[str], standard_input: bytes = b"") -> bytes:
        """Return the output of a git command in the directory. Raise GitError."""
        argv = ["git", *NOTHING_RUNS, "-c", "color.ui=false", "-c", "core.quotePath=true", *arguments]
        try:
            completed = subprocess.run(
                argv,
                cwd=self.directory,
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
        """Fill the index with the files in a commit; leave it empty if there is no commit."""
        if commit and not COMMIT.fullmatch(commit):
            raise GitError("the recorded commit is not a commit hash")
        self.run(["read-tree", commit] if commit else ["read-tree", "--empty"])

    def list_blobs(self) -> dict[str, Blob]:
        """Return the files and links in the index, by name."""
        entries = [
            entry.partition(b"\t")
            for entry in self.run(["ls-files", "--stage", "--full-name", "-z"]).split(b"\0")
            if entry
        ]
        fields = {os.fsdecode(name): head.split(b" ") for head, _tab, name in entries}
        blobs = {name: (mode, identity) for name, (mode, identity, stage) in fields.items() if stage == b"0"}
        request = b"".join(identity + b"\n" for _mode, identity in blobs.values())
        lines = self.run(["cat-file", "--batch-check=%(objectsize)"], request).splitlines()
        sizes = [int(line) if line.isdigit() else -1 for line in lines]  # -1: missing, or a submodule
        return {
            name: Blob(*blob, size)
            for (name, blob), size in zip(blobs.items(), sizes, strict=True)
            if size >= 0 and blob[0] in (LINK, EXECUTABLE, FILE)
        }

    def read_blobs(self, blobs: Mapping[str, Blob]) -> Iterator[tuple[str, bytes]]:
        """Yield the names and contents of files in the index, a few at a time. Raise GitError if they are too large."""
        if sum(blob.size for blob in blobs.values()) > MAX_RESTORED:
            raise GitError(f"the files to restore exceed {MAX_RESTORED >> 20} MiB")
        batch: list[str] = []
        waiting = 0
        for name, blob in blobs.items():
            if batch and waiting + blob.size > MAX_BATCH:
                yield from self.read_batch(batch, blobs)
                batch, waiting = [], 0
            batch.append(name)
            waiting += blob.size
        yield from self.read_batch(batch, blobs)

    def read_batch(self, names: list[str], blobs: Mapping[str, Blob]) -> Iterator[tuple[str, bytes]]:
        """Yield the names and contents of files in the index."""
        request = b"".join(blobs[name].identity + b"\n" for name in names)
        output = self.run(["cat-file", "--batch=%(objectsize)"], request) if names else b""
        position = 0
        for name in names:
            position = output.index(b"\n", position) + 1
            end = position + blobs[name].size
            yield name, output[position:end]
            position = end + 1


@contextmanager
def scratch_repository(
    checkout: Checkout | None, commit: str, work_tree: Path | None = None
) -> Iterator[ScratchRepository]:
    """Yield a scratch repository, which is removed afterwards. Raise GitError."""
    with tempfile.TemporaryDirectory(prefix="muster-code-") as directory:
        yield ScratchRepository(Path(directory), checkout, commit, work_tree)


def encode_names(names: Iterable[str]) -> bytes:
    """Encode names in the form that git reads from standard input."""
    return b"".join(os.fsencode(name) + b"\0" for name in names)


def sizes_of(source: Path, names: Iterable[str]) -> dict[str, int]:
    """Return the size of each file and link that exists."""
    sizes = {}
    for name in names:
        try:
            sizes[name] = os.lstat(source / name).st_size
        except OSError:
            continue
    return sizes


def too_large(source: str, sizes: Mapping[str, int], tracked: Mapping[str, Blob] | None) -> str:
    """Return why the files in a directory are not read, or "" if they are small enough.

    A file whose size differs from that in the commit has certainly changed. tracked: None outside a checkout.
    """
    committed = tracked or {}
    changed = [size for name, size in sizes.items() if name not in committed or committed[name].size != size]
    if sum(changed) > MAX_CHANGED:
        size = f"{sum(changed) >> 20} MiB"
        if tracked is not None:
            return f"{source} has {size} of uncommitted files: commit them, or exclude data"
        return f"{source} is not in a git checkout and has {size}: commit it, or exclude data"
    if len(changed) > MAX_CHANGED_FILES:
        return f"{source} has {len(changed)} uncommitted files: commit them, or exclude data"
    if sum(sizes.values()) > MAX_TRACKED:
        return f"{source} is {sum(sizes.values()) >> 20} MiB in size: exclude data"
    return ""


def make_patch(source: str, names: Iterable[str], commit: str, notify_urls: Sequence[str] = ()) -> CodePatch:
    """Return the difference between a commit (everything counts as new if it is empty) and the files with these names.

    No patch is returned if it is too large, or if it may contain a secret. notify_urls: those of the run, which are
    secrets in any form.
    """
    directory = Path(source)
    sizes = sizes_of(directory, sorted(name for name in names if not name.endswith("/")))
    checkout = find_checkout(directory) if commit else None
    base = commit if checkout else ""
    try:
        with scratch_repository(checkout, base, directory) as repository:
            repository.read_commit(base)
            prefix = checkout.prefix if checkout else ""
            blobs = repository.list_blobs()
            tracked = {name[len(prefix) :]: blob for name, blob in blobs.items()}
            problem = too_large(source, sizes, tracked if checkout else None)
            if problem:
                return CodePatch(b"", problem)
            repository.run(["update-index", "--add", "-z", "--stdin"], encode_names(sizes))
            options = ["--cached", "--relative", "--no-ext-diff", "--no-textconv", "--no-renames"]
            against = [base or repository.run(["hash-object", "-t", "tree", "-w", "--stdin"]).decode().strip()]
            changed = repository.run(["diff", *options, "--name-only", "-z", "--diff-filter=d", *against])
            text = repository.run(["diff", *options, "--binary", "--full-index", "--diff-filter=d", *against])
    except GitError as error:
        return CodePatch(b"", str(error))
    if len(text) > MAX_PATCH:
        return CodePatch(
            b"", (f"the uncommitted changes are {len(text) >> 20} MiB in size: commit them, or exclude data")
        )
    names_of_changed = [os.fsdecode(name) for name in changed.split(b"\0") if name]
    problem = find_secret_in_changes(directory, names_of_changed, text, notify_urls, in_checkout=checkout is not None)
    return CodePatch(b"", problem) if problem else CodePatch(text)


def find_secret_in_changes(
    source: Path, names: list[str], patch: bytes, notify_urls: Sequence[str], in_checkout: bool
) -> str:
    """Return why changed files are not kept: the first line that may contain a secret, or that they are too large.

    The patch also has lines that were removed, and a binary patch hides the content.
    """
    way_out = "commit the change" if in_checkout else "exclude the file (code_exclude)"
    advice = f"may contain a secret: move it to the job's environment, or {way_out}"
    remaining = MAX_SCANNED
    for name in names:
        path = source / name
        try:
            content = os.fsencode(os.readlink(path)) if path.is_symlink() else read_bytes(str(path), remaining)
        except OSError as error:
            return (
                f"{single_line(name, 100)} cannot be searched for secrets: {error.strerror}: commit it, or exclude it"
            )
        remaining -= len(content)
        line = line_of_any(notify_urls, content)
        if line:
            return (
                f"{single_line(name, 100)}, line {line}, contains a launch_notify URL, which is a secret: set "
                "MUSTER_NOTIFY in the environment of this machine instead, or exclude the file (code_exclude)"
            )
        line = find_secret(name, content)
        if line:
            return f"{single_line(name, 100)}, line {line}, {advice}"
    removed = b"\n".join(line[1:] for line in patch.split(b"\n") if line.startswith(b"-"))
    has_secret = find_secret("removed.py", removed) or line_of_any(notify_urls, removed)
    return f"a line that was removed {advice}" if has_secret else ""


def line_of_any(texts: Iterable[str], content: bytes) -> int:
    """Return the number of the first line in a file that contains one of these texts, or 0 if there is none."""
    positions = [position for text in texts if (position := content.find(text.encode())) >= 0]
    return content.count(b"\n", 0, min(positions)) + 1 if positions else 0


def has_plain_parents(directory: Path, name: str, cache: dict[str, bool]) -> bool:
    """Return whether none of the directories between a directory and a file in it is a link. cache: results so far."""
    parent = posixpath.dirname(name)
    if not parent:
        return True
    if parent not in cache:
        try:
            is_directory = stat.S_ISDIR(os.lstat(directory / parent).st_mode)
        except OSError:
            is_directory = False
        cache[parent] = is_directory and has_plain_parents(directory, parent, cache)
    return cache[parent]


def fingerprints(directory: Path, names: Iterable[str]) -> dict[str, str]:
    """Return the fingerprint of each existing file, in the form used in records. Files outside the directory are not
    read.
    """
    tree: Tree = {}
    cache: dict[str, bool] = {}
    for name in names:
        path = str(directory / name)
        try:
            if not is_safe_name(name) or not has_plain_parents(directory, name, cache):
                continue
            entry = entry_of(path)
            if entry and is_file(entry) and entry[0] <= HASH_LIMIT:
                entry[3] = hash_of(path)
        except OSError:
            continue
        tree[name] = entry
    return make_code_tree("", tree)["files"]


def make_parents(directory: Path, name: str) -> Path:
    """Return the path of a new file, after creating its parents. Raise OSError if one of them is a link."""
    parents = posixpath.dirname(name).split("/") if "/" in name else []
    for depth in range(1, len(parents) + 1):
        path = directory.joinpath(*parents[:depth])
        if not path.is_dir():
            path.mkdir()
        if path.is_symlink():
            raise OSError(f"{single_line(name, 100)} is below a link")
    return directory / name


def write_file(directory: Path, name: str, mode: bytes, content: bytes) -> None:
    """Write a new file or link. Raise OSError."""
    path = make_parents(directory, name)
    if mode == LINK:
        os.symlink(content, os.fsencode(path))
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, 0o777 if mode == EXECUTABLE else 0o666), "wb") as stream:
        stream.write(content)


class RecordedCode(NamedTuple):
    """The code of a run as stored in its record, which may be hostile."""

    files: Mapping[str, str]  # fingerprint by name
    commit: str
    patch: Path | None
    records: Path  # directory that contains all records: a checkout inside it is not used


def check_recorded(code: RecordedCode, source: Path, checkout: Checkout | None) -> None:
    """Raise GitError if the commit and the patch cannot be used."""
    if code.commit and not checkout:
        raise GitError(f"{source} is no longer a git checkout, or is inside the records directory")
    if code.patch is not None and code.patch.stat().st_size > MAX_PATCH:
        raise GitError("the recorded patch is too large")


def restore_changed(source: Path, code: RecordedCode, names: Iterable[str], target: Path) -> Path:
    """Write the files in the commit and the patch; return the directory that corresponds to the source.

    Raise GitError or OSError.
    """
    checkout = find_checkout(source) if code.commit and not is_below(source, code.records) else None
    check_recorded(code, source, checkout)
    prefix = checkout.prefix if checkout else ""
    with scratch_repository(checkout, code.commit) as repository:
        repository.read_commit(code.commit)
        if code.patch is not None and code.patch.stat().st_size:
            directory = [f"--directory={prefix}"] if prefix else []
            repository.run(["apply", "--cached", "--whitespace=nowarn", *directory, str(code.patch.resolve())])
        blobs = repository.list_blobs()
        selected = {name: blobs[prefix + name] for name in names if prefix + name in blobs}
        (target / prefix).mkdir(parents=True, exist_ok=True)
        for name, content in repository.read_blobs(selected):
            write_file(target / prefix, name, selected[name].mode, content)
    return target / prefix


def restore_code(source: Path, code: RecordedCode, target: Path) -> tuple[Path, dict[str, str]]:
    """Write the recorded files to a new directory; return it, and the reason for each file that is not as recorded.

    Files that are still unchanged in the source are copied, with their time. The others come from the commit and patch.
    """
    files = {name: value for name, value in code.files.items() if is_safe_name(name)}
    unchanged = {name for name, value in fingerprints(source, files).items() if files[name] == value}
    problem, directory = "", target
    try:
        directory = restore_changed(source, code, [name for name in files if name not in unchanged], target)
    except (GitError, OSError) as error:
        problem = str(error)
    directory.mkdir(parents=True, exist_ok=True)
    for name in unchanged:
        try:
            copy_file(source / name, make_parents(directory, name))
        except OSError as error:
            problem = problem or str(error)
    restored = fingerprints(directory, files)
    return directory, {
        name: problem or ("missing" if name not in restored else "different")
        for name, value in code.files.items()
        if restored.get(name) != value
    }


def copy_file(source: Path, target: Path) -> None:
    """Copy a file or link, including its modification time. Raise OSError if it is anything else, or the target
    exists.
    """
    if os.path.lexists(target):
        raise OSError(f"{target} exists")
    if not stat.S_ISREG(os.lstat(source).st_mode) and not source.is_symlink():
        raise OSError(f"{source} is not a regular file")
    shutil.copy2(source, target, follow_symlinks=False)
