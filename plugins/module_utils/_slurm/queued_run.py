# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A run whose files are on its nodes, and whose supervisors Slurm starts when it is its turn.

Only MARKER tells it from a run that has failed to start. It does not import Slurm's commands until they are needed.
"""

from __future__ import annotations

import contextlib
import json
import os
import time

from ansible_collections.muster.training.plugins.module_utils._run.safe_files import write_json, write_private

MARKER = "supervisor.slurm.json"
LOG = "supervisor.slurm.log"  # of the batch script


def mark(directory: str, requeue: int = 0) -> None:
    """Record that Slurm starts the supervisor of this run directory; requeue: how often it may start it again."""
    settings = {"requeue": requeue} if requeue else {}
    write_private(os.path.join(directory, MARKER), f"{json.dumps(settings)}\n")


def has_started(directory: str) -> bool:
    """Return whether the supervisor of this run directory was started at some time."""
    return os.path.lexists(os.path.join(directory, "supervisor.json"))


def is_waiting(directory: str) -> bool:
    """Return whether Slurm has yet to start the supervisor of this run directory."""
    return os.path.lexists(os.path.join(directory, MARKER)) and not has_started(directory)


def describe(directory: str, run_id: str) -> str:
    """Return a sentence about a run that waits; "" if it is not in the queue."""
    from ansible_collections.muster.training.plugins.module_utils._slurm.queue import queue_message

    return queue_message(run_id)


def cancel(directory: str, run_id: str) -> None:
    """Remove a run that waits from the queue, and record that it was stopped."""
    from ansible_collections.muster.training.plugins.module_utils._slurm.queue import cancel as cancel_job

    cancel_job(run_id)
    status = {"state": "stopped", "message": "removed from the queue of Slurm", "since": time.time()}
    with contextlib.suppress(OSError):
        write_json(os.path.join(directory, "status.json"), status)
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(directory, MARKER))
