# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of names: whether the nodes' names resolve to their addresses on every node."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._checks.context import CheckContext
from ansible_collections.muster.training.plugins.plugin_utils._checks.findings import Finding, error, warning
from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import ip_literal, short_name
from ansible_collections.muster.training.plugins.plugin_utils._text.name_list import format_list

HOSTS_FILE_REMEDY = "ansible-playbook site.yml --tags hosts_file"


def is_loopback(address: str) -> bool:
    """Return whether an address is ::1 or is in 127.0.0.0/8."""
    literal = ip_literal(address)
    return literal is not None and literal.is_loopback


def collect_views(context: CheckContext) -> dict[str, dict[str, list[str]]]:
    """Return {node name: {viewing node: its addresses for the name}}; the viewing node uses the first address.

    Includes a node's own hostname only if it is also its inventory name. Skips names that are addresses.
    """
    views: dict[str, dict[str, list[str]]] = {
        node.name: {} for node in context.table.nodes if not ip_literal(node.name)
    }
    for viewer, names in context.nodes_with("names"):
        resolved = names["hosts_file"] if names["resolver"] is None else names["resolver"]
        for name, addresses in resolved.items():
            if name in views and name != viewer.name:
                views[name][viewer.name] = addresses
        if viewer.name in views and short_name(names["hostname"]) == short_name(viewer.name) and names["own"]:
            address = names["own"]["gethostbyname"]
            views[viewer.name][viewer.name] = [address] if address else names["own"]["getaddrinfo"]
    return views


def check_own_name(context: CheckContext) -> list[Finding]:
    """Check that no node's own name resolves to loopback, as gloo and torchrun's c10d publish the address to peers.

    An additional entry with the right address does not help: gethostbyname() still returns 127.0.1.1 (glibc 2.36).
    """
    findings = []
    views = collect_views(context)
    for node, names in context.nodes_with("names"):
        lookup = names["own"]
        if lookup is None:
            continue
        addresses = dict.fromkeys(
            ([lookup["gethostbyname"]] if lookup["gethostbyname"] else []) + lookup["getaddrinfo"]
        )
        loopback = [address for address in addresses if is_loopback(address)]
        if not loopback and short_name(lookup["getfqdn"]) != "localhost":
            continue
        if not loopback:
            problem = "its own name resolves back to localhost (getfqdn)"
        elif len(addresses) > len(loopback):
            problem = f"its own name resolves to {loopback[0]} in programs that use only the first address"
        else:
            problem = f"its own name resolves to {loopback[0]}"
        # whether peers resolve the name: it resolves to a different address on each node
        resolves_for_peers = any(
            viewer != node.name and any(not is_loopback(address) for address in view)
            for viewer, view in views.get(node.name, {}).items()
        )
        make_finding = error if context.requires_name_resolution or resolves_for_peers else warning
        findings.append(
            make_finding(
                "own-name-loopback",
                [node.name],
                problem=problem,
                requirement="only its node_address, so that peers can reach the address it publishes",
                remedy=f"remove its name from the line for {loopback[0] if loopback else 'localhost'} in /etc/hosts: "
                f"{HOSTS_FILE_REMEDY}",
            )
        )
    return findings


def check_name_addresses(context: CheckContext) -> list[Finding]:
    """Check that a node's name resolves to its node_address on every node that can resolve the name."""
    findings = []
    wrong: dict[str, dict[str, str]] = {}  # viewer: {name: address}
    all_views = collect_views(context)
    for node in context.table.nodes:
        if node.name in context.facts and not context.facts[node.name]["interface"]:
            continue  # its node_address is wrong, which address-not-here reports
        views = {viewer: view for viewer, view in all_views.get(node.name, {}).items() if view}
        first_addresses = {viewer: view[0] for viewer, view in views.items()}
        local_address = first_addresses.get(node.name)
        if local_address and is_loopback(local_address):
            del first_addresses[node.name]  # own-name-loopback reports it
        wrong_addresses = {viewer: address for viewer, address in first_addresses.items() if address != node.address}
        if not wrong_addresses:
            continue
        node_addresses = {table_node.address for table_node in context.table.nodes} | {""}
        is_unanimous = (
            len(set(first_addresses.values())) == 1
            and len(first_addresses) > 1
            and not set(wrong_addresses.values()) & node_addresses
        )
        if is_unanimous and not any(is_loopback(address) for address in wrong_addresses.values()):
            make_finding = error if context.requires_name_resolution else warning
            findings.append(
                make_finding(
                    "name-elsewhere",
                    [node.name],
                    problem=f"the nodes resolve it to {next(iter(wrong_addresses.values()))}, but its node_address is "
                    f"{node.address}",
                    requirement="one address per node, in the network that all nodes share",
                    remedy=f"correct node_address of {node.name} in the inventory if it is wrong, otherwise "
                    f"{HOSTS_FILE_REMEDY}",
                )
            )
            continue
        for viewer, address in wrong_addresses.items():
            wrong.setdefault(viewer, {})[node.name] = address
    for viewer, names in wrong.items():
        expected = {node.name: node.address for node in context.table.nodes}
        mismatches = format_list(
            (f"{name} to {address}, but its address is {expected[name]}" for name, address in names.items()), 3
        )
        findings.append(
            error(
                "name-differs",
                [viewer],
                problem=f"it resolves {mismatches}",
                requirement="the same address for a name on all nodes: the node_address of the named node",
                remedy=f"correct /etc/hosts on this node: {HOSTS_FILE_REMEDY}",
            )
        )
    return findings


def check_names_known(context: CheckContext) -> list[Finding]:
    """Check that each node can resolve all names, including its own, if the run uses names."""
    if not context.requires_name_resolution:
        return []
    unknown: dict[tuple[str, ...], list[str]] = {}
    slow: list[str] = []
    for node, names in context.nodes_with("names"):
        missing = ["its own name"] if names["own"] and not names["own"]["getaddrinfo"] else []
        if names["resolver"] is not None:
            peers = sorted(name for name in names["resolver"] if not ip_literal(name))
            unresolved = [name for name in peers if not names["resolver"][name]]
            missing += ["any of its peers"] if len(unresolved) > 1 and unresolved == peers else unresolved
        if missing:
            unknown.setdefault(tuple(missing), []).append(node.name)
        if names["unanswered"]:
            slow.append(node.name)
    findings = [
        error(
            "name-unknown",
            nodes,
            problem=f"it cannot resolve {format_list(missing)}",
            requirement="the names of all nodes, resolvable on each node",
            remedy=HOSTS_FILE_REMEDY,
        )
        for missing, nodes in unknown.items()
    ]
    if slow:
        findings.append(
            warning(
                "name-unanswered",
                slow,
                problem="the resolver did not respond to node name lookups within 3 s",
                requirement="names that resolve immediately: every process group looks them up when it starts",
                remedy=f"{HOSTS_FILE_REMEDY}, or fix the name servers in /etc/resolv.conf",
            )
        )
    return findings


def check_hostnames(context: CheckContext) -> list[Finding]:
    """Check that hostnames are unique: torchrun uses them to find the store's host, NCCL ranks on one machine."""
    owners: dict[str, list[str]] = {}
    for node in context.nodes:
        owners.setdefault(context.facts[node.name]["hostname"].lower(), []).append(node.name)
    return [
        error(
            "duplicate-hostname",
            nodes,
            problem=f"they all have the hostname {hostname}",
            requirement="a unique hostname for each node",
            remedy="run sudo hostnamectl set-hostname NAME on each of them",
        )
        for hostname, nodes in owners.items()
        if len(nodes) > 1
    ]


def check_names(context: CheckContext) -> list[Finding]:
    """Return the findings of all checks in this file."""
    if context.all_loopback:  # there is only one machine; otherwise, loopback-address reports this
        return []
    return [
        *check_own_name(context),
        *check_name_addresses(context),
        *check_names_known(context),
        *check_hostnames(context),
    ]
