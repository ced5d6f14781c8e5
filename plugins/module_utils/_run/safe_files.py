# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read and write the files in a run directory safely, whatever a job has written there."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat

from ansible_collections.muster.training.plugins.module_utils._files.bounded import (
    open_regular,
    read_json,
    replace_non_finite,
    write_atomically,
)

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Any

    from ansible_collections.muster.training.plugins.module_utils._run.documents import Data

TAIL_BYTES = 65536  # number of bytes read from the end of a log to find an error
MAX_RANK_FILE_BYTES = 1048576  # size in bytes of a file in which a rank records how or why it ended


def write_json(path: str, value: Any, mode: int = 0o600) -> None:
    """Write a JSON file atomically: a reader sees either the old or the new content. NaN and infinity become null."""
    write_atomically(path, json.dumps(replace_non_finite(value)), mode)


def write_private(path: str, text: str) -> None:
    """Write a new file that is readable only by this user."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)


def open_private(path: str, flags: int) -> int:
    """Open a file for writing, private to its user if it is new: an opener for open().

    Raise OSError if it is a link or not a regular file, such as a pipe, whose opening could wait forever for a reader.
    """
    return os.open(path, flags) if path == os.devnull else open_regular(path, flags)


def read_job_object(path: str) -> Data:
    """Return the JSON object in a job's file; {} if the file is missing or holds anything else."""
    value = read_json(path, MAX_RANK_FILE_BYTES)
    return value if isinstance(value, dict) else {}


def read_tail(path: str, size: int = TAIL_BYTES, until: int | None = None) -> str:
    """Return the last `size` bytes of a file as text, or an empty string if it cannot be read.

    until: the length at which to cut the file off first, or None.
    """
    try:
        with open(path, "rb", opener=open_regular) as stream:
            length = stream.seek(0, os.SEEK_END)
            end = length if until is None else min(length, until)
            start = stream.seek(max(0, end - size))
            return stream.read(end - start).decode("utf-8", "replace")
    except OSError:
        return ""


def make_private_directory(path: str) -> None:
    """Create a directory private to this user. Raise OSError if it exists and is not private."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise OSError(errno.EEXIST, "it exists, but is not a directory that only this user can access; remove it", path)
