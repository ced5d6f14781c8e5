# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Let Slurm choose a run's nodes: a job holds them until the run's step is written. Runs as the run's user.

The job is submitted from a login host or any node, before its nodes are known. Once it has nodes, they are checked and
the run's files are written to them, as without a queue; then the run's step is written on the job's first node, which
starts it. The run thus needs neither root nor a shared file system, and can use nodes that only admit users with a job.
"""

from __future__ import annotations

import os
import re
import shlex
import time

from ansible_collections.muster.training.plugins.module_utils._files.bounded import write_atomically
from ansible_collections.muster.training.plugins.module_utils._run.identity import RunError, drop_privileges
from ansible_collections.muster.training.plugins.module_utils._run.safe_files import make_private_directory
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import (
    ALLOCATION_HOLD_TIMEOUT,
    LONG_POLL_TIMEOUT,
    QUEUE_POLL_INTERVAL,
    STEP_POLL_INTERVAL,
)
from ansible_collections.muster.training.plugins.module_utils._slurm import batch_script, queue, queued_run

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Dict, Mapping, Sequence

    Data = Dict[str, Any]

JOB_NAME = "muster"  # name of a job that has no run yet
STEPS = "~/.muster/slurm"
ENDED = ("", "CANCELLED", "COMPLETED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE")


def holder_script() -> str:
    """Return the batch script that holds the nodes until the step is written, for a limited time."""
    looks = int(ALLOCATION_HOLD_TIMEOUT / STEP_POLL_INTERVAL)
    return (
        "#!/bin/sh\n"
        f'step="$HOME/{STEPS[2:]}/$SLURM_JOB_ID.sh"\n'
        "looks=0\n"
        'until [ -e "$step" ]; do\n'
        "  looks=$((looks + 1))\n"
        f'  if [ "$looks" -gt {looks} ]; then\n'
        f'    echo "no run was launched on these nodes within {ALLOCATION_HOLD_TIMEOUT:.0f} s" >&2\n'
        "    exit 1\n"
        "  fi\n"
        f"  sleep {STEP_POLL_INTERVAL}\n"
        "done\n"
        'exec /bin/sh "$step"\n'
    )


def allocation_arguments(
    count: int,
    candidates: Sequence[Mapping[str, str]],
    cluster: Sequence[Mapping[str, str]],
    options: Data,
    end: batch_script.JobEnd,
) -> list[str]:
    """Return the sbatch arguments that request a number of whole nodes from the candidates.

    Args:
        candidates: the nodes of the inventory as the cluster lists them.
        cluster: all nodes of the cluster; those that are not candidates are excluded.
        options: those of sbatch, as the user set them.
        end: how the job ends.
    """
    names = {node["NodeName"] for node in candidates}
    excluded = [node["NodeName"] for node in cluster if node["NodeName"] not in names]
    excluded += [options["exclude"]] if options.get("exclude") else []
    arguments = batch_script.submit_arguments(
        JOB_NAME, "/dev/null", candidates, {**options, "exclude": ",".join(excluded)}, end
    )
    replaced = {f"--nodes={len(candidates)}": f"--nodes={count}", f"--ntasks={len(candidates)}": f"--ntasks={count}"}
    return [replaced.get(argument, argument) for argument in arguments if not argument.startswith("--nodelist=")]


def allocate(request: Data) -> Data:
    """Submit a job that holds nodes; return its job ID as ``job``.

    Args:
        request: count, nodes (name and address of each candidate), options (of sbatch), notice (in seconds).
    """
    cluster = batch_script.parse_nodes(queue.run("scontrol", "show", "node", "--oneliner"))
    try:
        candidates = batch_script.match_nodes(request["nodes"], cluster)
    except batch_script.NodeNotInClusterError as error:
        raise RunError(str(error)) from None
    if request["count"] > len(candidates):
        raise RunError(f"nnodes is {request['count']}, but the inventory has {len(candidates)} nodes: request fewer")
    end = batch_script.JobEnd(request.get("notice") or 0, batch_script.NO_REQUEUE)
    arguments = allocation_arguments(request["count"], candidates, cluster, request["options"], end)
    return {"changed": True, "job": queue.submit(arguments, holder_script())}


def parse_job(text: str) -> dict[str, str]:
    """Return JobState, Reason, StartTime, NodeList and BatchHost of `scontrol show job --oneliner`."""
    fields = re.findall(r"(?:^|\s)(JobState|Reason|StartTime|NodeList|BatchHost)=(\S*)", text)
    return {name: "" if value in queue.UNKNOWN else value for name, value in fields}


def wait(request: Data) -> Data:
    """Wait for a change to a job: a new message, its nodes, or its end.

    Args:
        request: job, message (the last one).
    """
    deadline = time.monotonic() + LONG_POLL_TIMEOUT
    while True:
        try:
            reply = inspect_job(request["job"])
        except RunError as error:
            if "Invalid job id" in str(error):  # Slurm forgets a job a few minutes after its end
                return {"state": "ended", "message": f"Slurm job {request['job']} has ended"}
            reply = {"state": "waiting", "message": f"cannot read Slurm's queue: {error}"}  # it may be restarting
        if reply["state"] != "waiting" or reply["message"] != request["message"] or time.monotonic() > deadline:
            return reply
        time.sleep(QUEUE_POLL_INTERVAL)


def inspect_job(number: str) -> Data:
    """Return the state and message of a job, and its nodes once it has them. Raise RunError."""
    job = parse_job(queue.run("scontrol", "show", "job", number, "--oneliner"))
    state, reason = job.get("JobState", ""), job.get("Reason", "")
    if state == "RUNNING":
        return {"state": "allocated", "message": "", **describe_nodes(job)}
    if state in ENDED:
        details = f" ({reason})" if reason else ""
        return {"state": "ended", "message": f"Slurm job {number} ended in state {state or 'unknown'}{details}"}
    entry = {"job": number, "state": state, "reason": reason, "start": job.get("StartTime", "")}
    return {"state": "waiting", "message": queue.describe(entry, queue.position_of(number), time.time())}


def describe_nodes(job: Mapping[str, str]) -> Data:
    """Return the nodes of a running job as ``nodes``, and the name of its first node in Slurm as ``batch``."""
    names = queue.run("scontrol", "show", "hostnames", job.get("NodeList", "")).split()
    cluster = batch_script.parse_nodes(queue.run("scontrol", "show", "node", "--oneliner"))
    by_name = {node["NodeName"]: node for node in cluster}
    nodes = [{"name": name, "address": by_name.get(name, {}).get("NodeAddr", "")} for name in names]
    return {"nodes": nodes, "batch": job.get("BatchHost") or "".join(names[:1])}


def begin(request: Data) -> Data:
    """Start the run on the nodes of a job, and give the job the run's name. Runs on the job's first node.

    Args:
        request: job, run_id, nodes (name, address and directory of each, in rank order), directory (of this node).
    """
    state = parse_job(queue.run("scontrol", "show", "job", request["job"], "--oneliner")).get("JobState", "")
    if state != "RUNNING":
        raise RunError(
            f"Slurm job {request['job']} ended in state {state or 'unknown'} before the run was launched: launch "
            "it again"
        )
    cluster = batch_script.parse_nodes(queue.run("scontrol", "show", "node", "--oneliner"))
    try:
        nodes = batch_script.match_nodes(request["nodes"], cluster)
    except batch_script.NodeNotInClusterError as error:
        raise RunError(str(error)) from None
    script = batch_script.batch_script(request["run_id"], request["nodes"], [node["NodeName"] for node in nodes])
    queue.run("scontrol", "update", f"JobId={request['job']}", f"JobName={request['run_id']}")
    write_step(request["job"], os.path.join(request["directory"], queued_run.LOG), script)
    return {"changed": True, "job": request["job"]}


def write_step(job: str, log: str, script: str) -> None:
    """Write a job's step, whose output goes to a log."""
    directory = os.path.expanduser(STEPS)
    try:
        os.makedirs(os.path.dirname(directory), mode=0o700, exist_ok=True)
        make_private_directory(directory)
        text = f'#!/bin/sh\nrm -f -- "$0"\nexec >> {shlex.quote(log)} 2>&1\n{script}'
        write_atomically(os.path.join(directory, f"{job}.sh"), text)
    except OSError as error:
        raise RunError(f"cannot write job {job}'s step to {directory}: {error.strerror or error}") from None


def release(request: Data) -> Data:
    """Release a job's nodes. Ignore jobs that have ended or are unknown."""
    try:
        queue.run("scancel", request["job"])
    except RunError:
        return {"changed": False}
    return {"changed": True}


OPERATIONS = {"allocate": allocate, "wait": wait, "begin": begin, "release": release}


def main(request: Data) -> Data:
    """Return the reply to a request; ``error`` in it is a message for the user."""
    try:
        if request.get("user"):
            drop_privileges(request["user"])
        return OPERATIONS[request["operation"]](request)
    except RunError as error:
        return {"error": f"{error}"}
