# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Paths that root may act on: nobody else can replace a link or directory on the way.

Private to this collection. Runs on the node, standard library only, Python >= 3.8.
"""

from __future__ import annotations

import contextlib
import os
import stat

FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
ROOT = 0


class PathError(Exception):
    """A problem on the way to a path, described for a person."""


def directory_error(status: os.stat_result, path: str) -> str:
    """Why root must not act in a directory; empty if it may.

    In a sticky directory (/tmp), nobody can replace what root owns, so only that may be entered.
    """
    if status.st_uid != ROOT:
        return f"{path} does not belong to root"
    if status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:
        return f"{path} can be written by others than root"
    return ""


def parent_error(path: str) -> str:
    """What lets another user replace an absolute path or a directory above it; empty if only root can.

    Missing parts are fine: root makes them.
    """
    if not path.startswith("/"):
        return f"{path} is no absolute path"
    directory = os.open("/", FLAGS)
    current = ""
    try:
        for name in [part for part in path.split("/") if part][:-1]:
            current = f"{current}/{name}"
            try:
                child = os.open(name, FLAGS, dir_fd=directory)
            except FileNotFoundError:
                return ""
            except OSError:
                return f"{current} is a link, or no directory"
            os.close(directory)
            directory = child
            reason = directory_error(os.fstat(directory), current)
            if reason:
                return reason
        return ""
    finally:
        os.close(directory)


def make_directory(path: str, uid: int, gid: int, mode: int) -> None:
    """Make a missing directory and give it to a user; an existing one keeps its owner.

    Missing parents are made too, owned by root, with mode 0755. Links are not followed.

    Raises PathError if a part of the path is a link, or another user can replace it; FileExistsError if the path
    exists.
    """
    names = [part for part in path.split("/") if part]
    directory = os.open("/", FLAGS)
    current = ""
    try:
        for name in names[:-1]:
            current = f"{current}/{name}"
            is_new = False
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o755, dir_fd=directory)
                is_new = True
            try:
                child = os.open(name, FLAGS, dir_fd=directory)
            except OSError as error:
                raise PathError(f"{current} is a link, or no directory") from error
            os.close(directory)
            directory = child
            if is_new:
                os.fchmod(directory, 0o755)  # regardless of the umask
            reason = directory_error(os.fstat(directory), current)
            if reason:
                raise PathError(reason)
        os.mkdir(names[-1], 0o700, dir_fd=directory)
        new_directory = os.open(names[-1], FLAGS, dir_fd=directory)
        try:
            if os.fstat(new_directory).st_uid != os.geteuid():
                raise PathError(f"{path} was exchanged by somebody else while it was made")
            os.fchmod(new_directory, mode)
            os.fchown(new_directory, uid, gid)
        finally:
            os.close(new_directory)
    finally:
        os.close(directory)
