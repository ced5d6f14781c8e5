"""The rank table: order, numbering, and every input that must be rejected."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import FrameType
from typing import Any, Protocol

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import (
    MAX_SLOTS,
    HostSpec,
    RankTable,
    RankTableError,
    build_rank_table,
)
from tests.unit.generated import clusters


def cluster(*names: str, slots: int = 1) -> list[HostSpec]:
    return [HostSpec(name, f"10.0.{number // 250}.{number % 250 + 1}", slots) for number, name in enumerate(names)]


def problems(hosts: Any, **options: Any) -> list[str]:
    with pytest.raises(RankTableError) as caught:
        build_rank_table(hosts, **options)
    lines = str(caught.value).split("\n")
    assert lines == [str(problem) for problem in caught.value.problems], "one line for each problem"
    for problem in caught.value.problems:
        assert problem.problem and problem.requirement and problem.remedy
    return lines


def the_problem(hosts: Any, **options: Any) -> str:
    lines = problems(hosts, **options)
    assert len(lines) == 1, lines
    return lines[0]


def names(table: RankTable) -> list[str]:
    return [node.name for node in table.nodes]


# --- Order and numbers ------------------------------------------------------------------------------------------------


def test_unequal_slots_shift_the_global_ranks() -> None:
    hosts = [HostSpec("a", "10.0.0.1", 3), HostSpec("b", "10.0.0.2", 1), HostSpec("c", "10.0.0.3", 2)]
    table = build_rank_table(hosts)
    assert [(node.node_rank, list(node.ranks)) for node in table.nodes] == [(0, [0, 1, 2]), (1, [3]), (2, [4, 5])]
    assert (table.nnodes, table.world_size, table.equal_slots) == (3, 6, False)
    assert table.master.name == "a"
    assert table.locate(4) == (table.node("c"), 0)
    assert build_rank_table(cluster("a", "b", slots=4)).equal_slots


def test_hosts_keep_inventory_order_or_are_sorted_by_name() -> None:
    hosts = cluster("node10", "node2", "Node1", "node1a", "gpu.example.com")
    assert names(build_rank_table(hosts)) == ["node10", "node2", "Node1", "node1a", "gpu.example.com"]
    by_name = ["gpu.example.com", "Node1", "node1a", "node2", "node10"]
    assert names(build_rank_table(hosts, order="name")) == by_name
    addresses = [HostSpec(f"10.0.0.{number}", f"10.0.0.{number}", 1) for number in (10, 9, 100)]
    assert names(build_rank_table(addresses, order="name")) == ["10.0.0.9", "10.0.0.10", "10.0.0.100"]


def test_names_with_equal_numbers_have_a_deterministic_order() -> None:
    hosts = cluster("node01", "node1", "node001")
    expected = names(build_rank_table(hosts, order="name"))
    assert names(build_rank_table(hosts[::-1], order="name")) == expected


def test_explicit_ranks_override_the_order() -> None:
    hosts = [replace(host, rank=rank) for host, rank in zip(cluster("a", "b", "c"), (2, 0, 1), strict=True)]
    assert names(build_rank_table(hosts, order="name")) == ["b", "c", "a"]


@pytest.mark.parametrize("ranks", [(None, None, None), (0, 1, 2)])
def test_rank0_goes_first_and_other_hosts_keep_their_order(ranks: tuple[int | None, ...]) -> None:
    hosts = [replace(host, rank=rank) for host, rank in zip(cluster("a", "b", "c"), ranks, strict=True)]
    table = build_rank_table(hosts, rank0="c")
    assert names(table) == ["c", "a", "b"]
    assert [node.node_rank for node in table.nodes] == [0, 1, 2]


def test_nnodes_takes_the_first_of_the_sorted_group() -> None:
    hosts = [replace(host, rank=rank) for host, rank in zip(cluster("a", "b", "c"), (2, 0, 1), strict=True)]
    table = build_rank_table(hosts, nnodes=2)
    assert [(node.name, node.node_rank) for node in table.nodes] == [("b", 0), ("c", 1)]
    assert names(build_rank_table(hosts, nnodes=1, rank0="a")) == ["a"]


def test_unused_host_is_also_checked() -> None:
    hosts = [*cluster("a", "b"), HostSpec("c", "10.0.0.300", 1)]
    assert "c: its address '10.0.0.300' is malformed" in the_problem(hosts, nnodes=2)


def test_digit_strings_are_accepted_as_numbers() -> None:
    hosts: list[dict[str, Any]] = [
        {"name": "a", "address": "10.0.0.1", "slots": "4", "rank": "1"},
        {"name": "b", "address": "10.0.0.2", "slots": 2, "rank": "0"},
    ]
    table = build_rank_table(hosts, nnodes="2")  # type: ignore[arg-type]
    assert [(node.name, node.slots) for node in table.nodes] == [("b", 2), ("a", 4)]
    assert all(isinstance(node.slots, int) for node in table.nodes)


def test_addresses_are_returned_in_canonical_form() -> None:
    assert build_rank_table([HostSpec("a", "FD00:0::0A", 1)]).master.address == "fd00::a"


def test_nodes_of_one_machine_may_use_loopback_addresses() -> None:
    table = build_rank_table([HostSpec("a", "127.0.0.1", 1), HostSpec("b", "127.0.0.2", 1)])
    assert table.world_size == 2
    assert build_rank_table([HostSpec("localhost", "::1", 2)]).world_size == 2


def test_link_local_addresses_are_accepted_if_all_hosts_have_them() -> None:
    assert build_rank_table([HostSpec("a", "169.254.0.1", 1), HostSpec("b", "169.254.0.2", 1)]).nnodes == 2


def test_host_names_may_be_addresses_without_short_name_conflicts() -> None:
    hosts = [HostSpec("10.0.0.1", "10.0.0.1", 1), HostSpec("10.0.0.2", "10.0.0.2", 1)]
    assert build_rank_table(hosts).nnodes == 2


# --- Refusals ---------------------------------------------------------------------------------------------------------


def test_empty_host_list_is_refused() -> None:
    assert "the group has no hosts" in the_problem([])


@pytest.mark.parametrize("hosts", [None, 3, "node0", b"node0", {"name": "a"}])
def test_hosts_that_are_not_a_list_are_refused(hosts: object) -> None:
    assert "expected a list of hosts" in the_problem(hosts)


def test_entry_that_is_not_a_host_is_refused() -> None:
    assert "host entry 2 is 'b'" in the_problem([*cluster("a"), "b"])


def test_unknown_host_key_is_reported() -> None:
    hosts = [{"name": "a", "address": "10.0.0.1", "slots": 1, "rnak": 0}]
    assert "a: the host has unknown keys: rnak" in the_problem(hosts)


def test_conflicting_ranks_of_one_host_are_refused() -> None:
    hosts = [{"name": "a", "address": "10.0.0.1", "slots": 1, "rank": 0, "node_rank": 1}]
    assert "a: its rank is 0, but its node_rank is 1" in the_problem(hosts)


@pytest.mark.parametrize("nnodes", [0, -1, 4, True, 2.0, "", "two", "2:4", "²", 10**30])
def test_invalid_nnodes_is_refused(nnodes: Any) -> None:
    line = the_problem(cluster("a", "b", "c"), nnodes=nnodes)
    assert "the group has 3 hosts: a, b, c; expected a whole number from 1 to 3" in line


def test_unknown_order_is_refused() -> None:
    assert "order is 'random'" in the_problem(cluster("a"), order="random")


def test_rank0_outside_the_group_is_refused() -> None:
    line = the_problem(cluster("a", "b", "c", "d"), rank0="e")
    assert "rank0 is 'e', which is not in the group" in line
    assert "a, b, c and 1 more" in line


@pytest.mark.parametrize(
    ("first", "second", "result"),
    [
        ("node1", "node1", "node1: the name is listed twice"),
        ("node1", "NODE1", "NODE1: the name is listed twice, first as node1"),
        ("gpu.a.com", "gpu.b.com", "gpu.b.com: its short name gpu is also the short name of gpu.a.com"),
        ("gpu", "GPU.b.com", "GPU.b.com: its short name gpu is also the short name of gpu"),
    ],
)
def test_duplicate_or_clashing_names_are_refused(first: str, second: str, result: str) -> None:
    assert result in the_problem(cluster(first, second))


@pytest.mark.parametrize(
    ("first", "second"),
    [("10.0.0.1", "10.0.0.1"), ("fd00::1", "FD00:0:0::1"), ("127.0.0.1", "127.0.0.1"), ("::1", "0:0:0:0:0:0:0:1")],
)
def test_duplicate_addresses_in_any_spelling_are_refused(first: str, second: str) -> None:
    line = the_problem([HostSpec("a", first, 1), HostSpec("b", second, 1)])
    assert line.startswith("b: its address ")
    assert "is also the address of a" in line


@pytest.mark.parametrize(
    ("address", "result"),
    [
        (None, "has no address"),
        ("", "has no address"),
        (167772161, "its address is 167772161"),
        ("node1", "'node1' is a name"),
        ("node1.example.com", "is a name"),
        ("10.0.0", "malformed"),
        ("10.0.0.256", "malformed"),
        ("010.0.0.1", "malformed"),
        ("10.0.0.1/24", "malformed"),
        ("10.0.0.1\n", "malformed"),
        (" 10.0.0.1", "malformed"),
        ("１0.0.0.1", "malformed"),
        ("[fd00::1]", "malformed"),
        ("fd00::1::2", "malformed"),
        ("fe80::1%eth0", "has a zone"),
        ("fe80::1", "link-local"),
        ("169.254.3.4", "link-local"),
        ("0.0.0.0", "wildcard"),
        ("::", "wildcard"),
        ("0.0.0.42", "reserved"),
        ("240.0.0.1", "reserved"),
        ("255.255.255.255", "reserved"),
        ("224.0.0.1", "multicast"),
        ("ff02::1", "multicast"),
        ("127.0.0.1", "loopback"),
        ("127.0.1.1", "loopback"),
        ("::1", "loopback"),
        ("::ffff:10.0.0.7", "write it as 10.0.0.7"),
        ("::ffff:127.0.0.1", "write it as 127.0.0.1"),
    ],
)
def test_unusable_addresses_are_refused(address: Any, result: str) -> None:
    lines = [line for line in problems([*cluster("a", "b"), HostSpec("bad", address, 1)]) if line.startswith("bad: ")]
    assert len(lines) == 1, lines
    assert result in lines[0]
    assert "Set node_address of this host" in lines[0]


def test_loopback_is_refused_for_each_host_that_has_it() -> None:
    hosts = [*cluster("a"), HostSpec("b", "127.0.0.1", 1), HostSpec("c", "127.0.1.1", 1)]
    assert [line[:2] for line in problems(hosts)] == ["b:", "c:"]


def test_mixed_address_families_are_refused_naming_hosts_of_both() -> None:
    line = the_problem([*cluster("a", "b"), HostSpec("c", "fd00::1", 1)])
    assert "some addresses are IPv4 (a, b) and some are IPv6 (c)" in line


@pytest.mark.parametrize("name", ["localhost", "Localhost.localdomain", "ip6-localhost", "127.0.0.1", "0.0.0.0"])
def test_names_that_every_node_resolves_to_itself_are_refused(name: str) -> None:
    assert "resolves the name" in the_problem([*cluster("a"), HostSpec(name, "10.0.0.9", 1)])


def test_name_that_is_the_address_of_another_host_is_refused() -> None:
    hosts = [HostSpec("10.0.0.2", "10.0.0.1", 1), HostSpec("b", "10.0.0.2", 1)]
    assert "10.0.0.2: the name 10.0.0.2 is the address of b, but this host has 10.0.0.1" in the_problem(hosts)


SLOTS_REFUSED = [
    *(None, 0, -1, True, False, 2.0, "0", "-1", "+1", "4.0", "", " 4", "4\n", "٤", "４", "1_0", [4]),
    *(MAX_SLOTS + 1, 10**30, pytest.param(10**5000, id="10**5000"), pytest.param("9" * 5000, id="5000 digits")),
]


@pytest.mark.parametrize("slots", SLOTS_REFUSED)
def test_invalid_slots_are_refused(slots: Any) -> None:
    line = the_problem([*cluster("a"), HostSpec("bad", "10.0.0.9", slots)])
    assert line.startswith("bad: ")
    assert f"a whole number from 1 to {MAX_SLOTS}. Set node_slots" in line
    assert len(line) < 300


@pytest.mark.parametrize(
    "name",
    [
        None,
        7,
        "",
        "-a",
        ".a",
        "_a",
        "a b",
        "a..b",
        "a.",
        "a@b",
        "a:1",
        "a,b",
        "a[1-4]",
        "{{ a }}",
        "fd00::1",
        "bü",
        "a\n",
    ]
    + ["slots", "SLOTS", "max-slots", "cpu", "rank", "port", "username", "a" * 64, "a." * 130 + "a"]
    + ["7", "10.0.0", "10.0.0.300", "0x7f", "10.example.com"],
)
def test_names_that_launchers_do_not_accept_are_refused(name: Any) -> None:
    line = the_problem([HostSpec(name, "10.0.0.1", 1)])
    assert "Rename the host" in line
    assert len(line) < 700


@pytest.mark.parametrize("name", ["a", "9a", "node_1", "i-0abc.eu-west-1.compute.internal", "slots2", "a" * 63, "a--b"])
def test_names_valid_for_all_launchers_are_accepted(name: str) -> None:
    assert build_rank_table(cluster(name)).master.name == name


@pytest.mark.parametrize(
    ("ranks", "result"),
    [
        ((0, None, 2), "2 of 3 hosts have a node_rank, but not b"),
        ((0, 2, 3), "b: its node_rank is 2, but no host has node_rank 1"),
        ((1, 2, 3), "a: its node_rank is 1, but no host has node_rank 0"),
        ((0, 1, 1), "c: its node_rank 1 is also the node_rank of b"),
        ((0, 1, -2), "c: its node_rank is -2"),
        ((0, 1, "two"), "c: its node_rank is 'two'"),
        ((0, 1, True), "c: its node_rank is True"),
        pytest.param((0, 1, 10**5000), "c: its node_rank is a number of more than 18 digits", id="10**5000"),
    ],
)
def test_incomplete_or_invalid_explicit_ranks_are_refused(ranks: tuple[Any, ...], result: str) -> None:
    hosts = [replace(host, rank=rank) for host, rank in zip(cluster("a", "b", "c"), ranks, strict=True)]
    line = the_problem(hosts)
    assert result in line
    assert "node_rank 0 to 2, each once" in line


def test_all_problems_are_reported_at_once() -> None:
    hosts = [
        HostSpec("a", "10.0.0.1", 0),
        HostSpec("a", "10.0.0.1", 1, rank=1),
        HostSpec("b\x1b[31m\n", "127.0.0.1", 1, rank=1),
    ]
    lines = problems(hosts, nnodes=7, order="up", rank0="z")
    for result in [
        "nnodes is 7",
        "order is 'up'",
        "rank0 is 'z'",
        "a: the name is listed twice",
        r"'b\x1b[31m\n': launchers do not accept the name",
        "a: its address 10.0.0.1 is also the address of a",
        r"'b\x1b[31m\n': its address 127.0.0.1 is a loopback",
        "a: its number of slots is 0",
        "2 of 3 hosts have a node_rank",
        "its node_rank 1 is also the node_rank of a",
    ]:
        assert any(result in line for line in lines), result
    assert len(lines) == 10


@given(st.text(), st.text(), st.text())
def test_hostile_strings_are_shown_in_ascii_on_short_lines(name: str, address: str, slots: str) -> None:
    try:
        build_rank_table([{"name": name * 50, "address": address * 50, "slots": slots * 50}])
    except RankTableError as exc:
        for line in str(exc).split("\n"):
            assert line.isascii() and line.isprintable() and len(line) < 700


def test_lookup_of_an_unknown_node_or_rank_is_refused() -> None:
    table = build_rank_table(cluster("a", "b", slots=2))
    with pytest.raises(RankTableError, match="no node is named 'c'; expected one of a, b"):
        table.node("c")
    for rank in (-1, 4):
        with pytest.raises(RankTableError, match=f"no process has rank {rank}; expected a rank from 0 to 3"):
            table.locate(rank)


# --- Properties -------------------------------------------------------------------------------------------------------


@given(clusters(), st.randoms(use_true_random=False))
def test_input_order_is_irrelevant_with_explicit_ranks(hosts: list[HostSpec], chance: random.Random) -> None:
    ranks = list(range(len(hosts)))
    chance.shuffle(ranks)
    ranked = [replace(host, rank=rank) for host, rank in zip(hosts, ranks, strict=True)]
    table = build_rank_table(ranked)
    chance.shuffle(ranked)
    assert build_rank_table(ranked) == table
    assert {node.name: node.node_rank for node in table.nodes} == {host.name: host.rank for host in ranked}


@given(clusters(), st.sampled_from(["inventory", "name"]), st.data())
def test_ranks_partition_the_world(hosts: list[HostSpec], order: str, data: st.DataObject) -> None:
    nnodes = data.draw(st.integers(1, len(hosts)))
    rank0 = data.draw(st.none() | st.sampled_from([host.name for host in hosts]))
    table = build_rank_table(hosts, nnodes=nnodes, order=order, rank0=rank0)
    assert [node.node_rank for node in table.nodes] == list(range(nnodes))
    assert [rank for node in table.nodes for rank in node.ranks] == list(range(table.world_size))
    assert table.world_size == sum(node.slots for node in table.nodes)
    for rank in range(table.world_size):
        node, local_rank = table.locate(rank)
        assert node.ranks[local_rank] == rank
    assert rank0 is None or table.master.name == rank0
    assert {(node.name, node.address, node.slots) for node in table.nodes} <= {
        (host.name, host.address, host.slots) for host in hosts
    }


@given(clusters(), st.sampled_from(["inventory", "name"]), st.randoms(use_true_random=False))
def test_table_can_be_rebuilt_from_its_own_data(hosts: list[HostSpec], order: str, chance: random.Random) -> None:
    table = build_rank_table(hosts, order=order)
    data = table.as_dicts()
    assert build_rank_table(data) == table
    chance.shuffle(data)
    assert build_rank_table(data) == table


@given(clusters(), st.randoms(use_true_random=False))
def test_the_order_by_name_does_not_depend_on_the_inventory(hosts: list[HostSpec], chance: random.Random) -> None:
    table = build_rank_table(hosts, order="name")
    chance.shuffle(hosts)
    assert build_rank_table(hosts, order="name") == table


# --- Size -------------------------------------------------------------------------------------------------------------


class TraceFunction(Protocol):
    def __call__(self, frame: FrameType, event: str, argument: object, /) -> TraceFunction: ...


def steps_of(work: Callable[[], object]) -> int:
    """Return how many Python bytecodes an operation executes."""
    count = 0

    def tick(frame: FrameType, event: str, _argument: object) -> TraceFunction:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return tick

    before = sys.gettrace()
    sys.settrace(tick)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def build_and_locate(hosts: Iterable[HostSpec], **options: Any) -> None:
    table = build_rank_table(hosts, **options)
    for node in table.nodes:
        table.node(node.name)
        table.locate(node.first_rank)


@pytest.mark.parametrize("options", [{}, {"order": "name"}, {"rank0": "n7"}])
@pytest.mark.parametrize("ranked", [False, True])
def test_work_grows_less_than_quadratically_with_the_number_of_hosts(options: dict[str, Any], ranked: bool) -> None:
    def steps(count: int) -> int:
        hosts = [
            HostSpec(f"n{number}", f"10.0.{number >> 8}.{number & 255}", 8, number - 1 if ranked else None)
            for number in range(1, count + 1)
        ]
        return steps_of(lambda: build_and_locate(hosts, **options))

    assert steps(400) < 10 * steps(50), "8 times as many hosts: the square would be 64 times the work"
