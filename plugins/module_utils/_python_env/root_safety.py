# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check that root runs programs only from a directory that no other user can change."""

from __future__ import annotations

import os
import pwd
import stat

from ansible_collections.muster.training.plugins.module_utils._detached.result_line import StepError
from ansible_collections.muster.training.plugins.module_utils._files.root_path import has_other_members
from ansible_collections.muster.training.plugins.module_utils._files.text import read, write
from ansible_collections.muster.training.plugins.module_utils._python_env.paths import EnvironmentPaths


def describe_other_writers(path: str, allow_sticky: bool = False) -> str:
    """Return why users other than root can replace or change a path, or an empty string."""
    info = os.lstat(path)
    if info.st_uid != 0:
        try:
            return f"belongs to {pwd.getpwuid(info.st_uid).pw_name}"
        except KeyError:
            return f"belongs to the user with uid {info.st_uid}"
    if stat.S_ISLNK(info.st_mode) or (allow_sticky and info.st_mode & stat.S_ISVTX):
        return ""
    if info.st_mode & stat.S_IWOTH:
        return "is world-writable"
    if info.st_mode & stat.S_IWGRP and has_other_members(info.st_gid):
        return "is writable by its group"
    return ""


def parent_directories(path: str) -> list[str]:
    """Return the existing directories above a path, including those of link targets."""
    parents = []
    for directory in sorted({os.path.abspath(path), os.path.realpath(path)}):
        while directory != "/":
            directory = os.path.dirname(directory)
            if os.path.lexists(directory):
                parents.append(directory)
    return parents


def check_root_safety(paths: EnvironmentPaths) -> None:
    """As root, raise StepError if anyone else can put, or has put, programs into the directory.

    All files in it are checked once. Then a marker is written that no other user could create or move there: it belongs
    to root and contains the directory's inode number.
    """
    if os.geteuid() != 0:
        return
    directories = [paths.root, os.path.realpath(paths.root)] if os.path.isdir(paths.root) else []
    for path in [*parent_directories(paths.root), *directories]:
        problem = describe_other_writers(path, allow_sticky=path not in (paths.root, os.path.realpath(paths.root)))
        if problem:
            raise StepError(
                f"{path} {problem}, and root would run programs from {paths.root}. Set python_env_directory (for S3, "
                "s3_client_directory) to a directory that only root can change, and whose "
                "parent directories only root can change, such as /usr/local/lib/muster/NAME"
            )
    if not directories:
        return
    info = os.stat(paths.root)
    mark = os.path.join(paths.root, ".only-root")
    number = f"{info.st_dev}:{info.st_ino}"
    if read(mark) == number and not os.path.islink(mark) and not describe_other_writers(mark):
        return
    for top in (paths.environment, paths.store, paths.tools, paths.conda, paths.pythons, *paths.records):
        for directory, inner, files in os.walk(top):
            for path in [directory, *(os.path.join(directory, name) for name in inner + files)]:
                problem = describe_other_writers(path)
                if problem:
                    raise StepError(
                        f"{path} {problem}, and root would run programs from {paths.root}. Check that file, then "
                        f"remove {top} and run this again"
                    )
    write(mark, number)
