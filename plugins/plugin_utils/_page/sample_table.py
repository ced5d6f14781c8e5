# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Samples of many series over a run of any length, in fixed memory: time buckets with minimum, mean and maximum."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable

from ansible_collections.muster.training.plugins.plugin_utils._report.downsample import PointBucket

PARTS = 360  # number of time buckets in a run; each has one mean per series
FIRST_WIDTH = 15.0  # initial length of a bucket in seconds; it doubles when all buckets are used
MAX_SERIES = 8192
LONGEST = 400 * 86400.0  # maximum length of a run in seconds; later samples come from a wrong clock


class Row:
    """The sums of one series by time bucket."""

    def __init__(self) -> None:
        self.total = array("d", [0.0]) * PARTS
        self.count = array("L", [0]) * PARTS
        self.least = array("f", [math.inf]) * PARTS
        self.most = array("f", [-math.inf]) * PARTS

    def add(self, part: int, value: float) -> None:
        """Add a value to its time bucket."""
        self.total[part] += value
        self.count[part] += 1
        self.least[part] = min(self.least[part], value)
        self.most[part] = max(self.most[part], value)

    def halve(self) -> None:
        """Merge each pair of neighboring buckets, which frees the second half of the buckets."""
        for part in range(PARTS):
            first, second = 2 * part, 2 * part + 1
            is_used = second < PARTS
            self.total[part] = self.total[first] + self.total[second] if is_used else 0.0
            self.count[part] = self.count[first] + self.count[second] if is_used else 0
            self.least[part] = min(self.least[first], self.least[second]) if is_used else math.inf
            self.most[part] = max(self.most[first], self.most[second]) if is_used else -math.inf

    def means(self, end: int) -> list[float | None]:
        """Return the mean of each bucket before an end index, or None for buckets without samples."""
        return [self.total[part] / self.count[part] if self.count[part] else None for part in range(min(end, PARTS))]


class SampleTable:
    """Series by name over a common time axis that grows with the run, while memory use stays constant."""

    def __init__(self) -> None:
        self.start: float | None = None
        self.width = FIRST_WIDTH
        self.rows: dict[tuple[str, ...], Row] = {}
        self.used = 0  # number of buckets up to the last one that contains a sample

    def add(self, name: tuple[str, ...], moment: float, value: float | None) -> None:
        """Add a sample. moment: seconds since 1970; a time before the first sample is treated as the time of the
        first.
        """
        if value is None or not math.isfinite(value):
            return
        if self.start is None:
            self.start = moment
        if moment - self.start > LONGEST:
            return
        row = self.rows.get(name)
        if row is None:
            if len(self.rows) >= MAX_SERIES:
                return
            row = self.rows[name] = Row()
        while (moment - self.start) / self.width >= PARTS:
            self.double()
        part = max(0, int((moment - self.start) / self.width))
        row.add(part, value)
        self.used = max(self.used, part + 1)

    def double(self) -> None:
        """Double the duration of each bucket."""
        self.width *= 2
        self.used = (self.used + 1) // 2
        for row in self.rows.values():
            row.halve()

    def means(self, name: tuple[str, ...]) -> list[float | None]:
        """Return the mean of each bucket in a series, or [] if the series does not exist."""
        row = self.rows.get(name)
        return row.means(self.used) if row is not None else []

    def buckets(self, name: tuple[str, ...]) -> list[PointBucket]:
        """Return the buckets in a series that contain samples. position: seconds since the first sample."""
        row = self.rows.get(name)
        if row is None:
            return []
        return [
            PointBucket(
                (part + 0.5) * self.width,
                row.count[part],
                row.least[part],
                row.total[part] / row.count[part],
                row.most[part],
            )
            for part in range(self.used)
            if row.count[part]
        ]


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the known values, or None if there is none."""
    numbers = [value for value in values if value is not None]
    return sum(numbers) / len(numbers) if numbers else None
