# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which batch to try next, from those tried so far. Pure. Private to this collection, controller only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

ROOM = 0.99  # of the memory is aimed at: the line is a guess, and only a probe decides
NEARLY, SHORT, FARTHEST = 0.02, 0.75, 32.0  # of a batch: where to look above it, below it, and no farther than
CONFIRMATIONS = 4  # batches that are tried at most to confirm the result


class Probe(TypedDict):
    """One launch with a batch. memory_mib: the most that a GPU, or a process, has used; total_mib: what there is."""

    batch: int
    fits: bool
    confirms: bool
    run_id: str
    why: str
    seconds: float
    memory_mib: float | None
    total_mib: float | None
    samples_per_second: float | None


class Search(TypedDict):
    """What is searched for: the first batch, its steps, the largest, and the share that is taken off at the end."""

    start: int
    multiple: int
    most: int
    margin: float


class Next(TypedDict):
    """What comes next: a batch to try, or the result. result 0: not even a batch of 1 fits. left: probes, about."""

    done: bool
    batch: int
    confirms: bool
    result: int
    left: int


def down(batch: float, multiple: int) -> int:
    """A batch that is a multiple, and not larger; below the multiple any number will do."""
    whole = int(batch)
    return whole // multiple * multiple if whole >= multiple else max(1, whole)


def bounds(history: Sequence[Probe]) -> tuple[int, int | None]:
    """The largest batch that fits, 0 if none does, and the smallest above it that does not."""
    low = max((one["batch"] for one in history if one["fits"]), default=0)
    high = min((one["batch"] for one in history if not one["fits"]), default=None)
    return low, high


def line(history: Sequence[Probe], room: float) -> float | None:
    """The batch that would take this share of the memory, by the line through the least and the most that fit."""
    points = sorted({one["batch"]: one["memory_mib"] for one in history if one["fits"] and one["memory_mib"]}.items())
    totals = [one["total_mib"] for one in history if one["total_mib"]]
    if len(points) < 2 or not totals:
        return None
    (first, less), (last, more) = points[0], points[-1]
    slope = ((more or 0.0) - (less or 0.0)) / (last - first)
    return last + (room * min(totals) - (more or 0.0)) / slope if slope > 0 else None


def above(low: int, guess: float | None, search: Search) -> int:
    """A batch above the largest that fits, where none is known that does not."""
    if guess is None:
        wanted = 2.0 * low
    elif guess > low + search["multiple"]:
        wanted = min(guess, FARTHEST * low)
    else:
        wanted = low + NEARLY * low  # the line says that this is about it: what does not fit must be near
    return min(max(down(wanted, search["multiple"]), low + step(low, search)), search["most"])


def between(low: int, high: int, guess: float | None, search: Search) -> int:
    """A batch between one that fits and one that does not."""
    wanted = (low + high) / 2.0
    if guess is not None:
        wanted = (
            guess if guess < high else max(wanted, SHORT * high)
        )  # the line was too steep: from nearer it is better
    return min(max(down(wanted, search["multiple"]), low + step(low, search)), high - 1)


def step(low: int, search: Search) -> int:
    """From one batch to the next that is looked at: a multiple; below the first of these any number."""
    return search["multiple"] - low % search["multiple"] if low >= search["multiple"] else 1


def candidate(history: Sequence[Probe], search: Search) -> int:
    """The next batch to try, 0 if the largest is known."""
    if not history:
        return min(search["start"], search["most"])
    low, high = bounds(history)
    if low == 0:
        return 0 if high == 1 else down((high or 2) / 2, search["multiple"])
    if high is None:
        return above(low, line(history, ROOM), search) if low < search["most"] else 0
    if high - low <= step(low, search):
        return 0
    # the line and the middle in turn: together they are never much slower than the middle alone
    since = sum(1 for one in history if one["batch"] >= high or one["batch"] >= low)
    return between(low, high, line(history, 1.0) if since % 2 == 0 else None, search)


def confirmed(history: Sequence[Probe], largest: int, search: Search) -> Next:
    """The result with its margin, once a longer run has had it; the next lower one where that has failed."""
    tried = [one for one in history if one["confirms"]]
    batch = down(largest * (1.0 - search["margin"]), search["multiple"])
    for one in tried:
        if one["fits"]:
            return {"done": True, "batch": 0, "confirms": False, "result": one["batch"], "left": 0}
        batch = down(one["batch"] - search["multiple"], search["multiple"]) if one["batch"] > search["multiple"] else 0
    if batch == 0 or len(tried) >= CONFIRMATIONS:
        return {"done": True, "batch": 0, "confirms": False, "result": 0, "left": 0}
    return {"done": False, "batch": batch, "confirms": True, "result": 0, "left": 1}


def fit_next(history: Sequence[Probe], search: Search) -> Next:
    """What comes after these probes."""
    probes = [one for one in history if not one["confirms"]]
    batch = candidate(probes, search)
    if batch:
        low, high = bounds(probes)
        room = max(1, ((high or 4 * max(low, search["start"])) - low) // search["multiple"])
        return {"done": False, "batch": batch, "confirms": False, "result": 0, "left": 1 + room.bit_length()}
    largest, _high = bounds(probes)
    if largest == 0:
        return {"done": True, "batch": 0, "confirms": False, "result": 0, "left": 0}
    return confirmed(history, largest, search)


def fastest(history: Sequence[Probe]) -> Probe | None:
    """The smallest batch that is within 2 % of the best throughput: the largest is often not the fastest."""
    known = [one for one in history if one["fits"] and one["samples_per_second"]]
    if not known:
        return None
    best = max(one["samples_per_second"] or 0.0 for one in known)
    return min(
        (one for one in known if (one["samples_per_second"] or 0.0) >= 0.98 * best), key=lambda one: one["batch"]
    )
