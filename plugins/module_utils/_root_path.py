# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Paths that root may act on: no link or directory along the way that somebody else can replace.

Private to this collection. Runs on the node, standard library only, Python >= 3.8.
"""

from __future__ import annotations

import contextlib
import os
import stat

FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
ROOT = 0


class PathError(Exception):
    """What was found on the way to a path, in words for a person."""


def fault_of(found: os.stat_result, path: str) -> str:
    """Why root must not act in a directory; empty if nothing speaks against it.

    In a sticky directory (/tmp) what root owns stays in place, so only that is entered.
    """
    if found.st_uid != ROOT:
        return f"{path} does not belong to root"
    if found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX:
        return f"{path} can be written by others than root"
    return ""


def parent_fault(path: str) -> str:
    """What lets somebody else replace an absolute path or a directory above it; empty if only root can.

    What does not exist is fine: root makes it.
    """
    if not path.startswith("/"):
        return f"{path} is no absolute path"
    directory = os.open("/", FLAGS)
    at = ""
    try:
        for name in [part for part in path.split("/") if part][:-1]:
            at = f"{at}/{name}"
            try:
                inner = os.open(name, FLAGS, dir_fd=directory)
            except FileNotFoundError:
                return ""
            except OSError:
                return f"{at} is a link, or no directory"
            os.close(directory)
            directory = inner
            fault = fault_of(os.fstat(directory), at)
            if fault:
                return fault
        return ""
    finally:
        os.close(directory)


def make_directory(path: str, uid: int, gid: int, mode: int) -> None:
    """Make a directory that does not exist and give it to a user; what exists keeps its owner.

    Directories above it that do not exist are made too, for root, with mode 0755. No link is followed.

    Raises PathError if something on the way is a link, or can be replaced by somebody else; FileExistsError if
    there is something at the path.
    """
    names = [part for part in path.split("/") if part]
    directory = os.open("/", FLAGS)
    at = ""
    try:
        for name in names[:-1]:
            at = f"{at}/{name}"
            new = False
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o755, dir_fd=directory)
                new = True
            try:
                inner = os.open(name, FLAGS, dir_fd=directory)
            except OSError as error:
                raise PathError(f"{at} is a link, or no directory") from error
            os.close(directory)
            directory = inner
            if new:
                os.fchmod(directory, 0o755)  # whatever the umask is
            fault = fault_of(os.fstat(directory), at)
            if fault:
                raise PathError(fault)
        os.mkdir(names[-1], 0o700, dir_fd=directory)
        made = os.open(names[-1], FLAGS, dir_fd=directory)
        try:
            if os.fstat(made).st_uid != os.geteuid():
                raise PathError(f"{path} was exchanged by somebody else while it was made")
            os.fchmod(made, mode)
            os.fchown(made, uid, gid)
        finally:
            os.close(made)
    finally:
        os.close(directory)
