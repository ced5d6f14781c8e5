# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run an action on many nodes from a single Ansible process.

For each node and task Ansible starts a process, which computes the variables, renders the options and opens the
connection. If the options are the same for all nodes, one process can do that once, and only the calls are made for
each node, in threads.
"""

from __future__ import annotations

import contextlib
import contextvars
import copy
import os
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible import constants as C
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure, AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.plugins.loader import become_loader, connection_loader

from ansible_collections.muster.training.plugins.plugin_utils._node_call.call import next_item
from ansible_collections.muster.training.plugins.plugin_utils._node_call.host_dependence import (
    INDIRECT,
    reached_names,
    varying_names,
)

# Variables that Ansible reads for a host although they are not options of a connection, shell or become plugin.
UNSUPPORTED = frozenset(("ansible_executable", "ansible_shell_type", "ansible_async_dir", "ansible_delegated_vars"))
ADDRESS = ("ansible_ssh_host", "ansible_host")
CONTEXT_VARIABLES = {
    name for names in C.MAGIC_VARIABLE_MAPPING.values() for name in names if name not in ADDRESS
}  # each is also an attribute of Ansible's play context
INTERPRETER = "ansible_python_interpreter"
# Keywords that a task may inherit, as templates, from its blocks, role or play, and that determine how and where it
# runs or which variables it has.
INHERITED = (
    *("connection", "port", "remote_user", "timeout", "delegate_to", "check_mode", "vars_files"),
    *("become", "become_exe", "become_flags", "become_method", "become_user"),
)


def set_plugin_options(kind: str, plugin: Any, variables: Mapping[str, Any], keys: Mapping[str, Any]) -> None:
    """Set the options of a plugin from the rendered variables of a host."""
    names = [name for name in C.config.get_plugin_vars(kind, plugin._load_name) if name in variables]
    plugin.set_options(task_keys=dict(keys), var_options={name: variables[name] for name in names})


def node_context(action: ActionBase, variables: Mapping[str, Any]) -> Any:
    """Return a host's play context, derived from that of the task's host.

    variables: those of the host, rendered. They include all CONTEXT_VARIABLES that the task's host has.
    """
    context = copy.copy(action._play_context)
    context.remote_addr = variables["inventory_hostname"]
    for attribute, names in C.MAGIC_VARIABLE_MAPPING.items():
        defined = [name for name in names if name in variables]
        if defined:
            setattr(context, attribute, variables[defined[0]])
    context.connection = str(variables.get("ansible_connection") or action._task.connection)
    return context


def connect_node(action: ActionBase, variables: Mapping[str, Any], keywords: Mapping[str, Any]) -> Any:
    """Return a connection to a host, as Ansible would create it for a task on that host. Nothing is sent yet.

    variables: those of the host, rendered. keywords: those of the task.
    """
    context = node_context(action, variables)
    # The task's own timeout and retries are not those of its connection.
    keys = {**keywords, "timeout": context.timeout, **({"password": context.password} if context.password else {})}
    keys.pop("retries", None)
    task = {"task_uuid": action._task._uuid, "ansible_playbook_pid": str(os.getppid())}
    connection = connection_loader.get(context.connection, context, new_stdin=None, **task)
    if connection is None:
        raise AnsibleError(f"the connection plugin '{context.connection}' was not found")
    set_plugin_options("connection", connection, variables, keys)
    set_plugin_options("shell", connection._shell, variables, keys)
    become = variables.get("ansible_become")
    if action._task.become if become is None else boolean(become):
        plugin = become_loader.get(str(variables.get("ansible_become_method") or action._task.become_method))
        if plugin is None:
            raise AnsibleError("the become plugin was not found")
        password = {"become_pass": context.become_pass} if context.become_pass else {}
        set_plugin_options("become", plugin, variables, {**keys, **password})
        connection.set_become_plugin(plugin)
    return connection


def connection_settings(connection: Any) -> list[Any]:
    """Return the values that determine how a connection runs a command."""
    parts = [("connection", connection), ("shell", connection._shell), ("become", connection.become)]
    # Ansible's loader may name the same plugin in two ways: ssh and ansible_collections.ansible.builtin...ssh.
    return [(kind, part._load_name.rpartition(".")[2], part.get_options()) for kind, part in parts if part is not None]


def inherited_keywords(task: Any) -> list[Any]:
    """Return the keywords of a task's blocks, roles and play without rendering them: they may differ between hosts."""
    values: list[Any] = []
    seen: list[Any] = []
    pending = [task]
    while pending:
        holder = pending.pop()
        if holder is None or any(holder is other for other in seen):
            continue
        seen.append(holder)
        if holder is not task:  # the task's own keywords have already been rendered
            values += [getattr(holder, f"_{keyword}", None) for keyword in INHERITED]
        pending += [getattr(holder, name, None) for name in ("_parent", "_role", "_play")]
        pending += [*(getattr(holder, "_dep_chain", None) or ()), *(getattr(holder, "_parents", None) or ())]
    return values


class NodeConnections:
    """Connections to nodes, each identical to the one that Ansible would create for a task on that node."""

    def __init__(self, action: ActionBase, task_vars: Mapping[str, Any], nodes: Sequence[str]) -> None:
        self.action, self.task_vars, self.nodes = action, task_vars, nodes
        self.hostvars = task_vars["hostvars"]
        self.raw = {name: self.hostvars.raw_get(name) for name in nodes if name in self.hostvars}
        self.keywords = action._task.dump_attrs()

    def is_supported(self) -> bool:
        """Return whether the task's options are the same on all nodes, and its connections are as defined in the
        inventory.
        """
        host = self.task_vars["inventory_hostname"]
        if host not in self.raw or len(self.raw) < len(self.nodes):
            return False
        varying = varying_names(list(self.raw.values()))
        of_host = CONTEXT_VARIABLES & self.raw[host].keys()
        if varying & UNSUPPORTED or any(of_host - raw.keys() for raw in self.raw.values()):
            return False
        task = self.action._task
        if reached_names(varying | INDIRECT, [task.get_ds(), inherited_keywords(task)], self.task_vars):
            return False
        # A play, role or command line may define more than the inventory does: Ansible's own connection shows it.
        same_interpreter = self.task_vars.get(INTERPRETER) == self.raw[host].get(INTERPRETER)
        return same_interpreter and connection_settings(self.action._connection) == connection_settings(
            self.connect(host)
        )

    def connect(self, name: str) -> Any:
        """Return a new connection to a node."""
        return connect_node(self.action, self.hostvars[name], self.keywords)

    def variables(self, name: str) -> dict[str, Any]:
        """Return the variables of a node that the action reads."""
        own = {"inventory_hostname": name, "ansible_forks": self.task_vars.get("ansible_forks")}
        return {**own, "hostvars": self.hostvars, INTERPRETER: self.hostvars[name].get(INTERPRETER)}


def result_of(run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the result of an action, or {"error": its message, "unreachable": ...} if it raised an error."""
    try:
        return run()
    except AnsibleError as error:
        return {"error": error.message, "unreachable": isinstance(error, AnsibleConnectionFailure)}
    except Exception as error:  # so that the results of other nodes are not lost
        return {"error": f"Unexpected failure: {type(error).__name__}: {error}", "unreachable": False}


def is_raised_error(result: Mapping[str, Any]) -> bool:
    """Return whether a result was created by result_of() from an exception. Nodes' replies may also have an "error"
    field.
    """
    return {"error", "unreachable"} <= result.keys()


def is_failure(result: Mapping[str, Any]) -> bool:
    """Return whether a task with this result fails on its node."""
    return is_raised_error(result) or bool(result.get("failed"))


def raise_error(result: Mapping[str, Any]) -> None:
    """Raise the exception from which result_of() created a result, if any."""
    if is_raised_error(result):
        kind = AnsibleConnectionFailure if result["unreachable"] else AnsibleActionFail
        raise kind(result["error"])


def run_in_threads(calls: Mapping[str, Callable[[], dict[str, Any]]], limit: int) -> dict[str, dict[str, Any]]:
    """Return the result_of() for each call; at most `limit` calls run at the same time.

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
    results = dict(next_item(done) for _number in calls)
    return {name: results[name] for name in calls}
