# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask a run's supervisor on this node what the node's ranks are currently doing."""

from __future__ import annotations

import contextlib
import os
import time

from ansible_collections.muster.training.plugins.module_utils._run.find_runs import (
    check_alive_elsewhere,
    node_directories,
)
from ansible_collections.muster.training.plugins.module_utils._run.hang_analysis import validate_groups
from ansible_collections.muster.training.plugins.module_utils._run.identity import RunError
from ansible_collections.muster.training.plugins.module_utils._run.running_supervisors import is_alive
from ansible_collections.muster.training.plugins.module_utils._run.safe_files import read_job_object, write_json
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import (
    STACKS_REQUEST_TIMEOUT,
    STATUS_POLL_INTERVAL,
)

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from ansible_collections.muster.training.plugins.module_utils._run.documents import Data

REQUEST = "stacks.request"  # in the run directory, with an id that the reply repeats
REPLY = "stacks.json"


def read_stacks(request: Data) -> Data:
    """Return what a run's ranks on this node are doing, as groups of ranks with the same activity."""
    runs = node_directories(request)
    if not runs:
        check_alive_elsewhere(request)
        raise RunError(f"run {request['run_id']} does not exist on this node")
    path, plan = runs[0]
    if not is_alive(path):
        raise RunError(f"run {plan['run_id']} is not active on this node, so its ranks have no stacks")
    if not plan.get("stacks"):
        raise RunError(f"run {plan['run_id']} was launched without stack dumps: launch it with launch_stacks: true")
    identifier = os.urandom(8).hex()
    with contextlib.suppress(OSError):
        write_json(os.path.join(path, REQUEST), {"id": identifier})
    deadline = time.monotonic() + STACKS_REQUEST_TIMEOUT
    while time.monotonic() < deadline:
        reply = read_job_object(os.path.join(path, REPLY))
        if reply.get("id") == identifier:
            node = plan["node"]
            ranks = range(node["first_rank"], node["first_rank"] + node["slots"])
            described = {name: node[name] for name in ("name", "first_rank", "slots")}
            return {"changed": False, "node": described, "groups": validate_groups(reply.get("groups"), ranks)}
        time.sleep(STATUS_POLL_INTERVAL)
    raise RunError(f"the supervisor of run {plan['run_id']} did not respond within {STACKS_REQUEST_TIMEOUT:.0f} s")
