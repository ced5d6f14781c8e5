# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Merge the traces of several ranks into one timeline for Perfetto and chrome://tracing."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ansible_collections.muster.training.plugins.module_utils._run.profile_trace import base_time, is_number

MAX_TRACE = 256 * 2**20  # size of a rank's trace in bytes, unpacked
MAX_OBJECTS = 8_000_000  # number of objects in a trace: small ones take much more memory than their text
PHASES = ("X", "B", "E", "i", "s", "t", "f", "M", "C")
TEXT_FIELDS = ("name", "cat", "ph", "s", "bp")
MAX_TEXT = 1000
SORT_STEP = 10  # difference between the ranks' sort indexes, so that a rank's parts stay together


class RankTrace(NamedTuple):
    """A rank's trace. offset: by how many seconds its clock is ahead of the first rank's clock."""

    rank: int
    node: str
    path: Path
    offset: float


class TraceError(ValueError):
    """The trace cannot be used."""


def read_trace(path: Path) -> dict[str, Any]:
    """Unpack and return a trace. Raise TraceError."""
    try:
        with gzip.open(path, "rb") as stream:
            data = stream.read(MAX_TRACE + 1)
        if len(data) > MAX_TRACE:
            raise TraceError(f"it is larger than {MAX_TRACE >> 20} MiB")
        if data.count(b"{") + data.count(b"[") > MAX_OBJECTS:
            raise TraceError(f"it has more than {MAX_OBJECTS} objects")
        trace = json.loads(data)
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        raise TraceError(str(error)) from error
    if not isinstance(trace, dict) or not isinstance(trace.get("traceEvents"), list):
        raise TraceError("it has no events")
    return trace


def label_of(event: Mapping[str, Any]) -> str:
    """Return the part of a rank that an event belongs to, which is its process in the trace."""
    return str(event.get("pid", ""))[:60]


def rank_events(trace: Mapping[str, Any], entry: RankTrace, start: float) -> Iterator[dict[str, Any]]:
    """Yield a rank's events, with times in microseconds since the start, and names that identify the rank."""
    rank = entry.rank
    base = base_time(trace) - (start + entry.offset) * 1e6
    parts: dict[str, int] = {}
    for event in trace["traceEvents"]:
        if not isinstance(event, Mapping) or event.get("ph") not in PHASES or not is_number(event.get("ts", 0)):
            continue
        if event["ph"] == "M" and event.get("name") != "thread_name":
            continue
        part = parts.setdefault(label_of(event), len(parts))
        cleaned: dict[str, Any] = {name: str(event[name])[:MAX_TEXT] for name in TEXT_FIELDS if name in event}
        cleaned["pid"] = rank * SORT_STEP + min(part, SORT_STEP - 1)
        cleaned["tid"] = event["tid"] if is_number(event.get("tid")) else str(event.get("tid", ""))[:60]
        cleaned["ts"] = round(event.get("ts", 0) + base, 3)
        if is_number(event.get("dur")):
            cleaned["dur"] = event["dur"]
        if is_number(event.get("id")):
            cleaned["id"] = f"{rank}.{event['id']}"  # arrows connect events on the same rank
        if isinstance(event.get("args"), Mapping):
            cleaned["args"] = event["args"]
        yield cleaned
    for label, part in parts.items():
        pid = rank * SORT_STEP + min(part, SORT_STEP - 1)
        suffix = f", {label}" if part else ""
        yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": f"rank {rank} on {entry.node}{suffix}"}}
        yield {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}}


def first_moment(trace: Mapping[str, Any]) -> float:
    """Return the time at which a trace's first event starts, in seconds since 1970."""
    starts = [
        event["ts"]
        for event in trace["traceEvents"]
        if isinstance(event, Mapping) and event.get("ph") == "X" and is_number(event.get("ts"))
    ]
    return (base_time(trace) + min(starts, default=0.0)) / 1e6


def merge_traces(traces: list[RankTrace], target: Path) -> dict[int, str]:
    """Write the timeline of all ranks, holding one rank in memory at a time; return why ranks are missing from it."""
    errors: dict[int, str] = {}
    start: float | None = None
    with gzip.open(target, "wt", encoding="utf-8", compresslevel=5) as stream:
        stream.write('{"displayTimeUnit": "ms", "traceEvents": [\n')
        separator = ""
        for entry in traces:
            try:
                trace = read_trace(entry.path)
            except TraceError as error:
                errors[entry.rank] = str(error)[:300]
                continue
            start = first_moment(trace) - entry.offset if start is None else start
            for event in rank_events(trace, entry, start):
                stream.write(separator + json.dumps(event))
                separator = ",\n"
        stream.write("\n]}\n")
    target.chmod(0o600)
    return errors
