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

from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import NAME, conforms
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import (
    CALL_TIMEOUT,
    LONG_POLL_TIMEOUT,
    REPLY_GRACE_PERIOD,
    RETRY_INTERVAL,
)
from ansible_collections.muster.training.plugins.module_utils._slurm.queue import JOB
from ansible_collections.muster.training.plugins.plugin_utils._cluster.training_group import group_members
from ansible_collections.muster.training.plugins.plugin_utils._node_call.call import call_node
from ansible_collections.muster.training.plugins.plugin_utils._slurm.chosen_nodes import (
    NodeNotInInventoryError,
    candidates_of,
    inventory_names,
)
from ansible_collections.muster.training.plugins.plugin_utils._text.output_reader import end_play_without_reader
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import printable

ARGUMENT_SPEC: dict[str, Any] = {
    "state": {"type": "str", "choices": ["submitted", "started", "allocated", "released"], "required": True},
    "run_id": {"type": "str", "default": ""},
    "group": {"type": "str", "default": "training"},
    "count": {"type": "int", "default": 0},
    "nodes": {"type": "list", "elements": "dict", "default": []},
    "directories": {"type": "dict", "default": {}},
    "directory": {"type": "str", "default": ""},
    "job": {"type": "str", "default": ""},
    "notice": {"type": "int", "default": 0},
    "requeue": {"type": "int", "default": 0},
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
CONDITIONS = {
    "required_if": [
        ("state", "submitted", ["run_id"]),
        ("state", "started", ["run_id"]),
        ("state", "released", ["job"]),
    ]
}
NEWS = {"state": ("waiting", "started", "allocated", "ended"), "message": str}
NODES = {"nodes": [{"name": NAME, "address": str}], "batch": NAME}


class ActionModule(ActionBase):
    """Action plugin that makes one call to the node, or one for each change in the queue."""

    _supports_check_mode = True
    _requires_connection = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Submit the job, or wait until it starts."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC, **CONDITIONS)
        if self._task.check_mode:
            return {"changed": args["state"] == "submitted", "skipped": True}
        operations = {
            "submitted": self.submit,
            "started": self.wait,
            "allocated": self.allocate,
            "released": self.release,
        }
        return operations[args["state"]](args, task_vars)

    def submit(self, args: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        """Submit the run's job; return its job ID."""
        nodes = [
            {"name": node["name"], "address": node["address"], "directory": args["directories"][node["name"]]}
            for node in args["nodes"]
        ]
        request = {**args, "operation": "submit", "nodes": nodes}
        node = self._task.delegate_to or task_vars["inventory_hostname"]
        if args["job"]:  # the job has the run's nodes
            request.update(operation="begin", directory=args["directories"][node])
        program = "_slurm.allocation" if args["job"] else "_slurm.run_job"
        reply: dict[str, Any] = call_node(self, program, request, task_vars, CALL_TIMEOUT)
        return reply

    def allocate(self, args: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        """Let Slurm choose nodes, and wait in the queue for them. Return job, names and batch (inventory names)."""
        if args["count"] < 1:
            raise AnsibleActionFail("Slurm cannot choose the nodes without knowing how many to choose: add -e nnodes=N")
        if args["requeue"]:
            raise AnsibleActionFail(
                "a job whose nodes Slurm chooses cannot be requeued, since it may get different nodes: "
                "omit launch_slurm_requeue or launch_slurm_choose"
            )
        hostvars, members = task_vars["hostvars"], group_members(args["group"], task_vars["groups"])
        request = {**args, "operation": "allocate", "nodes": candidates_of(members, hostvars)}
        job = call_node(self, "_slurm.allocation", request, task_vars, CALL_TIMEOUT).get("job")
        if not conforms(job, JOB):  # the ID becomes an argument and a file name on another node
            raise AnsibleActionFail("the node sent an invalid reply")
        reply = self.await_news("_slurm.allocation", {**args, "job": job}, task_vars)
        if reply is None:  # the launch was interrupted: nobody would use the nodes
            return self.release({**args, "job": job}, task_vars)
        if not conforms(reply, NODES):
            raise AnsibleActionFail("the node sent an invalid reply")
        try:
            names = inventory_names(reply["nodes"], members, hostvars)
        except NodeNotInInventoryError as error:
            self.release({**args, "job": job}, task_vars)
            raise AnsibleActionFail(str(error)) from None
        batch = names.get(reply["batch"], next(iter(names.values()), ""))
        chosen = [name for name in members if name in names.values()]
        Display().display(f"[muster] Slurm job {job} was allocated {', '.join(chosen)}")
        return {"changed": True, "job": job, "names": chosen, "batch": batch}

    def release(self, args: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        """Release a job's nodes."""
        request = {**args, "operation": "release"}
        reply: dict[str, Any] = call_node(self, "_slurm.allocation", request, task_vars, CALL_TIMEOUT)
        return reply

    def wait(self, args: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        """Show the job's position in the queue until the run starts."""
        self.await_news("_slurm.run_job", args, task_vars)
        return {"changed": False}

    def await_news(self, program: str, args: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any] | None:
        """Show the job's position in the queue until it starts. Fail if it ends before it starts.

        Return the last reply, or None if the play was interrupted.
        """
        request = {**args, "operation": "wait", "message": ""}
        timeout = LONG_POLL_TIMEOUT + REPLY_GRACE_PERIOD
        parent = os.getppid()
        while os.getppid() == parent:
            end_play_without_reader(parent)
            try:
                reply = call_node(self, program, request, task_vars, timeout)
            except AnsibleConnectionFailure:  # temporary: the job keeps its position in the queue
                time.sleep(RETRY_INTERVAL)
                continue
            if not conforms(reply, NEWS):
                raise AnsibleActionFail("the node sent an invalid reply")
            message = printable(reply["message"])
            if reply["state"] in ("started", "allocated"):
                return dict(reply)
            if reply["state"] == "ended":
                raise AnsibleActionFail(message)
            if message != request["message"]:
                Display().display(f"[muster] {message}")
            request["message"] = reply["message"]
        return None
