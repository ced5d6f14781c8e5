# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The curves of the metrics that a job prints or reports while it is running, in fixed memory."""

from __future__ import annotations

from array import array
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._run.job_results import parse_report
from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import clean_text, to_number
from ansible_collections.muster.training.plugins.plugin_utils._report.downsample import buckets
from ansible_collections.muster.training.plugins.plugin_utils._report.printed_metrics import (
    PrintedMetrics,
    Series,
    is_curve,
)

# total number of points of all metrics beyond which about half of each metric's points are dropped
MAX_POINTS = 100_000
MAX_REPORTED = 30  # metrics in MUSTER_RESULT
PARTS = 240  # number of intervals on a curve's axis
MAX_NAME = 80


class JobMetrics:
    """Metrics found in the lines of rank 0's output."""

    def __init__(self) -> None:
        self.printed = PrintedMetrics()
        self.reported: dict[str, Series] = {}
        self.number = 0  # changes with each new value

    def feed(self, line: str) -> bool:
        """Examine a line; return whether it is a report from the job, which is not shown as output."""
        report = parse_report(line)
        if report is None:
            points = self.printed.points
            self.printed.feed(line)
            self.number += self.printed.points - points
        else:
            self.take(report)
        if self.printed.points > MAX_POINTS:
            self.thin()
        return report is not None

    def take(self, report: dict[str, Any]) -> None:
        """Add the numbers in a report from the job."""
        step = to_number(report.get("step"))
        for key, value in report.items():
            number, name = to_number(value), clean_text(key, MAX_NAME)
            if number is None or not name or key == "step":
                continue
            if name not in self.reported and len(self.reported) >= MAX_REPORTED:
                continue
            series = self.reported.setdefault(name, Series())
            series.step.append(float(len(series.value)) if step is None else step)
            series.value.append(number)
            self.number += 1
            if len(series.value) > MAX_POINTS // MAX_REPORTED:
                thin(series)

    def thin(self) -> None:
        """Drop about half of the points of each printed metric."""
        for series in self.printed.series.values():
            thin(series)
        self.printed.points = sum(len(series.value) for series in self.printed.series.values())

    def curves(self) -> list[dict[str, Any]]:
        """Return each curve: its name, last value and step, and its points as [step, minimum, mean, maximum]."""
        curves = [describe(name, series) for name, series in self.reported.items() if len(series.value) > 1]
        names = {curve["name"] for curve in curves}
        for key, name in self.printed.names.items():
            candidates = [
                (kind == "step", len(series.value), kind)
                for (series_key, kind), series in self.printed.series.items()
                if series_key == key and is_curve(series, kind)
            ]
            if candidates and clean_text(name, MAX_NAME) not in names:
                series = self.printed.series[(key, max(candidates)[2])]
                curves.append(describe(clean_text(name, MAX_NAME), series))
        return curves


def thin(series: Series) -> None:
    """Keep about half of the points in a series, evenly spaced, and the last point, from which the series continues.

    The points span the whole run however often this is repeated.
    """
    parts = max(1, len(series.step) // 2)
    start, span = min(series.step), max(series.step) - min(series.step) or 1.0
    kept: dict[int, int] = {}
    for index, step in enumerate(series.step):
        kept.setdefault(int(parts * (step - start) / span), index)
    indices = sorted({*kept.values(), len(series.step) - 1})
    for values in (series.step, series.value, series.epochs):
        if values:  # only the Trainer's metrics include epochs
            values[:] = array("d", [values[index] for index in indices])


def describe(name: str, series: Series) -> dict[str, Any]:
    """Return a curve for the page."""
    steps = series.step
    points = buckets(zip(steps, series.value, strict=True), min(steps), max(steps), PARTS)
    return {
        "name": name,
        "last": to_number(series.value[-1]),
        "step": to_number(steps[-1]),
        "first": to_number(min(steps)),
        "points": [[point.position, point.least, point.mean, point.most] for point in points],
    }
