# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Copy a working tree from a source to the first node, and from there to the others.

A list in the tree itself records what was copied. Files that a job has written, or changed since, are not copied on,
compared or removed. Private to this collection. Runs on the node as the owner of the tree, and on the controller,
which lists the source; standard library only, Python >= 3.8.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import subprocess
import tempfile

from ansible_collections.muster.training.plugins.module_utils._files.user_files import UserFileError

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    Listed = Dict[str, Optional[List[Any]]]

LIST = ".muster-code.json"
"""The list: [size, time in seconds] for a file, ["link", target] for a link, null for a directory, whose name ends with
a slash."""


class TreeError(UserFileError):
    """What was found, what is needed and what to do."""


def listed(directory: str, patterns: list[str]) -> list[str]:
    """The files, links and directories of a tree that rsync would copy, sorted. rsync itself applies the patterns.

    Raises TreeError if it cannot.
    """
    words = ["rsync", "--recursive", "--links", "--dry-run", "--8-bit-output", "--out-format=%n", "--exclude-from=-"]
    # Names are bytes, and may not be valid text.
    done = subprocess.run(
        [*words, f"{directory}/", "/nonexistent/"],
        input="\n".join(patterns),
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        check=False,
    )
    if done.returncode:
        raise TreeError(f"rsync cannot list {directory}: {done.stderr.strip()}")
    names = (re.sub(r"\\#([0-7]{3})", lambda found: chr(int(found[1], 8)), name) for name in done.stdout.splitlines())
    # Non-regular files, which rsync reports in their own lines, are not copied either.
    return sorted(
        name
        for name in names
        if name != "./" and (os.path.islink(path := f"{directory}/{name}".rstrip("/")) or regular(path))
    )


def regular(path: str) -> bool:
    """Whether a path is a file or a directory."""
    return os.path.isfile(path) or os.path.isdir(path)


def state(path: str) -> list[Any] | None:
    """The list's entry for a path, null for a directory. Raises OSError if the path does not exist."""
    found = os.lstat(path.rstrip("/"))
    if stat.S_ISLNK(found.st_mode):
        return ["link", os.readlink(path.rstrip("/"))]
    return None if stat.S_ISDIR(found.st_mode) else [found.st_size, int(found.st_mtime)]


def is_inside(name: str) -> bool:
    """Whether a name from a list, which may come from another node, stays below the tree."""
    return bool(name) and not name.startswith("/") and ".." not in name.split("/") and "\0" not in name


def read_list(directory: str) -> Listed:
    """The list of what was copied into a tree; empty if nothing was."""
    path = os.path.join(directory, LIST)
    if os.path.islink(path) or not os.path.isfile(path):
        return {}
    with open(path, encoding="utf-8") as file:
        found: Listed = json.load(file)
    return {name: entry for name, entry in found.items() if is_inside(name)}


def write_list(directory: str, brought: Listed) -> None:
    """Write the list of what was copied, atomically."""
    number, name = tempfile.mkstemp(dir=directory, prefix=f"{LIST}.")
    with os.fdopen(number, "w", encoding="utf-8") as file:
        json.dump(brought, file)
    os.replace(name, os.path.join(directory, LIST))


def entries(directory: str, patterns: list[str]) -> Listed:
    """The list of what rsync would copy from a source. Raises TreeError or OSError."""
    return {name: state(f"{directory}/{name}") for name in listed(directory, patterns)}


def old_names(directory: str, new: Listed, patterns: list[str], delete: bool) -> list[str]:
    """The names to remove: copied before, unchanged, and not in the new list; deepest first.

    With `delete`, everything that is not in the new list, except what the patterns exclude.
    """
    if not os.path.isdir(directory):
        return []
    old = read_list(directory)
    names = set(old) | (set(listed(directory, patterns)) if delete else set())
    root, found = os.path.realpath(directory), []
    for name in sorted(names - set(new), reverse=True):  # a directory's contents come before it
        path = os.path.join(directory, name)
        above = os.path.realpath(os.path.dirname(path.rstrip("/")))
        if above != root and not above.startswith(f"{root}/"):
            continue  # a link leads out of the tree
        try:
            if delete or state(path) == old[name]:
                found.append(name)
        except OSError:
            continue  # already gone
    return found


def remove(directory: str, names: list[str]) -> list[str]:
    """Remove what old_names() found; return the names that were removed."""
    removed = []
    for name in names:
        path = os.path.join(directory, name)
        try:
            if name.endswith("/") and not os.path.islink(path.rstrip("/")):
                os.rmdir(path)
            else:
                os.unlink(path.rstrip("/"))
        except OSError:
            continue  # already gone, or a directory in which something lies
        removed.append(name)
    return removed


def prepare(directory: str, new: Listed, patterns: list[str], delete: bool, check: bool = False) -> list[str]:
    """On the first node, before its copy: remove what the source no longer has; return the removed names."""
    old = old_names(directory, new, patterns, delete)
    if check:
        return [shown(name) for name in old]
    removed = remove(directory, old)
    if read_list(directory) != new:
        write_list(directory, new)
    return [shown(name) for name in removed]


def rsync(shell: str, *words: str, **options: Any) -> str:
    """Run rsync from the first node; return what it prints. Raises TreeError with rsync's own words if it fails."""
    done = subprocess.run(
        ["rsync", "--archive", f"--rsh={shell}", *words],
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        check=False,
        **options,
    )
    if done.returncode:
        raise TreeError(shown(done.stderr.strip()))
    return done.stdout


def bring(
    directory: str, source: str, patterns: list[str], delete: bool, options: list[str], shell: str
) -> tuple[list[str], str]:
    """On another node: copy from the first node what was copied there; return what was removed, and rsync's output.

    Args:
        source: the first node's tree in rsync's form, HOST:PATH.
        options: additional words for rsync's command.
        shell: the remote shell command for rsync.
    """
    with tempfile.TemporaryDirectory() as scratch:
        try:
            rsync(shell, f"{source}/{LIST}", f"{scratch}/")
        except TreeError as failed:
            if "No such file" not in str(failed):
                raise
            raise TreeError("nothing was brought there yet. Run this once without --limit") from None
        new = read_list(scratch)
    removed = remove(directory, old_names(directory, new, patterns, delete))
    # with a trailing slash, a directory would mean its contents
    names = "".join(f"{name.rstrip('/')}\0" for name in sorted(new))
    words = ["--itemize-changes", "--from0", "--files-from=-", *options, f"{source}/", f"{directory}/"]
    copied = rsync(shell, *words, input=names)
    if read_list(directory) != new:
        write_list(directory, new)
    return [shown(name) for name in removed], shown(copied)


def shown(text: str) -> str:
    """A printable form of a text, whatever bytes it was made of."""
    return text.encode("utf-8", "replace").decode()


def tracked(directory: str, patterns: list[str]) -> list[str]:
    """The files that git tracks in a tree, except those that the patterns exclude."""
    done = subprocess.run(
        ["git", "-C", directory, "ls-files", "-z", "--recurse-submodules"],
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        check=False,
    )
    if done.returncode:
        raise TreeError(f"git cannot list {directory}: {done.stderr.strip()}")
    return sorted(set(done.stdout.split("\0")) & set(listed(directory, patterns)))


def digest(path: str) -> str:
    """Hash of a file's content and executable bit, or of a link's target."""
    if os.path.islink(path):
        return hashlib.sha256(b"link " + os.fsencode(os.readlink(path))).hexdigest()
    found = hashlib.sha256(b"run " if os.stat(path).st_mode & 0o100 else b"read ")
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            found.update(block)
    return found.hexdigest()


def hashes(directory: str, patterns: list[str], git: bool) -> dict[str, str]:
    """The hash of each existing file that was copied or that git tracks."""
    names = tracked(directory, patterns) if git else sorted(read_list(directory))
    paths = {name: os.path.join(directory, name) for name in names if not name.endswith("/")}
    return {name: digest(path) for name, path in paths.items() if os.path.islink(path) or os.path.isfile(path)}


def hash_of(files: dict[str, str]) -> str:
    """One hash of all these."""
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()[:16]
