# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Request that a run accept a new node in place of a missing one."""

from __future__ import annotations

import contextlib
import os
import time

from ansible_collections.muster.training.plugins.module_utils._files.bounded import read_json, remove_entry
from ansible_collections.muster.training.plugins.module_utils._run.find_runs import (
    check_alive_elsewhere,
    node_directories,
    runs_directory,
)
from ansible_collections.muster.training.plugins.module_utils._run.hub_node import leads_run
from ansible_collections.muster.training.plugins.module_utils._run.identity import RunError
from ansible_collections.muster.training.plugins.module_utils._run.members import REPLY, REQUEST, generation_of
from ansible_collections.muster.training.plugins.module_utils._run.running_supervisors import (
    find_supervisors,
    is_alive,
    unit_of,
)
from ansible_collections.muster.training.plugins.module_utils._run.safe_files import read_job_object, write_json
from ansible_collections.muster.training.plugins.module_utils._run.start import start, supervision_label
from ansible_collections.muster.training.plugins.module_utils._run.stop import stop
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import read_plan
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import JOIN_TIMEOUT, STATUS_POLL_INTERVAL
from ansible_collections.muster.training.plugins.module_utils._slurm import queued_run

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from ansible_collections.muster.training.plugins.module_utils._run.documents import Data

MAX_ENVIRONMENT_BYTES = 4 * 2**20


def join(request: Data) -> Data:
    """Have a run accept a node; return its node_rank and the data that its supervisor needs.

    Only the node that leads the run accepts the request. The reply contains the job's environment variables.
    """
    runs = node_directories(request)
    if not runs:
        check_alive_elsewhere(request)
    for path, plan in runs:
        if leads_run(plan) and is_alive(path):
            return {"changed": True, **request_join(path, request["member"])}
    return {"changed": False, "is_hub": False}


def request_join(path: str, member: Data) -> Data:
    """Write a request to a run directory; return the supervisor's reply with the run's plan and environment."""
    if os.path.lexists(os.path.join(path, queued_run.MARKER)):
        raise RunError(
            "the run is a Slurm job, which no other node can join: launch with launch_spares, or with "
            "launch_slurm_requeue, so that Slurm restarts it"
        )
    identifier = os.urandom(8).hex()
    document = {"id": identifier, "price_per_hour": member.get("price_per_hour")}
    document.update({key: member[key] for key in ("name", "address", "gpus")})
    try:
        write_json(os.path.join(path, REQUEST), document)
    except OSError as error:
        raise RunError(f"cannot write {os.path.join(path, REQUEST)}: {error.strerror}") from None
    deadline = time.monotonic() + JOIN_TIMEOUT
    while time.monotonic() < deadline:
        reply = read_job_object(os.path.join(path, REPLY))
        if reply.get("id") == identifier:
            if reply.get("error"):
                raise RunError(str(reply["error"])[:1000])
            return {"is_hub": True, "node_rank": reply.get("node_rank"), **read_documents(path)}
        time.sleep(STATUS_POLL_INTERVAL)
    with contextlib.suppress(OSError):
        remove_entry(os.path.join(path, REQUEST))
    raise RunError(f"the run's supervisor did not accept {member['name']} within {JOIN_TIMEOUT:.0f} s")


def read_documents(path: str) -> Data:
    """Return the run's nodes and attempt, and the job's environment, from a run directory."""
    plan = read_plan(path)
    target = os.path.realpath(os.path.join(path, "environment.json"))  # a link to a directory in memory
    environment = read_json(target, MAX_ENVIRONMENT_BYTES)
    if plan is None or not isinstance(environment, dict):
        raise RunError(f"the job has removed or replaced files in {path}: no more nodes can join this run")
    values = {name: value for name, value in environment.items() if isinstance(value, str)}
    values.pop("MUSTER_RUN_DIRECTORY", None)
    nodes = plan["nodes"]
    ranks = sorted((node.get("first_rank", 0), number) for number, node in enumerate(nodes) if node.get("slots"))
    attempt = {
        "number": plan.get("attempt") or 0,
        "hub": plan.get("hub") or 0,
        "members": [number for _first_rank, number in ranks],
        "checkpoint": plan.get("checkpoint", ""),
    }
    names = [
        {"name": node["name"], "address": node.get("address", ""), "generation": generation_of(plan, number)}
        for number, node in enumerate(nodes)
    ]
    return {"nodes": names, "attempt": attempt, "environment": values}


def start_member(request: Data) -> Data:
    """Start the supervisor of a node that is joining a run, after moving aside the directory of its earlier part, if
    any.
    """
    plan = request["plan"]
    directory = os.path.join(runs_directory(request), plan["run_id"], f"node{plan['node']['node_rank']}")
    for supervisor in find_supervisors():
        if supervisor["directory"] != directory:
            continue
        previous = read_plan(directory)
        own = plan["node"]["node_rank"]
        if previous is not None and generation_of(previous, own) == generation_of(plan, own):
            label = supervision_label(unit_of(supervisor["pid"]))
            return {"changed": False, "directory": directory, "supervision": label, "stopped": []}
        stop({**request, "run_id": plan["run_id"]})
    set_aside(directory)
    return start(request)


def set_aside(directory: str) -> None:
    """Rename the directory of a node's earlier part in a run, so that its logs remain."""
    if not os.path.lexists(directory):
        return
    number = 1
    while os.path.lexists(f"{directory}.{number}"):
        number += 1
    try:
        os.rename(directory, f"{directory}.{number}")
    except OSError as error:
        raise RunError(f"cannot rename {directory}: {error.strerror}") from None
