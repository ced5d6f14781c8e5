# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Copy a working tree from a source to the first node, and from there to the other nodes.

A list in the tree itself records the copied files. Other files, such as those that a job has written, are not copied or
compared. Without `delete`, neither they nor copied files that have changed since then are removed. Runs on the nodes
as the owner of the tree, and on the controller, which lists the source.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import subprocess
import tempfile

from ansible_collections.muster.training.plugins.module_utils._code.compare import LIST, MAX_LIST_BYTES, read_list
from ansible_collections.muster.training.plugins.module_utils._files.bounded import write_atomically
from ansible_collections.muster.training.plugins.module_utils._files.user_files import UserFileError

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    CopyList = Dict[str, Optional[List[Any]]]


class TreeError(UserFileError):
    """The tree cannot be listed or copied; the message explains why."""


def list_tree(directory: str, patterns: list[str]) -> list[str]:
    """Return the sorted files, links and directories of a tree that rsync would copy; rsync applies the patterns.

    Raise TreeError if rsync fails.
    """
    argv = ["rsync", "--recursive", "--links", "--dry-run", "--8-bit-output", "--out-format=%n", "--exclude-from=-"]
    # names are bytes, and may not be valid text
    completed = subprocess.run(
        [*argv, f"{directory}/", "/nonexistent/"],
        input="\n".join(patterns),
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        check=False,
    )
    if completed.returncode:
        raise TreeError(f"rsync cannot list {directory}: {completed.stderr.strip()}")
    names = (
        re.sub(r"\\#([0-7]{3})", lambda match: chr(int(match[1], 8)), name) for name in completed.stdout.splitlines()
    )
    # non-regular files, which rsync reports on separate lines, are not copied either
    return sorted(
        name
        for name in names
        if name != "./" and (os.path.islink(path := f"{directory}/{name}".rstrip("/")) or is_regular(path))
    )


def is_regular(path: str) -> bool:
    """Return whether a path is a regular file or a directory."""
    return os.path.isfile(path) or os.path.isdir(path)


def entry_of(path: str) -> list[Any] | None:
    """Return the list entry for a path, or None for a directory. Raise OSError if the path does not exist."""
    status = os.lstat(path.rstrip("/"))
    if stat.S_ISLNK(status.st_mode):
        return ["link", os.readlink(path.rstrip("/"))]
    return None if stat.S_ISDIR(status.st_mode) else [status.st_size, int(status.st_mtime)]


def write_list(directory: str, entries: CopyList) -> None:
    """Write the list of copied files atomically."""
    write_atomically(os.path.join(directory, LIST), json.dumps(entries))


def list_source(directory: str, patterns: list[str]) -> CopyList:
    """Return the list of the files that rsync would copy from a source. Raise TreeError or OSError."""
    return {name: entry_of(f"{directory}/{name}") for name in list_tree(directory, patterns)}


def removable_names(directory: str, new: CopyList, patterns: list[str], delete: bool) -> list[str]:
    """Return the names to remove, deepest first: copied before, unchanged, and not in the new list.

    With `delete`, return all names that are not in the new list and not excluded by the patterns.
    """
    if not os.path.isdir(directory):
        return []
    old = read_list(directory)
    names = set(old) | (set(list_tree(directory, patterns)) if delete else set())
    root, removable = os.path.realpath(directory), []
    for name in sorted(names - set(new), reverse=True):  # a directory's contents are listed before it
        path = os.path.join(directory, name)
        parent = os.path.realpath(os.path.dirname(path.rstrip("/")))
        if parent != root and not parent.startswith(f"{root}/"):
            continue  # a link that points outside the tree
        try:
            if delete or entry_of(path) == old[name]:
                removable.append(name)
        except OSError:
            continue  # already removed
    return removable


def remove(directory: str, names: list[str]) -> list[str]:
    """Remove the names that removable_names() returned; return those that were removed."""
    removed = []
    for name in names:
        path = os.path.join(directory, name)
        try:
            if name.endswith("/") and not os.path.islink(path.rstrip("/")):
                os.rmdir(path)
            else:
                os.unlink(path.rstrip("/"))
        except OSError:
            continue  # already removed, or a directory that is not empty
        removed.append(name)
    return removed


def prepare(directory: str, new: CopyList, patterns: list[str], delete: bool, check: bool = False) -> list[str]:
    """On the first node, before its copy, remove files that the source no longer has; return the removed names."""
    old = removable_names(directory, new, patterns, delete)
    if check:
        return [printable(name) for name in old]
    removed = remove(directory, old)
    if read_list(directory) != new:
        write_list(directory, new)
    return [printable(name) for name in removed]


def rsync(shell: str, *arguments: str, **options: Any) -> str:
    """Run rsync from the first node; return its output. Raise TreeError with rsync's message if it fails."""
    completed = subprocess.run(
        ["rsync", "--archive", f"--rsh={shell}", *arguments],
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        check=False,
        **options,
    )
    if completed.returncode:
        raise TreeError(printable(completed.stderr.strip()))
    return completed.stdout


def copy_tree(  # noqa: PLR0913
    directory: str, source: str, patterns: list[str], delete: bool, options: list[str], shell: str
) -> tuple[list[str], str]:
    """On another node, copy the first node's tree; return the removed names, and rsync's output.

    Args:
        source: the first node's tree in rsync's format, HOST:PATH.
        options: additional options of rsync.
        shell: the remote shell command for rsync.
    """
    with tempfile.TemporaryDirectory() as scratch:
        try:
            rsync(shell, f"--max-size={MAX_LIST_BYTES}", f"{source}/{LIST}", f"{scratch}/")
        except TreeError as error:
            if "No such file" not in str(error):
                raise
            raise TreeError("the first node has no copy of the code yet. Run this once without --limit") from None
        new = read_list(scratch)
    if not new:  # a job has damaged the list, so everything here would be removed
        raise TreeError("the first node's list of code files is invalid. Run this once without --limit")
    removed = remove(directory, removable_names(directory, new, patterns, delete))
    # with a trailing slash, the directory would stand for its contents
    names = "".join(f"{name.rstrip('/')}\0" for name in sorted(new))
    # a job may have removed files of the first node's copy
    listed = ["--from0", "--files-from=-", "--ignore-missing-args"]
    copied = rsync(shell, "--itemize-changes", *listed, *options, f"{source}/", f"{directory}/", input=names)
    if read_list(directory) != new:
        write_list(directory, new)
    return [printable(name) for name in removed], printable(copied)


def printable(text: str) -> str:
    """Return a printable form of text that contains arbitrary bytes."""
    return text.encode("utf-8", "replace").decode()


def tracked_files(directory: str, patterns: list[str]) -> list[str]:
    """Return the files that git tracks in a tree, except those that the patterns exclude."""
    completed = subprocess.run(
        ["git", "-C", directory, "ls-files", "-z", "--recurse-submodules"],
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        check=False,
    )
    if completed.returncode:
        raise TreeError(f"git cannot list {directory}: {completed.stderr.strip()}")
    return sorted(set(completed.stdout.split("\0")) & set(list_tree(directory, patterns)))


def digest(path: str) -> str:
    """Return a hash of a file's content and executable bit, or of a link's target."""
    if os.path.islink(path):
        return hashlib.sha256(b"link " + os.fsencode(os.readlink(path))).hexdigest()
    hasher = hashlib.sha256(b"run " if os.stat(path).st_mode & 0o100 else b"read ")
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            hasher.update(block)
    return hasher.hexdigest()


def hashes(directory: str, patterns: list[str], git: bool) -> dict[str, str]:
    """Return the hash of each existing file that was copied or that git tracks."""
    names = tracked_files(directory, patterns) if git else sorted(read_list(directory))
    paths = {name: os.path.join(directory, name) for name in names if not name.endswith("/")}
    return {name: digest(path) for name, path in paths.items() if os.path.islink(path) or os.path.isfile(path)}


def hash_of(files: dict[str, str]) -> str:
    """Return a single hash of all files."""
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()[:16]
