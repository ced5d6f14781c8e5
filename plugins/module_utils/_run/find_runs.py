# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the runs on a node by their plans, and remove them with all their files."""

from __future__ import annotations

import contextlib
import glob
import os
import pwd
import shutil

from ansible_collections.muster.training.plugins.module_utils._run.directory_safety import is_private_run_directory
from ansible_collections.muster.training.plugins.module_utils._run.identity import RunError, passwd_entry
from ansible_collections.muster.training.plugins.module_utils._run.running_supervisors import find_supervisors, unit_of
from ansible_collections.muster.training.plugins.module_utils._run.safe_files import read_json
from ansible_collections.muster.training.plugins.module_utils._run.secrets import remove_secrets

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node some milliseconds
    from ansible_collections.muster.training.plugins.module_utils._run.documents import Data


def runs_directory(request: Data) -> str:
    """Return the absolute path of the directory that holds the runs of the request's user."""
    path = request["runs_directory"]
    user = request.get("user")
    if user and path.startswith("~/"):
        return os.path.join(passwd_entry(user).pw_dir, path[2:])
    return os.path.abspath(os.path.expanduser(path))


def node_directories(request: Data) -> list[tuple[str, Data]]:
    """Return this node's run directories and plans, newest first.

    Runs are matched by node name, since nodes may share a machine or a home.
    """
    run_id = request.get("run_id") or "*"
    runs = []
    for path in glob.glob(
        os.path.join(glob.escape(runs_directory(request)), run_id if run_id == "*" else glob.escape(run_id), "node*")
    ):
        plan = read_json(os.path.join(path, "plan.json")) if is_private_run_directory(path) else None
        if plan and plan["node"]["name"] == request["node"]:
            runs.append((os.stat(os.path.join(path, "plan.json")).st_mtime, path, plan))
    return [(path, plan) for _time, path, plan in sorted(runs, reverse=True)]


def can_list(directory: str) -> bool:
    """Return whether this user may list a directory."""
    try:
        os.listdir(directory)
    except OSError:
        return False
    return True


def is_removed(directory: str) -> bool:
    """Return whether a directory was removed; False if that cannot be determined."""
    try:
        os.lstat(directory)
    except FileNotFoundError:
        return True
    except OSError:
        pass
    return False


def check_alive_elsewhere(request: Data) -> None:
    """Raise RunError if the run is alive on this machine, but its directory is elsewhere or was removed."""
    searched = runs_directory(request)
    alive = find_supervisors()
    for supervisor in alive:
        runs = os.path.dirname(os.path.dirname(supervisor["directory"]))
        if supervisor["run_id"] != request.get("run_id") or (runs == searched and can_list(supervisor["directory"])):
            continue
        if is_removed(supervisor["directory"]) and can_list(runs):
            unit = unit_of(supervisor["pid"])
            pids = " ".join(str(process["pid"]) for process in alive if process["directory"] == supervisor["directory"])
            command = f"sudo systemctl stop {unit}.service" if unit else f"kill {pids}"
            raise RunError(
                f"run {supervisor['run_id']} is still running on this node, but its directory "
                f"{supervisor['directory']} was removed, so its output is lost. Stop it on this node with: {command}"
            )
        try:
            user = pwd.getpwuid(os.stat(f"/proc/{supervisor['pid']}").st_uid).pw_name
        except (OSError, KeyError):  # it has just ended, or its user is unknown on this machine
            user = "another user"
        raise RunError(
            f"run {supervisor['run_id']} is still running on this node, in {supervisor['directory']} of {user}, which "
            f"was not searched: add -e launch_user={user} or -e launch_node_directory={runs}, as in its launch"
        )


def remove_directory(directory: str) -> None:
    """Remove a node's run directory and secrets, and the parent directory if no other node uses it.

    Raise OSError if a file cannot be removed.
    """
    remove_secrets(directory)
    shutil.rmtree(directory)
    with contextlib.suppress(OSError):  # another node on this machine uses it, too
        os.rmdir(os.path.dirname(directory))
