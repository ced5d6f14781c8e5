# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read, write and remove files that a job, another node or a peer may have written or replaced.

Only regular files are opened, no link is followed, nothing blocks or recurses, and the size, nesting depth, length of
numbers and number of entries are limited. Used on nodes and on the controller.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from collections.abc import Iterator
    from typing import Any

MAX_JSON_BYTES = 8 * 2**20  # bytes of a JSON file, unless its reader sets another limit
MAX_JSON_DEPTH = 64  # nesting depth of objects and lists
MAX_DIGITS = 20  # number of digits of an integer; 64 bits need fewer
MAX_DIRECTORY_DEPTH = 64  # directory levels below the directory being walked
MAX_ENTRIES = 2_000_000  # number of entries in one directory
ESCAPED = re.compile(r"\\.", re.DOTALL)
STRING = re.compile(r'"[^"]*"')
BRACKET = re.compile(r"[\[\]{}]")


def open_regular(path: str, flags: int, mode: int = 0o600) -> int:
    """Open a regular file: an opener for open() which, with O_CREAT, creates a file private to its user.

    Raise OSError if it is a link, which may lead to a dead mount, or not a regular file: a pipe may block forever, and
    a device may have no end.
    """
    return open_linked(path, flags | os.O_NOFOLLOW, mode)


def open_linked(path: str, flags: int, mode: int = 0o600) -> int:
    """Open a regular file like open_regular(), but follow links. For files whose path the user chose."""
    truncate = flags & os.O_TRUNC  # truncate only once the file is known to be regular
    descriptor = os.open(path, (flags & ~os.O_TRUNC) | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        if truncate:
            os.ftruncate(descriptor, 0)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def file_size(path: str) -> int:
    """Return the size of a regular file in bytes, or 0 for anything else."""
    try:
        status = os.lstat(path)
    except OSError:
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def read_bytes(path: str, limit: int, follow_links: bool = False) -> bytes:
    """Return a regular file's content. Raise OSError if it has more than `limit` bytes or is not a regular file."""
    with open(path, "rb", opener=open_linked if follow_links else open_regular) as stream:
        if os.fstat(stream.fileno()).st_size > limit:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
        data = stream.read(limit + 1)  # the size may have grown, or be 0 in /proc
    if len(data) > limit:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
    return data


def nesting_depth(text: str) -> int:
    """Return how deeply objects and lists are nested in a JSON text, without parsing it."""
    if text.count("[") + text.count("{") <= MAX_JSON_DEPTH:
        return 0  # never deeper than allowed, regardless of what the strings contain
    depth = deepest = 0
    for bracket in BRACKET.findall(STRING.sub("", ESCAPED.sub("", text))):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    return deepest


def bounded_int(digits: str) -> int | float:
    """Return a JSON integer, as a float if it has too many digits, which is fast and may be infinite."""
    return int(digits) if len(digits) <= MAX_DIGITS else float(digits)


def parse_json(text: str) -> Any:
    """Return the value of a JSON text. Raise ValueError if it is invalid or nested too deeply.

    NaN and infinity are accepted, as Python's own writer produces them.
    """
    if nesting_depth(text) > MAX_JSON_DEPTH:
        raise ValueError("nested too deeply")
    return json.loads(text, parse_int=bounded_int)


def read_json(path: str, limit: int = MAX_JSON_BYTES) -> Any:
    """Return the content of a JSON file; None if it is missing, invalid, too large or not a regular file."""
    try:
        return parse_json(read_bytes(path, limit).decode("utf-8"))
    except (OSError, ValueError):
        return None


def replace_non_finite(value: Any) -> Any:
    """Return a JSON value with null in place of NaN and infinity, which are not JSON.

    Recursive: the value must come from parse_json() or from this program.
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: replace_non_finite(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [replace_non_finite(entry) for entry in value]
    return value


def remove_entry(path: str) -> None:
    """Remove a file, a link or a directory with its contents, if it exists."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISDIR(os.lstat(path).st_mode):
            remove_tree(path)
        else:
            os.unlink(path)


def write_atomically(path: str, text: str, mode: int = 0o600) -> None:
    """Write a file: a reader sees either the old or the new content, and nothing but this file is written.

    Raise OSError. Anything that already exists at the path, such as a link or a directory, is replaced.
    """
    temporary = f"{path}.{os.getpid()}.tmp"
    remove_entry(temporary)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
        try:
            os.replace(temporary, path)
        except IsADirectoryError:
            remove_tree(path)
            os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)  # a partial file would use disk space that the next write needs
        raise


class FileWalk:
    """The regular files below a directory, as (path below it, lstat result), with each directory sorted by name.

    Links are not followed. truncated: whether there are more than `limit` files, or some too deep or unreadable.
    """

    def __init__(self, directory: str, limit: int) -> None:
        self.directory = directory
        self.limit = limit
        self.truncated = False

    def __iter__(self) -> Iterator[tuple[str, os.stat_result]]:
        self.truncated = False
        scanned, queue = 0, [("", 0)]
        while queue:
            relative, depth = queue.pop()
            subdirectories, files = self.entries(relative, self.limit - scanned)
            for name in files:
                scanned += 1
                if scanned > self.limit:
                    self.truncated = True
                    return
                path = os.path.join(relative, name)
                try:
                    status = os.lstat(os.path.join(self.directory, path))
                except OSError:  # removed in the meantime
                    continue
                if stat.S_ISREG(status.st_mode):
                    yield path, status
            scanned += len(subdirectories)  # also limits the scan of a tree of empty directories
            if subdirectories and depth >= MAX_DIRECTORY_DEPTH:
                self.truncated = True
                continue
            queue += [(os.path.join(relative, name), depth + 1) for name in reversed(subdirectories)]

    def entries(self, relative: str, limit: int) -> tuple[list[str], list[str]]:
        """Return the names of a directory's subdirectories and of its other entries, sorted, at most `limit`."""
        subdirectories: list[str] = []
        others: list[str] = []
        try:
            with os.scandir(os.path.join(self.directory, relative)) as entries:
                for number, entry in enumerate(entries):
                    if number > limit:
                        self.truncated = True
                        break
                    (subdirectories if entry.is_dir(follow_symlinks=False) else others).append(entry.name)
        except OSError:
            self.truncated = self.truncated or bool(relative)
        return sorted(subdirectories), sorted(others)


def list_directory(path: str, limit: int = MAX_ENTRIES) -> list[str]:
    """Return the names in a directory, sorted, at most `limit`; [] if it cannot be read."""
    names: list[str] = []
    with contextlib.suppress(OSError), os.scandir(path) as entries:
        for entry in entries:
            if len(names) >= limit:
                break
            names.append(entry.name)
    return sorted(names)


def identity(descriptor: int) -> tuple[int, int]:
    """Return the identity of an open directory."""
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def open_directory(name: str, parent: int | None = None) -> int:
    """Open a directory for reading, not through a link; make it readable if it is not."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(name, flags, dir_fd=parent)
    except PermissionError:
        os.chmod(name, 0o700, dir_fd=parent)
        return os.open(name, flags, dir_fd=parent)


def remove_tree(path: str) -> None:
    """Remove a directory and everything below it, whatever its depth. Raise OSError if something cannot be removed.

    Moves down and up through descriptors: a path of a thousand directories is longer than the kernel accepts.
    """
    current = open_directory(path)
    # name and identity of each parent directory that the walk will return to
    parents: list[tuple[str, tuple[int, int]]] = []
    try:
        while True:
            subdirectory = remove_entries(current)
            if subdirectory is not None:
                parents.append((subdirectory, identity(current)))
                child = open_directory(subdirectory, current)
                os.close(current)
                current = child
                continue
            if not parents:
                break
            name, expected = parents.pop()
            parent = os.open("..", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=current)
            os.close(current)
            current = parent
            if identity(current) != expected:
                raise OSError(errno.ESTALE, "it was moved while it was being removed", path)
            os.rmdir(name, dir_fd=current)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
    finally:
        os.close(current)
    os.rmdir(path)


def remove_entries(descriptor: int) -> str | None:
    """Remove the files and empty directories in an open directory; return one directory that is not empty, or None."""
    if os.fstat(descriptor).st_mode & stat.S_IRWXU != stat.S_IRWXU:
        os.fchmod(descriptor, 0o700)
    removed = True
    while removed:
        removed = False
        with os.scandir(descriptor) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    try:
                        os.rmdir(entry.name, dir_fd=descriptor)
                    except OSError as error:
                        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.EACCES):
                            raise
                        return entry.name
                else:
                    os.unlink(entry.name, dir_fd=descriptor)
                removed = True
    return None
