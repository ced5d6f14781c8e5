# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Time series in fixed memory: the retained values, and the memory for a day of a large run."""

from __future__ import annotations

import math
import sys

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._page import sample_table
from ansible_collections.muster.training.plugins.plugin_utils._page.node_samples import NodeSamples
from ansible_collections.muster.training.plugins.plugin_utils._page.sample_table import FIRST_WIDTH, PARTS, SampleTable
from tests.unit.plugins.plugin_utils.page.page_data import START, make_sample

NAME = ("x",)


def test_values_keep_their_time_and_gaps_stay_gaps() -> None:
    table = SampleTable()
    for part, value in ((0, 1.0), (0, 3.0), (2, 5.0)):
        table.add(NAME, START + part * FIRST_WIDTH, value)
    assert table.means(NAME) == [2.0, None, 5.0]
    assert [tuple(bucket) for bucket in table.buckets(NAME)] == [
        (0.5 * FIRST_WIDTH, 2, 1.0, 2.0, 3.0),
        (2.5 * FIRST_WIDTH, 1, 5.0, 5.0, 5.0),
    ]


def test_no_value_is_lost_when_the_axis_grows() -> None:
    table = SampleTable()
    values = [float(number % 97) for number in range(20 * PARTS)]
    for number, value in enumerate(values):
        table.add(NAME, START + number * FIRST_WIDTH, value)
    parts = table.buckets(NAME)
    assert len(parts) <= PARTS and table.width == 32 * FIRST_WIDTH
    assert sum(part.value_count for part in parts) == len(values)
    assert sum(part.mean * part.value_count for part in parts) == pytest.approx(sum(values))
    assert min(part.least for part in parts) == 0 and max(part.most for part in parts) == 96


@pytest.mark.parametrize(
    ("moment", "value"), [(START, None), (START, math.nan), (START, math.inf), (START + 1e12, 1.0)]
)
def test_null_values_are_ignored(moment: float, value: float | None) -> None:
    table = SampleTable()
    table.add(NAME, START, 7.0)
    table.add(NAME, moment, value)
    assert table.means(NAME) == [7.0] and table.width == FIRST_WIDTH


def test_clock_set_back_does_not_lose_values() -> None:
    table = SampleTable()
    table.add(NAME, START, 1.0)
    table.add(NAME, START - 1000, 3.0)
    assert table.means(NAME) == [2.0]


def test_the_number_of_series_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_table, "MAX_SERIES", 10)
    table = SampleTable()
    for number in range(100):
        table.add((str(number),), START, 1.0)
    assert len(table.rows) == 10


def test_a_day_of_64_nodes_with_8_gpus_takes_less_than_50_megabytes() -> None:
    samples = NodeSamples([f"gpu{number}" for number in range(64)])
    for number, name in enumerate(samples.names):
        samples.add(make_sample(name, number, gpus=8))
        samples.add(make_sample(name, number, gpus=8, moment=START + 86400))
    sizes = [
        sys.getsizeof(values)
        for row in samples.table.rows.values()
        for values in (row.total, row.count, row.least, row.most)
    ]
    assert len(samples.table.rows) == 64 * (6 + 8 * 4)
    assert sum(sizes) < 50e6


def test_strips_show_nodes_or_the_gpus_of_a_node() -> None:
    samples = NodeSamples(["gpu0", "gpu1"])
    samples.add(make_sample("gpu0", 1, utilization=50))
    samples.add(make_sample("unknown", 2))
    nodes = {strip["name"]: strip for strip in samples.strips("")}
    assert nodes["utilization"]["rows"] == [{"label": "gpu0", "values": [50.0]}]
    assert nodes["disk"]["rows"] == [{"label": "gpu0", "values": [70.0]}]
    assert nodes["memory"]["rows"] == [{"label": "gpu0", "values": [25.0]}]
    gpus = {strip["name"]: strip for strip in samples.strips("gpu0")}
    assert [row["label"] for row in gpus["power"]["rows"]] == ["GPU 0", "GPU 1"]
    assert [row["values"] for row in gpus["power"]["rows"]] == [[600.0], [601.0]]
    assert "disk" not in gpus
