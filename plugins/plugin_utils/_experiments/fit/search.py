# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Choose the next batch size to try, based on those tried so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

TARGET_MEMORY = 0.99  # target fraction of the memory: the linear estimate is a guess, and only a probe decides
# multiples of a batch size: the step above it, the lowest batch size below a limit, and the highest batch size above it
STEP_ABOVE, LOWEST_RATIO, HIGHEST_RATIO = 0.02, 0.75, 32.0
MAX_CONFIRMATIONS = 4  # maximum number of batches tried to confirm the result
TYPICAL_PROBES = 5  # number of probes in a search where memory is known, not including the confirmation


class Probe(TypedDict):
    """A launch with one batch size. memory_mib: peak memory of a process or a GPU; total_mib: total memory of a GPU."""

    batch: int
    fits: bool
    confirms: bool
    run_id: str
    reason: str
    seconds: float
    memory_mib: float | None
    total_mib: float | None
    samples_per_second: float | None


class SearchSettings(TypedDict):
    """A search's settings: first batch size, step, largest batch size, and the share subtracted from the result."""

    start: int
    multiple: int
    max_batch: int
    margin: float


class NextStep(TypedDict):
    """The next batch size to try, or the result. result is 0 if no batch size fits or was confirmed.

    remaining: approximate number of probes, including this one, before the result is confirmed.
    """

    finished: bool
    batch: int
    confirms: bool
    result: int
    remaining: int


def round_down(batch: float, multiple: int) -> int:
    """Round a batch size down to a multiple; below the first multiple, round it to an integer of at least 1."""
    rounded = int(batch)
    return rounded // multiple * multiple if rounded >= multiple else max(1, rounded)


def bounds(history: Sequence[Probe]) -> tuple[int, int | None]:
    """Return the largest batch size that fits, or 0 if none does, and the smallest larger one that does not fit."""
    low = max((probe["batch"] for probe in history if probe["fits"]), default=0)
    high = min((probe["batch"] for probe in history if not probe["fits"]), default=None)
    return low, high


def extrapolate(history: Sequence[Probe], memory_share: float) -> float | None:
    """Return the batch size that would use this share of memory, on the line through the smallest and largest that fit.

    Return None if fewer than two are known, or memory does not grow with the batch.
    """
    points = sorted(
        {probe["batch"]: probe["memory_mib"] for probe in history if probe["fits"] and probe["memory_mib"]}.items()
    )
    totals = [probe["total_mib"] for probe in history if probe["total_mib"]]
    if len(points) < 2 or not totals:
        return None
    (first_batch, first_memory), (last_batch, last_memory) = points[0], points[-1]
    slope = ((last_memory or 0.0) - (first_memory or 0.0)) / (last_batch - first_batch)
    return last_batch + (memory_share * min(totals) - (last_memory or 0.0)) / slope if slope > 0 else None


def batch_above(low: int, estimate: float | None, search: SearchSettings) -> int:
    """Return a batch size above the largest that fits, as long as no batch size is known to be too large."""
    if estimate is None:
        target = 2.0 * low
    elif estimate > low + search["multiple"]:
        target = min(estimate, HIGHEST_RATIO * low)
    else:
        # the linear estimate puts the limit at about this point, so try a value just above it
        target = low + STEP_ABOVE * low
    return min(max(round_down(target, search["multiple"]), low + step_size(low, search)), search["max_batch"])


def batch_between(low: int, high: int, estimate: float | None, search: SearchSettings) -> int:
    """Return a batch size between one that fits and one that does not."""
    target = (low + high) / 2.0
    if estimate is not None:
        # if the estimate is too large, a point closer to the limit corrects the line
        target = estimate if estimate < high else max(target, LOWEST_RATIO * high)
    return min(max(round_down(target, search["multiple"]), low + step_size(low, search)), high - 1)


def step_size(low: int, search: SearchSettings) -> int:
    """Return the distance to the next candidate batch size: up to the next multiple, or 1 below the first multiple."""
    return search["multiple"] - low % search["multiple"] if low >= search["multiple"] else 1


def next_batch(history: Sequence[Probe], search: SearchSettings) -> int:
    """Return the next batch size to try, or 0 if the largest is known."""
    if not history:
        return min(search["start"], search["max_batch"])
    low, high = bounds(history)
    if low == 0:
        return 0 if high == 1 else round_down((high or 2) / 2, search["multiple"])
    if high is None:
        return batch_above(low, extrapolate(history, TARGET_MEMORY), search) if low < search["max_batch"] else 0
    if high - low <= step_size(low, search):
        return 0
    # alternate between the linear estimate and bisection: never much slower than bisection alone
    probes_since = sum(1 for probe in history if probe["batch"] >= high or probe["batch"] >= low)
    return batch_between(low, high, extrapolate(history, 1.0) if probes_since % 2 == 0 else None, search)


def next_confirmation(history: Sequence[Probe], largest: int, search: SearchSettings) -> NextStep:
    """Return the result, less its margin, once a longer run confirms it; after a failure, the next lower batch size."""
    confirmations = [probe for probe in history if probe["confirms"]]
    batch = round_down(largest * (1.0 - search["margin"]), search["multiple"])
    for probe in confirmations:
        if probe["fits"]:
            return {"finished": True, "batch": 0, "confirms": False, "result": probe["batch"], "remaining": 0}
        batch = (
            round_down(probe["batch"] - search["multiple"], search["multiple"])
            if probe["batch"] > search["multiple"]
            else 0
        )
    if batch == 0 or len(confirmations) >= MAX_CONFIRMATIONS:
        return {"finished": True, "batch": 0, "confirms": False, "result": 0, "remaining": 0}
    return {"finished": False, "batch": batch, "confirms": True, "result": 0, "remaining": 1}


def estimate_remaining(probes: Sequence[Probe], search: SearchSettings) -> int:
    """Estimate the number of remaining probes; the limit is predicted from memory use, or assumed to be halfway."""
    low, high = bounds(probes)
    limit = extrapolate(probes, 1.0)
    if limit is None and high is None:
        return max(2, TYPICAL_PROBES - len(probes))
    if limit is None:
        limit = (low + (high or 0)) / 2
    if high is not None:
        limit = min(limit, high - 1)
    blank = Probe(
        batch=0,
        fits=False,
        confirms=False,
        run_id="",
        reason="",
        seconds=0.0,
        memory_mib=None,
        total_mib=None,
        samples_per_second=None,
    )
    simulated = list(probes)
    while batch := next_batch(simulated, search):
        simulated.append({**blank, "batch": batch, "fits": batch <= limit})
    return len(simulated) - len(probes)


def choose_next(history: Sequence[Probe], search: SearchSettings) -> NextStep:
    """Return the next step to take after these probes."""
    probes = [probe for probe in history if not probe["confirms"]]
    batch = next_batch(probes, search)
    if batch:
        return {
            "finished": False,
            "batch": batch,
            "confirms": False,
            "result": 0,
            "remaining": estimate_remaining(probes, search),
        }
    largest, _high = bounds(probes)
    if largest == 0:
        return {"finished": True, "batch": 0, "confirms": False, "result": 0, "remaining": 0}
    return next_confirmation(history, largest, search)


def fastest_probe(history: Sequence[Probe]) -> Probe | None:
    """Return the probe with the smallest batch within 2 % of the best throughput, or None if none was measured."""
    measured = [probe for probe in history if probe["fits"] and probe["samples_per_second"]]
    if not measured:
        return None
    best = max(probe["samples_per_second"] or 0.0 for probe in measured)
    return min(
        (probe for probe in measured if (probe["samples_per_second"] or 0.0) >= 0.98 * best),
        key=lambda probe: probe["batch"],
    )
