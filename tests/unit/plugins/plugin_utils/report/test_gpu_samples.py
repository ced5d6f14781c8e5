# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPU samples: times as the node's own clock means them, and lines that are not samples."""

from __future__ import annotations

import calendar
import math
import time
from typing import Any

import pytest
from hypothesis import given, strategies

from ansible_collections.muster.training.plugins.plugin_utils._report.gpu_samples import (
    GpuSamples,
    make_clock,
    read_gpus,
)
from tests.unit.plugins.plugin_utils.report.records import HEADER, START, line

SAMPLE = (50.0, 1000.0, 60.0, 250.5)


def times(lines: list[str], clock: Any, started: float | None = None) -> list[float]:
    found = read_gpus("gpu0", lines, make_clock(clock, started))
    return list(found[0].time) if found else []


@pytest.mark.parametrize(("zone", "offset"), [("Europe/Berlin", 3600), ("America/St_Johns", -12600), ("", 20700)])
def test_sample_time_is_read_by_the_clock_of_its_node(zone: str, offset: int) -> None:
    clock = {"utc_offset": offset, "now": START, "zone": zone}
    assert times([line(START, 0, SAMPLE, offset)], clock) == [START]


def test_sample_times_are_right_across_dst_changes() -> None:
    for night, before, after in (((2026, 10, 25), 7200, 3600), ((2026, 3, 29), 3600, 7200)):
        change = calendar.timegm((*night, 1, 0, 0))  # 01:00 UTC in all of Europe
        taken = [change + minute * 60.0 for minute in range(-120, 121, 5)]
        lines = [line(when, 0, SAMPLE, before if when < change else after) for when in taken]
        assert times(lines, {"utc_offset": after, "now": change + 9000, "zone": "Europe/Berlin"}) == taken


def test_zone_that_contradicts_the_utc_offset_is_ignored() -> None:
    for zone in ("Asia/Tokyo", "no such zone", "../../etc/passwd", "America", 7, None):
        clock = {"utc_offset": 3600, "now": START, "zone": zone}
        assert times([line(START, 0, SAMPLE, 3600)], clock) == [START]


def test_without_a_clock_the_offset_is_derived_from_the_run_start() -> None:
    lines = [line(START + second, 0, SAMPLE, -25200) for second in (2, 17)]
    clocks: tuple[Any, ...] = (None, [], {"utc_offset": "x"}, {"utc_offset": 1e9})
    for clock in clocks:
        assert times(lines, clock, started=START) == [START + 2, START + 17]
        assert times(lines, clock) == [START + 2 - 25200, START + 17 - 25200]


def test_both_csv_forms_are_read_and_invalid_lines_skipped() -> None:
    lines = [
        HEADER.replace(", power_limit_watts", ""),
        line(START, 0, SAMPLE, limit=""),
        "No devices were found",
        "2026/13/45 10:00:00, 0, 1, 1, 1, 1, 1",
        line(START, 1, SAMPLE, limit="")[:-30],
        line(START + 15, 0, SAMPLE, limit="").replace("250.50", "[N/A]").replace(" 60,", " [Unknown Error],"),
    ]
    (gpu,) = read_gpus("gpu0", lines, make_clock(None, None))
    assert (gpu.index, list(gpu.time)) == (0, [START, START + 15])
    assert gpu.power_watts[0] == 250.5 and math.isnan(gpu.power_watts[1])
    assert math.isnan(gpu.temperature_celsius[1])
    assert math.isnan(gpu.power_limit_watts[0])
    for header in ([HEADER], []):
        (newer,) = read_gpus("gpu0", [*header, line(START, 0, SAMPLE)], make_clock(None, None))
        assert (newer.power_limit_watts[0], newer.memory_total_mib[0]) == (400.0, 40960.0)


def test_columns_beyond_the_limit_are_not_read() -> None:
    """Otherwise each line would be padded to as many columns as the job put there."""
    names = HEADER.split(",")
    for more, found in ((10, 1), (60_000, 0)):
        header = ",".join([names[0], *["x"] * more, *names[1:]])
        stamp, rest = line(START, 0, SAMPLE).split(",", 1)
        assert len(read_gpus("gpu0", [header, f"{stamp},{'0,' * more}{rest}"], make_clock(None, None))) == found


@given(strategies.lists(strategies.one_of(strategies.text(max_size=80), strategies.just(line(START, 0, SAMPLE)))))
def test_any_lines_give_samples_with_all_measures(lines: list[str]) -> None:
    for gpu in read_gpus("gpu0", lines, make_clock(None, None)):
        for name in GpuSamples.__dataclass_fields__:
            if name not in ("node", "index", "model"):
                assert len(gpu.measure(name)) == len(gpu.time)


def test_time_zone_of_this_machine_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for zone in ("UTC", "Asia/Tokyo"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        found.append(times([line(START, 0, SAMPLE, 3600)], {"utc_offset": 3600, "now": START, "zone": ""}))
    monkeypatch.undo()
    time.tzset()
    assert found == [[START], [START]]
