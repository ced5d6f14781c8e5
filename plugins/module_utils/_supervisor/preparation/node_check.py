# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Child process that checks a node before an attempt, and lists the node's checkpoints.

Everything here may take long or hang: a GPU whose memory is being freed, a mount whose server is unavailable. It writes
one JSON object per line to its standard output: {"checkpoint"} for each checkpoint, then {"problems", "store"}.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import time

from ansible_collections.muster.training.plugins.module_utils._checkpoints.agreement import shorten
from ansible_collections.muster.training.plugins.module_utils._checkpoints.find import find_checkpoints
from ansible_collections.muster.training.plugins.module_utils._facts.checkpoints import read_location
from ansible_collections.muster.training.plugins.module_utils._facts.commands import call_in_children
from ansible_collections.muster.training.plugins.module_utils._facts.storage import disk_space, existing_parent
from ansible_collections.muster.training.plugins.module_utils._files.bounded import parse_json, read_json
from ansible_collections.muster.training.plugins.module_utils._run.gpu_samples import last_sample
from ansible_collections.muster.training.plugins.module_utils._run.gpu_tools import tool_of
from ansible_collections.muster.training.plugins.module_utils._run.hub_node import leads_run
from ansible_collections.muster.training.plugins.module_utils._run.node_loss import boot_identity
from ansible_collections.muster.training.plugins.module_utils._run.running_supervisors import marked_processes
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import (
    CHECKPOINT_READ_TIMEOUT,
    GPU_FREE_TIMEOUT,
    MOUNT_CHECK_TIMEOUT,
    NODE_CHECK_INTERVAL,
    SMI_TIMEOUT,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.ports import free_port
from ansible_collections.muster.training.plugins.module_utils._supervisor.preparation.output import write_message

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Any, Callable, Mapping

    from ansible_collections.muster.training.plugins.module_utils._run.documents import Plan

# This runs on a node without an AnsibleModule, so its run_command is not available.
# pylint: disable=ansible-bad-function

MAX_LISTED = 4  # newest checkpoints
MAX_GPU_MEMORY = 512.0  # MiB that may be in use on a free GPU: the driver itself uses some
MIN_FREE_BYTES = 256 * 2**20  # as preflight requires: with less space, a run cannot even write its logs
MAX_NAMED = 5  # number of processes that a problem names


def main(arguments: list[str]) -> int:
    """Check this node; arguments: the run directory."""
    directory = arguments[0]
    plan: Any = read_json(os.path.join(directory, "plan.json"))
    request = parse_json(sys.stdin.buffer.readline(65536).decode("utf-8"))
    problems = [] if request.get("list_only") else wait_until_free(plan, directory) + check_storage(plan, directory)
    listing = list_checkpoints(plan)
    for checkpoint in listing["listing"]:
        write_message({"checkpoint": shorten(checkpoint)})
    if listing["problem"]:
        problems.append(listing["problem"])
    write_message({"problems": problems, "store": listing["store"]})
    return 0


# - what the last attempt may have left behind


def wait_until_free(plan: Plan, directory: str) -> list[str]:
    """Wait until the last attempt has released its resources; return the resources still in use after the timeout."""
    deadline = time.monotonic() + plan["timeouts"].get("gpu_free", GPU_FREE_TIMEOUT)
    while True:
        problems = [*leftover_processes(directory), *busy_gpus(plan), *busy_ports(plan)]
        if not problems or time.monotonic() >= deadline:
            return problems
        time.sleep(NODE_CHECK_INTERVAL)


def leftover_processes(directory: str) -> list[str]:
    """Return a text about processes left over from the last attempt, if there are any."""
    pids = [pid for pid in marked_processes(directory) if not is_zombie(pid)]
    names = ", ".join(map(str, pids[:MAX_NAMED])) + (" and others" if len(pids) > MAX_NAMED else "")
    return [f"processes from the last attempt have not exited (pid {names})"] if pids else []


def is_zombie(pid: int) -> bool:
    """Return whether a process has ended but has not been reaped yet."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            return stream.read().rpartition(b")")[2].split()[:1] in ([b"Z"], [b"X"])
    except OSError:
        return True


def busy_gpus(plan: Plan) -> list[str]:
    """Describe GPUs that are missing or whose memory is in use."""
    command = plan.get("gpu_samples") or []
    if not command:
        return []
    try:
        result = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=SMI_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [f"{tool_of(plan).name} did not respond within {SMI_TIMEOUT:g} s"]
    except OSError as error:
        return [f"{tool_of(plan).name} cannot be started: {error.strerror}"]
    output = result.stdout[-65536:].decode("utf-8", "replace")
    error_text = f"{tool_of(plan).name} failed: {' '.join(output.split())[-300:]}" if result.returncode else ""
    return judge_gpus(last_sample(output)[1], expected_gpus(plan), error_text)


def expected_gpus(plan: Plan) -> int:
    """Return how many GPUs a sample from this node should show, or 0 if unknown."""
    if plan.get("gpus"):
        return len(plan["gpus"])
    hardware = plan["nodes"][plan["node"]["node_rank"]].get("hardware")
    return int(hardware["gpus"]) if hardware else 0


def judge_gpus(devices: list[dict[str, float | None]], expected: int, error: str) -> list[str]:
    """Return what is wrong with the GPUs in a sample; error: the sample's error, or ""."""
    if error:
        return [error]
    problems = []
    if len(devices) < expected:
        problems.append(f"{len(devices)} of {expected} GPUs respond")
    busy = [device for device in devices if (device["memory_used_mib"] or 0.0) >= MAX_GPU_MEMORY]
    if busy:
        gpus = ", ".join(f"{device['index']:.0f} ({device['memory_used_mib']:.0f} MiB)" for device in busy)
        problems.append(f"memory is in use on GPU {gpus}; the limit is {MAX_GPU_MEMORY:.0f} MiB")
    return problems


def busy_ports(plan: Plan) -> list[str]:
    """Return a message if the first node has no free port for the next attempt's rendezvous."""
    if not leads_run(plan):
        return []
    first = plan["restart"]["master_port"]
    port = free_port(first, plan["lifeline"]["port"])
    return [] if port else [f"the rendezvous port {first} is in use, and so are the ports after it"]


# - storage


def check_storage(plan: Plan, directory: str) -> list[str]:
    """Check mounts, the working directory and disks in child processes, because they may hang; return the problems."""
    calls: dict[str, Callable[[], Any]] = {
        f"mount {point}": functools.partial(list_error, point) for point in plan.get("mounts", ())
    }
    calls[f"working directory {plan['working_directory']}"] = functools.partial(list_error, plan["working_directory"])
    paths = {directory: "the run's directory", plan.get("checkpoints", ""): "the checkpoint directory"}
    paths = {path: name for path, name in paths.items() if path.startswith("/")}
    room = {f"room {path}": functools.partial(free_bytes, path) for path in paths}
    replies = call_in_children({**calls, **room}, MOUNT_CHECK_TIMEOUT)
    problems = [f"the {name} is not responding" for name in calls if name not in replies]
    problems += [f"the {name} cannot be read: {replies[name]}" for name in calls if replies.get(name)]
    for path, name in paths.items():
        free = replies.get(f"room {path}")
        if free is not None and free < MIN_FREE_BYTES:
            problems.append(f"{free / 2**20:.0f} MiB is free in {name} {path}; at least 256 MiB is required")
    return problems


def list_error(path: str) -> str:
    """Return why a directory cannot be listed, or "" if it can."""
    try:
        with os.scandir(path) as entries:
            next(entries, None)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def free_bytes(path: str) -> int:
    """Return the free bytes on a path's disk; the path need not exist."""
    return int(disk_space(existing_parent(path))["free_bytes"])


# - checkpoints


def list_checkpoints(plan: Plan) -> dict[str, Any]:
    """Return this node's checkpoints, the identifier of their store, and a problem if listing them hangs."""
    directory = plan.get("checkpoints", "")
    if not directory.startswith("/"):
        return {"listing": [], "store": "", "problem": ""}
    calls: dict[str, Callable[[], Any]] = {
        "listing": functools.partial(find_checkpoints, directory, MAX_LISTED),
        "location": functools.partial(read_location, directory),
    }
    replies = call_in_children(calls, CHECKPOINT_READ_TIMEOUT)
    if "listing" not in replies:
        problem = f"the checkpoint directory {directory} is not responding"
        return {"listing": [], "store": "", "problem": problem}
    return {"listing": replies["listing"], "store": store_of(directory, replies.get("location")), "problem": ""}


def store_of(directory: str, location: Mapping[str, Any] | None) -> str:
    """Return a text that identifies a directory's file system across all nodes, or "" if it is unknown."""
    if not location:
        return ""
    mount = location["mount"]
    if location["remote"]:
        return f"{mount['type']} {mount['source']} {os.path.relpath(directory, mount['point'])}"
    return f"local {boot_identity()} {location['disk']['device']} {directory}"
