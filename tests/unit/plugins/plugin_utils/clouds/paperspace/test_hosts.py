# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Conversion of raw machines to hosts: selection, order, names and variables."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace import hosts as paperspace_hosts
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.hosts import (
    Selection,
    SelectionError,
    select,
)
from tests.support.paperspace_server.objects import machine, network, time_at_minute

NETWORKS = [network(1, name="mine"), network(2, name="twin"), network(3, name="twin", region="ams1")]


def selected_names(machines: list[dict[str, Any]], **expected: Any) -> list[str]:
    return [chosen["name"] for chosen in select(machines, NETWORKS, Selection(**expected))[0]]


# --- Machine selection


MIXED = [
    machine(0, name="a-0", region="ny2", machineType="A6000x2"),
    machine(1, name="a-1", region="NY2", machineType="a6000X2", state="off"),
    machine(2, name="b-0", region="East Coast (NY2)", machineType="C5", networkId="nw0000002"),
    machine(3, name="B-1", region="Europe (AMS1)", networkId="nw0000003"),
    machine(4, name="c-0", networkId="nwshared", state="serviceready"),
]


@pytest.mark.parametrize(
    ("expected", "names"),
    [
        ({}, ["a-0", "b-0", "B-1"]),
        ({"states": []}, ["a-0", "a-1", "b-0", "B-1", "c-0"]),
        ({"states": ["off", "serviceready"]}, ["a-1", "c-0"]),
        ({"region": "ny2"}, ["a-0", "b-0"]),
        ({"region": "East Coast (NY2)"}, ["a-0", "b-0"]),
        ({"region": "AMS1"}, ["B-1"]),
        ({"machine_types": ["A6000x2"], "states": []}, ["a-0", "a-1", "B-1", "c-0"]),
        ({"machine_types": ["a6000"]}, []),
        ({"names": ["a-*", "c-?"], "states": []}, ["a-0", "a-1", "c-0"]),
        ({"names": ["b-*"]}, ["b-0"]),
        ({"names": ["0"]}, []),
        ({"private_network": "mine"}, ["a-0"]),
        ({"private_network": "nw0000001"}, ["a-0"]),
        ({"private_network": "twin", "region": "ny2"}, ["b-0"]),
        # The shared network is not in any listing, but its machines have its ID.
        ({"private_network": "nwshared", "states": []}, ["c-0"]),
    ],
)
def test_machines_are_selected_by_the_options(expected: dict[str, Any], names: list[str]) -> None:
    assert selected_names(MIXED, **expected) == names


def test_cluster_is_selected_by_network_and_node_names() -> None:
    """Teardown selects machines by the same rule."""
    networks = [network(1, name="muster-bert"), network(2, name="muster-bert-2")]
    machines = [
        machine(0, name="bert-0"),
        machine(1, name="photos"),
        machine(2, name="bert-1", networkId="nw0000002"),
        machine(3, name="bert-10"),
        machine(4, name="bert-01"),
    ]
    chosen, _left_out = select(machines, networks, Selection(cluster="bert"))
    assert [item["name"] for item in chosen] == ["bert-0", "bert-10"]
    assert select(machines, networks, Selection(cluster="gpt"))[0] == [], "one that is not there yet is no error"


@pytest.mark.parametrize(
    ("usage", "storage", "price"), [(3.78, 0.0104, 3.7904), (3.78, None, 3.78), (None, 0.0104, None), ("?", 1, None)]
)
def test_price_is_usage_rate_plus_storage_rate_or_absent(usage: Any, storage: Any, price: float | None) -> None:
    variables = paperspace_hosts.host_variables(machine(0, usageRate=usage, storageRate=storage))
    assert variables.get("node_price_per_hour", None) == price
    assert ("node_price_per_hour" in variables) == (price is not None)


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        ({"private_network": "twin"}, "2 networks are named 'twin': nw0000002 in ny2, nw0000003 in ams1. Set the id"),
        ({"private_network": "Mine"}, r"no network has the name or id 'Mine'; existing: mine \(nw0000001\), twin"),
        ({"private_network": "mine", "region": "ams1"}, r"'mine' in region ams1; existing: twin \(nw0000003\)"),
    ],
)
def test_unknown_or_ambiguous_network_is_refused(expected: dict[str, Any], text: str) -> None:
    with pytest.raises(SelectionError, match=text):
        selected_names(MIXED, **expected)


def test_empty_selection_reports_what_each_option_excluded() -> None:
    chosen, left_out = select(MIXED, NETWORKS, Selection(region="ny2", names=["a-1"]))
    assert chosen == []
    assert paperspace_hosts.explain_empty_selection(len(MIXED), left_out) == (
        "no hosts: of 5 machines, region excluded 1 (1 x ams1), then names excluded 3 (1 x a-0, 1 x b-0, 1 x c-0), "
        "then states excluded 1 (1 x off)"
    )
    assert "has no machine" in paperspace_hosts.explain_empty_selection(0, [])


# --- Order


@given(st.randoms())
def test_ranks_do_not_depend_on_the_order_of_the_api_reply(shuffle: random.Random) -> None:
    machines = [
        machine(5, id="old", dtCreated="2025-11-02T15:09:51Z"),
        machine(4, id="older-by-zone", dtCreated="2025-11-02T16:09:50+01:00"),
        machine(1, id="same-b", dtCreated=time_at_minute(1)),
        machine(0, id="same-a", dtCreated=time_at_minute(1)),
        machine(2, id="zz", dtCreated="2026-06-01T00:00:00"),
        machine(3, id="unknown", dtCreated="last week"),
    ]
    shuffle.shuffle(machines)
    hosts = paperspace_hosts.build_hosts(select(machines, NETWORKS, Selection())[0], NETWORKS)
    assert [host.variables["paperspace_id"] for host in hosts] == [
        "older-by-zone",
        "old",
        "same-a",
        "same-b",
        "zz",
        "unknown",
    ]
    assert [host.variables["node_rank"] for host in hosts] == list(range(6))


# --- Cluster compatibility


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"region": "Europe (AMS1)"},
            r"are in 2 regions and cannot reach each other: ny2: node-0 \(ps000000\), node-1 \(ps000001\); "
            r"ams1: node-2 \(ps000002\). Select one with region",
        ),
        (
            {"networkId": "nw0000002"},
            r"2 private networks .*: mine \(nw0000001\): node-0 .*; twin \(nw0000002\): node-2 .*private_network",
        ),
        ({"networkId": None}, r"2 private networks .*; none: node-2 \(ps000002\)"),
        ({"privateIp": None}, r"no private address: node-2 \(ps000002\)"),
        ({"privateIp": "-oProxyCommand=id"}, r"no private address: node-2"),
        ({"publicIp": None}, r"no public address: node-2 \(ps000002\).*connect_with: private"),
        ({"publicIp": "{{ evil }}"}, r"no public address: node-2"),
    ],
)
def test_machines_that_cannot_form_one_cluster_are_named(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(SelectionError, match=text):
        paperspace_hosts.build_hosts([machine(0), machine(1), machine(2, **changes)], NETWORKS)


def test_long_messages_name_a_few_machines_and_count_the_rest() -> None:
    with pytest.raises(SelectionError, match=r"node-0 .*node-7 \(ps000007\) and 92 more\."):
        paperspace_hosts.build_hosts([machine(n, publicIp=None) for n in range(100)], NETWORKS)


def test_both_forms_of_a_region_name_mean_the_same_region() -> None:
    hosts = paperspace_hosts.build_hosts([machine(0), machine(1, region="East Coast (NY2)")], NETWORKS)
    assert [host.variables["paperspace_region"] for host in hosts] == ["ny2", "ny2"]


# --- Names


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["node-0", "GPU_1.lab"], ["node-0", "GPU_1.lab"]),
        (["twin", "twin", "single"], ["twin-ps000000", "twin-ps000001", "single"]),
        (["Twin", "twin"], ["Twin-ps000000", "twin-ps000001"]),
        (["Physical A5000 (by Terraform)"], ["Physical-A5000-by-Terraform-ps000000"]),
        (["localhost", "all", "training"], ["localhost-ps000000", "all-ps000001", "training-ps000002"]),
        (["{{ lookup('pipe', 'id') }}"], ["lookup-pipe-id-ps000000"]),
        (["a\nb\x1b[31m", "a,b:c[1:3]!&"], ["a-b-31m-ps000000", "a-b-c-1-3-ps000001"]),
        (["\u202e\ud800", ""], ["ps000000", "ps000001"]),
        (["-v", "..", "_"], ["v-ps000000", "ps000001", "ps000002"]),
        (["x" * 100000], ["x" * 54 + "-ps000000"]),
        # A user-chosen name equals the name that another machine has after its ID was appended.
        (["twin", "twin", "twin-ps000000"], ["twin-ps000000-f5ae6fe95aa2", "twin-ps000001", "twin-ps000000"]),
    ],
)
def test_machine_names_become_valid_unique_host_names(names: list[str], expected: list[str]) -> None:
    machines = [machine(number, name=name) for number, name in enumerate(names)]
    assert paperspace_hosts.unique_host_names(machines, ["name"]) == expected


@given(st.lists(st.tuples(st.text(min_size=1), st.text() | st.from_regex(r"[a-z{-]{1,4}"))))
@example([("IMPLICIT_LOCALHOST", ""), ("all", "all"), ("training", "one")])
def test_host_names_are_valid_and_unique_for_any_api_reply(ids_and_names: list[tuple[str, str]]) -> None:
    machines = [{"id": i, "name": n} for i, n in dict(ids_and_names).items()]
    names = paperspace_hosts.unique_host_names(machines, ["name"])
    assert len({name.casefold() for name in names}) == len(machines)
    assert all(re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", name) for name in names)
    assert not {name.casefold() for name in names} & paperspace_hosts.RESERVED_NAMES


@pytest.mark.parametrize(
    ("preferences", "name"),
    [
        (["id"], "ps000000"),
        (["private_ip"], "10.64.0.10"),
        (["public_ip", "name"], "node-0"),
        (["public_ip"], "ps000000"),
    ],
)
def test_host_name_follows_the_order_of_preferences(preferences: list[str], name: str) -> None:
    assert paperspace_hosts.unique_host_names([machine(0, publicIp=None)], preferences) == [name]


# --- Host variables


def test_both_api_types_give_the_same_variables() -> None:
    documented = machine(0)
    accelerator = documented["accelerators"][0]
    observed = documented | {
        "ram": str(documented["ram"]),
        "storageTotal": str(documented["storageTotal"]),
        "storageUsed": str(documented["storageUsed"]),
        "accelerators": [accelerator | {"memory": str(accelerator["memory"])}],
    }
    assert paperspace_hosts.host_variables(observed) == paperspace_hosts.host_variables(documented)


@pytest.mark.parametrize(
    ("changes", "gpus", "slots"),
    [
        ({}, 2, 2),
        ({"accelerators": None}, 2, 2),
        ({"accelerators": None, "machineType": "C5"}, 0, 1),
        ({"accelerators": None, "machineType": "A4000"}, 1, 1),
    ],
)
def test_node_has_one_slot_per_gpu_and_at_least_one(changes: dict[str, Any], gpus: int, slots: int) -> None:
    variables = paperspace_hosts.host_variables(machine(0, **changes))
    assert (variables["paperspace_gpu_count"], variables["node_slots"]) == (gpus, slots)


def test_host_has_address_user_and_network_variables() -> None:
    (public,) = paperspace_hosts.build_hosts([machine(0)], NETWORKS)
    assert public.variables["ansible_host"] == "198.18.0.10"
    assert public.variables["node_address"] == "10.64.0.10"
    assert public.variables["ansible_user"] == "paperspace"
    assert public.variables["paperspace_network_name"] == "mine"
    without_public = machine(0, publicIp=None, networkId="nwshared")
    (private,) = paperspace_hosts.build_hosts([without_public], NETWORKS, connect_with="private", user="")
    assert private.variables["ansible_host"] == "10.64.0.10"
    assert "ansible_user" not in private.variables
    assert private.variables["paperspace_network_name"] is None


FIELD = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers(), max_size=2)


@given(st.fixed_dictionaries({field: FIELD for field in machine(0) if field != "id"}))
def test_any_machine_has_printable_variables(fields: dict[str, Any]) -> None:
    for value in paperspace_hosts.host_variables(machine(0, **fields)).values():
        assert value is None or isinstance(value, (bool, int, float)) or (value.isprintable() and len(value) <= 255)
        json.dumps(value, allow_nan=False)
