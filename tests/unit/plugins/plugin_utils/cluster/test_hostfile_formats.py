"""The hostfile format of each launcher."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._cluster.hostfile_formats import (
    render_deepspeed,
    render_mpich,
    render_openmpi,
)
from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import (
    HostSpec,
    RankTableError,
    build_rank_table,
)
from tests.unit.generated import clusters

TABLE = build_rank_table(
    [
        HostSpec("node0.example.com", "10.0.0.10", 3),
        HostSpec("node1", "10.0.0.9", 1),
        HostSpec("10.0.0.8", "10.0.0.8", 2),
    ]
)
SIX = build_rank_table([HostSpec("node0", "fd00::1", 3), HostSpec("node1", "fd00::2", 1)])


def test_deepspeed_and_openmpi_hostfiles_list_hosts_with_slots() -> None:
    assert render_deepspeed(TABLE) == "node0.example.com slots=3\nnode1 slots=1\n10.0.0.8 slots=2\n"
    assert render_openmpi(TABLE) == render_deepspeed(TABLE)
    assert render_deepspeed(TABLE, "address") == "10.0.0.10 slots=3\n10.0.0.9 slots=1\n10.0.0.8 slots=2\n"


def test_mpich_hostfile_lists_hosts_with_counts() -> None:
    assert render_mpich(TABLE) == "node0.example.com:3\nnode1:1\n10.0.0.8:2\n"
    assert render_mpich(TABLE, "address") == "10.0.0.10:3\n10.0.0.9:1\n10.0.0.8:2\n"


@pytest.mark.parametrize("render", [render_deepspeed, render_openmpi, render_mpich])
def test_ipv6_hosts_are_listed_by_name_only(render: Any) -> None:
    assert "node0" in render(SIX)
    with pytest.raises(RankTableError, match=r"the addresses are IPv6 \(fd00::1 ...\).* List the hosts by name"):
        render(SIX, "address")


@pytest.mark.parametrize("render", [render_deepspeed, render_openmpi, render_mpich])
def test_use_value_other_than_name_or_address_is_refused(render: Any) -> None:
    with pytest.raises(RankTableError, match="use is 'ip'; expected 'name' or 'address'"):
        render(TABLE, "ip")


@given(clusters(six=False), st.sampled_from(["name", "address"]))
def test_rendered_hostfiles_hold_the_same_hosts_and_slots(hosts: list[HostSpec], use: str) -> None:
    table = build_rank_table(hosts)
    listed = [(getattr(node, use), node.slots) for node in table.nodes]
    for render, separator in ((render_deepspeed, " slots="), (render_openmpi, " slots="), (render_mpich, ":")):
        lines = render(table, use).splitlines()
        assert [(host, int(slots)) for host, slots in (line.split(separator) for line in lines)] == listed
