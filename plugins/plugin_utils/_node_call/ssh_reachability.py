# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Log in to many nodes from one task. Private to this collection, controller only.

Ansible prints some ten lines for each node that cannot be reached; one task on the controller can say the
same for all nodes at once. The connections are those that later tasks use: ssh keeps them open.
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

TRIES = 4  # sshd, of a node or of a bastion, drops connections at random once ten wait for their login


def options_of(kind: str, plugin: Any, variables: Mapping[str, Any]) -> dict[str, Any]:
    """The variables of a host that are options of a plugin."""
    return {name: variables[name] for name in C.config.get_plugin_vars(kind, plugin._load_name) if name in variables}


def connect(action: ActionBase, name: str, variables: Mapping[str, Any], become: bool) -> ActionBase | None:
    """An action like the given one, whose commands run on the node; None where Ansible does not go there by ssh.

    variables: those of the host, rendered. Nothing is sent yet.
    """
    context = copy.copy(action._play_context)
    context.connection = str(variables.get("ansible_connection") or C.config.get_config_value("DEFAULT_TRANSPORT"))
    if context.connection.rpartition(".")[2] not in ("ssh", "smart"):
        return None
    connection = connection_loader.get("ssh", context)
    keys = {"timeout": context.timeout, **({"password": context.password} if context.password else {})}
    connection.set_options(task_keys=keys, var_options=options_of("connection", connection, variables))
    keep_alive(connection)
    if become:
        plugin = become_loader.get(str(variables.get("ansible_become_method") or C.DEFAULT_BECOME_METHOD))
        if plugin is None:
            raise AnsibleError(f"{name}: there is no become plugin {variables.get('ansible_become_method')!r}")
        keys = {"become_pass": context.become_pass} if context.become_pass else {}
        plugin.set_options(task_keys=keys, var_options=options_of("become", plugin, variables))
        connection.set_become_plugin(plugin)
    there = copy.copy(action)
    there._connection, there._play_context = connection, context
    return there


def failure(there: ActionBase | None) -> str:
    """Why the node does not run a command, in the words of ssh or sudo; "" if it does."""
    said = ""
    for again in range(TRIES if there is not None else 0):
        said = one_try(there)
        if "kex_exchange_identification" not in said:
            break
        time.sleep(0.2 * (again + 1))
    return said


def one_try(there: ActionBase) -> str:
    """The same of one try."""
    try:
        done = execute(there, "true", b"\n")
    except AnsibleError as problem:
        return str(problem)
    if done["rc"] == 0:
        return ""
    return str(done["stderr"] or done["stdout"]).strip()[-1000:] or f"exit code {done['rc']}"


def unreached_nodes(
    action: ActionBase, names: list[str], hostvars: Mapping[str, Any], become: bool, all_needed: bool, at_once: int
) -> dict[str, str]:
    """The nodes that do not run a command (with become: as root), each with the reason.

    all_needed: if false, one node that does is enough, and nothing is said about the others. at_once: logins.
    """
    there = {name: connect(action, name, hostvars[name], become) for name in names}
    if not all_needed and names and not failure(there[names[0]]):
        return {}
    with ThreadPoolExecutor(max(1, at_once)) as logins:
        reasons = dict(zip(names, logins.map(failure, there.values()), strict=True))
    if not all_needed and not all(reasons.values()):
        return {}
    return {name: reason for name, reason in reasons.items() if reason}
