# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Analyze a torch.profiler trace: how long each operation took, and the collectives of a rank."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Any, Iterable

    from ansible_collections.muster.training.plugins.module_utils._run.documents import Data

CPU, GPU = "cpu", "gpu"
GPU_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")
ANNOTATION = "user_annotation"
KERNEL = re.compile(r"(?:nccl|rccl|mscclpp)(?:Dev)?Kernel", re.IGNORECASE)  # a collective on a GPU
CPU_COLLECTIVE = re.compile(r"(?:gloo|mpi|ucc):[a-z_]{1,60}\Z")  # the name of a collective on the CPU
KERNEL_ARGUMENTS = re.compile(r"[(<].*", re.DOTALL)
MAX_NAME = 120
MAX_OPERATIONS = 50
MAX_COLLECTIVES = 5000
MAX_NUMBER = 1e20  # larger than any time in nanoseconds since 1970
MAX_TIME = 1e12  # microseconds: longer times are not real


def validate_events(trace: Any) -> list[Data]:
    """Return a trace's events that have a duration, in order, without malformed events."""
    events = trace.get("traceEvents") if isinstance(trace, dict) else None
    checked = []
    for event in events if isinstance(events, list) else ():
        if not isinstance(event, dict) or event.get("ph") != "X" or not isinstance(event.get("name"), str):
            continue
        start: Any = event.get("ts")
        duration: Any = event.get("dur")
        if not is_number(start) or not is_number(duration) or not 0 <= duration < MAX_TIME:
            continue
        checked.append(
            {
                "name": event["name"][: 4 * MAX_NAME],
                "category": str(event.get("cat", ""))[:40],
                "thread": (str(event.get("pid"))[:40], str(event.get("tid"))[:40]),
                "start": float(start),
                "duration": float(duration),
            }
        )
    return sorted(checked, key=lambda event: (event["start"], -event["duration"]))


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < MAX_NUMBER


def base_time(trace: Any) -> float:
    """Return the time to which the times in a trace are relative, in microseconds since 1970."""
    value = trace.get("baseTimeNanoseconds") if isinstance(trace, dict) else None
    return value / 1e3 if value is not None and is_number(value) else 0.0


def self_times(events: Iterable[Data]) -> list[tuple[str, float]]:
    """Return each CPU operation's name and its time in microseconds, excluding the operations that it called."""
    stacks: dict[tuple[str, str], list[list[Any]]] = {}  # open operations by thread: [end, name, time of its own]
    times: list[tuple[str, float]] = []
    for event in events:
        stack = stacks.setdefault(event["thread"], [])
        while stack and stack[-1][0] <= event["start"]:
            _end, name, own = stack.pop()
            times.append((name, own))
        if stack:
            stack[-1][2] -= event["duration"]
        stack.append([event["start"] + event["duration"], event["name"], event["duration"]])
    times += [(name, own) for stack in stacks.values() for _end, name, own in stack]
    return times


def sum_by_name(device: str, times: Iterable[tuple[str, float]]) -> list[Data]:
    """Return the operations that took longest, with their count and total seconds."""
    sums: dict[str, list[float]] = {}
    for name, microseconds in times:
        entry = sums.setdefault(name[:MAX_NAME], [0, 0.0])
        entry[0] += 1
        entry[1] += max(0.0, microseconds) / 1e6
    order = sorted(sums, key=lambda name: -sums[name][1])[:MAX_OPERATIONS]
    return [{"name": name, "device": device, "count": int(sums[name][0]), "seconds": sums[name][1]} for name in order]


def collective_name(event: Data) -> str:
    """Return the name of a collective, or "" if the event is not one."""
    if event["category"] == "kernel" and KERNEL.match(event["name"]):
        return KERNEL_ARGUMENTS.sub("", event["name"])[:MAX_NAME]
    if event["category"] == ANNOTATION and CPU_COLLECTIVE.match(event["name"]):
        return str(event["name"])
    return ""


def find_collectives(events: Iterable[Data], base: float) -> list[Data]:
    """Return name, start (seconds since 1970) and duration of each collective."""
    return [
        {"name": name, "start": (base + event["start"]) / 1e6, "seconds": event["duration"] / 1e6}
        for name, event in ((collective_name(event), event) for event in events)
        if name
    ][:MAX_COLLECTIVES]


def busy_seconds(intervals: Iterable[tuple[float, float]]) -> float:
    """Return the total time covered by these intervals (start, end), which may overlap."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def analyze(trace: Any) -> Data:
    """Return the longest-running operations and the collectives in a rank's trace."""
    events = validate_events(trace)
    cpu = [event for event in events if event["category"] == "cpu_op"]
    gpu = [(event["name"], event["duration"]) for event in events if event["category"] in GPU_CATEGORIES]
    collectives = find_collectives(events, base_time(trace))
    intervals = [(entry["start"], entry["start"] + entry["seconds"]) for entry in collectives]
    return {
        "operations": sum_by_name(GPU, gpu) + sum_by_name(CPU, self_times(cpu)),
        "collectives": collectives,
        "collective_seconds": busy_seconds(intervals),
        "gpu_seconds": busy_seconds(
            (event["start"] / 1e6, (event["start"] + event["duration"]) / 1e6)
            for event in events
            if event["category"] in GPU_CATEGORIES
        ),
    }
