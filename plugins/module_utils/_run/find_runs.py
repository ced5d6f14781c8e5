# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the runs on a node by their plans, and remove them with all their files."""

from __future__ import annotations

import contextlib
import glob
import os

from ansible_collections.muster.training.plugins.module_utils._files.bounded import remove_tree
from ansible_collections.muster.training.plugins.module_utils._run.directory_safety import is_private_run_directory
from ansible_collections.muster.training.plugins.module_utils._run.identity import RunError, passwd_entry
from ansible_collections.muster.training.plugins.module_utils._run.running_supervisors import find_supervisors
from ansible_collections.muster.training.plugins.module_utils._run.secrets import remove_secrets
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import (
    TIME,
    is_of_another_node,
    read_plan,
    unit_name,
)
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import UNKNOWN_STOP_GRACE

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
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

    Runs are matched by node name, since nodes may share a machine or a home. A run that is alive is also identified by
    its processes: its job may have removed or replaced any file, or the directory itself.
    """
    live = live_runs(request)
    run_id = request.get("run_id") or "*"
    runs = [(modification_time(os.path.join(path, "plan.json")), path, plan) for path, plan in live.items()]
    for path in glob.glob(
        os.path.join(glob.escape(runs_directory(request)), run_id if run_id == "*" else glob.escape(run_id), "node*")
    ):
        plan = private_plan(path, request["node"]) if path not in live else None
        if plan:
            runs.append((modification_time(os.path.join(path, "plan.json")), path, plan))
    by_time = sorted(runs, key=lambda run: (bool(run[2].get("damaged")), *run[:2]), reverse=True)
    return [(path, plan) for _time, path, plan in by_time if plan["node"]["name"] == request["node"]]


def private_plan(path: str, name: str = "") -> Data | None:
    """Return the plan in a node's run directory, or None if it is missing or invalid or others can write there.

    name: that of the node of interest, if only its plans are; the plan of another may count as missing.
    """
    if not is_private_run_directory(path) or (name and is_of_another_node(path, name)):
        return None
    return read_plan(path)


def modification_time(path: str | os.PathLike[str]) -> float:
    """Return the time at which a file or directory was last written, limited to a TIME, or 0 if it was removed."""
    try:
        return min(max(os.lstat(path).st_mtime, TIME.low), TIME.high)
    except OSError:
        return 0.0


def live_runs(request: Data) -> dict[str, Data]:
    """Return the plans of this user's requested runs that are alive on this machine, by directory.

    A run without a valid plan has a substitute for it. Its node is unknown: if several nodes of one machine share the
    run, it is returned for each, because stopping it on any node ends it on all.
    """
    searched = runs_directory(request)
    runs: dict[str, Data] = {}
    for supervisor in find_supervisors():
        path, run_id = supervisor["directory"], supervisor["run_id"]
        is_requested = request.get("run_id") in (None, "", run_id)
        is_local = os.path.dirname(os.path.dirname(path)) == searched and supervisor["user"] == os.geteuid()
        if is_requested and is_local and path not in runs:
            runs[path] = private_plan(path) or substitute_plan(supervisor, request["node"])
    return runs


def substitute_plan(supervisor: Data, node: str) -> Data:
    """Return the parts of a run's plan that are known from its process alone."""
    directory = supervisor["directory"]
    rank = int(os.path.basename(directory)[len("node") :])
    return {
        "run_id": supervisor["run_id"],
        "unit": unit_name(supervisor["run_id"]),
        "rank_logs": "launcher",
        "node": {
            "name": node,
            "address": supervisor["address"],
            "slots": 0,
            "node_rank": rank,
            "first_rank": 0,
        },
        "nodes": [{"name": node}],
        "world_size": 0,
        "damaged": True,
        "working_directory": directory,
        "timeouts": {"grace": UNKNOWN_STOP_GRACE},
    }


def check_alive_elsewhere(request: Data) -> None:
    """Raise RunError if the run is alive on this machine, but in a directory or under a user that was not searched."""
    searched = runs_directory(request)
    for supervisor in find_supervisors():
        runs = os.path.dirname(os.path.dirname(supervisor["directory"]))
        if supervisor["run_id"] != request.get("run_id") or (
            runs == searched and supervisor["user"] == os.geteuid()  # in that case it is another node's part
        ):
            continue
        user = supervisor["owner"]
        raise RunError(
            f"run {supervisor['run_id']} is still running on this node, in {supervisor['directory']} (owned by "
            f"{user}), which was not searched: add -e launch_user={user} or -e launch_node_directory={runs}, as "
            "when it was launched"
        )


def remove_directory(directory: str) -> None:
    """Remove a node's run directory and secrets, and the parent directory if no other node uses it.

    Raise OSError if a file cannot be removed.
    """
    remove_secrets(directory)
    remove_tree(directory)
    with contextlib.suppress(OSError):  # another node on this machine is using it, too
        os.rmdir(os.path.dirname(directory))
