# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check the network as seen by each node: addresses, interfaces, routes and MTU."""

from __future__ import annotations

import ipaddress
import re

from ansible_collections.muster.training.plugins.plugin_utils._checks.context import CheckContext, find_outliers
from ansible_collections.muster.training.plugins.plugin_utils._checks.findings import Finding, error, warning
from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import ip_literal
from ansible_collections.muster.training.plugins.plugin_utils._text.name_list import format_list

# Interfaces of container engines and virtual machines, whose traffic stays on the node.
INTERNAL = re.compile(r"(docker[0-9]*|br-.*|veth.*|virbr.*|cni.*|flannel.*|cali.*|lxc.*|lxd.*|podman[0-9]*)\Z")


def check_duplicate_address(context: CheckContext) -> list[Finding]:
    """Check that each node_address exists on only one node; otherwise, a connection may reach either node."""
    owners = {node.address: node.name for node in context.table.nodes}
    findings = []
    for node in context.nodes:
        facts = context.facts[node.name]
        for address, interface in facts["addresses"].items():
            owner = owners.get(address)
            if owner and owner != node.name:
                findings.append(
                    error(
                        "duplicate-address",
                        [node.name],
                        problem=f"it has {address} on {interface}, which is the node_address of {owner}",
                        requirement="an address that only one machine has",
                        remedy=f"remove it (sudo ip address del {address} dev {interface}), or correct node_address of "
                        f"{owner}",
                    )
                )
        for peer, outcome in (facts.get("connections") or {"peers": {}})["peers"].items():
            if outcome["answered_by"] not in (None, peer):
                findings.append(
                    error(
                        "duplicate-address",
                        [node.name, peer],
                        problem=f"{outcome['answered_by']} responds to {node.name} at the address of {peer}",
                        requirement="an address that only one machine has",
                        remedy=f"look for a second machine with the address of {peer}, and check the node_address of "
                        "both",
                    )
                )
    return findings


def has_address(context: CheckContext, name: str, address: str) -> bool:
    """Return whether a node itself has the address of a peer."""
    return address in context.facts[name]["addresses"]


def check_routes(context: CheckContext) -> list[Finding]:
    """Check that each node reaches its peers through its node_address's interface, to which NCCL and gloo are bound."""
    findings = []
    for node in context.nodes:
        facts = context.facts[node.name]
        if not facts["interface"]:
            continue  # address-not-here reports it
        unroutable, wrong_interfaces = [], {}
        for peer in context.table.nodes:
            if peer.name == node.name or has_address(context, node.name, peer.address):
                continue
            if peer.address not in facts["routes"]:
                continue
            route = facts["routes"][peer.address]
            if route is None:
                unroutable.append(peer.name)
            elif route["interface"] != facts["interface"]:
                wrong_interfaces[peer.name] = route["interface"]
        if unroutable:
            findings.append(
                error(
                    "no-route",
                    [node.name],
                    problem=f"no route to {format_list(unroutable)}",
                    requirement="a route to each node's node_address",
                    remedy="check `ip route`; set node_address of all nodes to addresses in the network they share",
                )
            )
        if wrong_interfaces:
            used = format_list(sorted(set(wrong_interfaces.values())))
            findings.append(
                error(
                    "wrong-interface",
                    [node.name],
                    problem=f"its route to {format_list(wrong_interfaces)} uses {used}, but its node_address "
                    f"{node.address} is on {facts['interface']}",
                    requirement="the same interface for the address and the routes to all peers",
                    remedy=f"set node_address to an address of {used}, or correct the routes (check `ip route get "
                    "ADDRESS`)",
                )
            )
    return findings


def check_candidates(context: CheckContext) -> list[Finding]:
    """Check that only one interface is in the nodes' network, because replies and programs may use another one."""
    findings = []
    for node in context.nodes:
        facts = context.facts[node.name]
        node_ip = ip_literal(node.address)
        if not facts["interface"] or node_ip is None:
            continue
        networks = [
            ipaddress.ip_interface(address).network
            for address in facts["interfaces"].get(facts["interface"], {}).get("addresses", [])
            if address.partition("/")[0] == str(node_ip)
        ]
        extra_interfaces = sorted(
            name
            for name, interface in facts["interfaces"].items()
            if name != facts["interface"] and interface["up"] and not interface["loopback"]
            for address in interface["addresses"]
            if ipaddress.ip_interface(address).network in networks
        )
        if extra_interfaces and networks[0].num_addresses > 1:
            findings.append(
                warning(
                    "several-interfaces",
                    [node.name],
                    problem=(
                        f"{format_list(dict.fromkeys(extra_interfaces))} is in the same network ({networks[0]}) as "
                        f"{facts['interface']}"
                    ),
                    requirement="a single interface in the nodes' network, or routing rules for each",
                    remedy="shut down the other interface, move it to another network, or set "
                    "net.ipv4.conf.all.arp_filter=1 and a routing rule for each",
                )
            )
        if INTERNAL.match(facts["interface"]):
            findings.append(
                warning(
                    "internal-interface",
                    [node.name],
                    problem=(
                        f"node_address {node.address} is on {facts['interface']}, a network internal to this machine"
                    ),
                    requirement="an address in the network that all nodes share",
                    remedy="correct node_address in the inventory (`ip -brief address` shows the other addresses)",
                )
            )
    return findings


def check_mtu(context: CheckContext) -> list[Finding]:
    """Check that interfaces in the same network have the same MTU. mtu-black-hole tests which size really fits."""
    sizes = {
        node.name: context.facts[node.name]["interfaces"][interface]["mtu"]
        for node in context.nodes
        for interface in [context.facts[node.name]["interface"]]
        if interface in context.facts[node.name]["interfaces"]
    }
    usual, odd = find_outliers(sizes)
    if not odd:
        return []
    interfaces = format_list(f"{context.facts[name]['interface']} has {size}" for name, size in odd.items())
    return [
        warning(
            "mtu-mismatch",
            odd,
            problem=f"{interfaces}; the others have {usual}",
            requirement="the same MTU on all nodes: unlike TCP, UDP and RDMA do not negotiate it",
            remedy=f"run sudo ip link set dev INTERFACE mtu {usual}, and set it in the network configuration for the "
            "next boot",
        )
    ]


def check_loopback(context: CheckContext) -> list[Finding]:
    """Check that nodes with loopback addresses are on one machine, as such an address refers to its own machine."""
    machines = {node.name: context.facts[node.name].get("machine") for node in context.nodes}
    known_machines = {name: machine for name, machine in machines.items() if machine}
    count = len(set(known_machines.values()))
    if count < 2:
        return []
    return [
        error(
            "loopback-address",
            known_machines,
            problem=(
                "node_address is a loopback address on all nodes "
                f"({format_list(node.address for node in context.table.nodes)}), through which each machine reaches "
                f"only itself, but the nodes are on {count} machines"
            ),
            requirement="addresses in a network the machines share; loopback addresses work only for nodes on one "
            "machine",
            remedy=(
                "set node_address for each host in the inventory (run `ip -brief address` on the host to see its "
                "addresses)"
            ),
        )
    ]


def check_network(context: CheckContext) -> list[Finding]:
    """Return the findings of all checks in this file."""
    if context.all_loopback:
        return check_loopback(context)
    return [*check_duplicate_address(context), *check_routes(context), *check_candidates(context), *check_mtu(context)]
