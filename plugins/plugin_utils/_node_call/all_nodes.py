# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run an action on many nodes from one of Ansible's processes.

For each node and task Ansible starts a process, which computes the variables, renders the options and opens the
connection. If the options are the same for all nodes, one process can do that once, and only the calls are made for
each node, in threads.
"""

from __future__ import annotations

import contextlib
import contextvars
import copy
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible import constants as C
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure, AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.plugins.loader import become_loader, connection_loader

from ansible_collections.muster.training.plugins.plugin_utils._node_call.host_dependence import (
    INDIRECT,
    reachable_names,
    varying_names,
)

# Variables that Ansible reads for a host although they are no options of a connection, shell or become plugin.
UNSUPPORTED = frozenset(("ansible_executable", "ansible_shell_type", "ansible_async_dir", "ansible_delegated_vars"))
INTERPRETER = "ansible_python_interpreter"


def set_plugin_options(kind: str, plugin: Any, variables: Mapping[str, Any], keys: Mapping[str, Any]) -> None:
    """Set the options of a plugin from the variables of a host, rendered."""
    names = [name for name in C.config.get_plugin_vars(kind, plugin._load_name) if name in variables]
    plugin.set_options(task_keys=dict(keys), var_options={name: variables[name] for name in names})


def connect_node(action: ActionBase, variables: Mapping[str, Any], keys: Mapping[str, Any]) -> Any:
    """Return a connection to a host as Ansible would create it for a task there. Nothing is sent yet.

    variables: those of the host, rendered. keys: see task_keys().
    """
    context = copy.copy(action._play_context)
    context.connection = str(variables.get("ansible_connection") or action._task.connection)
    context.remote_addr = str(variables.get("ansible_host") or variables["inventory_hostname"])
    connection = connection_loader.get(context.connection, context)
    if connection is None:
        raise AnsibleError(f"the connection plugin '{context.connection}' was not found")
    set_plugin_options("connection", connection, variables, keys)
    set_plugin_options("shell", connection._shell, variables, keys)
    become = variables.get("ansible_become")
    if action._task.become if become is None else boolean(become):
        plugin = become_loader.get(str(variables.get("ansible_become_method") or action._task.become_method))
        if plugin is None:
            raise AnsibleError("unknown become plugin")
        more = {"become_pass": context.become_pass} if action._play_context.become_pass else {}
        set_plugin_options("become", plugin, variables, {**keys, **more})
        connection.set_become_plugin(plugin)
    return connection


def task_keys(action: ActionBase) -> dict[str, Any]:
    """Return the keywords of a task from which Ansible sets options of plugins."""
    context = action._play_context
    keys = {**action._task.dump_attrs(), "timeout": context.timeout}
    if context.password:
        keys["password"] = context.password
    keys.pop("retries", None)
    return keys


def described(connection: Any) -> list[Any]:
    """Return what decides how a connection runs a command."""
    parts = [("connection", connection), ("shell", connection._shell), ("become", connection.become)]
    return [(kind, part._load_name, part.get_options()) for kind, part in parts if part is not None]


class NodeConnections:
    """Connections to nodes, each the same as Ansible would create for a task on that node."""

    def __init__(self, action: ActionBase, task_vars: Mapping[str, Any], nodes: Sequence[str]) -> None:
        self.action, self.task_vars, self.nodes = action, task_vars, nodes
        self.hostvars = task_vars["hostvars"]
        self.raw = {name: self.hostvars.raw_get(name) for name in nodes}

    def is_supported(self) -> bool:
        """Return whether the task has the same options on all nodes, and connections as the inventory defines them."""
        host = self.task_vars["inventory_hostname"]
        if host not in self.nodes or any(name not in self.hostvars for name in self.nodes):
            return False
        varying = varying_names(list(self.raw.values())) | INDIRECT
        names = reachable_names(self.action._task.get_ds(), self.task_vars)
        if varying & (names | UNSUPPORTED):
            return False
        # A play, role or command line may define more than the inventory: Ansible's own connection shows it.
        return described(self.action._connection) == described(self.connect(host))

    def connect(self, name: str) -> Any:
        """Return a new connection to a node."""
        return connect_node(self.action, self.hostvars[name], task_keys(self.action))

    def variables(self, name: str) -> dict[str, Any]:
        """Return the variables of a node that its action reads."""
        own = {"inventory_hostname": name, "ansible_forks": self.task_vars.get("ansible_forks")}
        return {**own, INTERPRETER: self.hostvars[name].get(INTERPRETER)}


def result_of(run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the result of an action, or {"error": its message, "unreachable": ...} if it raised an error."""
    try:
        return run()
    except AnsibleError as error:
        return {"error": error.message, "unreachable": isinstance(error, AnsibleConnectionFailure)}
    except Exception as error:  # so that the results of other nodes are not lost
        return {"error": f"Unexpected failure: {type(error).__name__}: {error}", "unreachable": False}


def is_failure(result: Mapping[str, Any]) -> bool:
    """Return whether a task with this result fails on its node."""
    return "error" in result or bool(result.get("failed"))


def raise_error(result: Mapping[str, Any]) -> None:
    """Raise the error from which result_of() made a result, if any."""
    if "error" in result:
        kind = AnsibleConnectionFailure if result["unreachable"] else AnsibleActionFail
        raise kind(result["error"])


def run_in_threads(
    calls: Mapping[str, Callable[[], dict[str, Any]]], limit: int
) -> dict[str, dict[str, Any]]:
    """Return result_of() each call; at most `limit` run at the same time.

    The threads are daemons, so that Ctrl-C does not wait for them.
    """
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[str, dict[str, Any]]] = queue.SimpleQueue()
    for name in calls:
        waiting.put(name)

    def work() -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                name = waiting.get_nowait()
                done.put((name, result_of(calls[name])))

    for _number in range(min(limit, len(calls))):
        threading.Thread(target=contextvars.copy_context().run, args=(work,), daemon=True).start()
    results = dict(done.get() for _number in calls)
    return {name: results[name] for name in calls}
