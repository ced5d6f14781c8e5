# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A run whose files are on its nodes, and whose supervisors are started by Slurm when its turn comes.

Only MARKER distinguishes it from a run that has failed to start. It does not import Slurm's commands until they are
needed.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import time

from ansible_collections.muster.training.plugins.module_utils._files.bounded import remove_tree
from ansible_collections.muster.training.plugins.module_utils._run.safe_files import write_json, write_private

MARKER = "supervisor.slurm.json"
LOG = "supervisor.slurm.log"  # the batch script's log
KEPT = "requeue"  # directory containing what another life of the run needs, see lives.py


def mark_as_queued(directory: str, requeue: int = 0) -> None:
    """Record that Slurm starts this run directory's supervisor; requeue: how often Slurm may start it again."""
    settings = {"requeue": requeue} if requeue else {}
    write_private(os.path.join(directory, MARKER), f"{json.dumps(settings)}\n")


def compile_program(directory: str) -> None:
    """Compile a waiting run's supervisor, so that its ranks start sooner once Slurm starts the job."""
    import py_compile

    for path in glob.glob(os.path.join(glob.escape(directory), "program", "**", "*.py"), recursive=True):
        with contextlib.suppress(OSError, py_compile.PyCompileError):  # the program also starts when run from source
            py_compile.compile(path, doraise=True)


def has_started(directory: str) -> bool:
    """Return whether the supervisor of this run directory was ever started."""
    return os.path.lexists(os.path.join(directory, "supervisor.json"))


def is_waiting(directory: str) -> bool:
    """Return whether Slurm may yet start the supervisor of this run directory, for the first time or again.

    A run that may begin again is in the queue only if describe() says so.
    """
    may_begin = not has_started(directory) or os.path.isdir(os.path.join(directory, KEPT))
    return may_begin and os.path.lexists(os.path.join(directory, MARKER))


def describe(directory: str, run_id: str) -> str:
    """Return a sentence about a waiting run, or "" if it is not in the queue."""
    from ansible_collections.muster.training.plugins.module_utils._slurm.queue import queue_message

    return queue_message(run_id)


def remove_ended_files(runs: str) -> None:
    """Remove the files that runs keep for another life if their jobs have ended; runs: the directory of all runs.

    A run that Slurm stops cannot tell whether its job was cancelled or will be started again.
    """
    for path in glob.glob(os.path.join(glob.escape(runs), "*", "node*", KEPT)):
        directory = os.path.dirname(path)
        if not describe(directory, os.path.basename(os.path.dirname(directory))):
            with contextlib.suppress(OSError):
                remove_tree(path)


def cancel(directory: str, run_id: str) -> None:
    """Remove a waiting run from the queue, and record that it was stopped."""
    from ansible_collections.muster.training.plugins.module_utils._slurm.queue import cancel as cancel_job

    if has_started(directory) and not describe(directory, run_id):
        return  # the run has ended for good
    cancel_job(run_id)
    with contextlib.suppress(OSError):
        remove_tree(os.path.join(directory, KEPT))
    status = {"state": "stopped", "message": "removed from the Slurm queue", "since": time.time()}
    with contextlib.suppress(OSError):
        write_json(os.path.join(directory, "status.json"), status)
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(directory, MARKER))
