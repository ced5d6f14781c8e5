"""The generated /etc/hosts, as interpreted by a resolver that reads it from top to bottom."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._hosts_file.resolution import BEGIN, END
from ansible_collections.muster.training.plugins.plugin_utils._cluster.etc_hosts import merge_etc_hosts
from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import (
    RankTableError,
    build_rank_table,
)

TABLE = build_rank_table([{"name": f"node{i}", "address": f"10.0.0.{10 + i}", "slots": 1, "rank": i} for i in range(3)])
OWN_NAMES = ("node0", "psucgene4.example.com")
NAMES = {
    "10.0.0.10": ["node0", "psucgene4.example.com", "psucgene4"],
    "10.0.0.11": ["node1"],
    "10.0.0.12": ["node2"],
}


def addresses(text: str, name: str) -> list[str]:
    """Return all addresses of a name, as glibc does with `multi on`."""
    lines = [line.partition("#")[0].split() for line in text.splitlines()]
    return [arguments[0] for arguments in lines if name.lower() in map(str.lower, arguments[1:])]


def canonical(text: str, address: str) -> str:
    """Return the canonical name of an address: the first name on its first line."""
    lines = [line.partition("#")[0].split() for line in text.splitlines()]
    return next(arguments[1] for arguments in lines if arguments[:1] == [address])


TOKENS = st.sampled_from(
    ["node0", "NODE1", "node1.example.com", "psucgene4", "node2", "localhost", "nas", "//", "node20", "my-node2"]
)
ADDRESSES = st.sampled_from(["127.0.0.1", "127.0.1.1", "::1", "10.0.0.10", "10.0.0.12", "10.5.7.2"])
LINES = st.one_of(
    st.tuples(ADDRESSES, st.sampled_from([" ", "\t", "   "]), st.lists(TOKENS, min_size=1, max_size=4)).map(
        lambda parts: parts[0] + parts[1] + parts[1].join(parts[2])
    ),
    st.sampled_from(["", "# node0 is ours", "127.0.1.1 node2 # ours", "127.0.1.1 nas # node2", BEGIN, END]),
)
TEXTS = st.lists(LINES, max_size=8).map(lambda lines: "".join(f"{line}\n" for line in lines))


@given(TEXTS)
def test_each_name_resolves_only_to_its_node_address(before: str) -> None:
    after = merge_etc_hosts(before, TABLE, *OWN_NAMES)
    for address, names in NAMES.items():
        assert canonical(after, address) == names[0]
        for name in names:
            assert addresses(after, name) == [address]


@given(TEXTS)
def test_merging_again_changes_nothing(before: str) -> None:
    once = merge_etc_hosts(before, TABLE, *OWN_NAMES)
    assert merge_etc_hosts(once, TABLE, *OWN_NAMES) == once
    assert once.count(BEGIN) == once.count(END) == 1


@given(TEXTS)
def test_other_names_and_comments_are_kept(before: str) -> None:
    after = merge_etc_hosts(before, TABLE, *OWN_NAMES)
    outside = re.sub(rf"{BEGIN}\n.*?{END}\n", "", before, flags=re.DOTALL)
    for name in ("localhost", "nas", "node20", "my-node2"):
        assert addresses(after, name) == addresses(outside, name)
    assert after.count("# node0 is ours") == outside.count("# node0 is ours")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("127.0.0.1 localhost\n127.0.1.1 psucgene4\n", "127.0.0.1 localhost\n"),
        ("127.0.0.1 localhost psucgene4\n", "127.0.0.1 localhost\n"),
        ("10.5.7.2\tnode2 nas  nas2 # old\n", "10.5.7.2 nas  nas2 # old\n"),
        ("127.0.1.1 node0", ""),
    ],
)
def test_node_names_are_removed_from_lines_outside_the_block(before: str, after: str) -> None:
    text = merge_etc_hosts(before, TABLE, *OWN_NAMES)
    assert text.partition(f"{END}\n")[2] == after


def test_own_hostname_is_written_only_to_the_nodes_own_file() -> None:
    text = merge_etc_hosts("", TABLE, "node2", "github.com")
    assert addresses(text, "github.com") == ["10.0.0.12"]
    assert canonical(text, "10.0.0.12") == "node2", "the others know it by the inventory's name"
    for node in ("node0", "node1"):
        assert merge_etc_hosts(text, TABLE, node, node) == merge_etc_hosts("", TABLE), "nor is one of before kept"


def test_removed_node_is_removed_from_the_block() -> None:
    smaller = build_rank_table([{"name": "node1", "address": "10.0.0.11", "slots": 1}])
    text = merge_etc_hosts(merge_etc_hosts("", TABLE, *OWN_NAMES), smaller)
    assert text == f"{BEGIN}\n10.0.0.11 node1\n{END}\n"


@pytest.mark.parametrize(
    ("node", "hostname", "result"),
    [
        ("node0", "node2", "node0: its host name is 'node2', which is a name of node2"),
        ("node0", "localhost", "node0: its host name is 'localhost'"),
        ("node1", "", "node1: its host name is ''"),
        ("node1", "localhost.localdomain", "node1: its host name is 'localhost.localdomain'"),
        ("node2", "10.0.0.12", "node2: its host name is the address 10.0.0.12"),
    ],
)
def test_unusable_hostname_is_refused(node: str, hostname: str, result: str) -> None:
    with pytest.raises(RankTableError) as caught:
        merge_etc_hosts("", TABLE, node, hostname)
    assert result in str(caught.value)
    assert "hostnamectl set-hostname" in str(caught.value)


def test_renaming_in_the_inventory_is_proposed_for_exchanged_names() -> None:
    with pytest.raises(RankTableError, match=r"the machines' own host names \(that of node0 is node2\)"):
        merge_etc_hosts("", TABLE, "node0", "node2")


def test_node_named_by_its_address_gets_only_a_hostname() -> None:
    table = build_rank_table([{"name": "10.0.0.10", "address": "10.0.0.10", "slots": 1}])
    assert merge_etc_hosts("", table, "10.0.0.10", "gpu") == f"{BEGIN}\n10.0.0.10 gpu\n{END}\n"
    assert merge_etc_hosts("", table) == f"{BEGIN}\n{END}\n"
