"""The activity of a node's GPUs during a run, from nvidia-smi samples."""

from __future__ import annotations

import time

import pytest

from ansible_collections.muster.training.plugins.module_utils._run.gpu_samples import (
    HEADER,
    TREND_PARTS,
    last_sample,
    utilization_trend,
)

BUSY = "2026/11/22 10:15:00.123, 0, 97, 72914, 81559, 64, 641.27, 700.00\n"
IDLE = "2026/11/22 10:15:00.125, 1, 0, 4, 81559, 31, 70.02, 700.00\n"
UNREPORTED = "2026/11/22 10:15:15.123, 0, [N/A], [Unknown Error], 81559, 64, [Not Supported], [N/A]\n"
LOST = "Unable to determine the device handle for GPU 0000:04:00.0: Unknown Error\n"
SECOND = {
    "index": 1,
    "utilization_percent": 0,
    "memory_used_mib": 4,
    "memory_total_mib": 81559,
    "temperature_celsius": 31,
    "power_watts": 70.02,
    "power_limit_watts": 700,
}


def test_last_sample_of_each_gpu_is_used() -> None:
    timestamp, devices = last_sample(HEADER + IDLE + BUSY + BUSY.replace("97", "12"))
    assert time.strftime("%Y/%m/%d %H:%M:%S", time.gmtime(timestamp)) == "2026/11/22 10:15:00" and timestamp % 1 > 0.12
    assert devices == [
        {
            "index": 0,
            "utilization_percent": 12,
            "memory_used_mib": 72914,
            "memory_total_mib": 81559,
            "temperature_celsius": 64,
            "power_watts": 641.27,
            "power_limit_watts": 700,
        },
        SECOND,
    ]


def test_the_trend_is_the_mean_of_the_gpus_over_time() -> None:
    rows = [(0, 10), (1, 30), (0, 50), (1, 70), (0, 100), (1, None)]
    lines = [f"2026/11/22 10:15:00.123, {index}, {busy or '[N/A]'}, 1, 2, 3, 4.0, 5.0\n" for index, busy in rows]
    assert utilization_trend(HEADER + "".join(lines)) == [20.0, 60.0, 100.0]
    many = utilization_trend("".join(lines) * 100)
    assert len(many) == TREND_PARTS and all(20 <= value <= 100 for value in many)
    assert utilization_trend("") == utilization_trend("error\n" + lines[0][:20]) == []


def test_file_from_an_older_version_is_read() -> None:
    """Older lines lack the power limit; a file that spans versions has both kinds of line."""
    former = IDLE.replace(", 700.00", "")
    assert last_sample(former) == (last_sample(IDLE)[0], [{**SECOND, "power_limit_watts": None}])
    assert last_sample(former + IDLE) == last_sample(IDLE)


def test_values_that_the_driver_does_not_report_are_none() -> None:
    timestamp, (first, second) = last_sample(BUSY + IDLE + UNREPORTED)
    assert timestamp - last_sample(BUSY + IDLE)[0] == pytest.approx(14.998)
    assert second == SECOND
    assert (first["utilization_percent"], first["memory_used_mib"], first["power_watts"]) == (None, None, None)
    assert first["temperature_celsius"] == 64


@pytest.mark.parametrize(
    "text",
    ["", HEADER, BUSY[:-1], BUSY[30:], BUSY.replace("2026/", ""), LOST],
    ids=["nothing", "no sample yet", "half a line", "the tail of a line", "no time", "a GPU is lost"],
)
def test_text_without_a_complete_sample_has_no_result(text: str) -> None:
    assert last_sample(text) == (0.0, [])


def test_failure_does_not_refresh_the_last_sample() -> None:
    assert last_sample(BUSY + LOST) == last_sample(BUSY)
