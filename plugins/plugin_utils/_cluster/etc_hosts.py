# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node's /etc/hosts: every name in the cluster resolves only to its node_address.

Measured with glibc 2.36: a line `127.0.1.1 NAME` hides the address in any order, and a name on localhost's line
makes getfqdn() return "localhost". So our own block is not enough; names must be removed from all other lines. The
block comes first because a lookup by address takes the first line with that address.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ansible_collections.muster.training.plugins.module_utils._hosts_file.resolution import BEGIN, END
from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import (
    Node,
    RankTable,
    RankTableError,
    RankTableProblem,
    format_value,
    ip_literal,
    means_this_machine,
    name_error,
)

_BLOCK = re.compile(rf"^{re.escape(BEGIN)}\n.*?^{re.escape(END)}\n", re.MULTILINE | re.DOTALL)
_STRAY_MARKER = re.compile(rf"^(?:{re.escape(BEGIN)}|{re.escape(END)})(?:\n|\Z)", re.MULTILINE)


def cluster_names(table: RankTable) -> dict[str, list[str]]:
    """Return the names of each node, the canonical one first: the inventory name, with and without its domain."""
    names: dict[str, list[str]] = {node.name: [] for node in table.nodes}
    owner: dict[str, Node] = {}
    for node in table.nodes:
        if ip_literal(node.name) is None:
            _add(node, node.name, names, owner)
    return names


def local_names(table: RankTable, names: Mapping[str, list[str]], node_name: str, hostname: str) -> list[str]:
    """Return the names that a machine uses for itself and that are not among the cluster's names.

    Args:
        node_name: the node's inventory name.
        hostname: the node's output of `uname -n`.

    Raises:
        RankTableError: the machine's own name would lead its programs to another machine.
    """
    node = next(entry for entry in table.nodes if entry.name == node_name)
    owner = {name.lower(): entry for entry in table.nodes for name in names[entry.name]}
    reason = _hostname_error(node, hostname, owner)
    if reason:
        requirement = "a host name that no other node has"
        remedy = "On the machine, run `sudo hostnamectl set-hostname NAME`"
        if hostname.lower() in owner:
            remedy = (
                f"In the inventory, use the machines' own host names (that of {node_name} is {hostname}). Or, on the "
                "machine, run `sudo hostnamectl set-hostname NAME`"
            )
        raise RankTableError([RankTableProblem(node_name, reason, requirement, remedy)])
    forms = dict.fromkeys([hostname, hostname.partition(".")[0]])
    return [form for form in forms if form.lower() not in owner]


def merge_etc_hosts(before: str, table: RankTable, node_name: str = "", hostname: str = "") -> str:
    """Return the text of /etc/hosts with the cluster's block, and without the cluster's names on all other lines.

    The name a machine uses for itself is only in its own file, on the last line of the block, so that a lookup by
    address returns the inventory name, which is the same on all nodes.

    Args:
        node_name: inventory name of the file's node. Empty: the block contains only inventory names.
        hostname: the node's output of `uname -n`.
    """
    names = cluster_names(table)
    lines = [(node.address, names[node.name]) for node in table.nodes]
    if node_name:
        address = next(node.address for node in table.nodes if node.name == node_name)
        lines.append((address, local_names(table, names, node_name, hostname)))
    cluster_names_lower = {name.lower() for _address, node_names in lines for name in node_names}
    foreign = _STRAY_MARKER.sub("", _BLOCK.sub("", before))
    remaining_lines = [
        line
        for line in (_remove_names(cluster_names_lower, line) for line in foreign.splitlines(keepends=True))
        if line is not None
    ]
    block = [" ".join([address, *of_node]) for address, of_node in lines if of_node]
    return "".join(f"{line}\n" for line in [BEGIN, *block, END]) + "".join(remaining_lines)


def _add(node: Node, name: str, names: dict[str, list[str]], owner: dict[str, Node]) -> None:
    for form in (name, name.partition(".")[0]):
        # a name that already belongs to another node stays with that node
        if owner.setdefault(form.lower(), node) is node and form not in names[node.name]:
            names[node.name].append(form)


def _hostname_error(node: Node, hostname: str, owner: Mapping[str, Node]) -> str | None:
    if not hostname or means_this_machine(hostname):
        return f"its host name is {format_value(hostname)}"
    if ip_literal(hostname):
        return f"its host name is the address {hostname}"
    reason = name_error(hostname)
    if reason:
        return f"its host name is invalid: {reason}"
    owning_node = owner.get(hostname.lower(), node)
    return (
        None
        if owning_node is node
        else (f"its host name is {format_value(hostname)}, which is a name of {owning_node.name}")
    )


def _remove_names(names: set[str], line: str) -> str | None:
    """Return the line without these names, or None if it has no others."""
    entry, hash_sign, comment = line.partition("#")
    fields = entry.split()
    if not any(word.lower() in names for word in fields[1:]):
        return line
    if all(word.lower() in names for word in fields[1:]):
        return None
    for word in fields[1:]:
        if word.lower() in names:
            entry = re.sub(rf"\s+{re.escape(word)}(?=\s|\Z)", "", entry, count=1)
    end = "\n" if line.endswith("\n") and not hash_sign and not entry.endswith("\n") else ""
    return entry + end + hash_sign + comment
