# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The end-of-run message, sent by a supervisor's unit or guard when the supervisor was killed before sending it.

The URLs are removed from the run directory before a supervisor sends its last message, and by this program before it
sends one. So there is never a second message.
"""

from __future__ import annotations

import os
import time

from ansible_collections.muster.training.plugins.module_utils._run.hub_node import leads_run
from ansible_collections.muster.training.plugins.module_utils._run.processes import oom_kills
from ansible_collections.muster.training.plugins.module_utils._run.secrets import NOTIFY, remove_secrets
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import (
    read_oom_kills,
    read_plan,
    read_result,
    read_status,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.notifications.messages import (
    ENDED,
    end_message,
    killed_message,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.notifications.outbox import (
    parse_targets,
    read_targets,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.notifications.sender import deliver

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Any, Mapping

OPTION = "--report-death"  # command-line option of supervisor.py


def is_alone(plan: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    """Return whether no other node can report the end because this node led the run and the run has lost all others."""
    nodes = status.get("nodes") or plan["nodes"]  # without a status, the supervisor was killed while it was starting
    others = [node for node in nodes if node["name"] != plan["node"]["name"]]
    return leads_run(plan) and all(node.get("state") == "lost" for node in others)


def describe_death(name: str, environment: Mapping[str, str], killed_for_memory: int) -> str:
    """Return how a node's supervisor ended.

    environment: as set by systemd for ExecStopPost=, and by the guard. killed_for_memory: how many processes the
    kernel has killed for lack of memory during the run.
    """
    result, status = environment.get("SERVICE_RESULT", ""), environment.get("EXIT_STATUS", "")
    if result == "watchdog":
        return f"the supervisor on {name} hung, so it was killed, and the job with it"
    if result == "exit-code":
        return f"the supervisor on {name} ended with exit code {status}, and the job ended with it"
    signal_name = f" (SIG{status})" if status.isalnum() else ""
    text = f"the supervisor on {name} was killed{signal_name}, and the job with it"
    if killed_for_memory <= 0:
        return text
    processes = "1 process" if killed_for_memory == 1 else f"{killed_for_memory} processes"
    return f"{name} ran out of memory: the kernel killed {processes} during the run. Then {text}"


def last_message(directory: str, environment: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the message about the end of the run in a directory; None if another node sends it."""
    plan = read_plan(directory)
    status = read_status(directory) or {}
    if plan is None or not is_alone(plan, status):
        return None
    result = read_result(directory)
    if result is not None:  # the supervisor was killed in the meantime
        return end_message(plan, result)
    before, after = read_oom_kills(directory), oom_kills()
    killed_for_memory = after - before if after is not None and before is not None else 0
    reason = describe_death(plan["node"]["name"], environment, killed_for_memory)
    started = status.get("started")
    return killed_message(plan, reason, max(0.0, time.time() - started) if started else 0.0)


def main(arguments: list[str]) -> int:
    """Send the message about the end of a run, if its supervisor has not; arguments: the run directory.

    Ends within NOTIFICATION_TIMEOUT, whatever the servers do.
    """
    directory = arguments[0]
    targets = [
        {"url": target["url"], "kind": target["kind"]}
        for target in parse_targets(read_targets(os.path.join(directory, NOTIFY)))
        if ENDED in target["events"]
    ]
    content = last_message(directory, os.environ) if targets else None
    if content is not None:
        remove_secrets(directory)
        deliver(targets, content)
    return 0
