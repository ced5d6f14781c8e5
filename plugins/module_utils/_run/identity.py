# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose rights our code has on a node: root's, or those of the run's user. Private to this collection."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess

# This runs alone on a node: there is no AnsibleModule whose run_command could be called instead of subprocess.
# pylint: disable=ansible-bad-function


class RunError(Exception):
    """What is wrong, in words for a person."""


def act_as(user: str) -> None:
    """Have the run's user's rights from now on, where we are root: whatever that user owns may be a link to anything.

    Root stays within reach of as_root().
    """
    entry = user_entry(user)
    if os.geteuid() != 0 or entry.pw_uid == 0:
        return
    os.initgroups(user, entry.pw_gid)
    os.setegid(entry.pw_gid)
    os.seteuid(entry.pw_uid)
    os.environ.update(HOME=entry.pw_dir, USER=user, LOGNAME=user, SHELL=entry.pw_shell)


def user_entry(name: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise RunError(
            f"there is no user {name!r} on this node: create it, or set launch_user to one that exists"
        ) from None


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def be_root() -> None:
    """Undo act_as()."""
    os.seteuid(0)
    os.setegid(0)
    os.setgroups([])


def be_the_user() -> None:
    """Make act_as() final."""
    user, group = os.geteuid(), os.getegid()
    os.seteuid(0)
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)


def as_root(command: list[str]) -> subprocess.CompletedProcess[str] | None:
    """Run a command as root; return how it ended, None if we cannot become root."""

    def run(words: list[str]) -> subprocess.CompletedProcess[str]:
        regain = None if os.getuid() == os.geteuid() else be_root
        return subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, preexec_fn=regain
        )

    if os.getuid() == 0:
        return run(command)
    if not shutil.which("sudo"):
        return None
    done = run(["sudo", "-n", *command])
    # only where it failed is it worth a process to ask who failed
    return None if done.returncode != 0 and run(["sudo", "-n", "true"]).returncode != 0 else done
