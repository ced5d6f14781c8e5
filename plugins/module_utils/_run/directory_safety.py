# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check who owns a run's directories: nobody else may replace the programs that we write and run there.

Private to this collection.
"""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import stat

from ansible_collections.muster.training.plugins.module_utils._run.identity import RunError, user_name

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node some milliseconds
    from collections.abc import Iterator

MAX_LINKS = 40  # the kernel's own limit


def steps_to(path: str) -> Iterator[str]:
    """Yield each directory and each link on an absolute path, from the root down."""
    here, left, links = "/", path.split("/"), 0
    yield here
    while left:
        word = left.pop(0)
        if word in ("", "."):
            continue
        if word == "..":
            here = os.path.dirname(here)
            continue
        step = os.path.join(here, word)
        yield step
        try:
            target = os.readlink(step)
        except OSError:  # a directory, or it does not exist yet
            here = step
            continue
        links += 1
        if links > MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        left = target.split("/") + left
        if target.startswith("/"):
            here = "/"


def others_may_write(found: os.stat_result) -> bool:
    """Whether anyone but the owner and root may add and remove names in a directory.

    The owner's private group, with the owner's name and no other member, does not count.
    """
    if not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) or stat.S_ISLNK(found.st_mode):
        return False
    try:
        private = found.st_gid == 0 or grp.getgrgid(found.st_gid).gr_name == user_name(os.geteuid())
    except KeyError:
        private = False
    return bool(found.st_mode & stat.S_IWOTH) or not private


def is_ours(path: str) -> bool:
    """Whether we own a directory and nobody else may write to it."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not others_may_write(found)


def is_ours_with_run(directory: str) -> bool:
    """Whether we own both a node's run directory and the run's directory above it."""
    return is_ours(os.path.dirname(directory)) and is_ours(directory)


def refuse_others(path: str) -> None:
    """Raise RunError if anyone else may replace what is below a path, as far as it exists.

    Checks from the root down, so that nobody who owns a parent can replace a directory already found safe.
    """
    for step in steps_to(path):
        try:
            found = os.lstat(step)
        except FileNotFoundError:  # the missing directories are made later, then checked again
            return
        mine = user_name(os.geteuid())
        if found.st_uid not in (0, os.geteuid()):
            problem, remedy = f"{step} belongs to {user_name(found.st_uid)}", ""
        elif others_may_write(found) and not found.st_mode & stat.S_ISVTX:
            problem, remedy = f"other accounts can write to {step}", f", or remove that permission: chmod go-w {step}"
        else:
            continue
        raise RunError(
            f"{problem}: anyone who can write there could replace the program that will run as {mine}. Needed: each "
            f"directory on the path to {path} is owned by {mine} or root, and no other account can write to it, "
            f"unless it has the sticky bit like /tmp. Choose another launch_node_directory{remedy}"
        )


def make_run_directory(directory: str, run_id: str) -> None:
    """Make a run's directory on this node, in a place where nobody else can replace what we write into it."""
    above = os.path.dirname(directory)
    runs = os.path.dirname(above)
    try:
        refuse_others(runs)
        os.makedirs(runs, mode=0o700, exist_ok=True)
        refuse_others(runs)
        with contextlib.suppress(FileExistsError):  # another node's part of the run is in the same directory
            os.mkdir(above, 0o700)
        if not is_ours(above):
            raise RunError(
                f"cannot make the run directory {directory}: {above} was not made by {user_name(os.geteuid())}, or "
                "other accounts can write to it: they could replace the program of the run. Choose another run_id, or "
                f"remove {above} on this node"
            )
        if os.path.lexists(directory):
            raise RunError(f"run_id {run_id} is taken: {directory} exists on this node; choose another run_id")
        os.mkdir(directory, 0o700)
    except OSError as error:
        raise RunError(f"cannot make the run directory {directory}: {error}") from None
