# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module choose_nodes. Opens no connections."""

from __future__ import annotations

import os
import random
import secrets
import tempfile
from collections.abc import Mapping
from typing import Any

from ansible import constants as C
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import (
    RankTableError,
    build_rank_table,
)
from ansible_collections.muster.training.plugins.plugin_utils._cluster.training_group import group_members
from ansible_collections.muster.training.plugins.plugin_utils._command_line.unused_options import (
    reject_unused_options,
)
from ansible_collections.muster.training.plugins.plugin_utils._inventory_sources import reject_unread_sources
from ansible_collections.muster.training.plugins.plugin_utils._plan.job import parse_nnodes

ARGUMENT_SPEC = {
    "group": {"type": "str", "default": "training"},
    "nnodes": {"type": "raw"},
    "spares": {"type": "int", "default": 0},
    "nodes": {"type": "list", "elements": "str", "default": []},
    "ports": {"type": "list", "elements": "int", "default": []},
    "job": {"type": "dict", "default": {}},
}
MAX_DIGITS = 6  # digits of nnodes
EPHEMERAL_PORTS = range(32768, 61000)  # Linux's default net.ipv4.ip_local_port_range


def host_entry(name: str, variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return an inventory host in the format of the rank table.

    If the slots will be counted on the node, they are 1 for now.
    """
    slots = variables.get("node_slots")
    return {
        "name": name,
        "address": variables.get("node_address") or variables.get("ansible_host") or "",
        "slots": 1 if slots in (None, "") else slots,
        "rank": variables.get("node_rank"),
    }


def add_spares(nnodes: object, spares: int) -> object:
    """Return how many nodes to use for a run with spares, or None for all nodes if nnodes is not set.

    An invalid number is returned unchanged, so that it is reported.
    """
    number = str(nnodes)
    return int(number) + spares if spares > 0 and number.isdecimal() and len(number) <= MAX_DIGITS else nnodes


def choose(
    group: str, groups: Mapping[str, list[str]], hostvars: Mapping[str, Any], nnodes: object, names: list[str]
) -> list[dict[str, Any]]:
    """Return the run's nodes in rank order: name, address, and slots from the inventory.

    Includes node_rank, renumbered, if the inventory prescribes the order, because some launchers have their own order.
    Raise AnsibleActionFail with all problems in the group.
    """
    members = group_members(group, groups)
    unknown_names = [name for name in names if name not in members]
    if unknown_names:
        raise AnsibleActionFail(
            f"nodes contains {', '.join(unknown_names)}, but the group '{group}' has only {', '.join(members)}"
        )
    hosts = [host_entry(name, hostvars[name]) for name in members]
    try:
        max_nodes = parse_nnodes(nnodes)[1] if nnodes not in (None, "") else len(names or members)
        table = build_rank_table(hosts)
        if names:
            hosts = [
                host | {"rank": None}
                for host in (host_entry(node.name, hostvars[node.name]) for node in table.nodes)
                if host["name"] in names
            ]
        return [
            {
                "name": node.name,
                "address": node.address,
                "slots": hostvars[node.name].get("node_slots"),
                **({} if hostvars[node.name].get("node_rank") is None else {"node_rank": node.node_rank}),
            }
            for node in build_rank_table(hosts, nnodes=max_nodes).nodes
        ]
    except RankTableError as error:
        raise AnsibleActionFail(f"the group '{group}' is not a valid cluster:\n{error}") from error
    except ValueError as error:
        raise AnsibleActionFail(str(error)) from error


def master_candidates(nodes: list[dict[str, Any]]) -> set[str]:
    """Return the nodes that may get rank 0: the first node or, with c10d, the node whose address sorts first."""
    return {nodes[0]["name"], min(nodes, key=lambda node: str(node["address"]))["name"]}


def write_token(directory: str) -> str:
    """Write a new secret to a private file and return its path, not the secret, because -vvv shows results."""
    descriptor, path = tempfile.mkstemp(prefix="muster-probe-", dir=directory)  # created with mode 0600
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(secrets.token_hex(16))
    return path


class ActionModule(ActionBase):
    """Action plugin that chooses the nodes of a run from the inventory."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the nodes, and the path of the token file."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        reject_unused_options(task_vars)
        reject_unread_sources(task_vars["hostvars"])
        limit = task_vars.get("ansible_limit") if args["nodes"] else None
        limit_error = f"--limit {limit} selects {', '.join(args['nodes'])}: pass exactly the run's nodes to --limit"
        try:
            nnodes = add_spares(args["nnodes"], args["spares"])
            nodes = choose(args["group"], task_vars["groups"], task_vars["hostvars"], nnodes, args["nodes"])
        except AnsibleActionFail as error:
            raise AnsibleActionFail(f"{error.message}\n{limit_error}" if limit else error.message) from error
        # the run's own play would continue with all of its hosts
        if task_vars["inventory_hostname"] in args["nodes"] and len(nodes) < len(args["nodes"]):
            play_error = f"the play runs on {', '.join(args['nodes'])}: set its hosts to exactly the run's nodes"
            raise AnsibleActionFail(f"nnodes is {args['nnodes']}, but {limit_error if limit else play_error}")
        candidates = master_candidates(nodes)
        return {
            "changed": False,
            "names": [node["name"] for node in nodes],
            "nodes": nodes,
            "addresses": {node["name"]: node["address"] for node in nodes},
            "prices": {node["name"]: task_vars["hostvars"][node["name"]].get("node_price_per_hour") for node in nodes},
            "ports": {node["name"]: args["ports"] if node["name"] in candidates else [] for node in nodes},
            "probe": {
                "token_file": write_token(C.DEFAULT_LOCAL_TMP),  # Ansible removes this directory when it ends
                "candidates": random.sample(EPHEMERAL_PORTS, 3),
            },
            "job": args["job"],
        }
