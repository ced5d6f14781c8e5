# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Slurm's announcements to a run that is a Slurm job: the end of the job, in advance and when it happens."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time

from ansible_collections.muster.training.plugins.module_utils._run.safe_files import read_tail, write_private
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import (
    PREEMPTION_QUERY_TIMEOUT,
    TIME_LIMIT_MARGIN,
)

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Mapping

    from ansible_collections.muster.training.plugins.module_utils._run.documents import Data

# This runs on a node without an AnsibleModule, so its run_command is not available.
# pylint: disable=ansible-bad-function

# File in the run directory with the time left: written by the batch script on its node, or by a signaled supervisor.
REQUEST = "slurm-end"
STOP = "stop"  # written by stop.yml, before it ends the run
MAX_TEXT = 64  # maximum number of bytes of a request
DURATION = re.compile(r"(?:([0-9]{1,5})-)?([0-9]{1,9})(?::([0-9]{1,9}))?(?::([0-9]{1,9}))?\Z")


def parse_duration(text: str) -> int | None:
    """Return the seconds in a duration in Slurm's format, or None if the text is not a duration.

    Without days: minutes, minutes:seconds or hours:minutes:seconds. After them: hours, hours:minutes or
    hours:minutes:seconds.
    """
    match = DURATION.match(text.strip())
    if match is None:
        return None
    days, *parts = match.groups()
    numbers = [int(part) for part in parts if part is not None]
    if days is None and len(numbers) < 3:
        minutes, seconds = (*numbers, 0)[:2]
        return 60 * minutes + seconds
    hours, minutes, seconds = (*numbers, 0, 0)[:3]
    return 86400 * int(days or 0) + 3600 * hours + 60 * minutes + seconds


def take_notice(directory: str) -> list[Data]:
    """Return a list with the notice that Slurm will end the job, and remove its request; [] without a request."""
    path = os.path.join(directory, REQUEST)
    if not os.path.lexists(path):
        return []
    seconds = parse_duration(read_tail(path, MAX_TEXT)) or 0
    with contextlib.suppress(OSError):  # a directory stays, and is not a request
        os.unlink(path)
        when = f"in {seconds} s" if seconds else "soon"
        text = f"Slurm will end the job {when}: its time limit is near, or another job needs the nodes"
        return [{"source": "slurm", "text": text, "ends": True, "seconds": float(seconds)}]
    return []


def time_until_preemption(job: str, now: float) -> str | None:
    """Return how long a job being preempted may still run ("" if unknown), or None if it is not preempted or is ending.

    Slurm does not show the end of a job without a time limit.

    Args:
        job: the output of `scontrol show job --oneliner`.
        now: seconds since 1970.
    """
    fields = dict(re.findall(r"(?:^|\s)(JobState|PreemptTime|EndTime)=(\S+)", job))
    if fields.get("JobState") != "RUNNING" or fields.get("PreemptTime", "None") == "None":
        return None
    try:
        seconds = int(time.mktime(time.strptime(fields.get("EndTime", ""), "%Y-%m-%dT%H:%M:%S")) - now)
    except (ValueError, OverflowError):
        return ""
    return f"0:{seconds}" if seconds > 0 else None


def announces_preemption(directory: str, environment: Mapping[str, str], now: float) -> bool:
    """Return whether a signal to stop comes ahead of a preemption, and record that as a request.

    Slurm sends it at the start of a partition's grace period, also to the ranks, unless the cluster has
    preempt_send_user_signal. This waits for Slurm's reply, but for less time than other nodes wait for a heartbeat.
    """
    job = environment.get("SLURM_JOB_ID", "")
    if not job.isdigit() or os.path.lexists(os.path.join(directory, STOP)):
        return False
    plain = {name: value for name, value in environment.items() if name != "SLURM_TIME_FORMAT"}
    try:
        shown = subprocess.run(
            ["scontrol", "show", "job", job, "--oneliner"],
            env=plain,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=PREEMPTION_QUERY_TIMEOUT,
            check=False,
        ).stdout
        left = time_until_preemption(shown.decode("utf-8", "replace"), now)
        if left is not None:
            with contextlib.suppress(FileExistsError):  # the batch script was signaled, too
                write_private(os.path.join(directory, REQUEST), f"{left}\n")
    except (OSError, subprocess.TimeoutExpired):
        return False
    return left is not None


def describe_stop(signal_name: str, directory: str, environment: Mapping[str, str], now: float) -> str:
    """Return why a supervisor received a stop signal: the signal's name, or Slurm's action.

    Args:
        environment: the supervisor's.
        now: seconds since 1970.
    """
    job = environment.get("SLURM_JOB_ID", "")
    if not job.isdigit() or os.path.lexists(os.path.join(directory, STOP)):
        return signal_name
    end = environment.get("SLURM_JOB_END_TIME", "")  # set by Slurm since version 23.02
    if not end.isdigit():
        return f"Slurm job {job} was cancelled or preempted, or reached its time limit"
    if now >= int(end) - TIME_LIMIT_MARGIN:
        return f"Slurm job {job} reached its time limit"
    return f"Slurm job {job} was cancelled or preempted"
