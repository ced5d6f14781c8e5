# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""List the runs on a node and remove finished ones."""

from __future__ import annotations

import os

from ansible_collections.muster.training.plugins.module_utils._files.bounded import MAX_ENTRIES, FileWalk
from ansible_collections.muster.training.plugins.module_utils._run.find_runs import (
    modification_time,
    node_directories,
    remove_directory,
)
from ansible_collections.muster.training.plugins.module_utils._run.identity import RunError, drop_privileges
from ansible_collections.muster.training.plugins.module_utils._run.run_summary import (
    first_error,
    job_line,
    last_metrics,
)
from ansible_collections.muster.training.plugins.module_utils._run.running_supervisors import (
    find_supervisors,
    has_hidden_processes,
    is_alive,
)
from ansible_collections.muster.training.plugins.module_utils._run.status import UNFINISHED_STATES
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import read_result, read_status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict

    Data = Dict[str, Any]


def directory_size(path: str) -> int:
    """Return the total size in bytes of the regular files in a run directory."""
    return sum(status.st_size for _path, status in FileWalk(path, MAX_ENTRIES))


def describe(path: str, plan: Data) -> Data:
    """Return a run's entry for the list of this node's runs."""
    status = read_status(path) or {"state": "starting"}
    result = read_result(path) or {}
    alive = is_alive(path)
    state = status["state"]
    if not alive and state in UNFINISHED_STATES:
        state = "died"
    return {
        "run_id": plan["run_id"],
        "nodes": [node["name"] for node in plan["nodes"]],
        "state": result.get("state", state),
        "alive": alive,
        "started": modification_time(os.path.join(path, "plan.json")) or modification_time(path),
        "directory": path,
        "size": directory_size(path),
        "job": job_line(plan),
        "project": str(plan.get("working_directory", "")),
        "outcome": first_error(result) or last_metrics(path),
    }


def main(request: Data) -> Data:
    """List this node's runs, after removing those named in ``remove`` that are not alive here.

    With ``active``, only return which runs have a supervisor on this machine, or nothing if that is unknown.
    """
    try:
        if request.get("active"):
            if has_hidden_processes():  # another account's run may be active
                return {"changed": False}
            return {"changed": False, "active": sorted({supervisor["run_id"] for supervisor in find_supervisors()})}
        if request.get("user"):
            drop_privileges(request["user"])
        removed = []
        runs = []
        for path, plan in node_directories({**request, "run_id": ""}):
            if plan["run_id"] in request["remove"] and not is_alive(path):
                removed.append(plan["run_id"])
                if not request["check"]:
                    remove_directory(path)
            else:
                runs.append(describe(path, plan))
        return {"changed": bool(removed), "runs": runs, "removed": sorted(removed)}
    except RunError as error:
        return {"error": str(error)}
    except OSError as error:
        return {"error": f"cannot remove {error.filename}: {error.strerror}. Check its owner on this node"}
