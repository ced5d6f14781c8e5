"""Names that resolve to something other than the node they name."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.healthy import Facts, address, cluster, findings, nothing, spoilt


def set_own_names(
    facts: dict[str, Facts], name: str, *addresses: str, first: str | None = None, fqdn: str = ""
) -> None:
    facts[name]["names"]["own"] = {
        "gethostbyname": first or (addresses[0] if addresses else None),
        "getaddrinfo": list(addresses),
        "getfqdn": fqdn or name,
    }


def takes(facts: dict[str, Facts], viewer: str, name: str, *addresses: str) -> None:
    """Give a name these addresses on the viewer, in /etc/hosts and in the resolver."""
    for source in ("hosts_file", "resolver"):
        facts[viewer]["names"][source][name] = list(addresses)


def forget_peers(facts: dict[str, Facts], *viewers: str) -> None:
    for viewer in viewers:
        peers = facts[viewer]["names"]["resolver"]
        facts[viewer]["names"].update(hosts_file={}, resolver=dict.fromkeys(peers, []))


def loopback_everywhere(facts: dict[str, Facts]) -> None:
    for name in facts:
        set_own_names(facts, name, "127.0.1.1")
    forget_peers(facts, *facts)


EVERYONE = ("node1", "node2", "node3", "node4")


@pytest.mark.parametrize(
    ("spoil", "result"),
    [
        (nothing, []),
        # rows measured with glibc: the loopback line wins, regardless of where the correct line is
        (lambda f: set_own_names(f, "node2", "127.0.1.1"), [("error", "own-name-loopback", ("node2",))]),
        (
            lambda f: set_own_names(f, "node2", "127.0.1.1", address("node2")),
            [("error", "own-name-loopback", ("node2",))],
        ),
        (
            lambda f: set_own_names(f, "node3", "127.0.0.1", address("node3"), fqdn="localhost"),
            [("error", "own-name-loopback", ("node3",))],
        ),
        (
            lambda f: set_own_names(f, "node3", address("node3"), fqdn="localhost"),
            [("error", "own-name-loopback", ("node3",))],
        ),
        (
            lambda f: set_own_names(f, "node1", "::1", address("node1"), first=address("node1")),
            [("error", "own-name-loopback", ("node1",))],
        ),
        # a node that is wrong about a peer, about itself, or about two peers
        (lambda f: takes(f, "node2", "node1", "10.0.0.99"), [("error", "name-differs", ("node2",))]),
        (lambda f: takes(f, "node2", "node1", address("node3")), [("error", "name-differs", ("node2",))]),
        (lambda f: takes(f, "node4", "node1", "127.0.0.1"), [("error", "name-differs", ("node4",))]),
        (lambda f: set_own_names(f, "node3", "10.0.7.7"), [("error", "name-differs", ("node3",))]),
        # the correct one is second: programs use the first
        (lambda f: takes(f, "node2", "node1", "10.0.0.99", address("node1")), [("error", "name-differs", ("node2",))]),
        (lambda f: takes(f, "node2", "node1", address("node1"), "fe80::1"), []),
        # unknown names
        (lambda f: takes(f, "node2", "node1"), [("error", "name-unknown", ("node2",))]),
        (lambda f: forget_peers(f, "node2", "node3"), [("error", "name-unknown", ("node2", "node3"))]),
        (lambda f: set_own_names(f, "node2"), [("error", "name-unknown", ("node2",))]),
        (
            loopback_everywhere,
            [("error", "own-name-loopback", EVERYONE), ("error", "name-unknown", EVERYONE)],
        ),
        (lambda f: f["node4"]["names"].update(unanswered=["node1"]), [("warning", "name-unanswered", ("node4",))]),
        # names of machines
        (lambda f: f["node4"].update(hostname="NODE2"), [("error", "duplicate-hostname", ("node2", "node4"))]),
    ],
)
def test_name_problem_is_reported_for_its_node(spoil: Any, result: Any) -> None:
    assert spoilt(spoil) == result


def everybody_takes(name: str, wrong: str) -> Any:
    def spoil(facts: dict[str, Facts]) -> None:
        for viewer in facts:
            if viewer == name:
                set_own_names(facts, name, wrong)
            else:
                takes(facts, viewer, name, wrong)

    return spoil


def test_name_resolved_differently_on_every_node_is_reported_for_its_node() -> None:
    assert spoilt(everybody_takes("node3", "203.0.113.3")) == [("error", "name-elsewhere", ("node3",))]
    assert spoilt(everybody_takes("node3", "203.0.113.3"), names_needed=False) == [
        ("warning", "name-elsewhere", ("node3",))
    ]


def test_name_resolved_to_a_different_node_everywhere_is_an_error() -> None:
    result = spoilt(everybody_takes("node3", address("node1")), names_needed=False)
    assert {(severity, identity) for severity, identity, _nodes in result} == {("error", "name-differs")}
    assert sorted(name for _severity, _id, nodes in result for name in nodes) == list(EVERYONE)


def without_resolver(spoil: Any) -> Any:
    """Return a function that also disables the resolver: a launch reads peers' names from /etc/hosts only."""

    def spoil_more(facts: dict[str, Facts]) -> None:
        spoil(facts)
        for item in facts.values():
            item["names"]["resolver"] = None

    return spoil_more


@pytest.mark.parametrize(
    ("spoil", "result"),
    [
        (nothing, []),
        # new machines: no names are known, so a run uses addresses
        (loopback_everywhere, [("warning", "own-name-loopback", EVERYONE)]),
        # incomplete hosts files: the name resolves to different addresses on the nodes
        (lambda f: set_own_names(f, "node2", "127.0.1.1"), [("error", "own-name-loopback", ("node2",))]),
        (lambda f: takes(f, "node2", "node1", "10.0.0.99"), [("error", "name-differs", ("node2",))]),
        (lambda f: forget_peers(f, "node2"), []),
    ],
)
def test_launch_by_addresses_reports_wrong_names_but_not_unknown_ones(spoil: Any, result: Any) -> None:
    assert spoilt(without_resolver(spoil), names_needed=False) == result


def test_names_that_are_addresses_have_no_findings() -> None:
    facts = cluster(2)
    by_address = {address(name): item for name, item in facts.items()}
    for item in by_address.values():
        item["names"].update(hosts_file={}, resolver={peer: [peer] for peer in by_address if peer != item["interface"]})
    nodes = [{"name": name, "address": name, "slots": 1} for name in by_address]
    result = findings(facts, nodes=nodes, facts={name: {"facts": item} for name, item in by_address.items()})
    assert [finding.id for finding in result if "name" in finding.id] == []


def test_nodes_on_one_machine_have_no_name_findings() -> None:
    facts = cluster(2)
    loopback_everywhere(facts)
    for item in facts.values():
        item.update(hostname="laptop", machine="laptop")
    nodes = [{"name": name, "address": f"127.0.0.{number}", "slots": 1} for number, name in enumerate(facts, 1)]
    assert [finding.id for finding in findings(facts, nodes=nodes) if "name" in finding.id] == []
