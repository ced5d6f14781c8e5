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

from ansible_collections.muster.training.plugins.plugin_utils._report.downsample import Bucket, buckets
from ansible_collections.muster.training.plugins.plugin_utils._report.event_files import Scalar
from ansible_collections.muster.training.plugins.plugin_utils._report.untrusted import (
    clean,
    mapping,
    mappings,
    number,
    parsed,
)

MOST_CURVES = 200  # a script that writes a histogram of each layer by hand has thousands
MOST_POINTS = 2_000_000  # of all curves of a source together
LONGEST_NAME = 120
DRAWN = 600  # points of a curve that a picture shows
NO_CURVES = ("step", "epoch", "total_flos")  # columns that say where a value stands, or that no one looks at
# Hosts of W&B; a link elsewhere is shown as text: a job prints what it likes.
WANDB = re.compile(r"View run(?: [^\r\n]{1,200}?)? at:? *(https://[A-Za-z0-9./_%?=&:~-]{4,300})")


@dataclass
class Curve:
    """One measure over the steps of a training.

    step: the job's own count, or how many values came before; time: seconds since 1970, nan where it is not known.
    """

    name: str
    source: str
    step: array[float] = field(default_factory=lambda: array("d"))
    time: array[float] = field(default_factory=lambda: array("d"))
    value: array[float] = field(default_factory=lambda: array("d"))


class Curves:
    """The curves of one source as they are read, by name."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.found: dict[str, Curve] = {}
        self.names: dict[str, str] = {}  # as they were told -> as they are shown, of some: they come again and again
        self.broken: dict[str, float] = {}  # where a measure was no finite number first: its step
        self.points = 0
        self.left_out = 0  # values beyond the bounds

    def add(self, name: str, step: float, time: float, found: object) -> None:
        """Take one value where it is a number, unless there are too many already."""
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
        """The name of a curve as a page may show it."""
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
    """The curves of Hugging Face's Trainer: log_history, a list of what was known at each step.

    The last one holds sums, such as train_runtime, which are curves of one point.
    """
    curves = Curves(source)
    for count, entry in enumerate(mappings(mapping(document).get("log_history"), 1_000_000)):
        step = number(entry.get("step"))
        for name, value in entry.items():
            if name not in NO_CURVES:
                curves.add(str(name), float(count) if step is None else step, NOT_KNOWN, value)
    return curves


def from_metrics(source: str, lines: Iterable[str]) -> Curves:
    """The curves of Lightning's CSVLogger: a column a measure, with holes, and the columns step and epoch."""
    curves = Curves(source)
    try:
        for count, row in enumerate(csv.DictReader(lines)):
            step = number(of_text(row.get("step")))
            for name, value in row.items():
                if name and name not in NO_CURVES:
                    curves.add(name, float(count) if step is None else step, NOT_KNOWN, of_text(value))
    except csv.Error:  # a field of more than 128 KiB: what was read until then counts
        pass
    return curves


def of_text(value: Any) -> float | None:
    """A number that is written as a text, nan and inf too, None for all else."""
    try:
        return float(value) if isinstance(value, str) and len(value) < 64 else None
    except ValueError:
        return None


def from_said(source: str, lines: Iterable[str]) -> Curves:
    """The curves of MUSTER_RESULT lines that came more than once: each is a point, at its `step` or in its order.

    A line without a step, such as a last one that sums up, is no point of what came with steps before.
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
    """The curves of all sources, at most MOST_CURVES. Where two have the same name, the source goes with it."""
    everything = [curve for source in sources for curve in source.all() if curve.value][:MOST_CURVES]
    names = [curve.name for curve in everything]
    for curve in everything:
        if names.count(curve.name) > 1:
            curve.name = clean(f"{curve.name} ({curve.source})", 2 * LONGEST_NAME)
    return everything


def broken_in(sources: Iterable[Curves]) -> dict[str, float]:
    """The measures that were no finite number anywhere, each with the first step at which it was none."""
    found: dict[str, float] = {}
    for source in sources:
        for name, step in source.broken.items():
            found[name] = min(step, found.get(name, step))
    return found


def drawn(curve: Curve, most: int = DRAWN) -> list[Bucket]:
    """The curve over its steps, each value, or of longer ones so many parts at most."""
    if len(curve.value) <= most:
        pairs = sorted(zip(curve.step, curve.value, strict=False))
        return [Bucket(step, 1, value, value, value) for step, value in pairs]
    return buckets(zip(curve.step, curve.value, strict=False), min(curve.step), max(curve.step), most)


def links(text: str) -> list[str]:
    """The addresses of W&B runs in what a rank has written, each once."""
    found: dict[str, None] = {}
    for match in WANDB.finditer(text):
        found[match[1].rstrip(".:,")] = None
    return list(found)[:10]


def is_wandb(link: str) -> bool:
    """Whether an address is one of W&B's own host."""
    return re.match(r"https://(?:[a-z0-9-]+\.)?wandb\.ai/", link) is not None


def numbers_of(said: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of what a job said, by name."""
    found = {clean(str(name), LONGEST_NAME): number(value) for name, value in said.items()}
    return {name: value for name, value in found.items() if name and value is not None}


def rows(curves: Iterable[Curve]) -> Iterator[tuple[str, int, float, float, float]]:
    """Of each curve: its name, how many values, the last, the least and the most."""
    for curve in curves:
        yield curve.name, len(curve.value), curve.value[-1], min(curve.value), max(curve.value)
