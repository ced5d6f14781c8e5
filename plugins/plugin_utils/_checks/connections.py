# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of the connections tried between the nodes: TCP, full-size packets, ssh. Pure. Private to this collection."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._facts.peer_probe import BULK
from ansible_collections.muster.training.plugins.module_utils._rank_table import Node
from ansible_collections.muster.training.plugins.plugin_utils._checks.context import Case, listed
from ansible_collections.muster.training.plugins.plugin_utils._checks.findings import Finding, error
from ansible_collections.muster.training.plugins.plugin_utils._checks.network import has_duplicate

REFUSED = "Connection refused"


def pairs(case: Case) -> list[tuple[str, str]]:
    """The ordered pairs of nodes that tried to connect and whose addresses and routes are right."""
    probed = [
        node
        for node, connections in case.part("connections")
        if connections["port"] and case.facts[node.name]["interface"]
    ]
    return [
        (one.name, other.name)
        for one in probed
        for other in probed
        if one.name != other.name and not doubtful(case, one, other) and not doubtful(case, one=other, other=one)
    ]


def doubtful(case: Case, one: Node, other: Node) -> bool:
    """Whether `one` has the other's address itself or a wrong route to it, which other checks report."""
    facts = case.facts[one.name]
    route = facts["routes"].get(other.address)
    return has_duplicate(case, one.name, other.address) or route is None or route["interface"] != facts["interface"]


def outcome(case: Case, one: str, other: str) -> dict[str, Any]:
    """The results of `one` for its peer `other`."""
    empty: dict[str, Any] = {"to": None, "back": {}, "ports": {}, "sent": None, "received": None, "answered_by": None}
    return {**empty, **case.facts[one]["connections"]["peers"].get(other, {})}


def failed(results: Iterable[str | None]) -> str:
    """Why all tries failed, "" if one succeeded or nothing was tried."""
    reasons = [result for result in results if result is not None]
    return "" if "" in reasons or not reasons else reasons[0]


def gone_before(case: Case, early: str, late: str) -> bool:
    """Whether `early` may have stopped waiting for peers before `late` was queried; by the controller's clock."""
    began, ended = case.facts[early]["clock"].get("before"), case.facts[late]["clock"].get("after")
    return began is not None and ended is not None and ended > began + case.facts[early]["connections"]["lifetime"]


def unmet_pairs(case: Case) -> list[tuple[str, str]]:
    """The inconclusive pairs: each node refused the other, but one may no longer have been listening."""
    return [
        (source, target)
        for source, target in pairs(case)
        if outcome(case, source, target)["to"] == REFUSED
        and outcome(case, target, source)["to"] == REFUSED
        and (gone_before(case, source, target) or gone_before(case, target, source))
    ]


def blocked_pairs(case: Case) -> dict[tuple[str, str], str]:
    """{(from, to): reason} of the pairs that cannot connect to the ephemeral port.

    A refused node may have connected before its peer listened. Then the peer's own connection decides, because the
    node connects back to it. If both were refused, it is a fault, since the earlier one was listening.
    """
    greeted, back = {}, {}
    for source, target in pairs(case):
        greeted[source, target] = outcome(case, source, target)["to"]
        port = str(case.facts[target]["connections"]["port"])
        back[source, target] = outcome(case, target, source)["back"].get(port)
    found = {}
    unmet = set(unmet_pairs(case))
    for (source, target), result in greeted.items():
        again = back[source, target]
        if (source, target) in unmet:
            continue
        if result == REFUSED and again is None and greeted[target, source] != REFUSED:
            continue
        reason = failed([again, result])
        if reason:
            found[source, target] = reason
    return found


def blame(failures: Iterable[tuple[str, str]]) -> list[tuple[list[str], list[tuple[str, str]]]]:
    """The nodes that the failures (from, to) have in common: [(nodes, failures)], most failures first.

    Two nodes that fail only with each other share the blame; the one that cannot be reached comes first.
    """
    left = sorted(set(failures))
    found = []
    while left:
        totals: dict[str, int] = {}
        for source, target in left:
            totals[source] = totals.get(source, 0) + 1
            totals[target] = totals.get(target, 0) + 1
        most = max(totals.values())
        worst = [name for name, total in totals.items() if total == most]
        mine = [pair for pair in left if worst[0] in pair]
        partners = {name for pair in mine for name in pair} - {worst[0]}
        nodes = [worst[0]]
        if len(partners) == 1 and partners <= set(worst):
            targets = {target for _source, target in mine}
            nodes = sorted({worst[0], *partners}, key=lambda name: (name not in targets, name))
        found.append((nodes, mine))
        left = [pair for pair in left if pair not in mine]
    return found


def describe(nodes: list[str], failures: list[tuple[str, str]], opens: str) -> str:
    """The failures of nodes in words; opens: the words for what failed."""
    node = nodes[0]
    sources = [source for source, target in failures if target == node]
    targets = [target for source, target in failures if source == node]
    words = []
    if sources:
        words.append(f"{opens} from {listed(sources)} to {node}")
    if targets:
        words.append(f"{opens} from {node} to {listed(targets)}")
    return ", and ".join(words)


def check_tcp(case: Case) -> list[Finding]:
    """Every node must reach every other on any port: NCCL and gloo use ephemeral ports, and cannot be given a range."""
    blocked = blocked_pairs(case)
    findings = []
    for nodes, failures in blame(blocked):
        ports = sorted({case.facts[target]["connections"]["port"] for _source, target in failures})
        reasons = listed(dict.fromkeys(blocked[pair] for pair in failures))
        findings.append(
            error(
                "peers-blocked",
                nodes,
                f"{describe(nodes, failures, 'no TCP connection opens')} (port {listed(map(str, ports))}: {reasons})",
                "all TCP ports open between the nodes' addresses; NCCL and gloo choose ephemeral ones",
                "run the role firewall (ansible-playbook site.yml --tags firewall); in a cloud, allow all TCP from "
                "the security group to itself",
            )
        )
    return findings


def check_met(case: Case) -> list[Finding]:
    """Nodes queried too far apart in time could not test their connections: not a fault of theirs."""
    unmet = unmet_pairs(case)
    if not unmet:
        return []
    names = [node.name for node in case.nodes if any(node.name in pair for pair in unmet)]
    clocks = [case.facts[name]["clock"] for name in names]
    seconds = max(clock["after"] for clock in clocks) - min(clock["before"] for clock in clocks)
    lifetime = min(case.facts[name]["connections"]["lifetime"] for name in names)
    strangers = listed((f"{one} and {other}" for one, other in unmet if one < other), 3)
    return [
        error(
            "peers-unmet",
            names,
            f"it took {seconds:.0f} s to query all of them, but each waits only {lifetime} s for its peers: "
            f"{strangers} missed each other, so the connections between them are untested",
            "nodes queried at about the same time, so that each connects to each",
            f"try again with --forks {case.table.nnodes}, and check which node is slow to log in to (time ansible "
            "NAME -m ping)",
        )
    ]


def check_run_ports(case: Case) -> list[Finding]:
    """Every node must reach the run's own ports on node 0."""
    master = case.table.master.name
    if master not in case.facts or not case.facts[master].get("connections"):
        return []
    blocked = blocked_pairs(case)
    findings = []
    for port, variable in (
        (case.job.master_port, "launch_master_port"),
        (case.job.lifeline_port, "launch_lifeline_port"),
    ):
        reasons: dict[str, str] = {}
        for source, target in pairs(case):
            if target != master or (source, master) in blocked:
                continue
            tried = outcome(case, source, master)["ports"].get(str(port))
            reason = failed([tried, outcome(case, master, source)["back"].get(str(port))])
            if reason:
                reasons[source] = reason
        if reasons:
            everyone = len(reasons) == len([node for node in case.nodes if node.name != master])
            findings.append(
                error(
                    "port-blocked",
                    [master] if everyone else list(reasons),
                    f"no TCP connection opens from {listed(reasons)} to port {port} of {master} "
                    f"({listed(dict.fromkeys(reasons.values()))}), while other ports are open",
                    f"TCP port {port} of {master} open to all nodes",
                    f"open it in the firewall of {master}, or choose another port with {variable}",
                )
            )
    return findings


def check_full_packets(case: Case) -> list[Finding]:
    """Full-size packets must get through: connections stall if part of the path has a smaller MTU."""
    stuck = []
    for source, target in pairs(case):
        arrived = [outcome(case, source, target)["sent"], outcome(case, target, source)["received"]]
        seen = [number for number in arrived if number is not None]
        if seen and max(seen) < BULK:
            stuck.append((source, target))
    return [
        error(
            "mtu-black-hole",
            nodes,
            f"{describe(nodes, failures, 'connections open, but full-size packets do not get through')} "
            f"(MTU {listed(sizes(case, nodes))})",
            "a path that carries packets as large as the interfaces send",
            "lower the MTU of the nodes' interfaces to what the switch, tunnel or VPN between them carries: ip link "
            "set dev INTERFACE mtu 1400",
        )
        for nodes, failures in blame(stuck)
    ]


def sizes(case: Case, nodes: Iterable[str]) -> list[str]:
    """The MTU of each node's interface, for a message."""
    found = []
    for name in nodes:
        interface = case.facts[name]["interface"]
        found.append(f"{case.facts[name]['interfaces'].get(interface, {}).get('mtu')} on {interface} of {name}")
    return found


def check_ssh(case: Case) -> list[Finding]:
    """Launchers that start processes by ssh need logins between the nodes that work without a prompt."""
    refusals = {
        (node.name, peer): said
        for node, peers in case.part("ssh")
        for peer, said in peers.items()
        if said and peer in case.facts
    }
    return [
        error(
            "ssh-between-nodes",
            nodes,
            f"{describe(nodes, failures, 'ssh login fails')}: "
            + listed(dict.fromkeys(refusals[pair] for pair in failures), 2),
            "ssh login from each node to each other without a prompt, with known host keys",
            "run the role ssh_mesh (ansible-playbook site.yml --tags ssh_mesh)",
        )
        for nodes, failures in blame(refusals)
    ]


def check_connections(case: Case) -> list[Finding]:
    """All checks of this file."""
    findings: list[Finding] = []
    checks: tuple[Callable[[Case], list[Finding]], ...] = (
        check_tcp,
        check_met,
        check_run_ports,
        check_full_packets,
        check_ssh,
    )
    for check in checks:
        findings += check(case)
    return findings
