# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Log in to many nodes from one task.

Ansible prints about ten lines for each unreachable node; one task on the controller can say the same for all nodes at
once. Later tasks use the same connections: ssh keeps them open.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ansible import constants as C
from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase
from ansible.plugins.loader import become_loader, connection_loader

from ansible_collections.muster.training.plugins.plugin_utils._node_call.call import execute, keep_alive

MAX_TRIES = 4  # sshd on a node or bastion host drops connections at random once ten are waiting to log in


def plugin_options(kind: str, plugin: Any, variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the variables of a host that are options of a plugin."""
    return {name: variables[name] for name in C.config.get_plugin_vars(kind, plugin._load_name) if name in variables}


def connect(action: ActionBase, name: str, variables: Mapping[str, Any], become: bool) -> ActionBase | None:
    """Return a copy of the action that runs commands on the node, or None if Ansible does not use ssh for the node.

    variables: those of the host, rendered. Nothing is sent yet.
    """
    context = copy.copy(action._play_context)
    context.connection = str(variables.get("ansible_connection") or C.config.get_config_value("DEFAULT_TRANSPORT"))
    if context.connection.rpartition(".")[2] not in ("ssh", "smart"):
        return None
    connection = connection_loader.get("ssh", context)
    keys = {"timeout": context.timeout, **({"password": context.password} if context.password else {})}
    connection.set_options(task_keys=keys, var_options=plugin_options("connection", connection, variables))
    keep_alive(connection)
    if become:
        plugin = become_loader.get(str(variables.get("ansible_become_method") or C.DEFAULT_BECOME_METHOD))
        if plugin is None:
            raise AnsibleError(f"{name}: unknown become plugin {variables.get('ansible_become_method')!r}")
        keys = {"become_pass": context.become_pass} if context.become_pass else {}
        plugin.set_options(task_keys=keys, var_options=plugin_options("become", plugin, variables))
        connection.set_become_plugin(plugin)
    node_action = copy.copy(action)
    node_action._connection, node_action._play_context = connection, context
    return node_action


def login_error(node_action: ActionBase | None) -> str:
    """Return why the node cannot run a command, as reported by ssh or sudo, or an empty string."""
    error = ""
    for attempt in range(MAX_TRIES if node_action is not None else 0):
        error = try_login(node_action)
        if "kex_exchange_identification" not in error:
            break
        time.sleep(0.2 * (attempt + 1))
    return error


def try_login(node_action: ActionBase) -> str:
    """Try to log in once; return the error, or an empty string."""
    try:
        result = execute(node_action, "true", b"\n")
    except AnsibleError as error:
        return str(error)
    if result["rc"] == 0:
        return ""
    return str(result["stderr"] or result["stdout"]).strip()[-1000:] or f"exit code {result['rc']}"


def unreachable_nodes(  # noqa: PLR0913
    action: ActionBase,
    names: list[str],
    hostvars: Mapping[str, Any],
    become: bool,
    all_required: bool,
    parallel_logins: int,
) -> dict[str, str]:
    """Return the nodes that cannot run a command (as root if become is set), each with the reason.

    all_required: if false, one reachable node is enough, and no others are reported. parallel_logins: logins at the
    same time.
    """
    actions = {name: connect(action, name, hostvars[name], become) for name in names}
    if not all_required and names and not login_error(actions[names[0]]):
        return {}
    with ThreadPoolExecutor(max(1, parallel_logins)) as logins:
        reasons = dict(zip(names, logins.map(login_error, actions.values()), strict=True))
    if not all_required and not all(reasons.values()):
        return {}
    return {name: reason for name, reason in reasons.items() if reason}
