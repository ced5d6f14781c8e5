# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPU samples: timestamps, and invalid lines."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given, strategies

from ansible_collections.muster.training.plugins.plugin_utils._report.gpu_samples import (
    GpuSamples,
    read_gpus,
)
from tests.unit.plugins.plugin_utils.report.records import HEADER, START, line

SAMPLE = (50.0, 1000.0, 60.0, 250.5)


def test_both_csv_forms_are_read_and_invalid_lines_skipped() -> None:
    lines = [
        HEADER.replace(", power_limit_watts", ""),
        line(START, 0, SAMPLE, limit=""),
        "No devices were found",
        "2026/13/45 10:00:00, 0, 1, 1, 1, 1, 1",
        line(START, 1, SAMPLE, limit="")[:-30],
        line(START + 15, 0, SAMPLE, limit="").replace("250.50", "[N/A]").replace(" 60,", " [Unknown Error],"),
    ]
    (gpu,) = read_gpus("gpu0", lines)
    assert (gpu.index, list(gpu.time)) == (0, [START, START + 15])
    assert gpu.power_watts[0] == 250.5 and math.isnan(gpu.power_watts[1])
    assert math.isnan(gpu.temperature_celsius[1])
    assert math.isnan(gpu.power_limit_watts[0])
    for header in ([HEADER], []):
        (newer,) = read_gpus("gpu0", [*header, line(START, 0, SAMPLE)])
        assert (newer.power_limit_watts[0], newer.memory_total_mib[0]) == (400.0, 40960.0)


def test_columns_beyond_the_limit_are_not_read() -> None:
    """Otherwise, each line would be padded to a number of columns that the job controls."""
    names = HEADER.split(",")
    for more, result in ((10, 1), (60_000, 0)):
        header = ",".join([names[0], *["x"] * more, *names[1:]])
        stamp, values = line(START, 0, SAMPLE).split(",", 1)
        assert len(read_gpus("gpu0", [header, f"{stamp},{'0,' * more}{values}"])) == result


@given(strategies.lists(strategies.one_of(strategies.text(max_size=80), strategies.just(line(START, 0, SAMPLE)))))
def test_any_lines_yield_samples_with_all_measures(lines: list[str]) -> None:
    for gpu in read_gpus("gpu0", lines):
        for name in GpuSamples.__dataclass_fields__:
            if name not in ("node", "index", "model"):
                assert len(gpu.measure(name)) == len(gpu.time)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo"])
def test_time_zone_of_this_machine_does_not_matter(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        (gpu,) = read_gpus("gpu0", [line(START, 0, SAMPLE)])
        assert list(gpu.time) == [START]
    finally:
        monkeypatch.undo()
        time.tzset()
