# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask a run to save now, from outside the job."""

from __future__ import annotations

import os
import time

from ansible_collections.muster.training.plugins.module_utils._files.bounded import parse_json
from ansible_collections.muster.training.plugins.module_utils._run.find_runs import (
    check_alive_elsewhere,
    node_directories,
)
from ansible_collections.muster.training.plugins.module_utils._run.hub_node import leads_run
from ansible_collections.muster.training.plugins.module_utils._run.identity import RunError
from ansible_collections.muster.training.plugins.module_utils._run.running_supervisors import is_alive
from ansible_collections.muster.training.plugins.module_utils._run.safe_files import read_tail, write_private
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import conforms
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import (
    SAVE_REPLY_INTERVAL,
    SAVE_REQUEST_TIMEOUT,
    STATUS_POLL_INTERVAL,
)

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from ansible_collections.muster.training.plugins.module_utils._run.documents import Data

EVENT = {"time": float, "event": str, "text": str}


def save(request: Data) -> Data:
    """Ask a run to save and, with ``stop``, to end afterwards. Return its supervisors' reports.

    Only the node that leads the run takes the request, and passes it on to all ranks.
    """
    runs = node_directories(request)
    if not runs:
        check_alive_elsewhere(request)
    for path, plan in runs:
        if leads_run(plan) and is_alive(path):
            events = [] if request["check"] else request_save(path, bool(request.get("stop")))
            return {"changed": True, "run_id": plan["run_id"], "events": events}
    return {"changed": False, "run_id": "", "events": []}


def request_save(path: str, stop: bool) -> list[str]:
    """Write a request to a run directory, wait until its supervisor has accepted it, and return the reports."""
    start_time = time.time()
    name = os.path.join(path, "drain" if stop else "save")
    try:
        write_private(name, "")
    except FileExistsError:
        pass  # an earlier request that the supervisor has not picked up yet
    except OSError as error:
        raise RunError(f"cannot write {name}: {error.strerror}") from None
    deadline = time.monotonic() + SAVE_REQUEST_TIMEOUT
    while os.path.lexists(name) and time.monotonic() < deadline:
        time.sleep(STATUS_POLL_INTERVAL)
    if os.path.lexists(name):
        raise RunError(f"the run's supervisor did not accept the request {name} within {SAVE_REQUEST_TIMEOUT:g} s")
    time.sleep(SAVE_REPLY_INTERVAL)
    return events_since(path, start_time)


def events_since(path: str, start_time: float) -> list[str]:
    """Return the texts of a run's events about saving since a time."""
    texts = []
    for line in read_tail(os.path.join(path, "events.jsonl")).splitlines():
        try:
            event = parse_json(line)
        except ValueError:
            continue
        if conforms(event, EVENT) and event["event"] in ("notice", "saving") and event["time"] >= start_time:
            texts.append(event["text"][:500])
    return texts[:200]
