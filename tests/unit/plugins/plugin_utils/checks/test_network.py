"""Addresses, interfaces, routes and MTU, and test connections between nodes."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._checks.connections import group_by_node
from tests.unit.healthy import PORT, Facts, address, cluster, findings, nothing, spoilt, together

TIMED_OUT = "no reply within 3 s"
REFUSED = "Connection refused"
EVERYONE = ("node1", "node2", "node3", "node4")


def add_interface(facts: dict[str, Facts], name: str, interface: str, cidr: str, **more: Any) -> None:
    plain = {"mtu": 9001, "up": True, "loopback": False, "addresses": [cidr]}
    facts[name]["interfaces"][interface] = {**plain, **more}
    facts[name]["addresses"][cidr.partition("/")[0]] = interface


def route(facts: dict[str, Facts], name: str, peer: str, interface: str | None) -> None:
    facts[name]["routes"][address(peer)] = (
        None if interface is None else {"interface": interface, "source": "10.9.9.9", "gateway": None, "mtu": 0}
    )


def mtu(facts: dict[str, Facts], size: int, *names: str) -> None:
    for name in names:
        facts[name]["interfaces"]["ens5"]["mtu"] = size


def on_docker(facts: dict[str, Facts]) -> None:
    """Give node2 an address in a container engine's network."""
    item = facts["node2"]
    item["interfaces"]["docker0"] = item["interfaces"].pop("ens5")
    item["addresses"][address("node2")] = item["interface"] = "docker0"
    for peer in item["routes"].values():
        peer["interface"] = "docker0"


@pytest.mark.parametrize(
    ("spoil", "result"),
    [
        (nothing, []),
        (lambda f: route(f, "node2", "node1", "eth9"), [("error", "wrong-interface", ("node2",))]),
        (lambda f: route(f, "node3", "node4", None), [("error", "no-route", ("node3",))]),
        (lambda f: add_interface(f, "node2", "ens6", "10.0.0.77/24"), [("warning", "several-interfaces", ("node2",))]),
        (lambda f: add_interface(f, "node2", "ens6", "10.0.1.77/24"), []),
        (lambda f: add_interface(f, "node2", "ens6", "10.0.0.77/24", up=False), []),
        (on_docker, [("warning", "internal-interface", ("node2",))]),
        (lambda f: mtu(f, 1500, "node3"), [("warning", "mtu-mismatch", ("node3",))]),
        (lambda f: mtu(f, 1500, "node2", "node3", "node4"), [("warning", "mtu-mismatch", ("node1",))]),
        (lambda f: mtu(f, 1500, *EVERYONE), []),
        (
            lambda f: add_interface(f, "node3", "lo2", f"{address('node2')}/32"),
            [("error", "duplicate-address", ("node3",))],
        ),
        (
            lambda f: f["node1"]["connections"]["peers"]["node2"].update(answered_by="node9"),
            [("error", "duplicate-address", ("node1", "node2"))],
        ),
        (lambda f: f["node4"].update(interface=None), [("error", "address-not-here", ("node4",))]),
    ],
)
def test_network_problem_is_reported_for_its_node(spoil: Any, result: Any) -> None:
    assert spoilt(spoil) == result


def on_loopback(count: int, machines: dict[str, str]) -> list[tuple[str, str, tuple[str, ...]]]:
    """Return the findings for nodes with loopback addresses, by each node's machine."""
    facts = cluster(count)
    for number, (name, item) in enumerate(facts.items(), 1):
        item.update(machine=machines[name], interface="lo", routes={})
        item["addresses"][f"127.0.0.{number}"] = "lo"
        del item["connections"]
    nodes = [{"name": name, "address": f"127.0.0.{number}", "slots": 1} for number, name in enumerate(facts, 1)]
    return [(finding.severity, finding.id, finding.nodes) for finding in findings(facts, nodes=nodes)]


HERE, CONTAINER = "be92cfc0 net:[4026531840]", "be92cfc0 net:[4026532281]"
ELSEWHERE = "3c1f07aa net:[4026531840]"


@pytest.mark.parametrize(
    ("machines", "result"),
    [
        ({"node1": HERE, "node2": HERE}, []),
        ({"node1": HERE, "node2": ELSEWHERE}, [("error", "loopback-address", ("node1", "node2"))]),
        ({"node1": HERE, "node2": CONTAINER}, [("error", "loopback-address", ("node1", "node2"))]),
        ({"node1": HERE, "node2": HERE, "node3": CONTAINER}, [("error", "loopback-address", EVERYONE[:3])]),
        ({"node1": HERE, "node2": ""}, []),  # unreadable on this node, so unknown
        ({"node1": ELSEWHERE}, []),
    ],
)
def test_loopback_addresses_are_allowed_only_on_one_machine(machines: dict[str, str], result: Any) -> None:
    assert on_loopback(len(machines), machines) == result


# --- connections ------------------------------------------------------------------------------------------------------


def block(facts: dict[str, Facts], source: str, target: str, reason: str = TIMED_OUT) -> None:
    """Block connections from source to target, and record that on both nodes as far as each can observe it."""
    connection = facts[source]["connections"]["peers"][target]
    fixed = facts[target]["connections"]["fixed"]
    connection.update(to=reason, back={}, ports={}, sent=None, received=None, answered_by=None)
    back = facts[target]["connections"]["peers"][source]["back"]
    if back:  # target has greeted source, which was unable to connect back
        back.update({str(port): reason for port in [PORT, *fixed]})


def isolate(facts: dict[str, Facts], name: str, inward: bool = True, outward: bool = True) -> None:
    for peer in facts:
        if peer != name:
            if inward:
                block(facts, peer, name)
            if outward:
                block(facts, name, peer)


def came_first(facts: dict[str, Facts], early: str, late: str) -> None:
    """Refuse the connection of `early`, since `late` did not listen yet; only `late` has results."""
    connection = facts[early]["connections"]["peers"][late]
    connection.update(to=REFUSED, back={}, ports={}, sent=None, received=None, answered_by=None)


def everyone_came_in_turn(facts: dict[str, Facts]) -> None:
    for location, early in enumerate(EVERYONE):
        for late in EVERYONE[location + 1 :]:
            came_first(facts, early, late)


def reject_each_other(facts: dict[str, Facts]) -> None:
    for item, peer in (("node1", "node2"), ("node2", "node1")):
        came_first(facts, item, peer)


def close_port(facts: dict[str, Facts], port: int, *sources: str) -> None:
    """Close a port of the run on node1 to some nodes."""
    for source in sources:
        facts[source]["connections"]["peers"]["node1"]["ports"][str(port)] = TIMED_OUT
        facts["node1"]["connections"]["peers"][source]["back"][str(port)] = TIMED_OUT


def swallow(facts: dict[str, Facts], source: str, target: str) -> None:
    """Drop full-size packets from source to target."""
    facts[source]["connections"]["peers"][target]["sent"] = 0
    facts[target]["connections"]["peers"][source]["received"] = 0


def swallow_all(facts: dict[str, Facts], name: str) -> None:
    for peer in facts:
        if peer != name:
            swallow(facts, peer, name)


def no_ssh(facts: dict[str, Facts], name: str) -> None:
    for viewer in facts:
        peers = {peer: "" for peer in facts if peer != viewer}
        facts[viewer]["ssh"] = {**peers, **({name: "Permission denied (publickey)."} if viewer != name else {})}


@pytest.mark.parametrize(
    ("spoil", "result"),
    [
        (lambda f: isolate(f, "node3"), [("error", "peers-blocked", ("node3",))]),
        (lambda f: isolate(f, "node3", outward=False), [("error", "peers-blocked", ("node3",))]),
        (lambda f: isolate(f, "node3", inward=False), [("error", "peers-blocked", ("node3",))]),
        (lambda f: block(f, "node2", "node4"), [("error", "peers-blocked", ("node4", "node2"))]),
        # nodes that are queried one after another detect just as much
        (everyone_came_in_turn, []),
        (
            together(everyone_came_in_turn, lambda f: isolate(f, "node3")),
            [("error", "peers-blocked", ("node3",))],
        ),
        (lambda f: came_first(f, "node2", "node3"), []),
        # connecting back is refused by a peer that is in fact listening
        (lambda f: block(f, "node2", "node4", REFUSED), [("error", "peers-blocked", ("node4", "node2"))]),
        (reject_each_other, [("error", "peers-blocked", ("node1", "node2"))]),
        # the run's ports on the first node
        (lambda f: close_port(f, 29500, "node2"), [("error", "port-blocked", ("node2",))]),
        (lambda f: close_port(f, 29499, "node2", "node3", "node4"), [("error", "port-blocked", ("node1",))]),
        # packets
        (lambda f: swallow(f, "node2", "node3"), [("error", "mtu-black-hole", ("node3", "node2"))]),
        (lambda f: swallow_all(f, "node2"), [("error", "mtu-black-hole", ("node2",))]),
        (lambda f: no_ssh(f, "node4"), [("error", "ssh-between-nodes", ("node4",))]),
        # no peer was listening on it: another program is using the port, which port-in-use reports
        (lambda f: f["node2"].pop("connections"), []),
    ],
)
def test_failed_connections_are_blamed_on_the_node_they_have_in_common(spoil: Any, result: Any) -> None:
    assert spoilt(spoil) == result


def test_blocked_peer_is_reported_with_reason_and_port() -> None:
    facts = cluster()
    isolate(facts, "node3")
    [finding] = findings(facts)
    assert finding.problem == (
        "no TCP connection can be opened from node1, node2, node4 to node3, and no TCP connection can be opened from "
        f"node3 to node1, node2, node4 (port {PORT}: {TIMED_OUT})"
    )


def delay_query(facts: dict[str, Facts], name: str, seconds: float) -> None:
    """Delay the query of a node by this many seconds."""
    facts[name]["clock"] = {moment: value + seconds for moment, value in facts[name]["clock"].items()}


def test_connections_to_nodes_queried_too_late_are_reported_as_untested() -> None:
    facts = cluster(3)
    for peer in ("node1", "node2"):
        came_first(facts, peer, "node3")
        came_first(facts, "node3", peer)
    delay_query(facts, "node3", 20)
    # something rejects connections
    assert [(item.severity, item.id) for item in findings(facts)] == [("error", "peers-blocked")]
    delay_query(facts, "node3", 25)
    (result,) = findings(facts)
    assert (result.severity, result.id, result.nodes) == ("error", "peers-unmet", ("node1", "node2", "node3"))
    assert "it took 46 s to query all of these nodes, but each waits only 31 s for its peers" in result.problem
    assert "31 s for its peers: node1 and node3, node2 and node3 missed each other" in result.problem
    assert "--forks 3" in result.remedy
    block(facts, "node3", "node1")  # no reply
    assert {item.id for item in findings(facts)} == {"peers-blocked", "peers-unmet"}


def test_two_nodes_that_cannot_connect_share_the_blame() -> None:
    assert spoilt(lambda f: isolate(f, "node2"), count=2) == [("error", "peers-blocked", ("node1", "node2"))]
    assert spoilt(lambda f: isolate(f, "node2", outward=False), count=2) == [
        ("error", "peers-blocked", ("node2", "node1"))
    ]


def test_failures_are_grouped_by_common_node() -> None:
    both = [("a", "x"), ("b", "x"), ("c", "x"), ("x", "a"), ("y", "a"), ("y", "b"), ("y", "c")]
    assert [nodes for nodes, _failures in group_by_node(both)] == [["x"], ["y"]]
    assert group_by_node([]) == []


def test_duplicate_address_is_not_also_reported_as_blocked() -> None:
    facts = cluster()
    add_interface(facts, "node3", "lo2", f"{address('node2')}/32")
    block(facts, "node3", "node2")
    route(facts, "node3", "node2", "lo")
    assert [finding.id for finding in findings(facts)] == ["duplicate-address"]


def test_unreachable_node_has_no_other_findings() -> None:
    facts = cluster()
    isolate(facts, "node2")
    replies: dict[str, dict[str, Any]] = {name: {"facts": item} for name, item in facts.items()}
    replies["node2"] = {"unreachable": True, "msg": "Task failed: ssh: connect to host: No route to host"}
    result = findings(facts, facts=replies)
    assert [(finding.id, finding.nodes) for finding in result] == [("unreachable", ("node2",))]
    assert result[0].problem == "it cannot be reached: No route to host"
