# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Send the page's requests to nodes, over one connection per node."""

from __future__ import annotations

import contextlib
import contextvars
import copy
import threading
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase
from ansible.plugins.loader import connection_loader

from ansible_collections.muster.training.plugins.module_utils._run.timeouts import (
    NODE_CALL_GRACE_PERIOD,
    PAGE_STREAM_TIMEOUT,
)
from ansible_collections.muster.training.plugins.plugin_utils._cluster.local_connection import is_local
from ansible_collections.muster.training.plugins.plugin_utils._node_call.call import (
    REPLY_MARK,
    NodeRequestError,
    call_node,
    interpreter_assignment,
    shell_command,
    standard_input,
)
from ansible_collections.muster.training.plugins.plugin_utils._node_call.ssh_reachability import connect
from ansible_collections.muster.training.plugins.plugin_utils._page.feed import NodeCallError
from ansible_collections.muster.training.plugins.plugin_utils._page.node_stream import NodeStream, stream_argv


def connect_locally(action: ActionBase, name: str, variables: Mapping[str, Any]) -> ActionBase:
    """Return a copy of the action that runs commands on this machine. Raise NodeCallError for any other connection."""
    if not is_local(variables):
        kind = variables.get("ansible_connection")
        raise NodeCallError(f"{name} is reached via {kind}: the page needs ssh", is_final=True)
    context = copy.copy(action._play_context)
    context.connection = "local"
    node_action = copy.copy(action)
    node_action._play_context, node_action._connection = context, connection_loader.get("local", context)
    return node_action


class NodeCaller:
    """Calls the nodes of an inventory, one request at a time per node."""

    def __init__(self, action: ActionBase, task_vars: Mapping[str, Any], user: str, runs_directory: str) -> None:
        self.action = action
        self.context = contextvars.copy_context()  # the task's context, which Ansible's plugins require in each thread
        self.hostvars = task_vars["hostvars"]
        self.fields = {"user": user, "runs_directory": runs_directory}
        self.connections: dict[str, tuple[ActionBase, dict[str, Any]]] = {}
        self.locks: dict[str, threading.Lock] = {}
        self.lock = threading.Lock()  # protects the inventory while its variables are rendered

    def connection(self, name: str) -> tuple[ActionBase, dict[str, Any]]:
        """Return an action that runs commands on the node, and the node's variables. Raise NodeCallError."""
        with self.lock:
            if name not in self.connections:
                if name not in self.hostvars:
                    raise NodeCallError(
                        f"{name} is not in this inventory: use the inventory that the run was launched with",
                        is_final=True,
                    )
                variables = self.hostvars[name]
                node_action = connect(self.action, name, variables, become=bool(self.fields["user"]))
                node_action = node_action or connect_locally(self.action, name, variables)
                interpreter = self.action._templar.template(variables.get("ansible_python_interpreter") or "")
                self.connections[name] = (
                    node_action,
                    {"inventory_hostname": name, "ansible_python_interpreter": interpreter},
                )
            self.locks.setdefault(name, threading.Lock())
            return self.connections[name]

    def __call__(self, name: str, request: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        """Return a node's reply. Raise NodeCallError."""
        return self.context.copy().run(self.call, name, request, timeout)

    def call(self, name: str, request: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        """Return a node's reply, in the context of the task."""
        try:
            node_action, variables = self.connection(name)
            with self.locks[name]:
                return call_node(
                    node_action, "_run.dispatch", {**request, **self.fields, "node": name}, variables, timeout
                )
        except NodeRequestError as error:
            raise NodeCallError(str(error.message), is_final=True) from None
        except (AnsibleError, OSError) as error:
            raise NodeCallError(f"{name} has not responded: {' '.join(str(error).split())[:400]}") from None

    def stream(self, name: str, request: Mapping[str, Any]) -> NodeStream | None:
        """Return the updates that a node sends as they occur, or None if its connection does not support that."""
        return self.context.copy().run(self.open_stream, name, request)

    def open_stream(self, name: str, request: Mapping[str, Any]) -> NodeStream | None:
        """Start a stream, in the context of the task."""
        with contextlib.suppress(AnsibleError, NodeCallError, OSError):  # a later call reports the cause
            node_action, variables = self.connection(name)
            interpreter = interpreter_assignment(variables, self.action._templar.template)
            argv = stream_argv(node_action, shell_command(interpreter))
            more = {"node": name, "mark": REPLY_MARK, "seconds": PAGE_STREAM_TIMEOUT}
            limit = PAGE_STREAM_TIMEOUT + NODE_CALL_GRACE_PERIOD
            data = standard_input("_run.page_stream", {**request, **self.fields, **more}, limit=limit)
            return NodeStream(argv, data) if argv else None
        return None
