# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The Slurm queue, as seen by the user who runs the jobs. A run's job has the name of the run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time

from ansible_collections.muster.training.plugins.module_utils._run.identity import RunError, become_user, user_name
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import (
    SLURM_COMMAND_TIMEOUT,
    SUBMIT_RETRY_INTERVAL,
    SUBMIT_RETRY_TIMEOUT,
)

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Dict, Sequence

    Data = Dict[str, Any]

FIELDS = "%i|%T|%r|%S"  # job, state, reason, expected start
WAITING = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SUSPENDED")
NOT_CONNECTED = "Unable to contact slurm controller (connect failure)"
MAX_WAIT = 300 * 86400.0  # seconds
JOB = re.compile(r"[0-9]{1,12}(?:_[0-9]{1,9})?\Z")
UNKNOWN = ("", "N/A", "Unknown", "None", "(null)")


def run(*argv: str, stdin: str = "") -> str:
    """Return the output of a Slurm command. Raise RunError with its message if it fails."""
    program = shutil.which(argv[0])
    if program is None:
        raise RunError(
            f"{argv[0]} is missing on this node, so the node is not part of a Slurm cluster. Set it up: "
            "ansible-playbook site.yml --tags slurm -e slurm_enabled=true"
        )
    try:
        completed = subprocess.run(
            [program, *argv[1:]],
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SLURM_COMMAND_TIMEOUT,
            check=False,
            # munge vouches for the actual user
            preexec_fn=become_user if os.getuid() != os.geteuid() else None,
        )
    except subprocess.TimeoutExpired:
        raise RunError(
            f"{argv[0]} did not reply within {SLURM_COMMAND_TIMEOUT:.0f} s. Check the controller: scontrol ping"
        ) from None
    if completed.returncode:
        lines = (completed.stderr or completed.stdout).strip().splitlines()
        raise RunError(f"{argv[0]} failed: {' '.join(lines[-3:]) or f'exit code {completed.returncode}'}")
    return completed.stdout


def submit(arguments: Sequence[str], script: str) -> str:
    """Submit a batch script; return its job ID. Raise RunError.

    While the controller restarts, only a failed connection is retried: any other request may have been executed.
    """
    deadline = time.monotonic() + SUBMIT_RETRY_TIMEOUT
    while True:
        try:
            job = run("sbatch", *arguments, stdin=script).strip().partition(";")[0]
            break
        except RunError as error:
            if NOT_CONNECTED not in str(error) or time.monotonic() > deadline:
                raise
        time.sleep(SUBMIT_RETRY_INTERVAL)
    if not JOB.match(job):
        raise RunError(f"sbatch printed {ascii(job)[:80]} instead of a job number")
    return job


def parse_entry(text: str) -> Data | None:
    """Return the first job in squeue's output with FIELDS, or None if it lists no job."""
    for line in text.splitlines():
        parts = line.strip().split("|")
        if len(parts) == len(FIELDS.split("|")):
            return dict(zip(("job", "state", "reason", "start"), parts))
    return None


def find_job(run_id: str) -> Data | None:
    """Return job, state, reason and expected start of this user's run in the queue; None if it is not there."""
    user = user_name(os.geteuid())
    return parse_entry(run("squeue", "--noheader", f"--user={user}", f"--name={run_id}", f"--format={FIELDS}"))


def position_of(job: str) -> int:
    """Return a waiting job's position by priority, starting at 1, or 0 if unknown."""
    jobs = run("squeue", "--noheader", "--states=PENDING", "--sort=-p,i", "--format=%i").split()
    return jobs.index(job) + 1 if job in jobs else 0


def expected_start(text: str, now: float) -> str:
    """Return the start time that Slurm expects, to the minute; "" if it is unknown.

    The end of a job without a time limit is unknown: Slurm expects it after a year. Each estimate may be a few seconds
    later than the previous one.

    Args:
        text: as squeue prints it, such as 2026-11-27T14:05:00.
        now: seconds since 1970.
    """
    try:
        seconds = time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except (ValueError, OverflowError):  # the user has set a different SLURM_TIME_FORMAT
        return "" if text in UNKNOWN else text
    return text[: len("2026-11-27T14:05")] if seconds - now < MAX_WAIT else ""


def describe(entry: Data, position: int, now: float) -> str:
    """Return a sentence about a job in the queue; now: seconds since 1970."""
    if entry["state"] not in WAITING:
        return f"Slurm job {entry['job']}: {entry['state'].lower()}"
    details = [f"position {position}"] if position else []
    if entry["reason"] not in UNKNOWN:
        details.append(f"reason {entry['reason']}")
    start = expected_start(entry["start"], now)
    if start:
        details.append(f"expected start {start}")
    return ", ".join([f"queued as Slurm job {entry['job']}", *details])


def queue_message(run_id: str) -> str:
    """Return a sentence about a run that is waiting in the queue, or "" if it is not there."""
    try:
        entry = find_job(run_id)
        return describe(entry, position_of(entry["job"]), time.time()) if entry else ""
    except RunError as error:
        return f"cannot read the Slurm queue: {error}"


def cancel(run_id: str) -> None:
    """Remove this user's run from the queue."""
    run("scancel", f"--user={user_name(os.geteuid())}", f"--name={run_id}")


def final_state(job: str) -> str:
    """Return how a job ended, which Slurm remembers for a few minutes: its state and the reason."""
    try:
        text = run("scontrol", "show", "job", job, "--oneliner")
    except RunError:
        return "ended"
    fields = dict(re.findall(r"\b(JobState|Reason)=(\S+)", text))
    reason = fields.get("Reason", "")
    return f"ended in state {fields.get('JobState', 'unknown')}{f' ({reason})' if reason not in UNKNOWN else ''}"
