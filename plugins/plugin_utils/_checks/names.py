# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of names: do the nodes' names resolve to their addresses on every node? Pure. Private to this collection."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.module_utils._rank_table import ip_literal, short_name
from ansible_collections.muster.training.plugins.plugin_utils._checks.context import Case, listed
from ansible_collections.muster.training.plugins.plugin_utils._checks.findings import Finding, error, warning

TODO = "run the role hosts_file (ansible-playbook site.yml --tags hosts_file)"


def is_loopback(address: str) -> bool:
    """Whether an address is 127.0.0.0/8 or ::1."""
    literal = ip_literal(address)
    return literal is not None and literal.is_loopback


def views(case: Case) -> dict[str, dict[str, list[str]]]:
    """{name of a node: {viewing node: its addresses for the name, of which the first is used}}.

    Includes a node's own hostname only if it is also its inventory name. Skips names that are addresses.
    """
    seen: dict[str, dict[str, list[str]]] = {node.name: {} for node in case.table.nodes if not ip_literal(node.name)}
    for viewer, names in case.part("names"):
        known = names["hosts_file"] if names["resolver"] is None else names["resolver"]
        for name, addresses in known.items():
            if name in seen and name != viewer.name:
                seen[name][viewer.name] = addresses
        if viewer.name in seen and short_name(names["hostname"]) == short_name(viewer.name) and names["own"]:
            first = names["own"]["gethostbyname"]
            seen[viewer.name][viewer.name] = [first] if first else names["own"]["getaddrinfo"]
    return seen


def check_own_name(case: Case) -> list[Finding]:
    """A node's own name must not resolve to loopback: gloo and torchrun's c10d publish that address to their peers.

    An additional entry with the right address does not help: gethostbyname() still returns 127.0.1.1 (glibc 2.36).
    """
    findings = []
    seen = views(case)
    for node, names in case.part("names"):
        own = names["own"]
        if own is None:
            continue
        addresses = dict.fromkeys(([own["gethostbyname"]] if own["gethostbyname"] else []) + own["getaddrinfo"])
        loopback = [address for address in addresses if is_loopback(address)]
        if not loopback and short_name(own["getfqdn"]) != "localhost":
            continue
        if not loopback:
            found = "its own name resolves back to localhost (getfqdn)"
        elif len(addresses) > len(loopback):
            found = f"its own name resolves to {loopback[0]}, for programs that use the first address"
        else:
            found = f"its own name resolves to {loopback[0]}"
        # if peers know the name, it resolves differently here and there
        known = any(
            viewer != node.name and any(not is_loopback(address) for address in view)
            for viewer, view in seen.get(node.name, {}).items()
        )
        make = error if case.by_names or known else warning
        findings.append(
            make(
                "own-name-loopback",
                [node.name],
                found,
                "only its node_address, so that the address it gives its peers reaches it",
                f"remove the line for {loopback[0] if loopback else '127.0.0.1'} from /etc/hosts: {TODO}",
            )
        )
    return findings


def check_names_agree(case: Case) -> list[Finding]:
    """A node's name must resolve to its node_address on every node that knows it."""
    findings = []
    wrong: dict[str, dict[str, str]] = {}  # viewer: {name: address}
    everything = views(case)
    for node in case.table.nodes:
        if node.name in case.facts and not case.facts[node.name]["interface"]:
            continue  # its node_address is wrong: address-not-here reports it
        seen = {viewer: view for viewer, view in everything.get(node.name, {}).items() if view}
        firsts = {viewer: view[0] for viewer, view in seen.items()}
        own = firsts.get(node.name)
        if own and is_loopback(own):
            del firsts[node.name]  # own-name-loopback reports it
        others = {viewer: address for viewer, address in firsts.items() if address != node.address}
        if not others:
            continue
        foreign = {other.address for other in case.table.nodes} | {""}
        agreed = len(set(firsts.values())) == 1 and len(firsts) > 1 and not set(others.values()) & foreign
        if agreed and not any(is_loopback(address) for address in others.values()):
            make = error if case.by_names else warning
            findings.append(
                make(
                    "name-elsewhere",
                    [node.name],
                    f"the nodes resolve it to {next(iter(others.values()))}, but its node_address is {node.address}",
                    "one address per node, in the network the nodes share",
                    f"correct node_address of {node.name} in the inventory if it is wrong, otherwise {TODO}",
                )
            )
            continue
        for viewer, address in others.items():
            wrong.setdefault(viewer, {})[node.name] = address
    for viewer, names in wrong.items():
        right = {node.name: node.address for node in case.table.nodes}
        found = listed((f"{name} to {address}, but it is {right[name]}" for name, address in names.items()), 3)
        findings.append(
            error(
                "name-differs",
                [viewer],
                f"it resolves {found}",
                "the same address for a name on all nodes, which is that node's node_address",
                f"correct /etc/hosts there: {TODO}",
            )
        )
    return findings


def check_names_known(case: Case) -> list[Finding]:
    """If something uses names, each node must know all of them, including its own."""
    if not case.by_names:
        return []
    unknown: dict[tuple[str, ...], list[str]] = {}
    slow: list[str] = []
    for node, names in case.part("names"):
        missing = ["its own name"] if names["own"] and not names["own"]["getaddrinfo"] else []
        if names["resolver"] is not None:
            peers = sorted(name for name in names["resolver"] if not ip_literal(name))
            strangers = [name for name in peers if not names["resolver"][name]]
            missing += ["any of its peers"] if len(strangers) > 1 and strangers == peers else strangers
        if missing:
            unknown.setdefault(tuple(missing), []).append(node.name)
        if names["unanswered"]:
            slow.append(node.name)
    findings = [
        error(
            "name-unknown",
            nodes,
            f"it cannot resolve {listed(missing)}",
            "names of all nodes that resolve on each node",
            TODO,
        )
        for missing, nodes in unknown.items()
    ]
    if slow:
        findings.append(
            warning(
                "name-unanswered",
                slow,
                "the resolver did not answer within 3 s for node names",
                "names that resolve at once: every process group looks them up when it starts",
                f"{TODO}, or fix the name servers in /etc/resolv.conf",
            )
        )
    return findings


def check_hostnames(case: Case) -> list[Finding]:
    """Each node needs its own hostname: torchrun uses it to find the store's host, NCCL to find shared machines."""
    owners: dict[str, list[str]] = {}
    for node in case.nodes:
        owners.setdefault(case.facts[node.name]["hostname"].lower(), []).append(node.name)
    return [
        error(
            "duplicate-hostname",
            nodes,
            f"they all have the hostname {hostname}",
            "a unique hostname for each node",
            "run hostnamectl set-hostname NAME on each of them",
        )
        for hostname, nodes in owners.items()
        if len(nodes) > 1
    ]


def check_names(case: Case) -> list[Finding]:
    """All checks of this file."""
    if case.all_loopback:  # one machine; if not, loopback-address reports it
        return []
    return [*check_own_name(case), *check_names_agree(case), *check_names_known(case), *check_hostnames(case)]
