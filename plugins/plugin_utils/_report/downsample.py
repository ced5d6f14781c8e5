# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Downsample points for a plot to minimum, mean and maximum per bucket, since a mean alone hides outliers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple


class PointBucket(NamedTuple):
    """The values in one part of an axis: its midpoint, the number of values, and their minimum, mean and maximum."""

    position: float
    value_count: int
    least: float
    mean: float
    most: float


def buckets(points: Iterable[tuple[float, float]], start: float, end: float, count: int) -> list[PointBucket]:
    """Divide an axis from start to end into `count` buckets, and return those that contain a value, in order.

    Points outside the axis and values that are not finite are omitted. Empty buckets are not returned, so that gaps
    remain visible.

    Args:
        points: (position on the axis, value).
        start: Start of the axis.
        end: End of the axis.
        count: Number of buckets.
    """
    width = (end - start) / count or 1.0  # even if a job's steps are so close together that the quotient is 0
    least, most = [math.inf] * count, [-math.inf] * count
    total, number = [0.0] * count, [0] * count
    for position, value in points:
        if not start <= position <= end or not math.isfinite(value):
            continue
        index = min(int((position - start) / width), count - 1)
        number[index] += 1
        total[index] += value
        if value < least[index]:
            least[index] = value
        if value > most[index]:
            most[index] = value
    return [
        PointBucket(start + (part + 0.5) * width, number[part], least[part], total[part] / number[part], most[part])
        for part in range(count)
        if number[part]
    ]
