# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Switch between root's privileges and those of the run's user on a node."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from collections.abc import Callable

    from ansible_collections.muster.training.plugins.module_utils._run.documents import Data

# This runs on a node without an AnsibleModule, so its run_command is not available.
# pylint: disable=ansible-bad-function


class RunError(Exception):
    """A run operation that failed, with a message for the user."""


def drop_privileges(user: str) -> None:
    """As root, drop to the privileges of the run's user, whose files may be links to anything.

    run_as_root() can still regain root's rights.
    """
    entry = passwd_entry(user)
    if os.geteuid() != 0 or entry.pw_uid == 0:
        return
    os.initgroups(user, entry.pw_gid)
    os.setegid(entry.pw_gid)
    os.seteuid(entry.pw_uid)
    os.environ.update(HOME=entry.pw_dir, USER=user, LOGNAME=user, SHELL=entry.pw_shell)


def reply_as_user(request: Data, operation: Callable[[Data], Data]) -> Data:
    """Run an operation as the user named in a request and return the reply; ``error`` in it is a message for the
    user.
    """
    try:
        if request.get("user"):
            drop_privileges(request["user"])
        return operation(request)
    except RunError as error:
        return {"error": str(error)}


def passwd_entry(name: str) -> pwd.struct_passwd:
    """Return a user's passwd entry. Raise RunError if the user does not exist."""
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise RunError(
            f"user {name!r} does not exist on this node: create it, or set launch_user to an existing user"
        ) from None


def user_name(uid: int) -> str:
    """Return the name of a user, or "uid N" if it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def restore_privileges() -> None:
    """Regain root's privileges after drop_privileges(), without its supplementary groups or environment variables."""
    os.seteuid(0)
    os.setegid(0)
    os.setgroups([])


def become_user() -> None:
    """Permanently drop privileges to the user selected by drop_privileges()."""
    user, group = os.geteuid(), os.getegid()
    os.seteuid(0)
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)


def run_as_root(command: list[str]) -> subprocess.CompletedProcess[str] | None:
    """Run a command as root; return the completed process, or None if root privileges are not available."""

    def run(argv: list[str]) -> subprocess.CompletedProcess[str]:
        regain = None if os.getuid() == os.geteuid() else restore_privileges
        return subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, preexec_fn=regain
        )

    if os.getuid() == 0:
        return run(command)
    if not shutil.which("sudo"):
        return None
    completed = run(["sudo", "-n", *command])
    # start another process only after a failure, to find out whether sudo or the command failed
    return None if completed.returncode != 0 and run(["sudo", "-n", "true"]).returncode != 0 else completed
