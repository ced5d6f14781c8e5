# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check the connections that were tried between the nodes: TCP, full-size packets and ssh."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._facts.peer_probe import BULK_BYTES
from ansible_collections.muster.training.plugins.plugin_utils._checks.context import CheckContext
from ansible_collections.muster.training.plugins.plugin_utils._checks.findings import Finding, error
from ansible_collections.muster.training.plugins.plugin_utils._checks.network import has_address
from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import Node
from ansible_collections.muster.training.plugins.plugin_utils._text.name_list import format_list

REFUSED = "Connection refused"


def probed_pairs(context: CheckContext) -> list[tuple[str, str]]:
    """Return the ordered pairs of nodes that tried to connect and whose addresses and routes are correct."""
    probed = [
        node
        for node, connections in context.nodes_with("connections")
        if connections["port"] and context.facts[node.name]["interface"]
    ]
    return [
        (source.name, target.name)
        for source in probed
        for target in probed
        if source.name != target.name
        and not has_route_problem(context, source, target)
        and not has_route_problem(context, source=target, target=source)
    ]


def has_route_problem(context: CheckContext, source: Node, target: Node) -> bool:
    """Return whether a node itself has its peer's address or a wrong route to the peer, which other checks report."""
    facts = context.facts[source.name]
    route = facts["routes"].get(target.address)
    return (
        has_address(context, source.name, target.address) or route is None or route["interface"] != facts["interface"]
    )


def probe_result(context: CheckContext, name: str, peer: str) -> dict[str, Any]:
    """Return a node's results for one of its peers."""
    empty: dict[str, Any] = {"to": None, "back": {}, "ports": {}, "sent": None, "received": None, "answered_by": None}
    return {**empty, **context.facts[name]["connections"]["peers"].get(peer, {})}


def failure_reason(results: Iterable[str | None]) -> str:
    """Return why all attempts failed, or an empty string if at least one succeeded or none was made."""
    reasons = [result for result in results if result is not None]
    return "" if "" in reasons or not reasons else reasons[0]


def stopped_before(context: CheckContext, early: str, late: str) -> bool:
    """Return whether `early` may have stopped waiting for peers before `late` was queried, by the controller clock."""
    began, ended = context.facts[early]["clock"].get("before"), context.facts[late]["clock"].get("after")
    return began is not None and ended is not None and ended > began + context.facts[early]["connections"]["lifetime"]


def inconclusive_pairs(context: CheckContext) -> list[tuple[str, str]]:
    """Return pairs whose nodes refused each other's connections although one may no longer have been listening."""
    return [
        (source, target)
        for source, target in probed_pairs(context)
        if probe_result(context, source, target)["to"] == REFUSED
        and probe_result(context, target, source)["to"] == REFUSED
        and (stopped_before(context, source, target) or stopped_before(context, target, source))
    ]


def blocked_pairs(context: CheckContext) -> dict[tuple[str, str], str]:
    """Return {(from, to): reason} for pairs in which `from` cannot connect to the ephemeral port of `to`.

    A refused node may have connected before its peer listened. Then the peer's own connection decides, because the
    node connects back to it. If both were refused, the pair is blocked, because the node queried first was
    still listening.
    """
    forward, back = {}, {}
    for source, target in probed_pairs(context):
        forward[source, target] = probe_result(context, source, target)["to"]
        port = str(context.facts[target]["connections"]["port"])
        back[source, target] = probe_result(context, target, source)["back"].get(port)
    blocked = {}
    inconclusive = set(inconclusive_pairs(context))
    for (source, target), result in forward.items():
        back_result = back[source, target]
        if (source, target) in inconclusive:
            continue
        if result == REFUSED and back_result is None and forward[target, source] != REFUSED:
            continue
        reason = failure_reason([back_result, result])
        if reason:
            blocked[source, target] = reason
    return blocked


def group_by_node(failures: Iterable[tuple[str, str]]) -> list[tuple[list[str], list[tuple[str, str]]]]:
    """Attribute failures (from, to) to the nodes that they share: [(nodes, failures)], with the most failures first.

    Two nodes that fail only with each other are listed together, first the one that cannot be reached.
    """
    remaining = sorted(set(failures))
    groups = []
    while remaining:
        totals: dict[str, int] = {}
        for source, target in remaining:
            totals[source] = totals.get(source, 0) + 1
            totals[target] = totals.get(target, 0) + 1
        highest = max(totals.values())
        worst = [name for name, total in totals.items() if total == highest]
        node_failures = [pair for pair in remaining if worst[0] in pair]
        partners = {name for pair in node_failures for name in pair} - {worst[0]}
        nodes = [worst[0]]
        if len(partners) == 1 and partners <= set(worst):
            targets = {target for _source, target in node_failures}
            nodes = sorted({worst[0], *partners}, key=lambda name: (name not in targets, name))
        groups.append((nodes, node_failures))
        remaining = [pair for pair in remaining if pair not in node_failures]
    return groups


def describe_failures(nodes: list[str], failures: list[tuple[str, str]], subject: str) -> str:
    """Describe the failures on nodes; subject: what failed, such as "no TCP connection can be opened"."""
    node = nodes[0]
    sources = [source for source, target in failures if target == node]
    targets = [target for source, target in failures if source == node]
    parts = []
    if sources:
        parts.append(f"{subject} from {format_list(sources)} to {node}")
    if targets:
        parts.append(f"{subject} from {node} to {format_list(targets)}")
    return ", and ".join(parts)


def check_tcp(context: CheckContext) -> list[Finding]:
    """Check that every node can reach every other node on any port, because NCCL and gloo use ephemeral ports."""
    blocked = blocked_pairs(context)
    findings = []
    for nodes, failures in group_by_node(blocked):
        ports = sorted({context.facts[target]["connections"]["port"] for _source, target in failures})
        reasons = format_list(dict.fromkeys(blocked[pair] for pair in failures))
        findings.append(
            error(
                "peers-blocked",
                nodes,
                problem=f"{describe_failures(nodes, failures, 'no TCP connection can be opened')} (port "
                f"{format_list(map(str, ports))}: {reasons})",
                requirement="all TCP ports open between the nodes' addresses; NCCL and gloo use ephemeral ports",
                remedy=(
                    "run ansible-playbook site.yml --tags firewall; in a cloud, allow all TCP traffic from the "
                    "security group to itself"
                ),
            )
        )
    return findings


def check_probe_timing(context: CheckContext) -> list[Finding]:
    """Report nodes queried too far apart in time to test their connections, which proves nothing about the network."""
    untested = inconclusive_pairs(context)
    if not untested:
        return []
    names = [node.name for node in context.nodes if any(node.name in pair for pair in untested)]
    clocks = [context.facts[name]["clock"] for name in names]
    seconds = max(clock["after"] for clock in clocks) - min(clock["before"] for clock in clocks)
    lifetime = min(context.facts[name]["connections"]["lifetime"] for name in names)
    untested_names = format_list((f"{source} and {target}" for source, target in untested if source < target), 3)
    return [
        error(
            "peers-unmet",
            names,
            problem=f"it took {seconds:.0f} s to query all of these nodes, but each waits only {lifetime} s for its "
            f"peers: {untested_names} missed each other, so the connections between them are untested",
            requirement="all nodes queried at about the same time, so that they can connect to each other",
            remedy=f"try again with --forks {context.table.nnodes}, and check which node is slow to log in to (time "
            "ansible NAME -m ping)",
        )
    ]


def check_run_ports(context: CheckContext) -> list[Finding]:
    """Check that every node can reach the run's own ports on node 0."""
    master = context.table.master.name
    if master not in context.facts or not context.facts[master].get("connections"):
        return []
    blocked = blocked_pairs(context)
    findings = []
    for port, variable in (
        (context.job.master_port, "launch_master_port"),
        (context.job.lifeline_port, "launch_lifeline_port"),
    ):
        reasons: dict[str, str] = {}
        for source, target in probed_pairs(context):
            if target != master or (source, master) in blocked:
                continue
            forward = probe_result(context, source, master)["ports"].get(str(port))
            reason = failure_reason([forward, probe_result(context, master, source)["back"].get(str(port))])
            if reason:
                reasons[source] = reason
        if reasons:
            from_all_nodes = len(reasons) == len([node for node in context.nodes if node.name != master])
            findings.append(
                error(
                    "port-blocked",
                    [master] if from_all_nodes else list(reasons),
                    problem=f"no TCP connection can be opened from {format_list(reasons)} to port {port} of {master} "
                    f"({format_list(dict.fromkeys(reasons.values()))}), while other ports are open",
                    requirement=f"TCP port {port} of {master} open to all nodes",
                    remedy=f"open it in the firewall of {master}, or choose another port with {variable}",
                )
            )
    return findings


def check_full_packets(context: CheckContext) -> list[Finding]:
    """Check that full-size packets arrive, because connections stall if part of the path has a smaller MTU."""
    stuck = []
    for source, target in probed_pairs(context):
        received_counts = [
            probe_result(context, source, target)["sent"],
            probe_result(context, target, source)["received"],
        ]
        counts = [number for number in received_counts if number is not None]
        if counts and max(counts) < BULK_BYTES:
            stuck.append((source, target))
    return [
        error(
            "mtu-black-hole",
            nodes,
            problem=describe_failures(nodes, failures, "connections can be opened, but full-size packets are lost")
            + f" (MTU {format_list(format_mtus(context, nodes))})",
            requirement="a path that carries packets as large as the interfaces send",
            remedy="lower the MTU of the nodes' interfaces to what the switch, tunnel or VPN between them carries: "
            "sudo ip link set dev INTERFACE mtu 1400",
        )
        for nodes, failures in group_by_node(stuck)
    ]


def format_mtus(context: CheckContext, nodes: Iterable[str]) -> list[str]:
    """Format the MTUs of the nodes' interfaces for a message."""
    texts = []
    for name in nodes:
        interface = context.facts[name]["interface"]
        texts.append(f"{context.facts[name]['interfaces'].get(interface, {}).get('mtu')} on {interface} of {name}")
    return texts


def check_ssh(context: CheckContext) -> list[Finding]:
    """Check ssh logins between nodes, which some launchers need to work without a prompt."""
    refusals = {
        (node.name, peer): message
        for node, peers in context.nodes_with("ssh")
        for peer, message in peers.items()
        if message and peer in context.facts
    }
    return [
        error(
            "ssh-between-nodes",
            nodes,
            problem=f"{describe_failures(nodes, failures, 'ssh login fails')}: "
            + format_list(dict.fromkeys(refusals[pair] for pair in failures), 2),
            requirement="ssh login from each node to every other node without a prompt, with known host keys",
            remedy="ansible-playbook site.yml --tags ssh_mesh",
        )
        for nodes, failures in group_by_node(refusals)
    ]


def check_connections(context: CheckContext) -> list[Finding]:
    """Return the findings of all checks in this file."""
    findings: list[Finding] = []
    checks: tuple[Callable[[CheckContext], list[Finding]], ...] = (
        check_tcp,
        check_probe_timing,
        check_run_ports,
        check_full_packets,
        check_ssh,
    )
    for check in checks:
        findings += check(context)
    return findings
