# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Convert lines from gpus.csv to samples by GPU, with times in seconds since 1970."""

from __future__ import annotations

import calendar
import math
import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from ansible_collections.muster.training.plugins.module_utils._run.gpu_samples import COLUMNS

NAMES = tuple(dict.fromkeys((*COLUMNS, "power_limit_watts")))  # column names
FORMER_COLUMN_COUNT = len(NAMES) - 1  # number of columns in older records, which lack the last one
MAX_GPUS = 64  # number of GPUs in one node
MAX_COLUMNS = 64  # number of columns in a sample
MAX_SAMPLES = 4_000_000  # number of samples from one node: 16 GPUs for six weeks
MAX_VALUE = 1e9  # no GPU reports a number as large as this
TIMESTAMP = re.compile(r"([0-9]{4})/([0-9]{2})/([0-9]{2}) ([0-9]{2}):([0-9]{2}):([0-9]{2})(\.[0-9]{1,9})?\Z")


@dataclass
class GpuSamples:
    """The samples of one GPU. All arrays have the same length; nan means that the driver did not report a value.

    time: seconds since 1970; utilization_percent: 0 to 100; memory in MiB, temperature in degrees Celsius, power in W.
    """

    node: str
    index: int
    model: str = ""
    time: array[float] = field(default_factory=lambda: array("d"))
    utilization_percent: array[float] = field(default_factory=lambda: array("d"))
    memory_used_mib: array[float] = field(default_factory=lambda: array("d"))
    memory_total_mib: array[float] = field(default_factory=lambda: array("d"))
    temperature_celsius: array[float] = field(default_factory=lambda: array("d"))
    power_watts: array[float] = field(default_factory=lambda: array("d"))
    power_limit_watts: array[float] = field(default_factory=lambda: array("d"))

    @property
    def name(self) -> str:
        """The name of this GPU in messages."""
        return f"{self.node} GPU {self.index}"

    def __post_init__(self) -> None:
        self.measures = tuple(self.measure(name) for name in NAMES[2:])

    def measure(self, name: str) -> array[float]:
        """Return the samples for one of NAMES, except the first two names."""
        samples: array[float] = getattr(self, name)
        return samples


def read_gpus(node: str, lines: Iterable[str], models: Mapping[int, str] | None = None) -> list[GpuSamples]:
    """Return the GPUs of a node and their samples, by index, from the lines of gpus.csv.

    Lines that are not samples are skipped: nvidia-smi error messages, and truncated lines. The header line names the
    columns; without one, they are NAMES.
    """
    gpus: dict[int, GpuSamples] = {}
    names: tuple[str, ...] = NAMES
    columns = column_indices(names)
    minutes: dict[str, float] = {}  # the last minute that was read, and when it began
    sample_count = 0
    for line in lines:
        values = line.split(",")
        stamp = values[0].strip()
        if stamp == "timestamp":
            names = tuple(value.strip() for value in values[:MAX_COLUMNS])
            columns = column_indices(names)
            continue
        if len(values) not in (len(names), FORMER_COLUMN_COUNT) or not stamp[:1].isdigit():
            continue
        values += [""] * (
            max(len(names), FORMER_COLUMN_COUNT) + 1 - len(values)
        )  # missing columns are empty, including the one at index -1
        minute_start = minutes.get(stamp[:16])
        if minute_start is None:
            minute_start = parse_minute(stamp)
            minutes = {stamp[:16]: minute_start} if minute_start is not None else {}
        second = parse_value(stamp[17:])
        index = values[columns[0]].strip()
        if minute_start is None or not 0 <= second < 61 or not (index.isascii() and index.isdigit() and len(index) < 4):
            continue
        gpu = gpus.get(int(index))
        if gpu is None:
            if len(gpus) >= MAX_GPUS:
                continue
            gpu = gpus[int(index)] = GpuSamples(node, int(index), (models or {}).get(int(index), ""))
        sample_count += 1
        if sample_count > MAX_SAMPLES:
            break
        gpu.time.append(minute_start + second)
        for samples, column in zip(gpu.measures, columns[1:], strict=True):
            samples.append(parse_value(values[column].lstrip()))
    return [gpus[index] for index in sorted(gpus)]


def column_indices(names: Sequence[str]) -> list[int]:
    """Return the column for each of NAMES after the first, or -1 if it is missing."""
    return [names.index(name) if name in names else -1 for name in NAMES[1:]]


def parse_minute(stamp: str) -> float | None:
    """Return the start of the minute in a time such as "2026/11/22 10:15:00.123" in UTC."""
    match = TIMESTAMP.match(stamp)
    if match is None:
        return None
    year, month, day, hour, minute = (int(match[group]) for group in range(1, 6))
    try:
        datetime(year, month, day, hour, minute)
    except ValueError:
        return None
    return float(calendar.timegm((year, month, day, hour, minute, 0)))


def parse_value(text: str) -> float:
    """Return a value such as "512.34", or nan for [N/A], [Unknown Error] and similar texts."""
    if not text[:1].isdigit():
        return math.nan
    try:
        value = float(text)
    except ValueError:
        return math.nan
    return value if value < MAX_VALUE else math.nan
