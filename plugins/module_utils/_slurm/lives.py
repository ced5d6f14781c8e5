# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lives of a run whose job is requeued by Slurm: each starts with the first life's files and the newest checkpoint.

Slurm requeues a job when a node fails or another job preempts it. A run requeues its own job after it has saved ahead
of the time limit, and after a failure that another start may fix. The files that the job needs for that, including its
secrets, are kept in KEPT in the run directory, which only its user can read, until the run has finally ended.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os

from ansible_collections.muster.training.plugins.module_utils._checkpoints.resume import newest_local_checkpoint
from ansible_collections.muster.training.plugins.module_utils._files.bounded import (
    read_bytes,
    read_json,
    remove_tree,
    write_atomically,
)
from ansible_collections.muster.training.plugins.module_utils._run.gpu_samples import ACCOUNTING_FILE
from ansible_collections.muster.training.plugins.module_utils._run.identity import RunError
from ansible_collections.muster.training.plugins.module_utils._run.safe_files import make_private_directory
from ansible_collections.muster.training.plugins.module_utils._run.secrets import SECRETS, remove_secrets
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import (
    conforms,
    plan_text,
    read_plan,
    read_result,
    read_status,
)
from ansible_collections.muster.training.plugins.module_utils._slurm import batch_script, queue
from ansible_collections.muster.training.plugins.module_utils._slurm.queued_run import KEPT, MARKER
from ansible_collections.muster.training.plugins.module_utils._supervisor import restart_policy
from ansible_collections.muster.training.plugins.module_utils._supervisor.notices.slurm import REQUEST, STOP

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Dict, Mapping

    Data = Dict[str, Any]

EARLIER = "earlier"  # the files of earlier lives, one directory per life
MAX_BYTES = 4 * 2**20  # size in bytes of a file that is kept
# A life's files. Other files in the run directory, such as checkpoints, are kept.
OF_A_LIFE = (
    *("result.json", "status.json", "supervisor.json", "events.jsonl", "launcher.log", "gpus.csv"),
    *("notice.json", "attempt.json", "ranks", "ranks.json", "hooks", "stacks", "attempt-*"),
    "asked",  # if it were set, a launcher such as mpirun could not start anything on other nodes
    "samples.jsonl",  # the numbering of its samples starts again
    *("debugger.json", "profile.json", "profile.request", "stacks.json", "stacks.request", "join.json", "join.request"),
    REQUEST,  # exists if nobody has read it yet
    *("nvidia-smi.txt", ACCOUNTING_FILE, "nccl.*.log", "flight_recorder_rank_*"),
)
CURABLE = (restart_policy.NODE_LOST, restart_policy.HARDWARE, restart_policy.INTERRUPTED, restart_policy.HANG)


def requeue_limit(directory: str) -> int:
    """Return how often the job of this run directory may be requeued, or 0 without Slurm."""
    settings = read_json(os.path.join(directory, MARKER))
    return settings["requeue"] if conforms(settings, {"requeue": range(1000)}) else 0


def restart_count(environment: Mapping[str, str]) -> int:
    """Return how often Slurm has requeued this job."""
    text = environment.get("SLURM_RESTART_COUNT", "")
    return int(text) if text.isdigit() and len(text) < 6 else 0


def begin_life(directory: str, environment: Mapping[str, str]) -> None:
    """Prepare a run directory before its supervisor starts. Raise OSError."""
    if not requeue_limit(directory):
        return
    life = restart_count(environment)
    has_kept = os.path.isdir(os.path.join(directory, KEPT))
    if life and has_kept:
        move_files(directory, life)
        restore(directory)
    elif not life and not has_kept:
        keep_first_life(directory)


def keep_first_life(directory: str) -> None:
    """Keep the plan and secrets from the first life."""
    kept = os.path.join(directory, KEPT)
    make_private_directory(kept)
    for name in ("plan.json", *SECRETS):
        with contextlib.suppress(FileNotFoundError):
            # the secrets are links to files in memory, which would be lost if the node rebooted
            text = read_bytes(os.path.realpath(os.path.join(directory, name)), MAX_BYTES).decode("utf-8")
            write_atomically(os.path.join(kept, name), text)


def move_files(directory: str, life: int) -> None:
    """Move the last life's files out of the way."""
    earlier = os.path.join(directory, EARLIER)
    make_private_directory(earlier)
    target = os.path.join(earlier, str(life - 1))
    if os.path.lexists(target):  # this life has started before, and its node failed immediately
        return
    os.mkdir(target, 0o700)
    for pattern in OF_A_LIFE:
        for path in glob.glob(os.path.join(glob.escape(directory), pattern)):
            os.rename(path, os.path.join(target, os.path.basename(path)))


def restore(directory: str) -> None:
    """Restore the first life's files, with this node's newest checkpoint in the plan."""
    kept = os.path.join(directory, KEPT)
    remove_secrets(directory)
    for name in SECRETS:
        with contextlib.suppress(FileNotFoundError):
            text = read_bytes(os.path.join(kept, name), MAX_BYTES).decode("utf-8")
            write_atomically(os.path.join(directory, name), text)
    plan = json.loads(read_bytes(os.path.join(kept, "plan.json"), MAX_BYTES))
    with contextlib.suppress(TimeoutError):  # the mount is not responding: the job itself will report it
        plan["checkpoint"] = newest_local_checkpoint(plan) or plan.get("checkpoint", "")
    for name, text in plan["files"].items():
        write_atomically(os.path.join(directory, name), text)
    write_atomically(os.path.join(directory, "plan.json"), plan_text(plan))
    with contextlib.suppress(FileExistsError):
        os.mkdir(os.path.join(directory, "ranks"), 0o700)


def is_worth_requeueing(result: Mapping[str, Any], exit_code: int, life: int, limit: int) -> bool:
    """Return whether another life of the run can get further than this one.

    Args:
        result: how this life ended.
        exit_code: the supervisor's.
        life: how often the job has been requeued.
        limit: how often it may be requeued.
    """
    if life >= limit or exit_code == restart_policy.NO_REQUEUE:
        return False
    notice = result.get("notice")
    if result["state"] == "interrupted" and notice:
        return bool(notice["source"] == "slurm")
    if result["state"] != "failed":
        return False
    attempts = result.get("attempts") or []
    end = attempts[-1]["end_class"] if attempts else restart_policy.classify_end(result["first_node"], result["nodes"])
    return end in CURABLE


def end_life(directory: str, exit_code: int, environment: Mapping[str, str]) -> str:
    """Requeue the job after the supervisor has ended, if worthwhile; return a line for the log, or "" otherwise."""
    limit, job = requeue_limit(directory), environment.get("SLURM_JOB_ID", "")
    if not limit or not job.isdigit():
        return ""
    state = (read_status(directory) or {}).get("state")
    is_requested = state == "stopped" and os.path.lexists(os.path.join(directory, STOP))
    if state == "succeeded" or is_requested:  # a run that Slurm has stopped may have been preempted
        remove_kept_files(directory)
        return ""
    result, plan = read_result(directory), read_plan(directory)
    life = restart_count(environment)
    if result is None or plan is None or not is_worth_requeueing(result, exit_code, life, limit):
        return ""  # the batch script removes what is kept, unless another node has requeued the job
    try:
        queue.run("scontrol", "requeue", job)
    except RunError as error:
        return f"Slurm job {job} could not be requeued: {error}"
    return f"Slurm job {job} was requeued ({life + 1} of {limit})"


def end_job_of_lost_nodes(directory: str, environment: Mapping[str, str]) -> None:
    """Let the batch script end after a run has lost nodes, because srun would otherwise wait for their tasks.

    Only the node that led the run has its result.
    """
    result, job = read_result(directory), environment.get("SLURM_JOB_ID", "")
    if result is not None and job.isdigit() and any(node["state"] == "lost" for node in result["nodes"]):
        name = batch_script.END_SIGNALS[0 if result["state"] == "succeeded" else 1]
        with contextlib.suppress(RunError):  # in that case, the job ends once Slurm knows that the nodes are down
            queue.run("scancel", "--batch", f"--signal={name}", job)


def remove_kept_files(directory: str) -> None:
    """Remove the files kept in case the job is requeued."""
    with contextlib.suppress(OSError):
        remove_tree(os.path.join(directory, KEPT))
