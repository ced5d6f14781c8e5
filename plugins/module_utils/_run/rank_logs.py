# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the logs of a node's ranks in a run directory."""

from __future__ import annotations

import itertools
import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Any, Mapping

MAX_DIRECTORIES = 10_000  # number of rank directories that are considered; a job may create any number
ATTEMPT_LOGS = re.compile(r"|attempt-[1-9][0-9]{0,2}")  # directory of an attempt's logs in the run directory
RANKS_FILE = "ranks.json"  # next to an attempt's logs: the ranks that the node had
ATTEMPT = re.compile(r"attempt_([0-9]{1,9})")


def rank_logs(plan: Mapping[str, Any], directory: str, local_rank: int) -> tuple[str, str]:
    """Return the (stdout, stderr) paths of a local rank; the launcher's log if ranks have no separate logs."""
    directory = log_directory(plan, directory)
    if plan["rank_logs"] == "torchrun":
        attempt = attempt_directory(os.path.join(directory, "ranks"), local_rank)
        if attempt:
            return os.path.join(attempt, "stdout.log"), os.path.join(attempt, "stderr.log")
    if plan["rank_logs"] == "ranks":  # bin/muster-rank writes them
        logs = os.path.join(directory, "ranks", str(local_rank))
        if os.path.isdir(logs):
            return os.path.join(logs, "stdout.log"), os.path.join(logs, "stderr.log")
    log = os.path.join(directory, "launcher.log")
    return log, log


def earlier_logs(plan: Mapping[str, Any], directory: str, local_rank: int, first: int = 0) -> list[str]:
    """Return a local rank's logs before the newest: from the run's earlier attempts, and from torchrun's own restarts.

    first: the first attempt to include.
    """
    logs: list[str] = []
    if (plan.get("attempt") or 0) < first:
        return logs
    for number in range(first, plan.get("attempt") or 0):
        earlier = {**plan, "attempt": number, "logs": attempt_logs(number)}
        logs += [*earlier_starts(earlier, directory, local_rank), *rank_logs(earlier, directory, local_rank)]
    return list(dict.fromkeys([*logs, *earlier_starts(plan, directory, local_rank)]))


def earlier_starts(plan: Mapping[str, Any], directory: str, local_rank: int) -> list[str]:
    """Return the logs of a local rank's starts before the newest, after torchrun has restarted it."""
    if plan["rank_logs"] != "torchrun":
        return []
    starts = attempt_directories(os.path.join(log_directory(plan, directory), "ranks"), local_rank)[:-1]
    return [os.path.join(path, name) for path in starts for name in ("stdout.log", "stderr.log")]


def attempt_logs(number: int) -> str:
    """Return the directory for an attempt's logs in the run directory, or "" for the first attempt."""
    return f"attempt-{number}" if number else ""


def log_directory(plan: Mapping[str, Any], directory: str) -> str:
    """Return the directory with the logs of the plan's attempt: launcher.log, ranks."""
    return os.path.join(directory, plan.get("logs") or "").rstrip("/")


def attempt_directory(ranks_directory: str, local_rank: int) -> str | None:
    """Return the directory of a local rank's newest attempt, or None."""
    return next(reversed(attempt_directories(ranks_directory, local_rank)), None)


def attempt_directories(ranks_directory: str, local_rank: int) -> list[str]:
    """Return the directories of a local rank's attempts below torchrun's --log-dir, the newest last.

    They are RUN_ID_RANDOM/attempt_N/LOCAL_RANK; anything else that a job has left there is ignored.
    """
    attempts = []
    for attempt in [
        *directories(ranks_directory),
        *(child for parent in directories(ranks_directory) for child in directories(parent)),
    ]:
        match = ATTEMPT.fullmatch(os.path.basename(attempt))
        logs = os.path.join(attempt, str(local_rank))
        if match and os.path.isdir(logs):
            attempts.append((int(match[1]), logs))
    return [path for _attempt, path in sorted(attempts)]


def directories(path: str) -> list[str]:
    """Return the directories in a directory, at most MAX_DIRECTORIES and no links, or [] if it cannot be read."""
    try:
        with os.scandir(path) as entries:
            paths = (entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
            return list(itertools.islice(paths, MAX_DIRECTORIES))
    except OSError:
        return []
