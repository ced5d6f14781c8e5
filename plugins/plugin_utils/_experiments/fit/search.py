# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Choose the next batch to try from those tried so far. Pure. Private to this collection, controller only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

ROOM = 0.99  # target share of the memory: the line is a guess, and only a probe decides
NEARLY, SHORT, FARTHEST = 0.02, 0.75, 32.0  # shares of a batch: how far to go above it, below it, and at most
CONFIRMATIONS = 4  # most batches tried to confirm the result
USUAL = 5  # probes of a search where memory is known, without the confirmation


class Probe(TypedDict):
    """One launch with a batch. memory_mib: peak memory of a process or a GPU; total_mib: memory of a GPU."""

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
    """Settings of a search: first batch, step, largest batch, and the share taken off the result."""

    start: int
    multiple: int
    most: int
    margin: float


class Next(TypedDict):
    """The next batch to try, or the result. result 0: nothing fits or was confirmed. left: about how many probes,
    this one included, before the result is confirmed."""

    done: bool
    batch: int
    confirms: bool
    result: int
    left: int


def down(batch: float, multiple: int) -> int:
    """Round a batch down to a multiple; below the first multiple, to an integer of at least 1."""
    whole = int(batch)
    return whole // multiple * multiple if whole >= multiple else max(1, whole)


def bounds(history: Sequence[Probe]) -> tuple[int, int | None]:
    """The largest batch that fits, 0 if none does, and the smallest above it that does not."""
    low = max((one["batch"] for one in history if one["fits"]), default=0)
    high = min((one["batch"] for one in history if not one["fits"]), default=None)
    return low, high


def line(history: Sequence[Probe], room: float) -> float | None:
    """The batch that would use this share of the memory, by the line through the smallest and largest that fit.

    None if fewer than two are known, or memory does not grow with the batch.
    """
    points = sorted({one["batch"]: one["memory_mib"] for one in history if one["fits"] and one["memory_mib"]}.items())
    totals = [one["total_mib"] for one in history if one["total_mib"]]
    if len(points) < 2 or not totals:
        return None
    (first, less), (last, more) = points[0], points[-1]
    slope = ((more or 0.0) - (less or 0.0)) / (last - first)
    return last + (room * min(totals) - (more or 0.0)) / slope if slope > 0 else None


def above(low: int, guess: float | None, search: Search) -> int:
    """A batch above the largest that fits, while no batch is known to be too large."""
    if guess is None:
        wanted = 2.0 * low
    elif guess > low + search["multiple"]:
        wanted = min(guess, FARTHEST * low)
    else:
        wanted = low + NEARLY * low  # the line puts the limit about here, so try one just above
    return min(max(down(wanted, search["multiple"]), low + step(low, search)), search["most"])


def between(low: int, high: int, guess: float | None, search: Search) -> int:
    """A batch between one that fits and one that does not."""
    wanted = (low + high) / 2.0
    if guess is not None:
        wanted = (
            guess if guess < high else max(wanted, SHORT * high)
        )  # the guess is too large: a point nearer to the limit corrects the line
    return min(max(down(wanted, search["multiple"]), low + step(low, search)), high - 1)


def step(low: int, search: Search) -> int:
    """The distance to the next batch considered: up to the next multiple; 1 below the first multiple."""
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
    # alternate line and bisection: never much slower than bisection alone
    since = sum(1 for one in history if one["batch"] >= high or one["batch"] >= low)
    return between(low, high, line(history, 1.0) if since % 2 == 0 else None, search)


def confirmed(history: Sequence[Probe], largest: int, search: Search) -> Next:
    """The result less its margin once a longer run has confirmed it; if that run failed, the next lower batch."""
    tried = [one for one in history if one["confirms"]]
    batch = down(largest * (1.0 - search["margin"]), search["multiple"])
    for one in tried:
        if one["fits"]:
            return {"done": True, "batch": 0, "confirms": False, "result": one["batch"], "left": 0}
        batch = down(one["batch"] - search["multiple"], search["multiple"]) if one["batch"] > search["multiple"] else 0
    if batch == 0 or len(tried) >= CONFIRMATIONS:
        return {"done": True, "batch": 0, "confirms": False, "result": 0, "left": 0}
    return {"done": False, "batch": batch, "confirms": True, "result": 0, "left": 1}


def remaining(probes: Sequence[Probe], search: Search) -> int:
    """About how many probes are left: as many as if the limit were where memory puts it, or else halfway."""
    low, high = bounds(probes)
    limit = line(probes, 1.0)
    if limit is None and high is None:
        return max(2, USUAL - len(probes))
    if limit is None:
        limit = (low + (high or 0)) / 2
    if high is not None:
        limit = min(limit, high - 1)
    unknown = Probe(
        batch=0,
        fits=False,
        confirms=False,
        run_id="",
        why="",
        seconds=0.0,
        memory_mib=None,
        total_mib=None,
        samples_per_second=None,
    )
    imagined = list(probes)
    while batch := candidate(imagined, search):
        imagined.append({**unknown, "batch": batch, "fits": batch <= limit})
    return len(imagined) - len(probes)


def fit_next(history: Sequence[Probe], search: Search) -> Next:
    """The next step after these probes."""
    probes = [one for one in history if not one["confirms"]]
    batch = candidate(probes, search)
    if batch:
        return {"done": False, "batch": batch, "confirms": False, "result": 0, "left": remaining(probes, search)}
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
