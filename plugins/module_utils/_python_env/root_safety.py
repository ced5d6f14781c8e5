# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""As root, run programs only from a directory that nobody else can change.

Private to this collection. Runs on the node as the owner of the environment, standard library only, Python >= 3.8.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat

from ansible_collections.muster.training.plugins.module_utils._detached.result_line import Fault
from ansible_collections.muster.training.plugins.module_utils._python_env.paths import Place, read, write


def has_others(gid: int) -> bool:
    """Whether a group has a member who is not root."""
    if gid == 0:
        return False
    try:
        members = set(grp.getgrgid(gid).gr_mem)
    except KeyError:
        members = set()
    members |= {one.pw_name for one in pwd.getpwall() if one.pw_gid == gid and one.pw_uid != 0}
    return bool(members - {"root"})


def who_else_can_change(path: str, sticky_will_do: bool = False) -> str:
    """Who besides root can replace or change a path, in words; empty if nobody can."""
    info = os.lstat(path)
    if info.st_uid != 0:
        try:
            return f"belongs to {pwd.getpwuid(info.st_uid).pw_name}"
        except KeyError:
            return f"belongs to the user with uid {info.st_uid}"
    if stat.S_ISLNK(info.st_mode) or (sticky_will_do and info.st_mode & stat.S_ISVTX):
        return ""
    if info.st_mode & stat.S_IWOTH:
        return "can be written by everybody"
    if info.st_mode & stat.S_IWGRP and has_others(info.st_gid):
        return "can be written by its group"
    return ""


def parents_of(path: str) -> list[str]:
    """The existing directories above a path, including targets of links on the way."""
    found = []
    for way in sorted({os.path.abspath(path), os.path.realpath(path)}):
        while way != "/":
            way = os.path.dirname(way)
            if os.path.lexists(way):
                found.append(way)
    return found


def refuse_what_others_can_change(place: Place) -> None:
    """As root, refuse a directory into which anyone else can put programs, or has put some.

    Everything in it is examined once. Then a mark is left in it that nobody else could make or move there: it belongs
    to root and contains the directory's inode number.
    """
    if os.geteuid() != 0 or not os.path.isdir(place.root):
        return
    for path in [*parents_of(place.root), place.root, os.path.realpath(place.root)]:
        problem = who_else_can_change(path, sticky_will_do=path not in (place.root, os.path.realpath(place.root)))
        if problem:
            raise Fault(
                f"{path} {problem}, and root would run programs from {place.root}. Needed: a directory that only root "
                "can change, as with all directories above it. Set python_env_directory (for S3, s3_client_directory) "
                "to one, such as /usr/local/lib/muster/NAME"
            )
    info = os.stat(place.root)
    mark = os.path.join(place.root, ".only-root")
    number = f"{info.st_dev}:{info.st_ino}"
    if read(mark) == number and not os.path.islink(mark) and not who_else_can_change(mark):
        return
    for top in (place.environment, place.store, place.tools, place.conda, place.pythons, *place.records):
        for directory, inner, files in os.walk(top):
            for path in [directory, *(os.path.join(directory, name) for name in inner + files)]:
                problem = who_else_can_change(path)
                if problem:
                    raise Fault(
                        f"{path} {problem}, and root would run programs from {place.root}. Needed: nothing in it that "
                        f"somebody else made. Check what it is, then remove {top} and run this again"
                    )
    write(mark, number)
