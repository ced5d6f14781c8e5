# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The address block of a new network overlaps no other block, and is available as long as any is free."""

from __future__ import annotations

import ipaddress
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._clouds.address_block import (
    DOCKER,
    PRIVATE,
    choose_free_block,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.controller_networks import parse_route_table
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import PlanRefusedError

blocks = st.builds(
    lambda base, bits, size: str(ipaddress.ip_network((int(ipaddress.ip_address(base)) | bits, size), strict=False)),
    st.sampled_from(["10.0.0.0", "172.16.0.0", "192.168.0.0", "100.64.0.0"]),
    st.integers(0, 2**24 - 1),
    st.integers(8, 32),
)


@given(st.lists(st.one_of(blocks, st.sampled_from(["10.0.0.0/9", "fd00::/8"])), max_size=12), st.integers(10, 17))
def test_first_free_block_is_chosen_or_exhaustion_is_refused(used: list[str], prefix: int) -> None:
    networks = [ipaddress.ip_network(block) for block in [*used, *DOCKER]]
    possible = [
        block
        for room in PRIVATE
        if ipaddress.ip_network(room).prefixlen <= prefix
        for block in ipaddress.ip_network(room).subnets(new_prefix=prefix)
        if not any(block.overlaps(network) for network in networks if network.version == 4)
    ]
    if possible:
        assert choose_free_block(used, prefix) == str(possible[0])
    else:
        with pytest.raises(PlanRefusedError, match=f"no private /{prefix} address block"):
            choose_free_block(used, prefix)


def test_docker_networks_are_avoided_without_being_listed() -> None:
    assert choose_free_block(["10.0.0.0/8"], 16) == "172.16.0.0/16"
    with pytest.raises(PlanRefusedError, match="no private /"):
        choose_free_block(["10.0.0.0/8", "172.16.0.0/16"], 24)


def test_unreadable_block_is_refused() -> None:
    with pytest.raises(PlanRefusedError, match="cannot parse the address block"):
        choose_free_block(["10.0.0.0/40"])


def test_missing_netaddr_error_names_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "netaddr", None)
    with pytest.raises(PlanRefusedError, match="-m pip install netaddr"):
        choose_free_block([])


def test_networks_of_this_machine_are_read_from_its_routing_table() -> None:
    table = (
        "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
        "eth0\t00000000\t010011AC\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
        "eth0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"
        "tun0\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0\n"
        "broken\n"
    )
    assert parse_route_table(table) == ["10.0.0.0/8", "172.17.0.0/16"]
    assert parse_route_table("") == []
