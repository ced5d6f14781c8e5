# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Summarize GPU samples and events of a run in numbers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import (
    clean_text,
    to_int,
    to_list,
    to_mapping,
    to_mappings,
    to_number,
)
from ansible_collections.muster.training.plugins.plugin_utils._report.documents import (
    Figure,
    GpuNumbers,
    NodeRow,
    RunStage,
)
from ansible_collections.muster.training.plugins.plugin_utils._report.gpu_samples import GpuSamples

# nvidia-smi measures between a sixth of a second and a second of each 15 s, so fewer samples say nothing about a run.
MIN_SAMPLES = 8
IDLE_PERCENT = 5.0  # utilization below which a GPU counts as idle
HOT = 2.0  # degrees below the highest temperature that are still considered hot


class Window(NamedTuple):
    """The time from the first to the last sample in which a GPU of the run was busy."""

    start: float
    end: float


def make_figure(values: Iterable[float]) -> Figure | None:
    """Return the mean, 5th percentile (nearest rank) and peak, or None if there are fewer than MIN_SAMPLES."""
    known_values = sorted(value for value in values if not math.isnan(value))
    if len(known_values) < MIN_SAMPLES:
        return None
    return {
        "mean": math.fsum(known_values) / len(known_values),
        "p5": known_values[math.ceil(len(known_values) / 20) - 1],
        "peak": known_values[-1],
        "samples": len(known_values),
    }


def mean_or_none(values: Sequence[float]) -> float | None:
    """Return the mean, or None if there are fewer than MIN_SAMPLES."""
    known_values = [value for value in values if not math.isnan(value)]
    return math.fsum(known_values) / len(known_values) if len(known_values) >= MIN_SAMPLES else None


def working_window(gpus: Iterable[GpuSamples]) -> Window | None:
    """Return the time in which the run's GPUs were busy, or None. The startup is before it, the tail after it."""
    first, last = math.inf, -math.inf
    for gpu in gpus:
        busy = [
            seconds
            for seconds, utilization in zip(gpu.time, gpu.utilization_percent, strict=False)
            if utilization >= IDLE_PERCENT
        ]
        if busy:
            first, last = min(first, *busy), max(last, *busy)
    return Window(first, last) if last >= first else None


def gpu_numbers(gpu: GpuSamples, window: Window | None) -> GpuNumbers:
    """Return the figures of one GPU."""
    utilization = gpu.utilization_percent
    known_usage = [value for value in utilization if not math.isnan(value)]
    inside = [
        index for index, seconds in enumerate(gpu.time) if window is not None and window.start <= seconds <= window.end
    ]
    working = [utilization[index] for index in inside if not math.isnan(utilization[index])]
    totals = [value for value in gpu.memory_total_mib if not math.isnan(value)]
    limits = [value for value in gpu.power_limit_watts if not math.isnan(value)]
    heat = make_figure(gpu.temperature_celsius)
    hot, cool = split_power_by_heat(gpu, heat["peak"] - HOT if heat is not None else math.inf)
    interval, missing = sample_gaps(gpu.time)
    return {
        "node": gpu.node,
        "index": gpu.index,
        "model": gpu.model,
        "samples": len(gpu.time),
        "interval_seconds": interval,
        "missing_samples": missing,
        "last_sample": max(gpu.time, default=None),
        "utilization_percent": make_figure(utilization),
        "memory_used_mib": make_figure(gpu.memory_used_mib),
        "memory_total_mib": max(totals, default=None),
        "temperature_celsius": heat,
        "power_watts": make_figure(gpu.power_watts),
        "power_limit_watts": max(limits, default=None),
        "idle_share": idle_share(known_usage),
        "idle_share_working": idle_share(working),
        "utilization_working_percent": mean_or_none(working),
        "power_working_watts": mean_or_none([gpu.power_watts[index] for index in inside]),
        "power_hot_watts": mean_or_none(hot),
        "power_cool_watts": mean_or_none(cool),
    }


def split_power_by_heat(gpu: GpuSamples, from_degrees: float) -> tuple[list[float], list[float]]:
    """Return the power in busy samples (at least 50 %): in those at from_degrees or hotter, and in the others."""
    hot: list[float] = []
    cool: list[float] = []
    for utilization, degrees, watts in zip(
        gpu.utilization_percent, gpu.temperature_celsius, gpu.power_watts, strict=False
    ):
        if utilization >= 50 and not math.isnan(degrees):
            (hot if degrees >= from_degrees else cool).append(watts)
    return hot, cool


def idle_share(utilizations: Sequence[float]) -> float | None:
    """Return the share of samples in which a GPU was idle, or None if there are fewer than MIN_SAMPLES."""
    return (
        sum(value < IDLE_PERCENT for value in utilizations) / len(utilizations)
        if len(utilizations) >= MIN_SAMPLES
        else None
    )


def sample_gaps(times: Sequence[float]) -> tuple[float | None, int]:
    """Return the median number of seconds between samples, and how many samples are missing between the first and the
    last.
    """
    steps = [later - earlier for earlier, later in zip(times, times[1:], strict=False) if later > earlier]
    if len(times) < MIN_SAMPLES or not steps:
        return None, 0
    median = statistics.median(steps)
    return median, sum(round(step / median) - 1 for step in steps if step > 2.5 * median)


def run_stages(
    started: float | None, ended: float | None, events: Iterable[Any], window: Window | None
) -> list[RunStage]:
    """Return a run's stages: until all nodes checked in, until a GPU was busy, while GPUs were busy, and after that.

    Without GPU samples: until all nodes had checked in, and the job. Empty if the start or end of the run is unknown.
    """
    if started is None or ended is None or ended <= started:
        return []
    boundaries: list[tuple[str, float]] = []
    for event in events:
        if to_mapping(event).get("event") == "go" and (went := to_number(to_mapping(event).get("time"))) is not None:
            boundaries.append(("nodes check in", went))
            break
    if window is not None:
        boundaries += [("the job is starting: no GPU is busy yet", window.start), ("GPUs are busy", window.end)]
        boundaries.append(("no GPU is busy anymore", ended))
    else:
        boundaries.append(("the job", ended))
    stages: list[RunStage] = []
    stage_start = started
    for name, until in boundaries:
        until = min(max(until, stage_start), ended)
        stages.append({"name": name, "seconds": until - stage_start})
        stage_start = until
    return stages


def node_rows(plan: Any, result: Any) -> list[NodeRow]:
    """Return the nodes of a run, both as planned and in their final state."""
    ends = {clean_text(node.get("name"), 100): node for node in to_mappings(to_mapping(result).get("nodes"))}
    rows: list[NodeRow] = []
    for rank, planned in enumerate(to_mappings(to_mapping(plan).get("nodes"))):
        name = clean_text(planned.get("name"), 100)
        hardware, software = to_mapping(planned.get("hardware")), to_mapping(planned.get("software"))
        end = ends.get(name, {})
        count = hardware.get("gpus")
        code, price = to_number(end.get("exit_code")), to_number(planned.get("price_per_hour"))
        rows.append(
            {
                "name": name,
                "address": clean_text(planned.get("address"), 100),
                "node_rank": rank,
                "slots": to_int(planned.get("slots")),
                "state": clean_text(end.get("state"), 40),
                "exit_code": None if code is None else int(code),
                "gpu": clean_text(hardware.get("gpu"), 100),
                "gpus": len(count) if isinstance(count, list) else None if to_number(count) is None else to_int(count),
                "driver": clean_text(hardware.get("driver"), 40),
                "python": clean_text(software.get("python"), 40),
                "torch": clean_text(software.get("torch"), 40),
                "cuda": clean_text(software.get("cuda"), 40),
                "price_per_hour": price if price is not None and price >= 0 else None,
                "oom_kills": to_int(end.get("oom_kills")),
                "problems": node_problems(end),
            }
        )
    return rows


def node_problems(end: Mapping[str, Any]) -> list[str]:
    """Return problems in a node's verdict, apart from how the job ended there."""
    problems = [
        f"the mount {clean_text(point)} died: {clean_text(reason)}"
        for point, reason in to_mapping(end.get("mounts")).items()
    ]
    for key, label in (
        ("gpus", "the GPUs failed"),
        ("container", "the container may still exist"),
        ("unwritten", "the run's directory could not be written to at times"),
        ("shortened", "logs were shortened"),
    ):
        if clean_text(end.get(key)):
            problems.append(f"{label}: {clean_text(end.get(key), 300)}")
    stuck = [clean_text(process, 20) for process in to_list(end.get("stuck"), 20)]
    if stuck:
        problems.append(f"processes are not ending: {', '.join(stuck)}")
    return problems[:20]
