# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Samples of a node's GPUs during a run, from gpus.csv in its run directory."""

from __future__ import annotations

import calendar
import re

FILE = "gpus.csv"
SAMPLE_ENVIRONMENT = {"TZ": "UTC0"}  # nvidia-smi prints local time without a time zone
# nvidia-smi field for each column; every driver since 418 supports them.
COLUMNS = {
    "timestamp": "timestamp",
    "index": "index",
    "utilization_percent": "utilization.gpu",
    "memory_used_mib": "memory.used",
    "memory_total_mib": "memory.total",
    "temperature_celsius": "temperature.gpu",
    "power_watts": "power.draw",
    "power_limit_watts": "power.limit",
}
# The driver's accounting data for each process over its whole life, if accounting is on (root: nvidia-smi -am 1): one
# line per GPU that says whether it is on, then one line per process. A process that is still running has time 0.
ACCOUNTING_FILE = "accounting.csv"
ACCOUNTING_ON = "Enabled"
ACCOUNTING_QUERIES = (
    "--query-gpu=index,uuid,accounting.mode",
    "--query-accounted-apps=gpu_uuid,pid,gpu_utilization,mem_utilization,max_memory_usage,time",
)
INDEX = re.compile(r"[0-9]{1,9}\Z")  # the job may write to the file as well
NUMBER = re.compile(r"[0-9]{1,15}(\.[0-9]{1,15})?\Z")
TREND_PARTS = 12  # components of the trend, computed from the samples at the end of gpus.csv
LEGACY_COLUMN_COUNT = 7  # columns of a file started by a version that did not record the power limit
HEADER = ", ".join(COLUMNS) + "\n"


def last_sample(text: str) -> tuple[float, list[dict[str, float | None]]]:
    """Return the time at which the last sample was taken, in seconds since 1970, and each GPU's last values, by index.

    text: the end of gpus.csv, read on the node that wrote it. None: a value that the driver omits. Skips lines
    that are not samples, such as nvidia-smi's errors and incomplete lines.
    """
    newest = 0.0
    devices: dict[int, dict[str, float | None]] = {}
    for line in text.rpartition("\n")[0].splitlines():
        sample = read_line(line)
        timestamp = parse_time(sample[0]) if sample else None
        if sample is not None and timestamp is not None:
            newest = max(newest, timestamp)
            devices[int(sample[1]["index"] or 0)] = sample[1]
    return newest, [devices[index] for index in sorted(devices)]


def utilization_trend(text: str) -> list[float]:
    """Return the mean utilization of a node's GPUs over time, in at most TREND_PARTS equal parts of the samples.

    text: the end of gpus.csv. A sample begins at each line whose GPU index is not above that of the previous line.
    """
    means: list[float] = []
    values: list[float] = []
    last = -1
    for line in text.rpartition("\n")[0].splitlines():
        sample = read_line(line)
        utilization = sample[1]["utilization_percent"] if sample else None
        if sample is None or utilization is None:
            continue
        index = int(sample[1]["index"] or 0)
        if index <= last and values:
            means.append(sum(values) / len(values))
            values = []
        values.append(utilization)
        last = index
    means += [sum(values) / len(values)] if values else []
    count = min(TREND_PARTS, len(means))
    parts = [means[len(means) * part // count : len(means) * (part + 1) // count] for part in range(count)]
    return [round(sum(part) / len(part), 1) for part in parts]


def read_line(line: str) -> tuple[str, dict[str, float | None]] | None:
    """Return a sample's time, as nvidia-smi writes it, and its values by column; None if the line is not a sample.

    The power limit is also None in files of earlier versions, which lack that column.
    """
    fields = line.split(", ")
    if len(fields) not in (LEGACY_COLUMN_COUNT, len(COLUMNS)) or not INDEX.match(fields[1]):
        return None
    values = dict.fromkeys(COLUMNS, "")
    values.update(zip(COLUMNS, fields))
    timestamp = values.pop("timestamp")
    return timestamp, {name: parse_number(value) for name, value in values.items()}


def time_fields(timestamp: str) -> tuple[int, int, int, int, int, float] | None:
    """Return year, month, day, hour, minute and seconds of a time such as "2026/11/22 10:15:00.123"."""
    match = re.match(r"([0-9]{4})/([0-9]{2})/([0-9]{2}) ([0-9]{2}):([0-9]{2}):([0-9]{2}(?:\.[0-9]+)?)\Z", timestamp)
    if match is None:
        return None
    return int(match[1]), int(match[2]), int(match[3]), int(match[4]), int(match[5]), float(match[6])


def parse_time(timestamp: str) -> float | None:
    """Return the time of a sample in seconds since 1970; None if it is not a time."""
    fields = time_fields(timestamp)
    if fields is None:
        return None
    year, month, day, hour, minute, second = fields
    try:
        return calendar.timegm((year, month, day, hour, minute, 0)) + second
    except (OverflowError, ValueError):  # an impossible time, such as month 13
        return None


def parse_number(text: str) -> float | None:
    """Return a value such as "512.34", or None for [N/A], [Unknown Error] and the like."""
    return float(text) if NUMBER.match(text) else None
