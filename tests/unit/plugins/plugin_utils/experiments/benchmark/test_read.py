# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Arbitrary measurement files of nodes can be read."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.read import read_measurements
from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.slow_parts import (
    find_suspects,
    judge,
)
from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.table import render
from tests.unit.plugins.plugin_utils.experiments.benchmark.measurements import document, names_of

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def spoilt(draw: st.DrawFn) -> Any:
    """Return a valid document in which some values have been replaced."""
    measurements = document(3)
    for _time in range(draw(st.integers(1, 6))):
        phase = draw(st.sampled_from(["matmul", "copies", "collectives", "pairs", "ranks"]))
        if draw(st.booleans()) or not isinstance(measurements[phase], list) or not measurements[phase]:
            measurements[phase] = draw(anything)
        elif isinstance(row := draw(st.sampled_from(measurements[phase])), dict) and row:
            row[draw(st.sampled_from(sorted(row)))] = draw(anything)
    return measurements


@given(spoilt() | anything)
def test_any_measurements_of_a_node_can_be_judged_and_shown(measurements: Any) -> None:
    measured = read_measurements(measurements, names_of(3))
    find_suspects(measured)
    benchmark = judge(measured, measured, "b")
    json.dumps(benchmark, allow_nan=False)
    assert render(benchmark).endswith(f"benchmark b: {benchmark['verdict']}")


def test_control_characters_are_removed_from_the_gpu_model() -> None:
    measured = read_measurements(document(2, model="\x1b[31mA100\x07"), names_of(2))
    assert {gpu["model"] for gpu in measured.gpus} == {"A100"}


def test_expected_network_speed_is_that_of_the_slowest_node() -> None:
    measurements = document(2)
    for rank, speed in enumerate((10_000, 1_000)):
        measurements["ranks"][rank].update(interface="ens5", interface_mbps=speed)
    network = read_measurements(measurements, names_of(2)).network
    assert network is not None and network["value"] == 0.9 and "the speed of ens5" in network["source"]
    measurements["ranks"][1]["interface_mbps"] = None
    assert read_measurements(measurements, names_of(2)).network is None, "one that does not say may be the slowest"
    measurements["ranks"][1]["infiniband_gbps"] = measurements["ranks"][0]["infiniband_gbps"] = [200, 200]
    network = read_measurements(measurements, names_of(2)).network
    assert network is not None and network["value"] == 360.0
