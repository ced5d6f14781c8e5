# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A rank's output in one attempt of a run, read from the node that had the rank in that attempt."""

from __future__ import annotations

import os
import time

from ansible_collections.muster.training.plugins.module_utils._files.bounded import file_size
from ansible_collections.muster.training.plugins.module_utils._run.find_runs import (
    check_alive_elsewhere,
    node_directories,
)
from ansible_collections.muster.training.plugins.module_utils._run.rank_logs import (
    RANKS_FILE,
    attempt_logs,
    earlier_starts,
    rank_logs,
)
from ansible_collections.muster.training.plugins.module_utils._run.running_supervisors import is_alive
from ansible_collections.muster.training.plugins.module_utils._run.safe_files import read_job_object
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import conforms
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import WATCH_POLL_INTERVAL
from ansible_collections.muster.training.plugins.module_utils._run.watch import read_new, skip_backlog

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from ansible_collections.muster.training.plugins.module_utils._run.documents import Data

RANKS = {"first_rank": range(10**6), "slots": range(10**6)}


def read_attempt(request: Data) -> Data:
    """Return a rank's new output in an attempt, after at most ``wait`` seconds; ``ranks`` is [] on other nodes."""
    runs = node_directories(request)
    if not runs:
        check_alive_elsewhere(request)
        return {"changed": False, "ranks": [], "newest": None}
    path, plan = runs[0]
    number, newest = request["attempt"], plan.get("attempt") or 0
    ranks = ranks_in_attempt(plan, path, number)
    if request["rank"] not in ranks:
        return {"changed": False, "ranks": [], "newest": newest}
    logs = logs_in_attempt(plan, path, number, request["rank"] - ranks[0])
    cursors = dict(request["cursors"])
    deadline = time.monotonic() + request["wait"]
    while True:
        active = newest == number and is_alive(path)
        outputs, skipped_bytes = {}, {}
        for log in logs:
            skipped = skip_backlog(log, cursors)
            if skipped:
                skipped_bytes[log] = skipped
            text = read_new(log, cursors, not active)
            if text:
                outputs[log] = text
                if file_size(log) > cursors[log]:
                    break  # the next reply continues here
        if outputs or not active or time.monotonic() >= deadline:
            has_more = any(file_size(log) > cursors.get(log, 0) for log in logs) and bool(outputs)
            return {
                "changed": False,
                "ranks": ranks,
                "newest": newest,
                "active": active or has_more,
                "outputs": outputs,
                "left_out": skipped_bytes,
                "cursors": cursors,
            }
        time.sleep(WATCH_POLL_INTERVAL)


def ranks_in_attempt(plan: Data, path: str, number: int) -> list[int]:
    """Return the global ranks that this node had in an attempt, or [] if it did not take part."""
    if plan.get("damaged"):
        return []
    node = plan["node"] if number == (plan.get("attempt") or 0) else None
    if node is None:
        node = read_job_object(os.path.join(path, attempt_logs(number), RANKS_FILE))
    if not conforms(node, RANKS):
        return []
    return list(range(node["first_rank"], node["first_rank"] + node["slots"]))


def logs_in_attempt(plan: Data, path: str, number: int, local_rank: int) -> list[str]:
    """Return a local rank's logs in an attempt, including those from before torchrun restarted it."""
    earlier = {**plan, "attempt": number, "logs": attempt_logs(number)}
    return list(dict.fromkeys([*earlier_starts(earlier, path, local_rank), *rank_logs(earlier, path, local_rank)]))
