# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of the network as each node sees it: addresses, interfaces, routes, MTU. Pure. Private to this collection."""

from __future__ import annotations

import ipaddress
import re

from ansible_collections.muster.training.plugins.module_utils._rank_table import ip_literal
from ansible_collections.muster.training.plugins.plugin_utils._checks.context import Case, listed, odd_ones
from ansible_collections.muster.training.plugins.plugin_utils._checks.findings import Finding, error, warning

# Interfaces of container engines and virtual machines on a node; their traffic stays on it.
INTERNAL = re.compile(r"(docker[0-9]*|br-.*|veth.*|virbr.*|cni.*|flannel.*|cali.*|lxc.*|lxd.*|podman[0-9]*)\Z")


def check_duplicate_address(case: Case) -> list[Finding]:
    """A node_address must be on only one node; otherwise a connection may reach either."""
    owners = {node.address: node.name for node in case.table.nodes}
    findings = []
    for node in case.nodes:
        facts = case.facts[node.name]
        for address, interface in facts["addresses"].items():
            owner = owners.get(address)
            if owner and owner != node.name:
                findings.append(
                    error(
                        "duplicate-address",
                        [node.name],
                        f"it has {address} on {interface}, which is the node_address of {owner}",
                        "an address that only one machine has",
                        f"remove it (ip address del {address} dev {interface}), or correct node_address of {owner}",
                    )
                )
        for peer, outcome in (facts.get("connections") or {"peers": {}})["peers"].items():
            if outcome["answered_by"] not in (None, peer):
                findings.append(
                    error(
                        "duplicate-address",
                        [node.name, peer],
                        f"the machine answering {node.name} at the address of {peer} is {outcome['answered_by']}",
                        "an address that only one machine has",
                        f"look for a second machine with the address of {peer}, and check the node_address of both",
                    )
                )
    return findings


def has_duplicate(case: Case, name: str, address: str) -> bool:
    """Whether a node itself has a peer's address."""
    return address in case.facts[name]["addresses"]


def check_routes(case: Case) -> list[Finding]:
    """Each node must reach each peer through its node_address's interface, to which NCCL and gloo are bound."""
    findings = []
    for node in case.nodes:
        facts = case.facts[node.name]
        if not facts["interface"]:
            continue  # address-not-here reports it
        unreached, astray = [], {}
        for peer in case.table.nodes:
            if peer.name == node.name or has_duplicate(case, node.name, peer.address):
                continue
            if peer.address not in facts["routes"]:
                continue
            route = facts["routes"][peer.address]
            if route is None:
                unreached.append(peer.name)
            elif route["interface"] != facts["interface"]:
                astray[peer.name] = route["interface"]
        if unreached:
            findings.append(
                error(
                    "no-route",
                    [node.name],
                    f"no route to {listed(unreached)}",
                    "a route to each node's node_address",
                    "check `ip route`; set node_address of all nodes to addresses in the network they share",
                )
            )
        if astray:
            used = listed(sorted(set(astray.values())))
            findings.append(
                error(
                    "wrong-interface",
                    [node.name],
                    f"its route to {listed(astray)} uses {used}, but its node_address {node.address} is on "
                    f"{facts['interface']}",
                    "the same interface for the address and the routes to all peers",
                    f"set node_address to an address of {used}, or correct the routes (check `ip route get ADDRESS`)",
                )
            )
    return findings


def check_candidates(case: Case) -> list[Finding]:
    """Only one interface may be in the nodes' network: replies may leave by another, and programs may choose it."""
    findings = []
    for node in case.nodes:
        facts = case.facts[node.name]
        own = ip_literal(node.address)
        if not facts["interface"] or own is None:
            continue
        networks = [
            ipaddress.ip_interface(address).network
            for address in facts["interfaces"].get(facts["interface"], {}).get("addresses", [])
            if address.partition("/")[0] == str(own)
        ]
        others = sorted(
            name
            for name, interface in facts["interfaces"].items()
            if name != facts["interface"] and interface["up"] and not interface["loopback"]
            for address in interface["addresses"]
            if ipaddress.ip_interface(address).network in networks
        )
        if others and networks[0].num_addresses > 1:
            findings.append(
                warning(
                    "several-interfaces",
                    [node.name],
                    f"{listed(dict.fromkeys(others))} is in the network {networks[0]} as well as {facts['interface']}",
                    "one interface in the nodes' network, or routing rules for each",
                    "shut the other one down, move it to another network, or set net.ipv4.conf.all.arp_filter=1 and a "
                    "routing rule for each",
                )
            )
        if INTERNAL.match(facts["interface"]):
            findings.append(
                warning(
                    "internal-interface",
                    [node.name],
                    f"node_address {node.address} is on {facts['interface']}, a network inside this machine",
                    "the address in the network the nodes share",
                    "correct node_address in the inventory (`ip -brief address` shows the others)",
                )
            )
    return findings


def check_mtu(case: Case) -> list[Finding]:
    """Interfaces in one network should have the same MTU. The size that really fits is probed: mtu-black-hole."""
    sizes = {
        node.name: case.facts[node.name]["interfaces"][interface]["mtu"]
        for node in case.nodes
        for interface in [case.facts[node.name]["interface"]]
        if interface in case.facts[node.name]["interfaces"]
    }
    usual, odd = odd_ones(sizes)
    if not odd:
        return []
    interfaces = listed(f"{case.facts[name]['interface']} has {size}" for name, size in odd.items())
    return [
        warning(
            "mtu-mismatch",
            odd,
            f"{interfaces}; the others have {usual}",
            "the same MTU on all nodes: unlike TCP, UDP and RDMA do not negotiate it",
            f"ip link set dev INTERFACE mtu {usual} there, and in the network configuration for the next boot",
        )
    ]


def check_loopback(case: Case) -> list[Finding]:
    """Only nodes on one machine may use loopback addresses: on any other, they lead back to that node."""
    machines = {node.name: case.facts[node.name].get("machine") for node in case.nodes}
    known = {name: machine for name, machine in machines.items() if machine}
    count = len(set(known.values()))
    if count < 2:
        return []
    return [
        error(
            "loopback-address",
            known,
            "node_address is a loopback address on all of them "
            f"({listed(node.address for node in case.table.nodes)}), by which each machine reaches only itself, but "
            f"they are {count} machines",
            "addresses in a network the machines share; loopback addresses work only for nodes on one machine",
            "set node_address of each host in the inventory (`ip -brief address` on it shows its addresses)",
        )
    ]


def check_network(case: Case) -> list[Finding]:
    """All checks of this file."""
    if case.all_loopback:
        return check_loopback(case)
    return [*check_duplicate_address(case), *check_routes(case), *check_candidates(case), *check_mtu(case)]
