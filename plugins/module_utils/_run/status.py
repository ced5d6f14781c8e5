# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run's status on a node."""

from __future__ import annotations

import contextlib
import os
import time

from ansible_collections.muster.training.plugins.module_utils._run.find_runs import (
    check_alive_elsewhere,
    modification_time,
    node_directories,
)
from ansible_collections.muster.training.plugins.module_utils._run.hub_node import leads_run
from ansible_collections.muster.training.plugins.module_utils._run.node_loss import death_message
from ansible_collections.muster.training.plugins.module_utils._run.rank_logs import rank_logs
from ansible_collections.muster.training.plugins.module_utils._run.running_supervisors import is_alive
from ansible_collections.muster.training.plugins.module_utils._run.safe_files import read_tail
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import (
    read_result,
    read_status,
    read_supervisor_boot,
)
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import STATUS_POLL_INTERVAL
from ansible_collections.muster.training.plugins.module_utils._slurm import queued_run

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from ansible_collections.muster.training.plugins.module_utils._run.documents import Data

ACTIVE_STATES = ("starting", "running", "stopping", "restarting", "spare")
METRICS_BYTES = 32768  # bytes of rank 0's output that the controller searches for metrics
UNFINISHED_STATES = (*ACTIVE_STATES, "ended")  # "ended": waiting for rank 0's result


def read(request: Data) -> Data:
    """Return as ``run`` the status of a run on this node, by default the newest; None if there is none.

    ``wait`` in the request: seconds to wait first until it ends, or until a node after ``hub`` leads it.
    """
    runs = node_directories(request)
    if not runs:
        check_alive_elsewhere(request)
    deadline = time.monotonic() + request["wait"]
    while runs and is_alive(runs[0][0]) and time.monotonic() < deadline and not has_successor(runs[0][0], request):
        time.sleep(STATUS_POLL_INTERVAL)
    return {"changed": False, "run": describe(*runs[0]) if runs else None}


def has_successor(path: str, request: Data) -> bool:
    """Return whether a node after the one in the request is leading the run."""
    hub = request.get("hub")
    return hub is not None and ((read_status(path) or {}).get("hub") or 0) > hub


def describe(path: str, plan: Data) -> Data:
    """Return the status of a run on this node."""
    status = read_status(path) or {
        "state": "starting",
        "message": "",
        "since": modification_time(path),
    }
    state, message = status["state"], status["message"]
    waits = queued_run.is_waiting(path)
    if (waits or state in UNFINISHED_STATES) and not is_alive(path):
        queue_message = queued_run.describe(path, plan["run_id"]) if waits else ""
        if queue_message:
            state, message = "starting", queue_message
        elif state in UNFINISHED_STATES:
            state, message = "died", death_message(read_supervisor_boot(path))
    local_rank = 0
    out, err = rank_logs(plan, path, local_rank)
    newest = max((out, err), key=modification_time)
    return {
        "run_id": plan["run_id"],
        "node": plan["node"]["name"],
        "node_rank": plan["node"]["node_rank"],
        "ranks": list(range(plan["node"]["first_rank"], plan["node"]["first_rank"] + plan["node"]["slots"])),
        "nnodes": len(plan["nodes"]),
        "job": describe_job(plan) if leads_run(plan) else "",
        "world_size": plan["world_size"],
        "attempt": plan.get("attempt") or 0,
        "lost": str(status.get("lost") or "")[:200],
        "hub": status.get("hub") or 0,
        "missing": status.get("missing") or [] if state in ACTIVE_STATES else [],
        "state": state,
        "message": message,
        "since": status["since"],
        "started": status.get("started"),
        "last_line": last_line(newest),
        "tail": read_tail(newest, METRICS_BYTES) if state == "running" and leads_run(plan) else "",
        "seconds_since_output": silence_of([out, err]) if state == "running" else None,
        "gpus": latest_gpu_sample(path) if state == "running" else None,
        "ended_ranks": ages_of_ended_ranks(status, plan["node"]) if state == "running" else {},
        "hang": describe_hang(status) if state == "running" else None,
        "health": list_texts(status, "health") + list_texts(status, "slow") if state == "running" else [],
        "directory": path,
        "report": status.get("report"),
        "result": read_result(path),
        "job_results": job_reports(path, plan) if state not in UNFINISHED_STATES else {},
    }


def list_texts(status: Data, name: str) -> list[str]:
    """Return a list of strings in a status, or [] if it is missing."""
    texts = status.get(name)
    return [text[:1000] for text in texts if isinstance(text, str)][:50] if isinstance(texts, list) else []


def describe_job(plan: Data) -> str:
    """Return the command and its directory: "train.py --epochs 3 in /home/me/project"."""
    from ansible_collections.muster.training.plugins.module_utils._run.run_summary import job_line

    return f"{job_line(plan)} in {plan['working_directory']}"


def job_reports(path: str, plan: Data) -> Data:
    """Return the values reported by the job of a finished run; {} on nodes that did not lead it."""
    from ansible_collections.muster.training.plugins.module_utils._run import job_results

    return job_results.merge_reports(job_results.load_reports(path, plan)) if leads_run(plan) else {}


def ages_of_ended_ranks(status: Data, node: Data) -> dict[str, float]:
    """Return the seconds since each of this node's ranks exited while its launcher is still running."""
    from ansible_collections.muster.training.plugins.module_utils._run.ended_ranks import ended_ranks

    ended = ended_ranks(status, node["first_rank"], node["slots"])
    return {str(rank): max(0.0, time.time() - since) for rank, since in ended.items()}


def describe_hang(status: Data) -> Data | None:
    """Return the ongoing hang reported by rank 0's supervisor, or None on other nodes."""
    from ansible_collections.muster.training.plugins.module_utils._run.hang_analysis import validate_hang

    return validate_hang(status.get("hang"))


def last_line(path: str) -> str:
    """Return the last line of a log that is not empty, at most 300 characters."""
    lines = [line.strip() for line in read_tail(path, 4096).splitlines()]
    return next((line[:300] for line in reversed(lines) if line), "")


def silence_of(paths: list[str]) -> float | None:
    """Return the seconds since any of these files was last written, or None if none exists."""
    written = []
    for path in paths:
        with contextlib.suppress(OSError):
            written.append(os.lstat(path).st_mtime)
    return max(0.0, time.time() - max(written)) if written else None


def latest_gpu_sample(path: str) -> Data | None:
    """Return the newest GPU sample, its age in seconds, and recent utilization; None before the first sample."""
    from ansible_collections.muster.training.plugins.module_utils._run import gpu_samples

    text = read_tail(os.path.join(path, gpu_samples.FILE))
    timestamp, devices = gpu_samples.last_sample(text)
    if not devices:
        return None
    trend = gpu_samples.utilization_trend(text)
    return {"age": max(0.0, time.time() - timestamp), "devices": devices, "trend": trend}
