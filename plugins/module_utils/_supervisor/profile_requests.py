# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make this node's ranks profile some steps when profile.yml requests it; see programs/rank_profile.py."""

from __future__ import annotations

import contextlib
import os

from ansible_collections.muster.training.plugins.module_utils._files.bounded import remove_entry
from ansible_collections.muster.training.plugins.module_utils._run.processes import signal_all
from ansible_collections.muster.training.plugins.module_utils._run.profile_documents import (
    DIRECTORY,
    PROFILE_REPLY,
    PROFILE_REQUEST,
    REQUEST_SCHEMA,
)
from ansible_collections.muster.training.plugins.module_utils._run.safe_files import (
    make_private_directory,
    read_job_object,
)
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import conforms
from ansible_collections.muster.training.plugins.module_utils._supervisor.launcher import Running
from ansible_collections.muster.training.plugins.module_utils._supervisor.programs.stack_hook import PROFILE_SIGNAL

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from ansible_collections.muster.training.plugins.module_utils._run.documents import Data, Plan
    from ansible_collections.muster.training.plugins.module_utils._supervisor.journal import Journal
    from ansible_collections.muster.training.plugins.module_utils._supervisor.launcher import LauncherProcess
    from ansible_collections.muster.training.plugins.module_utils._supervisor.stack_collector import Process


def choose_processes(
    plan: Plan, ranks: list[int], processes: dict[int, Process]
) -> tuple[dict[int, Process], list[int]]:
    """Return the processes of the requested ranks on this node, by rank, and the ranks that cannot be profiled.

    ranks: the requested ranks of the run, or [] for all. processes: by local rank.
    """
    first = plan["node"]["first_rank"]
    requested = [rank for rank in range(first, first + plan["node"]["slots"]) if not ranks or rank in ranks]
    chosen = {
        rank: processes[rank - first]
        for rank in requested
        if rank - first in processes and processes[rank - first].has_profile_handler
    }
    return chosen, [rank for rank in requested if rank not in chosen]


def handle_profile_request(journal: Journal, launcher: LauncherProcess) -> None:
    """If a profile is requested, signal the ranks to be profiled, and record which ranks they are."""
    path = journal.path(PROFILE_REQUEST)
    if not os.path.lexists(path):
        return
    request: Data = read_job_object(path)
    with contextlib.suppress(OSError):
        remove_entry(path)
    if not conforms(request, REQUEST_SCHEMA):
        return
    processes = launcher.stacks.rank_processes() if isinstance(launcher.phase, Running) else {}
    chosen, unavailable = choose_processes(launcher.plan, request["ranks"], processes)
    with contextlib.suppress(OSError):
        make_private_directory(journal.path(DIRECTORY))
        make_private_directory(journal.path(os.path.join(DIRECTORY, request["id"])))
    journal.write(
        PROFILE_REPLY,
        {
            "id": request["id"],
            "steps": request["steps"],
            "finish": request["finish"],
            "processes": [{"rank": rank, "pid": process.inner} for rank, process in chosen.items()],
            "unavailable": unavailable,
        },
    )
    signal_all([process.pid for process in chosen.values()], PROFILE_SIGNAL)
