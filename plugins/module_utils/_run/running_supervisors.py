# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the supervisors and processes of live runs on a node, from /proc."""

from __future__ import annotations

import os

from ansible_collections.muster.training.plugins.module_utils._run.safe_files import read_json

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node some milliseconds
    from ansible_collections.muster.training.plugins.module_utils._run.documents import Data


def owner_of(path: str) -> int:
    """Return the uid of the owner of a path, or of the nearest directory above it that can be seen."""
    while True:
        try:
            return os.stat(path).st_uid
        except PermissionError:
            path = os.path.dirname(path)


def may_supervise(pid: int, directory: str) -> bool:
    """Return whether a process whose command line names a run directory can be that run's supervisor.

    Any user can write anything into a command line. So the process must run in a muster unit, which only root can
    create, or belong to root, to this user, or to the owner of the directory.
    """
    try:
        user = os.stat(f"/proc/{pid}").st_uid
        return user in (0, os.geteuid()) or bool(unit_of(pid)) or user == owner_of(directory)
    except OSError:  # it has ended, or the directory does not exist
        return False


def find_supervisors() -> list[Data]:
    """Return run_id, address, directory and pid of all supervisors on this machine, of any user."""
    result = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/cmdline", "rb") as stream:
                    argv = stream.read().decode("utf-8", "replace").split("\0")[:-1]
            except OSError:
                continue
            if len(argv) >= 4 and (argv[-4] == "--guard" or argv[-4].endswith("/supervisor.py")):
                directory, run_id, address = argv[-3:]
                is_run_directory = directory.startswith("/") and os.path.basename(os.path.dirname(directory)) == run_id
                if is_run_directory and may_supervise(int(name), directory):
                    result.append({"run_id": run_id, "address": address, "directory": directory, "pid": int(name)})
    return result


def is_alive(directory: str) -> bool:
    """Return whether the run in a directory has a supervisor."""
    recorded = read_json(os.path.join(directory, "supervisor.json"))
    if recorded:  # usually sufficient, and cheaper than a scan of all processes
        try:
            with open(f"/proc/{recorded['pid']}/cmdline", "rb") as stream:
                if os.fsencode(directory) in stream.read().split(b"\0") and may_supervise(recorded["pid"], directory):
                    return True
        except OSError:
            pass
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
    """Return the name of the muster unit of a process, without ".service", or an empty string.

    Read from the kernel, not the run directory: the user can write that, and root stops the unit returned here.
    """
    try:
        with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="replace") as stream:
            paths = [line.rstrip("\n").split(":", 2)[2] for line in stream]
    except OSError:
        return ""
    units = [os.path.splitext(os.path.basename(path)) for path in paths if os.path.dirname(path) == "/system.slice"]
    return next((name for name, kind in units if name.startswith("muster-") and kind == ".service"), "")
