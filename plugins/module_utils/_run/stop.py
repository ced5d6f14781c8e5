# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""End a run on a node, and remove it."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from ansible_collections.muster.training.plugins.module_utils._run.find_runs import (
    check_alive_elsewhere,
    node_directories,
    remove_directory,
)
from ansible_collections.muster.training.plugins.module_utils._run.gpu_claims import share_gpus
from ansible_collections.muster.training.plugins.module_utils._run.identity import RunError, run_as_root
from ansible_collections.muster.training.plugins.module_utils._run.running_supervisors import (
    find_supervisors,
    is_alive,
    marked_processes,
    unit_of,
)
from ansible_collections.muster.training.plugins.module_utils._run.safe_files import open_private
from ansible_collections.muster.training.plugins.module_utils._run.secrets import remove_secrets
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import (
    KILL_TIMEOUT,
    STOP_GRACE_PERIOD,
    STOP_POLL_INTERVAL,
)
from ansible_collections.muster.training.plugins.module_utils._slurm import queued_run

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from ansible_collections.muster.training.plugins.module_utils._run.documents import Data


def stop(request: Data) -> Data:
    """Stop a run on this node and wait until its processes have ended.

    Without a run_id, stop all runs, or those that use any of the request's gpus.
    """
    stopped, survivors = [], []
    runs = node_directories(request)
    if not runs:
        check_alive_elsewhere(request)
    for path, plan in runs:
        alive = is_alive(path)
        if alive and not share_gpus(plan.get("gpus") or [], request.get("gpus") or []):
            continue  # the run that replaces others uses different GPUs
        if alive or (request.get("run_id") and marked_processes(path)):
            stopped.append(plan["run_id"])
            if not request["check"]:
                survivors += stop_run(path, plan, alive)
        elif request.get("run_id") and queued_run.is_waiting(path):
            stopped.append(plan["run_id"])
            if not request["check"]:
                queued_run.cancel(path, plan["run_id"])
        if not request["check"]:
            remove_secrets(path)  # they are left behind if the supervisor was killed along with its guard or machine
    if survivors:
        pids = ", ".join(str(pid) for pid in survivors)
        raise RunError(
            f"these processes of run {stopped[0]} survived SIGKILL because they are waiting for a device or a "
            f"dead mount: {pids}. Reboot the node"
        )
    return {"changed": bool(stopped), "stopped": stopped}


def stop_run(path: str, plan: Data, alive: bool) -> list[int]:
    """Stop one run; return the pids of processes that survive."""
    deadline = time.monotonic() + plan["timeouts"]["grace"] + STOP_GRACE_PERIOD
    if alive:
        with contextlib.suppress(OSError), open(os.path.join(path, "stop"), "w", encoding="ascii", opener=open_private):
            pass  # distinguishes a requested stop from a machine shutdown
        pids = [supervisor["pid"] for supervisor in find_supervisors() if supervisor["directory"] == path]
        in_unit = plan["unit"] in map(unit_of, pids)  # ask the kernel: a job in a unit may start a run that has no unit
        if not in_unit or run_as_root(["systemctl", "stop", f"{plan['unit']}.service"]) is None:
            for pid in pids:
                # the process has just ended, or belongs to root
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGTERM)  # ignored by the guard, obeyed by the supervisor
        while is_alive(path) and time.monotonic() < deadline:
            time.sleep(STOP_POLL_INTERVAL)
        for supervisor in find_supervisors():
            if supervisor["directory"] == path:  # including the guard, which is waiting for a container engine
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(supervisor["pid"], signal.SIGKILL)
    # if the supervisor and guard were both killed and there is no unit, only this run's mark identifies its processes
    deadline = time.monotonic() + KILL_TIMEOUT
    while True:
        survivors = marked_processes(path)
        if not survivors or time.monotonic() > deadline:
            return survivors
        for pid in survivors:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(STOP_POLL_INTERVAL)


def remove(request: Data) -> Data:
    """Stop a run on this node and remove its directory."""
    runs = [path for path, _plan in node_directories(request)]  # listed while a damaged run still has running processes
    reply = stop(request)
    if not request["check"]:
        for path in filter(os.path.lexists, runs):
            remove_directory(path)
    return {"changed": reply["changed"] or bool(runs), "stopped": reply["stopped"], "removed": runs}
