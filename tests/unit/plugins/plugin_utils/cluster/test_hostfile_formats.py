"""Hostfiles and /etc/hosts as they are written, and every hostfile that must not be read."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._cluster.hostfile_formats import (
    HostfileError,
    parse_hostfile,
    render_deepspeed,
    render_hosts_entries,
    render_mpich,
    render_openmpi,
)
from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import (
    MAX_SLOTS,
    HostSpec,
    RankTableError,
    build_rank_table,
)
from tests.unit.generated import clusters, hostfile_like

TABLE = build_rank_table(
    [
        HostSpec("node0.example.com", "10.0.0.10", 3),
        HostSpec("node1", "10.0.0.9", 1),
        HostSpec("10.0.0.8", "10.0.0.8", 2),
    ]
)
SIX = build_rank_table([HostSpec("node0", "fd00::1", 3), HostSpec("node1", "fd00::2", 1)])


# --- Writing ----------------------------------------------------------------------------------------------------------


def test_deepspeed_and_openmpi_hostfiles_list_hosts_with_slots() -> None:
    assert render_deepspeed(TABLE) == "node0.example.com slots=3\nnode1 slots=1\n10.0.0.8 slots=2\n"
    assert render_openmpi(TABLE) == render_deepspeed(TABLE)
    assert render_deepspeed(TABLE, "address") == "10.0.0.10 slots=3\n10.0.0.9 slots=1\n10.0.0.8 slots=2\n"


def test_mpich_hostfile_lists_hosts_with_counts() -> None:
    assert render_mpich(TABLE) == "node0.example.com:3\nnode1:1\n10.0.0.8:2\n"
    assert render_mpich(TABLE, "address") == "10.0.0.10:3\n10.0.0.9:1\n10.0.0.8:2\n"


def test_hosts_entries_hold_full_and_short_names() -> None:
    assert render_hosts_entries(TABLE) == "10.0.0.10 node0.example.com node0\n10.0.0.9 node1\n"
    assert render_hosts_entries(SIX) == "fd00::1 node0\nfd00::2 node1\n"


@pytest.mark.parametrize("render", [render_deepspeed, render_openmpi, render_mpich])
def test_ipv6_hosts_are_listed_by_name_only(render: Any) -> None:
    assert "node0" in render(SIX)
    with pytest.raises(RankTableError, match=r"the addresses are IPv6 \(fd00::1 ...\).* List the hosts by name"):
        render(SIX, "address")


@pytest.mark.parametrize("render", [render_deepspeed, render_openmpi, render_mpich])
def test_use_value_other_than_name_or_address_is_refused(render: Any) -> None:
    with pytest.raises(RankTableError, match="use is 'ip'; expected 'name' or 'address'"):
        render(TABLE, "ip")


# --- Reading ----------------------------------------------------------------------------------------------------------


def test_hostfile_may_hold_comments_and_blanks() -> None:
    text = "\n# Büro\n \t\nnode0.example.com slots=3\n\tnode1 \t slots=65535\t# the other room\n10.0.0.8 slots=2"
    assert parse_hostfile(text) == [("node0.example.com", 3), ("node1", MAX_SLOTS), ("10.0.0.8", 2)]
    assert parse_hostfile("localhost slots=2\n") == [("localhost", 2)]


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("", "the hostfile lists no hosts"),
        ("# node0 slots=1\n", "the hostfile lists no hosts"),
        ("\ufeffnode0 slots=1\n", "byte order mark"),
        ("node0 slots=1\nnode1 slots=1\r\nnode2 slots=1\r\n", "line 2 has a carriage return"),
        ("# a\rnode9 slots=1\nnode0 slots=1\n", "line 1 has a carriage return"),
        ("node0 slots=1\x0bnode1 slots=1\n", "line 1: 'node0 slots=1\\x0bnode1 slots=1' contains a control character"),
        ("node0 slots=1\n# \x1b[2J\n", "line 2: '# \\x1b[2J' contains a control character"),
        ("node0\u2028slots=1\n", "contains a control character"),
        ("node0 slots=1\n# the end", "line 2: the comment on the last line has no newline"),
        ("node0 slots=1 # the end", "line 1: the comment on the last line has no newline"),
        ("node0 slots=1#one\n", "no space before the comment"),
        ("node0 slots=٤\n", "a non-ASCII character"),
        ("nöde0 slots=1\n", "a non-ASCII character"),
        ("; node0 slots=1\n", "Start comments with #"),
        ("// node0 slots=1\n", "Start comments with #"),
        ("/* node0 slots=1 */\n", "Start comments with #"),
        ("[training]\nnode0 slots=1\n", "line 1: '[training]': a section heading"),
        ("me@node0 slots=1\n", "a user name"),
        ("node[0-3] slots=1\n", "a pattern"),
        ("node* slots=1\n", "a pattern"),
        ("node0,node1 slots=1\n", "several hosts on one line"),
        ("^node0 slots=1\n", "an excluded or a relative host"),
        ("+n0 slots=1\n", "an excluded or a relative host"),
        ("node0:4\n", "a line of an MPICH hostfile"),
        ("fd00::1 slots=1\n", "an IPv6 address"),
        ("node0:22 slots=1\n", "a port"),
        ("node0\n", "'node0': no slots; expected"),
        ("node0 slots=0\n", "no slots: one of them skips the host"),
        ("node0 slots = 2\n", "a space next to ="),
        ("node0 slots= 2\n", "a space next to ="),
        ("node0 slots =2\n", "a space next to ="),
        ("node0 slots=2 max_slots=4\n", "text after the slots"),
        ("node0 slots=2abc\n", "text after the slots"),
        ("node0 slots=2.5\n", "text after the slots"),
        ("node0 slots=2 slots=2\n", "text after the slots"),
        ("node0 slots=-2\n", "is not recognized"),
        ("node0 slots=02\n", "is not recognized"),
        ("node0 slots=\n", "is not recognized"),
        (f"node0 slots={MAX_SLOTS + 1}\n", f"with N from 1 to {MAX_SLOTS}"),
        (f"node0 slots={'9' * 5000}\n", f"with N from 1 to {MAX_SLOTS}"),
        ("node0 SLOTS=2\n", "is not recognized"),
        ("node0 max_slots=2 slots=2\n", "is not recognized"),
        ("node0 is bad slots=2\n", "is not recognized"),
        ("node0 2\n", "is not recognized"),
        ("slots slots=2\n", "a keyword in hostfiles"),
        ("rank slots=2\n", "a keyword in hostfiles"),
        ("12 slots=2\n", "begins with a number"),
        ("10.example.com slots=2\n", "begins with a number"),
        ("-node0 slots=2\n", "launchers do not accept the name"),
        ('"node0" slots=2\n', "launchers do not accept the name"),
        ("node0 slots=1\n\nnode0 slots=2\n", "line 3: node0 is already on line 1"),
        ("node0.a slots=1\nNODE0.b slots=1\n", "line 2: NODE0.b is already on line 1"),
        ("node0 slots=1\nlocalhost slots=1\n", "line 2: each node resolves localhost to itself"),
        ("node0 slots=1\n127.0.0.1 slots=1\n", "line 2: each node resolves 127.0.0.1 to itself"),
        (None, "the hostfile is None"),
        (b"node0 slots=1\n", "the hostfile is b'node0 slots=1"),
    ],
)
def test_invalid_hostfile_is_refused(text: Any, result: str) -> None:
    with pytest.raises(HostfileError) as caught:
        parse_hostfile(text)
    line = str(caught.value)
    assert result in line
    assert len(caught.value.problems) == 1
    assert line.isascii() and line.isprintable() and len(line) < 500
    assert "; expected " in line


def test_all_invalid_lines_are_reported_at_once() -> None:
    with pytest.raises(HostfileError) as caught:
        parse_hostfile("node0 slots=0\nnode1 slots=1\nnode2\nnode1 slots=1\n")
    assert [str(problem).partition(":")[0] for problem in caught.value.problems] == ["line 1", "line 3", "line 4"]


# --- Properties -------------------------------------------------------------------------------------------------------


@given(clusters(six=False), st.sampled_from(["name", "address"]))
def test_rendered_hostfiles_hold_the_same_hosts_and_slots(hosts: list[HostSpec], use: str) -> None:
    table = build_rank_table(hosts)
    listed = [(getattr(node, use), node.slots) for node in table.nodes]
    assert parse_hostfile(render_deepspeed(table, use)) == listed
    assert parse_hostfile(render_openmpi(table, use)) == listed
    lines = render_mpich(table, use).splitlines()
    assert [(host, int(slots)) for host, _colon, slots in (line.partition(":") for line in lines)] == listed


@given(clusters())
def test_each_name_has_one_address_in_the_hosts_entries(hosts: list[HostSpec]) -> None:
    table = build_rank_table(hosts)
    resolved: dict[str, str] = {}
    for line in render_hosts_entries(table).splitlines():
        address, *names = line.split(" ")
        ipaddress.ip_address(address)
        for name in names:
            assert name not in resolved
            resolved[name] = address
    for node in table.nodes:
        assert resolved[node.name] == resolved[node.name.partition(".")[0]] == node.address


@given(st.text() | hostfile_like)
def test_any_text_is_parsed_or_refused_with_a_printable_message(text: str) -> None:
    try:
        hosts = parse_hostfile(text)
    except HostfileError as exc:
        event("refused")
        for line in str(exc).split("\n"):
            assert line.isascii() and line.isprintable()
    else:
        event("read")
        build_rank_table(
            {"name": name, "address": f"192.0.2.{at}", "slots": slots} for at, (name, slots) in enumerate(hosts, 1)
        )
