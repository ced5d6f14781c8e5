# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Named training curves: from event files, trainer_state.json, tables and repeated MUSTER_RESULT lines.

Those that a job only prints: printed_metrics.py.
"""

from __future__ import annotations

import csv
import math
import re
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._run.job_results import restore_report
from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import (
    clean_text,
    parse_json,
    to_mapping,
    to_mappings,
    to_number,
)
from ansible_collections.muster.training.plugins.plugin_utils._report.downsample import PointBucket, buckets
from ansible_collections.muster.training.plugins.plugin_utils._report.event_files import Scalar

MAX_CURVES = 200  # a script that writes a histogram for each layer by hand has thousands
MAX_POINTS = 2_000_000  # total number of points in all curves of a source
MAX_NAME = 120
MAX_DRAWN_POINTS = 600  # number of points of a curve in a picture
EXCLUDED_COLUMNS = ("step", "epoch", "total_flos")  # columns that only locate a value or are of no use
# A W&B run's address. It becomes a link only if it is on W&B's own host, and text otherwise: a job can print any
# address.
WANDB = re.compile(r"View run(?: [^\r\n]{1,200}?)? at:? *(https://[A-Za-z0-9./_%?=&:~-]{4,300})")


@dataclass
class Curve:
    """A measure over the steps of a job.

    step: the job's own count, or the number of earlier values; time: seconds since 1970, nan if unknown; unit: what
    step counts: step, epoch or value.
    """

    name: str
    source: str
    step: array[float] = field(default_factory=lambda: array("d"))
    time: array[float] = field(default_factory=lambda: array("d"))
    value: array[float] = field(default_factory=lambda: array("d"))
    unit: str = "step"


class CurveSet:
    """The curves of one source, by name."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.curves: dict[str, Curve] = {}
        self.names: dict[str, str] = {}  # reported name -> shown name; a bounded cache, since names repeat
        self.non_finite: dict[str, float] = {}  # metric -> first step at which it was not finite
        self.single: dict[str, float] = {}  # metric -> its only value, which is not a curve
        self.points = 0
        self.left_out = 0  # number of values beyond the limits

    def add(self, name: str, step: float, time: float, raw_value: object) -> None:
        """Add a value if it is a finite number and the limits allow it."""
        value = to_number(raw_value)
        name = self.display_name(name)
        if value is None:
            if isinstance(raw_value, float) and not math.isfinite(raw_value) and len(self.non_finite) < MAX_CURVES:
                self.non_finite.setdefault(name, step)
            return
        curve = self.curves.get(name)
        if self.points >= MAX_POINTS or (curve is None and len(self.curves) >= MAX_CURVES):
            self.left_out += 1
            return
        if curve is None:
            curve = self.curves[name] = Curve(name, self.source)
        self.points += 1
        curve.step.append(step)
        curve.time.append(time)
        curve.value.append(value)

    def set_unit(self, name: str, unit: str) -> None:
        """Set the unit of a curve's steps, if it has a value."""
        curve = self.curves.get(self.display_name(name))
        if curve is not None:
            curve.unit = unit

    def display_name(self, reported_name: str) -> str:
        """Return a curve's name, cleaned for display."""
        name = self.names.get(reported_name)
        if name is None:
            name = clean_text(reported_name, MAX_NAME) or "unnamed"
            if len(self.names) < MAX_CURVES:
                self.names[reported_name] = name
        return name

    def list_curves(self) -> list[Curve]:
        """Return the curves in the order in which they first appeared."""
        return list(self.curves.values())


UNKNOWN = float("nan")


def curves_from_events(source: str, scalars: Iterable[Scalar]) -> CurveSet:
    """Return the curves in TensorBoard event files."""
    curves = CurveSet(source)
    for scalar in scalars:
        time = to_number(scalar.time)
        known_time = time is not None and 0 < time < 1e11
        curves.add(scalar.tag, float(scalar.step), scalar.time if known_time else UNKNOWN, scalar.value)
    return curves


def curves_from_trainer_state(source: str, document: Any) -> CurveSet:
    """Return the curves of the Hugging Face Trainer: log_history, a list of entries with the values at a step.

    The last entry holds totals, such as train_runtime, which become curves of one point.
    """
    curves = CurveSet(source)
    for count, entry in enumerate(to_mappings(to_mapping(document).get("log_history"), 1_000_000)):
        step = to_number(entry.get("step"))
        for name, value in entry.items():
            if name not in EXCLUDED_COLUMNS:
                curves.add(str(name), float(count) if step is None else step, UNKNOWN, value)
    return curves


def curves_from_metrics(source: str, lines: Iterable[str], position_required: bool = False) -> CurveSet:
    """Return the curves of Lightning's CSVLogger: one column per measure, with gaps, and the columns step and epoch.

    The tables of timm and Ultralytics have an epoch, but no step. position_required: whether a table with neither,
    whose rows may be anything, gives no curves.
    """
    curves = CurveSet(source)
    try:
        for count, row in enumerate(csv.DictReader(lines, skipinitialspace=True)):
            if position_required and "step" not in row and "epoch" not in row:
                break
            position = to_number(parse_number(row.get("step", row.get("epoch"))))
            for name, value in row.items():
                if name and name not in EXCLUDED_COLUMNS:
                    curves.add(name, float(count) if position is None else position, UNKNOWN, parse_number(value))
                    if "step" not in row:
                        curves.set_unit(name, "epoch" if "epoch" in row else "value")
    except csv.Error:  # a field of more than 128 KiB: keep the rows before it
        pass
    return curves


def parse_number(value: Any) -> float | None:
    """Return a number written as text, including nan and inf, or None for anything else."""
    try:
        return float(value) if isinstance(value, str) and len(value) < 64 else None
    except ValueError:
        return None


def curves_from_job_reports(source: str, lines: Iterable[str]) -> CurveSet:
    """Return the curves of values in repeated MUSTER_RESULT lines: each value is a point at its `step` or its position.

    A line without a step, such as a final summary, adds no point to a curve that had steps before.
    """
    curves = CurveSet(source)
    stepped: set[str] = set()
    for count, line in enumerate(lines):
        report = restore_report(to_mapping(parse_json(line)))
        step = to_number(report.get("step"))
        time = to_number(report.get("time"))
        for name, value in report.items():
            if step is not None:
                stepped.add(name)
            if name not in (*EXCLUDED_COLUMNS, "time") and (step is not None or name not in stepped):
                known_time = time is not None and 0 < time < 1e11
                position = float(count) if step is None else step
                curves.add(str(name), position, time if known_time and time is not None else UNKNOWN, value)
    return curves


def merge_curves(sources: Iterable[CurveSet]) -> list[Curve]:
    """Return the curves of all sources, at most MAX_CURVES. The source is appended to duplicate names."""
    all_curves = [curve for source in sources for curve in source.list_curves() if curve.value][:MAX_CURVES]
    names = [curve.name for curve in all_curves]
    for curve in all_curves:
        if names.count(curve.name) > 1:
            curve.name = clean_text(f"{curve.name} ({curve.source})", 2 * MAX_NAME)
    return all_curves


def find_non_finite(sources: Iterable[CurveSet]) -> dict[str, float]:
    """Return the measures that were not finite at some step, each with the first such step."""
    first_steps: dict[str, float] = {}
    for source in sources:
        for name, step in source.non_finite.items():
            first_steps[name] = min(step, first_steps.get(name, step))
    return first_steps


def points_to_draw(curve: Curve, limit: int = MAX_DRAWN_POINTS) -> list[PointBucket]:
    """Return the points of a curve by step: every value, or at most `limit` buckets if the curve is longer."""
    if len(curve.value) <= limit:
        pairs = sorted(zip(curve.step, curve.value, strict=False))
        return [PointBucket(step, 1, value, value, value) for step, value in pairs]
    return buckets(zip(curve.step, curve.value, strict=False), min(curve.step), max(curve.step), limit)


def find_links(text: str) -> list[str]:
    """Return the URLs of W&B runs in a rank's output, without duplicates, at most 10."""
    addresses: dict[str, None] = {}
    for match in WANDB.finditer(text):
        addresses[match[1].rstrip(".:,")] = None
    return list(addresses)[:10]


def is_wandb(link: str) -> bool:
    """Return whether a URL is on W&B's own host."""
    return re.match(r"https://(?:[a-z0-9-]+\.)?wandb\.ai/", link) is not None


def reported_numbers(report: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers that a job reported, by name."""
    numbers = {clean_text(str(name), MAX_NAME): to_number(value) for name, value in report.items()}
    return {name: value for name, value in numbers.items() if name and value is not None}
