# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Profile some steps of a run on this node's ranks, and send their traces in chunks."""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import os
import time

from ansible_collections.muster.training.plugins.module_utils._files.bounded import (
    bounded_int,
    open_regular,
    remove_entry,
)
from ansible_collections.muster.training.plugins.module_utils._run.find_runs import (
    check_alive_elsewhere,
    node_directories,
)
from ansible_collections.muster.training.plugins.module_utils._run.identity import RunError
from ansible_collections.muster.training.plugins.module_utils._run.profile_documents import (
    DIRECTORY,
    IDENTIFIER,
    PROFILE_REPLY,
    PROFILE_REQUEST,
    REPLY_SCHEMA,
    STATE_SCHEMA,
)
from ansible_collections.muster.training.plugins.module_utils._run.profile_trace import analyze
from ansible_collections.muster.training.plugins.module_utils._run.running_supervisors import is_alive
from ansible_collections.muster.training.plugins.module_utils._run.safe_files import (
    open_private,
    read_job_object,
    write_json,
)
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import conforms
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import (
    PROFILE_EXPORT_TIMEOUT,
    PROFILE_POLL_INTERVAL,
    PROFILE_REPEAT_INTERVAL,
    PROFILE_REQUEST_TIMEOUT,
)

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from ansible_collections.muster.training.plugins.module_utils._run.documents import Data

MAX_TRACE = 256 * 2**20  # maximum size of a rank's trace in bytes
PIECE_BYTES = 8 * 2**20  # bytes of a trace per reply
NO_HANDLER = "the rank is not a Python process that muster can signal, or it has ended"


def find_run(request: Data) -> tuple[str, Data]:
    """Return the run's directory and plan. Raise RunError."""
    runs = node_directories(request)
    if not runs:
        check_alive_elsewhere(request)
        raise RunError(f"run {request['run_id']} does not exist on this node")
    return runs[0]


def profile(request: Data) -> Data:
    """Profile a run's ranks on this node; return the result for each rank."""
    path, plan = find_run(request)
    if not is_alive(path):
        raise RunError(f"run {plan['run_id']} is not active on this node, so nothing can be profiled")
    if not plan.get("stacks"):
        raise RunError(f"run {plan['run_id']} cannot be profiled: launch it with launch_stacks: true")
    node = plan["node"]
    described = {name: node[name] for name in ("name", "first_rank", "slots")}
    ranks = range(node["first_rank"], node["first_rank"] + node["slots"])
    if request["ranks"] and not set(request["ranks"]) & set(ranks):
        return {"changed": False, "node": described, "id": "", "ranks": []}
    order = {"id": os.urandom(8).hex(), "steps": request["steps"], "ranks": request["ranks"], "finish": False}
    reply = query_supervisor(path, plan, order)
    pids = {entry["rank"]: entry["pid"] for entry in reply["processes"] if entry["rank"] in ranks}
    wait_for_ranks(path, order, list(pids.values()), request["seconds"])
    if find_unfinished(path, order["id"], list(pids.values())):
        query_supervisor(path, plan, {**order, "finish": True})
        wait_for_ranks(path, {**order, "finish": True}, list(pids.values()), PROFILE_EXPORT_TIMEOUT)
    results = [rank_result(path, order["id"], rank, pid) for rank, pid in pids.items()]
    missing = [rank for rank in ranks if rank in reply["unavailable"]]
    results += [{**failed_result(rank, NO_HANDLER), "pid": 0} for rank in missing]
    return {"changed": True, "node": described, "id": order["id"], "ranks": results}


def query_supervisor(path: str, plan: Data, order: Data) -> Data:
    """Send a profile request to the supervisor; return its reply, with the processes that it has signaled.

    Raise RunError if it does not reply in time.
    """
    with contextlib.suppress(OSError):
        write_json(os.path.join(path, PROFILE_REQUEST), order)
    deadline = time.monotonic() + PROFILE_REQUEST_TIMEOUT
    while time.monotonic() < deadline:
        reply = read_job_object(os.path.join(path, PROFILE_REPLY))
        if conforms(reply, REPLY_SCHEMA) and reply["id"] == order["id"] and reply["finish"] == order["finish"]:
            return reply
        time.sleep(PROFILE_POLL_INTERVAL)
    raise RunError(
        f"the supervisor of run {plan['run_id']} did not respond within {PROFILE_REQUEST_TIMEOUT:.0f} s: it may "
        "be busy with another profile; try again once that profile is finished"
    )


def file_of(path: str, identifier: str, pid: int, suffix: str) -> str:
    """Return the path of a file that a rank's process writes."""
    return os.path.join(path, DIRECTORY, identifier, f"{pid}{suffix}")


def read_state(path: str, identifier: str, pid: int) -> Data:
    """Return a rank's report about its profile, or {} if there is none yet. An invalid report counts as failed."""
    state = read_job_object(file_of(path, identifier, pid, ".json"))
    return state if not state or conforms(state, STATE_SCHEMA) else {"state": "failed", "error": "", "steps": []}


def find_unfinished(path: str, identifier: str, pids: list[int]) -> list[int]:
    """Return the processes that have not finished profiling."""
    return [pid for pid in pids if read_state(path, identifier, pid).get("state") not in ("profiled", "failed")]


def wait_for_ranks(path: str, order: Data, pids: list[int], seconds: float) -> None:
    """Wait until all processes have finished profiling or the run has ended.

    order: the latest that the supervisor has received, which is repeated to processes that are importing torch.
    """
    now = time.monotonic()
    deadline, repeat_due = now + seconds, now + PROFILE_REPEAT_INTERVAL
    while now < deadline and find_unfinished(path, order["id"], pids) and is_alive(path):
        if now >= repeat_due:
            repeat_due = now + PROFILE_REPEAT_INTERVAL
            if any(read_state(path, order["id"], pid).get("state", "importing") == "importing" for pid in pids):
                with contextlib.suppress(OSError):
                    write_json(os.path.join(path, PROFILE_REQUEST), order)
        time.sleep(PROFILE_POLL_INTERVAL)
        now = time.monotonic()


def failed_result(rank: int, error: str) -> Data:
    """Return the result of a rank without a profile."""
    return {"rank": rank, "error": error[:500], "steps": [], "size": 0, "operations": [], "collectives": []}


def rank_result(path: str, identifier: str, rank: int, pid: int) -> Data:
    """Return the analysis of a rank's trace, and pack the trace for transfer."""
    state = read_state(path, identifier, pid)
    if state.get("state") != "profiled":
        error = state.get("error") or "the rank has not responded: it may be in a library call, or may have ended"
        return {**failed_result(rank, error), "pid": pid}
    trace_path = file_of(path, identifier, pid, ".trace.json")
    try:
        with open(trace_path, "rb", opener=open_regular) as stream:
            data = stream.read(MAX_TRACE + 1)
        if len(data) > MAX_TRACE:
            raise ValueError(f"the trace is larger than {MAX_TRACE >> 20} MiB: profile fewer steps")
        analysis = analyze(json.loads(data, parse_int=bounded_int))
        packed = trace_path + ".gz"
        with contextlib.suppress(OSError):
            remove_entry(packed)
        with open(packed, "wb", opener=open_private) as raw, gzip.GzipFile("", "wb", 5, raw, 0) as target:
            target.write(data)
        os.unlink(trace_path)
        size = os.stat(packed).st_size
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        return {**failed_result(rank, f"the trace cannot be read: {error}"), "pid": pid}
    steps = state["steps"][:1001]
    return {"rank": rank, "pid": pid, "error": "", "steps": steps, "size": size, **analysis}


def profile_piece(request: Data) -> Data:
    """Return a chunk of a rank's packed trace in base64, and remove the profile's files after the last chunk."""
    path, _plan = find_run(request)
    if not IDENTIFIER.fullmatch(str(request["id"])):
        raise RunError("the profile has an invalid id")
    if request["offset"] < 0:
        with contextlib.suppress(OSError):
            remove_entry(os.path.join(path, DIRECTORY, request["id"]))
        return {"changed": True, "data": "", "last": True}
    packed = file_of(path, request["id"], int(request["pid"]), ".trace.json.gz")
    try:
        with open(packed, "rb", opener=open_regular) as stream:
            stream.seek(request["offset"])
            data = stream.read(PIECE_BYTES)
    except OSError as error:
        raise RunError(f"the trace cannot be read: {error.strerror}") from error
    return {"changed": False, "data": base64.b64encode(data).decode("ascii"), "last": len(data) < PIECE_BYTES}
