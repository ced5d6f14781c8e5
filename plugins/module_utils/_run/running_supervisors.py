# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the supervisors and processes of live runs on a node, from /proc."""

from __future__ import annotations

import os
import re
import stat

from ansible_collections.muster.training.plugins.module_utils._run.identity import user_name
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import RUN_ID, read_supervisor_pid

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from ansible_collections.muster.training.plugins.module_utils._run.documents import Data

GUARD = "--guard"
NODE_DIRECTORY = re.compile(r"node[0-9]{1,6}")


def command_line(pid: int) -> list[str]:
    """Return the arguments of a process, or [] if it has ended."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as stream:
            return stream.read().decode("utf-8", "surrogateescape").split("\0")[:-1]
    except OSError:
        return []


def supervisor_of(argv: list[str]) -> Data | None:
    """Return the run_id, address and directory of the run whose supervisor or guard has these arguments, or None.

    The result's `guard` tells whether it is the guard. Only the arguments that start() passes are accepted:
    DIRECTORY/supervisor.py [--guard] DIRECTORY RUN_ID ADDRESS.
    """
    guard = argv[-4:-3] == [GUARD]
    if len(argv) < 4 + guard:
        return None
    directory, run_id, address = argv[-3:]
    named_so = RUN_ID.fullmatch(run_id) and NODE_DIRECTORY.fullmatch(os.path.basename(directory))
    if not named_so or not directory.startswith("/") or os.path.basename(os.path.dirname(directory)) != run_id:
        return None
    if argv[-4 - guard] != os.path.join(directory, "supervisor.py"):
        return None
    return {"run_id": run_id, "address": address, "directory": directory, "guard": guard}


def is_private_to(user: int, directory: str) -> bool:
    """Return whether a directory, or the nearest one above it that can be seen, is a directory private to its user."""
    while True:
        try:
            status = os.lstat(directory)
        except PermissionError:
            directory = os.path.dirname(directory)
            continue
        except OSError:  # the directory does not exist
            return False
        return stat.S_ISDIR(status.st_mode) and status.st_uid == user and not status.st_mode & 0o077


def parent_of(pid: int) -> int:
    """Return the pid of the parent of a process, or 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            return int(stream.read().rpartition(b")")[2].split()[1])
    except OSError:
        return 0


def owner_of(pid: int) -> int | None:
    """Return the uid of a process, or None if it has ended."""
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None


def is_trusted(pid: int) -> bool:
    """Return whether a process that looks like a supervisor is definitely one.

    Anybody can write anything into a command line. So it must run in a muster unit, which only root can create, or
    belong to root or this user.
    """
    return owner_of(pid) in (0, os.geteuid()) or bool(unit_of(pid))


def supervised_processes(processes: list[Data]) -> list[Data]:
    """Return the processes of other accounts that form a run: a supervisor, started by a guard, in a private directory.

    Without a unit, each run has both. Only their account can see more of them.
    """
    guards = {process["pid"]: process for process in processes if process["guard"]}
    result: dict[int, Data] = {}
    for process in processes:
        guard = guards.get(0 if process["guard"] else parent_of(process["pid"]))
        same_run = guard is not None and (guard["directory"], guard["user"]) == (process["directory"], process["user"])
        if guard is not None and same_run and is_private_to(process["user"], process["directory"]):
            result.update({process["pid"]: process, guard["pid"]: guard})
    return list(result.values())


def find_supervisors() -> list[Data]:
    """Return the supervisors and guards on this machine, of any user.

    Each has run_id, address, directory, guard (whether it is one), pid, user (uid), and owner (that user's name).
    """
    trusted: list[Data] = []
    others: list[Data] = []
    for name in os.listdir("/proc"):
        supervisor = supervisor_of(command_line(int(name))) if name.isdigit() else None
        if supervisor is not None:
            user = owner_of(int(name))
            owner = user_name(user) if user is not None else ""
            supervisor.update(pid=int(name), user=user, owner=owner)
            (trusted if is_trusted(int(name)) else others).append(supervisor)
    return trusted + supervised_processes([process for process in others if process["user"] is not None])


def has_hidden_processes() -> bool:
    """Return whether this user cannot see other users' processes because /proc is mounted with hidepid."""
    return not command_line(1)


def is_alive(directory: str) -> bool:
    """Return whether the run in a directory has a supervisor, whatever the job has written there."""
    pid = read_supervisor_pid(directory)  # usually sufficient, and cheaper than a scan of all processes
    if pid is not None:
        supervisor = supervisor_of(command_line(pid))
        if supervisor is not None and supervisor["directory"] == directory and is_trusted(pid):
            return True
    return any(supervisor["directory"] == directory for supervisor in find_supervisors())


def marked_processes(directory: str) -> list[int]:
    """Return the pids of processes started in this run directory, found by the environment that they inherited."""
    mark = b"MUSTER_RUN_DIRECTORY=" + os.fsencode(directory)
    pids = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                with open(f"/proc/{name}/environ", "rb") as stream:
                    if mark in stream.read().split(b"\0"):
                        pids.append(int(name))
            except OSError:
                continue
    return pids


def unit_of(pid: int) -> str:
    """Return the name of a process's muster unit without ".service", or an empty string.

    Read from the kernel, not the run directory: the user can write that, and root stops the unit returned here.
    """
    try:
        with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="replace") as stream:
            paths = [line.rstrip("\n").split(":", 2)[2] for line in stream]
    except OSError:
        return ""
    units = [os.path.splitext(os.path.basename(path)) for path in paths if os.path.dirname(path) == "/system.slice"]
    return next((name for name, kind in units if name.startswith("muster-") and kind == ".service"), "")
