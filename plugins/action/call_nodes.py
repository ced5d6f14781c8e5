# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module call_nodes."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase

from ansible_collections.muster.training.plugins.plugin_utils._node_call.all_nodes import (
    NodeConnections,
    is_failure,
    raise_error,
    run_in_threads,
)
from ansible_collections.muster.training.plugins.plugin_utils._node_call.child_processes import ending_child_processes

ACTIONS = ["node_facts", "node_runs", "run_join", "run_logs", "run_stacks", "training_run"]
ARGUMENT_SPEC = {
    "action": {"type": "str", "choices": ACTIONS, "required": True},
    "options": {"type": "dict", "required": True},
    "options_by_node": {"type": "dict", "default": {}},
    "nodes": {"type": "list", "elements": "str"},
    "results": {"type": "dict", "default": {}},
}
OF_ALL_NODES = ("by_node", "complete")
DEFAULT_FORKS = 5  # Ansible's default


def options_of(name: str, args: Mapping[str, Any]) -> dict[str, Any]:
    """Return the action's options for a node."""
    own = {option: values[name] for option, values in args["options_by_node"].items() if name in values}
    return {**args["options"], **own}


def strip_results_by_node(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a node's result without the fields that hold all nodes' results: a node must not speak for the others."""
    return {field: value for field, value in result.items() if field not in OF_ALL_NODES}


class ActionModule(ActionBase):
    """Run another action on this node, or on several nodes from this process."""

    _supports_check_mode = True
    _requires_connection = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the action's result, or the results by node."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        name = task_vars["inventory_hostname"]
        if args["nodes"] is None:
            result = args["results"].get(name)
            if result is None:
                action = self.node_action(self._connection, options_of(name, args), args["action"])
                return strip_results_by_node(action.run(None, task_vars))
            raise_error(result)
            return strip_results_by_node(result)
        connections = NodeConnections(self, task_vars, args["nodes"])
        if self._task.check_mode or self._task.delegate_to or not connections.is_supported():
            return {"changed": False, "complete": False, "by_node": {}}
        calls = {name: self.call(connections, name, args) for name in args["nodes"]}
        with ending_child_processes():
            results = run_in_threads(calls, int(task_vars.get("ansible_forks") or DEFAULT_FORKS))
        return {
            "changed": any(result.get("changed") for result in results.values()),
            "complete": not any(map(is_failure, results.values())),
            "by_node": results,
        }

    def call(self, connections: NodeConnections, name: str, args: Mapping[str, Any]) -> Any:
        """Return a function that runs the action on a node."""
        try:
            connection = connections.connect(name)
        except AnsibleError as error:  # for this node only
            return functools.partial(raise_error, {"error": error.message, "unreachable": False})
        action = self.node_action(connection, options_of(name, args), args["action"])
        return functools.partial(action.run, None, connections.variables(name))

    def node_action(self, connection: Any, options: Mapping[str, Any], action: str) -> ActionBase:
        """Return the action plugin for a node."""
        task = self._task.copy(exclude_parent=True, exclude_tasks=True)
        task._parent = self._task._parent
        task.args = dict(options)
        return self._shared_loader_obj.action_loader.get(
            f"muster.training.{action}",
            task=task,
            connection=connection,
            play_context=connection._play_context,
            loader=self._loader,
            templar=self._templar,
            shared_loader_obj=self._shared_loader_obj,
        )
