# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A rank that is waiting for a debugger: its hook, and its events; see programs/debug_rank.py."""

from __future__ import annotations

import json
import os

from ansible_collections.muster.training.plugins.module_utils._files.bounded import remove_entry, write_atomically
from ansible_collections.muster.training.plugins.module_utils._run.safe_files import read_job_object
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import DEBUG_COLLECTIVE_TIMEOUT
from ansible_collections.muster.training.plugins.module_utils._supervisor.programs import debug_rank
from ansible_collections.muster.training.plugins.module_utils._supervisor.programs.stack_hook import (
    DEBUG_PROGRAM,
    HOOKS,
)

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Tuple

    from ansible_collections.muster.training.plugins.module_utils._run.documents import Plan

    Notice = Tuple[str, str]  # kind (as on the lifeline) and text of a message

KIND = "debugger"


def write_debug_hook(directory: str, plan: Plan) -> None:
    """Write the hook of a run with a debugged rank into a run directory. Raise OSError."""
    debugger = plan.get("debugger")
    if not debugger:
        return
    node = plan["node"]
    local_rank = debugger["rank"] - node["first_rank"]
    settings = {
        "rank": debugger["rank"],
        "local_rank": local_rank if 0 <= local_rank < node["slots"] else None,
        "port": debugger["port"],
        "timeout": DEBUG_COLLECTIVE_TIMEOUT,
    }
    remove_entry(os.path.join(directory, debug_rank.STATE))  # left behind by an earlier attempt
    write_atomically(os.path.join(directory, HOOKS, debug_rank.SETTINGS), json.dumps(settings))
    with open(debug_rank.__file__, encoding="utf-8") as stream:
        write_atomically(os.path.join(directory, HOOKS, DEBUG_PROGRAM), stream.read())


class DebuggerWatch:
    """Reports when this node's debugged rank starts waiting for a debugger, and when one is attached.

    In a later attempt, the rank may be on a different node from the one in the launch's plan, or not exist.
    """

    def __init__(self, directory: str, plan: Plan) -> None:
        debugger = plan.get("debugger")
        self.path = os.path.join(directory, debug_rank.STATE)
        self.subject = self.missing = ""
        if debugger:
            node, rank = plan["node"], debugger["rank"]
            if 0 <= rank - node["first_rank"] < node["slots"]:
                self.subject = f"rank {rank} on {node['name']}"
            elif rank >= plan["world_size"] and node.get("attempt_rank") == 0:
                self.missing = f"this attempt has no rank {rank}, so none of its ranks is waiting for a debugger"
        self.state = ""

    def step(self) -> list[Notice]:
        """Return a notice if the rank's state has changed."""
        if self.missing:
            text, self.missing = self.missing, ""
            return [(KIND, text)]
        if not self.subject or not os.path.lexists(self.path):
            return []
        document = read_job_object(self.path)
        state, port = document.get("state"), document.get("port")
        if state == self.state or state not in ("waiting", "attached") or not isinstance(port, int):
            return []
        self.state = state
        if state == "attached":
            return [(KIND, f"a debugger is attached to {self.subject}")]
        return [
            (
                KIND,
                (
                    f"{self.subject} is waiting for a debugger on port {port} of its node; the other ranks are waiting "
                    "for it"
                ),
            )
        ]
