# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module attempt_output: shows a rank's output in one attempt of a run."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.module_utils._run.job_results import parse_report
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import Maybe, conforms
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import (
    LONG_POLL_TIMEOUT,
    REPLY_GRACE_PERIOD,
)
from ansible_collections.muster.training.plugins.plugin_utils._node_call.call import call_node
from ansible_collections.muster.training.plugins.plugin_utils._text.output_reader import end_play_without_reader
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import (
    describe_skipped_output,
    printable,
    visible_text,
)

ARGUMENT_SPEC = {
    "run_id": {"type": "str", "required": True},
    "attempt": {"type": "int", "required": True},
    "rank": {"type": "int", "default": 0},
    "runs_directory": {"type": "str", "default": "~/.muster/runs"},
    "user": {"type": "str", "default": ""},
    "control_sequences": {"type": "bool", "default": False},
}
# A node's replies, which are as untrusted as its job.
NO_OUTPUT = {"ranks": [range(10**6)], "newest": Maybe(range(1000))}
OUTPUT = {**NO_OUTPUT, "active": bool, "outputs": dict, "left_out": dict, "cursors": dict}


class ActionModule(ActionBase):
    """Action plugin that shows the output until the attempt or the run has ended."""

    _supports_check_mode = True
    _requires_connection = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Show the output; return whether the rank ran on this node."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        if self._task.check_mode:
            return {"changed": False, "skipped": True}
        request = {**args, "node": task_vars["inventory_hostname"], "operation": "attempt", "wait": LONG_POLL_TIMEOUT}
        return self.show(request, functools.partial(self.ask, task_vars))

    def ask(self, task_vars: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
        """Return the node's reply. Raise AnsibleActionFail if it is invalid."""
        timeout = LONG_POLL_TIMEOUT + REPLY_GRACE_PERIOD
        reply: dict[str, Any] = call_node(self, "_run.dispatch", request, task_vars, timeout)
        if not conforms(reply, OUTPUT if reply.get("ranks") else NO_OUTPUT):
            raise AnsibleActionFail(f"{request['node']} sent an invalid reply instead of a rank's output")
        return reply

    def show(self, request: dict[str, Any], ask: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
        """Query the node and show its output for as long as more may follow."""
        display, parent = Display(), os.getppid()
        request["cursors"] = {}
        reply = ask(request)
        newest = reply["newest"]
        if not reply["ranks"]:
            return {"changed": False, "has_rank": False, "newest": newest}
        display.display(f"[muster] attempt {request['attempt']}, rank {request['rank']}, on {request['node']}:")
        while True:
            for log, size in reply["left_out"].items():
                display.display(f"[muster] {printable(describe_skipped_output(size, request['node'], log))}")
            for text in reply["outputs"].values():
                for line in str(text).split("\n"):
                    visible_line = visible_text(line, request["control_sequences"])
                    if visible_line and parse_report(visible_line) is None:
                        display.display(visible_line)
            if not reply["active"] or os.getppid() != parent:
                return {"changed": False, "has_rank": True, "newest": newest}
            end_play_without_reader(parent)
            request["cursors"] = reply["cursors"]
            reply = ask(request)
