# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Named training curves: from event files, trainer_state.json, metrics.csv and repeated MUSTER_RESULT lines. Pure.

Private to this collection, controller only.
"""

from __future__ import annotations

import csv
import math
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import (
    clean,
    mapping,
    mappings,
    number,
    parsed,
)
from ansible_collections.muster.training.plugins.plugin_utils._report.downsample import Bucket, buckets
from ansible_collections.muster.training.plugins.plugin_utils._report.event_files import Scalar

MOST_CURVES = 200  # a script that writes a histogram of each layer by hand has thousands
MOST_POINTS = 2_000_000  # in all curves of a source together
LONGEST_NAME = 120
DRAWN = 600  # points of a curve in a picture
NO_CURVES = ("step", "epoch", "total_flos")  # columns that only locate a value, or that nobody reads
# A W&B run's address. It becomes a link only on W&B's own host, else text: a job can print any address.
WANDB = re.compile(r"View run(?: [^\r\n]{1,200}?)? at:? *(https://[A-Za-z0-9./_%?=&:~-]{4,300})")


@dataclass
class Curve:
    """One measure over the steps of a training.

    step: the job's own count, or the number of earlier values; time: seconds since 1970, nan if unknown.
    """

    name: str
    source: str
    step: array[float] = field(default_factory=lambda: array("d"))
    time: array[float] = field(default_factory=lambda: array("d"))
    value: array[float] = field(default_factory=lambda: array("d"))


class Curves:
    """Collects the curves of one source by name."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.found: dict[str, Curve] = {}
        self.names: dict[str, str] = {}  # reported name -> shown name; a bounded cache, since names repeat
        self.broken: dict[str, float] = {}  # measure -> first step at which it was not finite
        self.points = 0
        self.left_out = 0  # values beyond the limits

    def add(self, name: str, step: float, time: float, found: object) -> None:
        """Add one value if it is a finite number and the limits allow it."""
        value = number(found)
        name = self.shown(name)
        if value is None:
            if isinstance(found, float) and not math.isfinite(found) and len(self.broken) < MOST_CURVES:
                self.broken.setdefault(name, step)
            return
        curve = self.found.get(name)
        if self.points >= MOST_POINTS or (curve is None and len(self.found) >= MOST_CURVES):
            self.left_out += 1
            return
        if curve is None:
            curve = self.found[name] = Curve(name, self.source)
        self.points += 1
        curve.step.append(step)
        curve.time.append(time)
        curve.value.append(value)

    def shown(self, told: str) -> str:
        """A curve's name, cleaned for display."""
        name = self.names.get(told)
        if name is None:
            name = clean(told, LONGEST_NAME) or "unnamed"
            if len(self.names) < MOST_CURVES:
                self.names[told] = name
        return name

    def all(self) -> list[Curve]:
        """The curves in the order in which they were first seen."""
        return list(self.found.values())


NOT_KNOWN = float("nan")


def from_events(source: str, scalars: Iterable[Scalar]) -> Curves:
    """The curves of TensorBoard's event files."""
    curves = Curves(source)
    for scalar in scalars:
        time = number(scalar.time)
        known = time is not None and 0 < time < 1e11
        curves.add(scalar.tag, float(scalar.step), scalar.time if known else NOT_KNOWN, scalar.value)
    return curves


def from_trainer_state(source: str, document: Any) -> Curves:
    """The curves of Hugging Face's Trainer: log_history, a list of entries with the values at a step.

    The last entry holds totals, such as train_runtime, which become curves of one point.
    """
    curves = Curves(source)
    for count, entry in enumerate(mappings(mapping(document).get("log_history"), 1_000_000)):
        step = number(entry.get("step"))
        for name, value in entry.items():
            if name not in NO_CURVES:
                curves.add(str(name), float(count) if step is None else step, NOT_KNOWN, value)
    return curves


def from_metrics(source: str, lines: Iterable[str]) -> Curves:
    """The curves of Lightning's CSVLogger: a column per measure, with gaps, and the columns step and epoch."""
    curves = Curves(source)
    try:
        for count, row in enumerate(csv.DictReader(lines)):
            step = number(of_text(row.get("step")))
            for name, value in row.items():
                if name and name not in NO_CURVES:
                    curves.add(name, float(count) if step is None else step, NOT_KNOWN, of_text(value))
    except csv.Error:  # a field of more than 128 KiB: keep the rows before it
        pass
    return curves


def of_text(value: Any) -> float | None:
    """A number written as text, including nan and inf; None for anything else."""
    try:
        return float(value) if isinstance(value, str) and len(value) < 64 else None
    except ValueError:
        return None


def from_said(source: str, lines: Iterable[str]) -> Curves:
    """The curves of values that MUSTER_RESULT lines repeat: each is a point, at its `step` or its position.

    A line without a step, such as a final summary, adds no point to a curve that had steps before.
    """
    curves = Curves(source)
    stepped: set[str] = set()
    for count, line in enumerate(lines):
        said = mapping(parsed(line))
        step = number(said.get("step"))
        time = number(said.get("time"))
        for name, value in said.items():
            if step is not None:
                stepped.add(name)
            if name not in (*NO_CURVES, "time") and (step is not None or name not in stepped):
                known = time is not None and 0 < time < 1e11
                place = float(count) if step is None else step
                curves.add(str(name), place, time if known and time is not None else NOT_KNOWN, value)
    return curves


def joined(sources: Iterable[Curves]) -> list[Curve]:
    """The curves of all sources, at most MOST_CURVES. The source is added to names that occur twice."""
    everything = [curve for source in sources for curve in source.all() if curve.value][:MOST_CURVES]
    names = [curve.name for curve in everything]
    for curve in everything:
        if names.count(curve.name) > 1:
            curve.name = clean(f"{curve.name} ({curve.source})", 2 * LONGEST_NAME)
    return everything


def broken_in(sources: Iterable[Curves]) -> dict[str, float]:
    """The measures that were not finite at some step, each with the first such step."""
    found: dict[str, float] = {}
    for source in sources:
        for name, step in source.broken.items():
            found[name] = min(step, found.get(name, step))
    return found


def drawn(curve: Curve, most: int = DRAWN) -> list[Bucket]:
    """The points of a curve by step: every value, or for curves longer than most, at most so many buckets."""
    if len(curve.value) <= most:
        pairs = sorted(zip(curve.step, curve.value, strict=False))
        return [Bucket(step, 1, value, value, value) for step, value in pairs]
    return buckets(zip(curve.step, curve.value, strict=False), min(curve.step), max(curve.step), most)


def links(text: str) -> list[str]:
    """The addresses of W&B runs in a rank's output, each once, at most 10."""
    found: dict[str, None] = {}
    for match in WANDB.finditer(text):
        found[match[1].rstrip(".:,")] = None
    return list(found)[:10]


def is_wandb(link: str) -> bool:
    """Whether an address is on W&B's own host."""
    return re.match(r"https://(?:[a-z0-9-]+\.)?wandb\.ai/", link) is not None


def numbers_of(said: Mapping[str, Any]) -> dict[str, float]:
    """The numbers that a job reported, by name."""
    found = {clean(str(name), LONGEST_NAME): number(value) for name, value in said.items()}
    return {name: value for name, value in found.items() if name and value is not None}


def rows(curves: Iterable[Curve]) -> Iterator[tuple[str, int, float, float, float]]:
    """For each curve: its name, the number of values, the last, the least and the greatest."""
    for curve in curves:
        yield curve.name, len(curve.value), curve.value[-1], min(curve.value), max(curve.value)
