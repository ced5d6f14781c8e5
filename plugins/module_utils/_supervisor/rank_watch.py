# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Notice ranks on this node that have exited with 0 while its launcher is still waiting for the other ranks."""

from __future__ import annotations

import os
import time

from ansible_collections.muster.training.plugins.module_utils._run.processes import local_rank_of, process_table
from ansible_collections.muster.training.plugins.module_utils._run.rank_logs import attempt_directory, log_directory
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import RANK_CHECK_INTERVAL
from ansible_collections.muster.training.plugins.module_utils._supervisor.rank_reports import rank_end

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Tuple

    from ansible_collections.muster.training.plugins.module_utils._run.documents import Plan
    from ansible_collections.muster.training.plugins.module_utils._supervisor.launcher import LauncherProcess

    Notice = Tuple[str, str]  # kind (as on the lifeline) and text of a message

ENDED_RANKS = "ended_ranks"  # kind of the notice: the global ranks that have exited, separated by spaces


class RankWatch:
    """Watches this node's ranks, using the exit codes that bin/muster-rank records, or torchrun's processes.

    torchrun ends its other ranks and itself soon after a rank has failed, so a rank that is gone has exited with 0.
    This does not hold if torchrun may restart ranks, since they are gone in the meantime.
    """

    def __init__(self, directory: str, plan: Plan) -> None:
        self.directory = directory
        self.logs = log_directory(plan, directory)
        self.plan = plan
        self.due = 0.0
        self.missing: dict[int, str] = {}  # local ranks that had no process at the last check, with their directories
        self.ended: dict[int, float] = {}  # time at which a local rank was found to have exited, in seconds since 1970

    def global_ranks(self) -> dict[int, float]:
        """Return when each global rank exited, in seconds since 1970."""
        return {self.plan["node"]["first_rank"] + number: since for number, since in sorted(self.ended.items())}

    def step(self, now: float, launcher: LauncherProcess) -> list[Notice]:
        """Return a notice if the set of ranks that have exited has changed."""
        if now < self.due:
            return []
        self.due = now + RANK_CHECK_INTERVAL
        ended = self.ended_local_ranks(launcher)
        if ended == set(self.ended):
            return []
        self.ended = {number: self.ended.get(number, time.time()) for number in ended}
        return [(ENDED_RANKS, " ".join(map(str, self.global_ranks())))]

    def ended_local_ranks(self, launcher: LauncherProcess) -> set[int]:
        """Return the local ranks that have exited with 0, or none if this is unknown."""
        if self.plan["rank_logs"] == "ranks":
            numbers = range(self.plan["node"]["slots"])
            return {number for number in numbers if rank_end(self.logs, number)[0] == 0}
        may_restart = self.plan["elastic"] or self.plan["max_restarts"] > 0
        if self.plan["rank_logs"] != "torchrun" or may_restart or launcher.process is None or launcher.closing:
            return set()
        running = self.running_local_ranks(launcher.process.pid)
        before, self.missing = self.missing, self.missing_local_ranks(running)
        return {number for number, directory in self.missing.items() if before.get(number) == directory}

    def missing_local_ranks(self, running: set[int]) -> dict[int, str]:
        """Return the local ranks that are not running, and the directory that torchrun creates before it starts them.

        Such a rank has ended if it is still missing at the next check, regardless of the clock.
        """
        ranks = os.path.join(self.logs, "ranks")
        numbers = [number for number in range(self.plan["node"]["slots"]) if number not in running]
        directories = {number: attempt_directory(ranks, number) for number in numbers}
        return {number: directory for number, directory in directories.items() if directory is not None}

    def running_local_ranks(self, agent: int) -> set[int]:
        """Return the local ranks that have a running process. agent: torchrun's pid."""
        if self.plan.get("wrap"):  # in a container, ranks are the engine's child processes
            pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        else:
            pids = [pid for pid, (parent, state) in process_table().items() if parent == agent and state not in "ZX"]
        numbers = {local_rank_of(pid, self.directory) for pid in pids}
        if None in numbers and not self.plan.get("wrap"):  # a rank may have overwritten its environment
            return set(range(self.plan["node"]["slots"]))
        return {number for number in numbers if number is not None}
