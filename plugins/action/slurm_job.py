# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module slurm_job."""

from __future__ import annotations

import os
import time
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import conforms
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import (
    CALL_TIMEOUT,
    LONG_POLL_TIMEOUT,
    REPLY_GRACE_PERIOD,
    RETRY_INTERVAL,
)
from ansible_collections.muster.training.plugins.plugin_utils._node_call.call import call_node
from ansible_collections.muster.training.plugins.plugin_utils._text.output_reader import end_play_without_reader
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import printable

ARGUMENT_SPEC: dict[str, Any] = {
    "state": {"type": "str", "choices": ["submitted", "started"], "required": True},
    "run_id": {"type": "str", "required": True},
    "nodes": {"type": "list", "elements": "dict", "default": []},
    "directories": {"type": "dict", "default": {}},
    "directory": {"type": "str", "default": ""},
    "job": {"type": "str", "default": ""},
    "user": {"type": "str", "default": ""},
    "options": {
        "type": "dict",
        "default": {},
        "options": {
            name: {"type": "str", "default": ""}
            for name in ("partition", "account", "qos", "time", "gres", "exclude", "reservation", "dependency")
        },
    },
}
NEWS = {"state": ("waiting", "started", "ended"), "message": str}


class ActionModule(ActionBase):
    """Action plugin. One call to the node, or one for each change in the queue."""

    _supports_check_mode = True
    _requires_connection = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Submit the job, or wait until it starts."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        if self._task.check_mode:
            return {"changed": args["state"] == "submitted", "skipped": True}
        return self.submit(args, task_vars) if args["state"] == "submitted" else self.wait(args, task_vars)

    def submit(self, args: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        """Submit the job of the run; return its number."""
        nodes = [
            {"name": node["name"], "address": node["address"], "directory": args["directories"][node["name"]]}
            for node in args["nodes"]
        ]
        request = {**args, "operation": "submit", "nodes": nodes}
        reply: dict[str, Any] = call_node(self, "_slurm.run_job", request, task_vars, CALL_TIMEOUT)
        return reply

    def wait(self, args: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        """Show the job's position in the queue until it starts. Fail if it ends before that."""
        request = {**args, "operation": "wait", "message": ""}
        timeout = LONG_POLL_TIMEOUT + REPLY_GRACE_PERIOD
        parent = os.getppid()
        while os.getppid() == parent:
            end_play_without_reader(parent)
            try:
                reply = call_node(self, "_slurm.run_job", request, task_vars, timeout)
            except AnsibleConnectionFailure:  # temporary: the job keeps its position in the queue
                time.sleep(RETRY_INTERVAL)
                continue
            if not conforms(reply, NEWS):
                raise AnsibleActionFail("the node sent an invalid reply")
            message = printable(reply["message"])
            if reply["state"] == "started":
                break
            if reply["state"] == "ended":
                raise AnsibleActionFail(message)
            if message != request["message"]:
                Display().display(f"[muster] {message}")
            request["message"] = reply["message"]
        return {"changed": False}
