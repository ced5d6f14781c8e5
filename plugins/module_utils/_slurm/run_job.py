# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Submit a run to Slurm and wait until it starts. Runs on the run's first node as the user who runs the jobs."""

from __future__ import annotations

import os
import time

from ansible_collections.muster.training.plugins.module_utils._run.identity import RunError, drop_privileges
from ansible_collections.muster.training.plugins.module_utils._run.safe_files import read_tail
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import (
    LONG_POLL_TIMEOUT,
    QUEUE_POLL_INTERVAL,
)
from ansible_collections.muster.training.plugins.module_utils._slurm import batch_script, queue, queued_run

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Dict

    Data = Dict[str, Any]


def submit(request: Data) -> Data:
    """Submit a run's job; return its job ID as ``job``.

    Args:
        request: run_id, nodes (name, address and directory of each, in rank order), options (of sbatch), notice
            (seconds before the job's end at which the run should save; 0 for none), requeue (how often).
    """
    cluster = batch_script.parse_nodes(queue.run("scontrol", "show", "node", "--oneliner"))
    try:
        nodes = batch_script.match_nodes(request["nodes"], cluster)
    except batch_script.NodeNotInClusterError as error:
        raise RunError(str(error)) from None
    log = os.path.join(request["nodes"][0]["directory"], queued_run.LOG)
    requeue = batch_script.NO_REQUEUE
    if request.get("requeue"):
        requeue = batch_script.requeue_option(queue.run("scontrol", "show", "config"))
    end = batch_script.JobEnd(request.get("notice") or 0, requeue)
    arguments = batch_script.submit_arguments(request["run_id"], log, nodes, request["options"], end)
    names = [node["NodeName"] for node in nodes]
    script = batch_script.batch_script(request["run_id"], request["nodes"], names, end.requeue)
    return {"changed": True, "job": queue.submit(arguments, script)}


def wait(request: Data) -> Data:
    """Wait for a change of a job in the queue: a new message, the start of the run, or the end of the job.

    Args:
        request: run_id, job, directory (of the run on this node), message (the last one).
    """
    deadline = time.monotonic() + LONG_POLL_TIMEOUT
    while True:
        if queued_run.has_started(request["directory"]):
            return {"state": "started", "message": ""}
        message = queue.queue_message(request["run_id"])
        if not message:
            return {"state": "ended", "message": describe_end(request)}
        if message != request["message"] or time.monotonic() > deadline:
            return {"state": "waiting", "message": message}
        time.sleep(QUEUE_POLL_INTERVAL)


def describe_end(request: Data) -> str:
    """Return a sentence about a job that ended before its run started."""
    output = read_tail(os.path.join(request["directory"], queued_run.LOG)).strip().splitlines()
    details = f"; its output: {' '.join(output[-3:])}" if output else ""
    return f"Slurm job {request['job']} {queue.final_state(request['job'])} before the run started{details}"


def main(request: Data) -> Data:
    """Return the reply to a request; ``error`` in it is a message for the user."""
    try:
        if request.get("user"):
            drop_privileges(request["user"])
        return {"submit": submit, "wait": wait}[request["operation"]](request)
    except RunError as error:
        return {"error": f"{error}"}
