# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check who can write to a run's directories: no other user may replace the programs that we run from them."""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import stat

from ansible_collections.muster.training.plugins.module_utils._run.identity import RunError, user_name

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from collections.abc import Iterator

MAX_LINKS = 40  # the kernel's own limit


def path_components(path: str) -> Iterator[str]:
    """Yield each directory and each link on an absolute path, from the root down."""
    current, remaining, links = "/", path.split("/"), 0
    yield current
    while remaining:
        name = remaining.pop(0)
        if name in ("", "."):
            continue
        if name == "..":
            current = os.path.dirname(current)
            continue
        path_so_far = os.path.join(current, name)
        yield path_so_far
        try:
            target = os.readlink(path_so_far)
        except OSError:  # it is a directory, or does not exist yet
            current = path_so_far
            continue
        links += 1
        if links > MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        remaining = target.split("/") + remaining
        if target.startswith("/"):
            current = "/"


def is_writable_by_others(status: os.stat_result) -> bool:
    """Return whether anyone except the owner and root may add and remove names in a directory.

    The owner's private group, with the owner's name and no other member, is ignored.
    """
    if not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) or stat.S_ISLNK(status.st_mode):
        return False
    try:
        private = status.st_gid == 0 or grp.getgrgid(status.st_gid).gr_name == user_name(os.geteuid())
    except KeyError:
        private = False
    return bool(status.st_mode & stat.S_IWOTH) or not private


def is_private_directory(path: str) -> bool:
    """Return whether this user owns a directory and no other user may write to it."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not is_writable_by_others(status)


def is_private_run_directory(directory: str) -> bool:
    """Return whether a node's run directory and its parent, the run's directory, are private to this user."""
    return is_private_directory(os.path.dirname(directory)) and is_private_directory(directory)


def check_ownership(path: str) -> None:
    """Raise RunError if another user could replace a file below a path. Only existing directories are checked.

    Checks from the root down, so that the owner of a parent cannot replace a directory that was already checked.
    """
    for component in path_components(path):
        try:
            status = os.lstat(component)
        except FileNotFoundError:  # missing directories are created later, and then checked again
            return
        user = user_name(os.geteuid())
        if status.st_uid not in (0, os.geteuid()):
            problem, remedy = f"{component} belongs to {user_name(status.st_uid)}", ""
        elif is_writable_by_others(status) and not status.st_mode & stat.S_ISVTX:
            problem, remedy = (
                f"other accounts can write to {component}",
                f", or remove that permission: chmod go-w {component}",
            )
        else:
            continue
        raise RunError(
            f"another user could replace the program that will run as {user}: {problem}. No directory on the path "
            f"to {path} may be owned or writable by another account, unless it has the sticky bit set, as /tmp "
            f"does. Choose another launch_node_directory{remedy}"
        )


def make_run_directory(directory: str, run_id: str) -> None:
    """Create a run's directory on this node, so that no other user can replace its files."""
    run_directory = os.path.dirname(directory)
    runs_directory = os.path.dirname(run_directory)
    try:
        check_ownership(runs_directory)
        os.makedirs(runs_directory, mode=0o700, exist_ok=True)
        check_ownership(runs_directory)
        with contextlib.suppress(FileExistsError):  # another node's part of the run is in the same directory
            os.mkdir(run_directory, 0o700)
        if not is_private_directory(run_directory):
            raise RunError(
                f"cannot create the run directory {directory}: {run_directory} was not created by "
                f"{user_name(os.geteuid())}, or other accounts can write to it and could replace the run's program. "
                f"Choose another run_id, or remove {run_directory} on this node"
            )
        if os.path.lexists(directory):
            raise RunError(f"run_id {run_id} is taken: {directory} exists on this node; choose another run_id")
        os.mkdir(directory, 0o700)
    except OSError as error:
        raise RunError(f"cannot create the run directory {directory}: {error}") from None
