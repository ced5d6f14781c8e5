# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Paths that are safe for root: no other user can replace a directory on the path, or turn it into a link."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import stat

FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
ROOT = 0
MAX_LINKS = 40  # the kernel's own limit


class PathError(Exception):
    """A directory on a path is not safe for root; the message names it and explains why."""


def has_other_members(gid: int) -> bool:
    """Return whether a group other than root's has, or may have, a member who is not root."""
    if gid == 0:
        return False
    try:
        members = set(grp.getgrgid(gid).gr_mem)
    except KeyError:
        return True  # unknown here, so its members are unknown too
    members |= {user.pw_name for user in pwd.getpwall() if user.pw_gid == gid and user.pw_uid != ROOT}
    return bool(members - {"root"})


def is_group_of_root(gid: int) -> bool:
    """Return whether only root is in a group: root's own group, or Debian's staff (group of /usr/local) if it has no
    members.

    The members of other groups may be in a directory service that cannot be listed.
    """
    try:
        return gid == 0 or (grp.getgrgid(gid).gr_name == "staff" and not has_other_members(gid))
    except KeyError:
        return False


def is_writable_by_others(status: os.stat_result) -> bool:
    """Return whether anyone but the owner can write to a file or directory."""
    return bool(status.st_mode & 0o002 or (status.st_mode & 0o020 and not is_group_of_root(status.st_gid)))


def directory_error(status: os.stat_result, path: str) -> str:
    """Return why a directory is not safe for root, or "".

    In a sticky directory (/tmp), other users cannot replace root's directories, so these are safe.
    """
    if status.st_uid != ROOT:
        return f"{path} does not belong to root"
    if not status.st_mode & stat.S_ISVTX and is_writable_by_others(status):
        return f"{path} is writable by users other than root"
    return ""


def parent_error(path: str, links: bool = False) -> str:
    """Return why another user could replace an absolute path or a directory above it, or "" if only root can.

    Missing parts are safe: root creates them.

    Args:
        links: accept root's links, whose targets are checked in the same way.
    """
    if not path.startswith("/"):
        return f"{path} is not an absolute path"
    directory = os.open("/", FLAGS)
    current = ""
    names = [part for part in path.split("/") if part][:-1]
    followed = 0
    try:
        while names:
            name = names.pop(0)
            parent, current = current, f"{current}/{name}"
            try:
                child = os.open(name, FLAGS, dir_fd=directory)
            except FileNotFoundError:
                return ""
            except OSError:
                target = root_link(name, directory) if links and followed < MAX_LINKS else ""
                if not target:
                    return f"{current} is a link, or not a directory"
                followed += 1
                names = [part for part in target.split("/") if part] + names
                current = parent
                if target.startswith("/"):
                    os.close(directory)
                    directory, current = os.open("/", FLAGS), ""
                continue
            os.close(directory)
            directory = child
            reason = directory_error(os.fstat(directory), current)
            if reason:
                return reason
        return ""
    finally:
        os.close(directory)


def root_link(name: str, directory: int) -> str:
    """Return the target of a link that belongs to root, or ""."""
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        return os.readlink(name, dir_fd=directory) if status.st_uid == ROOT else ""
    except OSError:  # the path is not a link
        return ""


def root_only_error(path: str) -> str:
    """Return why anyone but root could change or replace a directory, or "". Missing directories are safe."""
    reason = parent_error(os.path.join(path, "."), links=True)  # check the directory itself, too
    # the sticky bit is sufficient protection only for parent directories
    if not reason and os.path.isdir(path) and is_writable_by_others(os.stat(path)):
        reason = f"{path} is writable by users other than root"
    return reason


def make_directory(path: str, uid: int, gid: int, mode: int) -> None:
    """Create a missing directory and give it to a user.

    Missing parents are created too, owned by root, with mode 0755. Links are not followed.

    Raises:
        PathError: a part of the path is a link, or another user can replace it.
        FileExistsError: the path exists.
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
                raise PathError(f"{current} is a link, or not a directory") from error
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
                raise PathError(f"{path} was replaced by another user while it was being created")
            os.fchmod(new_directory, mode)
            os.fchown(new_directory, uid, gid)
        finally:
            os.close(new_directory)
    finally:
        os.close(directory)
