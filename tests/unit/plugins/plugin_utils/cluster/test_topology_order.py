# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._cluster.topology_order import (
    order_by_location,
    parse_location,
)

LOCATIONS = st.lists(st.lists(st.sampled_from("abc"), max_size=3).map(tuple), max_size=12)


@pytest.mark.parametrize(
    ("value", "location"),
    [
        ("rack7", ("rack7",)),
        ("spine1/rack7", ("spine1", "rack7")),
        (" spine1 / rack7/", ("spine1", "rack7")),
        (["spine1", 7], ("spine1", "7")),
        (7, ("7",)),
        (None, ()),
        ("", ()),
    ],
)
def test_location_can_be_a_name_a_path_or_a_list(value: object, location: tuple[str, ...]) -> None:
    assert parse_location(value) == location


@pytest.mark.parametrize("value", [{"rack": 7}, True, [["rack7"]], [None]])
def test_other_values_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match="a name such as rack7"):
        parse_location(value)


@pytest.mark.parametrize(
    ("locations", "order"),
    [
        ("a b a b", [0, 2, 1, 3]),
        ("b a b a", [0, 2, 1, 3]),
        ("x/a y/a x/b y/a x/a", [0, 4, 2, 1, 3]),
        ("a - a b -", [0, 2, 1, 3, 4]),
        ("- - -", [0, 1, 2]),
        ("", []),
    ],
)
def test_nodes_in_the_same_part_are_consecutive(locations: str, order: list[int]) -> None:
    assert order_by_location([() if text == "-" else parse_location(text) for text in locations.split()]) == order


@given(LOCATIONS)
def test_each_part_is_contiguous_and_the_first_node_stays_first(locations: list[tuple[str, ...]]) -> None:
    order = order_by_location(locations)
    assert sorted(order) == list(range(len(locations))) and order[:1] == [0][: len(locations)]
    for length in (1, 2, 3):
        parts = [locations[index][:length] for index in order if len(locations[index]) >= length]
        runs = [part for part, _nodes in itertools.groupby(locations[index][:length] for index in order)]
        complete = [part for part in runs if len(part) == length]
        assert len(complete) == len(set(complete)) == len(set(parts))
    assert order_by_location([locations[index] for index in order]) == list(range(len(order))), "it is stable"
