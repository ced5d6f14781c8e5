# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Samples from all nodes during a run: samples.jsonl in the run directory of the node that is leading it."""

from __future__ import annotations

import contextlib
import os
import re

from ansible_collections.muster.training.plugins.module_utils._files.bounded import open_regular, parse_json
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import (
    NAME,
    TIME,
    Between,
    Maybe,
    conforms,
)

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from ansible_collections.muster.training.plugins.module_utils._run.documents import Data

FILE = "samples.jsonl"
MAX_FILE_BYTES = 4 * 2**20  # size in bytes beyond which older samples are thinned out
CHUNK = 524288  # maximum number of bytes in one reply
MAX_GPUS = 64  # GPUs per node
HEADER = re.compile(rb'\{"node": ("(?:[^"\\]|\\.)*"), "number": [0-9]{1,12}, "time": ([0-9]{1,11}(?:\.[0-9]{1,9})?), ')
VALUE = Maybe(Between(0, 1e15))
GPU = {
    "index": range(1000),
    "utilization_percent": VALUE,
    "memory_used_mib": VALUE,
    "memory_total_mib": VALUE,
    "temperature_celsius": VALUE,
    "power_watts": VALUE,
}
SAMPLE = {
    "gpus": [GPU],
    "job_cores": VALUE,  # CPU cores that the job uses
    "memory_used": VALUE,  # bytes
    "memory_total": VALUE,
    "disk_free": VALUE,  # bytes of disk space used by the run directory
    "disk_total": VALUE,
}
STORED_SAMPLE = {**SAMPLE, "node": NAME, "number": range(10**12), "time": TIME}


def validate_sample(text: str) -> Data | None:
    """Return a node's sample without unknown fields; None if it is invalid."""
    try:
        value = parse_json(text)
    except ValueError:
        return None
    if not conforms(value, SAMPLE) or len(value["gpus"]) > MAX_GPUS:
        return None
    gpus = [{name: gpu.get(name) for name in GPU} for gpu in value["gpus"]]
    return {**{name: value.get(name) for name in SAMPLE}, "gpus": gpus}


def thin(lines: list[bytes]) -> list[bytes]:
    """Return about half of each node's lines, evenly spaced in time, and all lines of the newest quarter.

    The samples span the whole run however often this is repeated. Clients may not have read the newest quarter yet.
    """
    newest = 3 * len(lines) // 4
    headers = [HEADER.match(line) for line in lines[:newest]]
    times = [float(header[2]) for header in headers if header]
    nodes = {header[1] for header in headers if header}
    if not nodes:
        return lines[newest:]
    start, span = min(times), max(times) - min(times) or 1.0
    count = max(1, newest // (2 * len(nodes)))
    kept, seen = [], set()
    for line, header in zip(lines, headers):
        part = (header[1], int(count * (float(header[2]) - start) / span)) if header else None
        if part is not None and part not in seen:
            seen.add(part)
            kept.append(line)
    return kept + lines[newest:]


def read_samples(path: str, cursor: list[int]) -> tuple[list[Data], list[int]]:
    """Return the samples that were added to the file after the cursor, and the new cursor.

    cursor: inode, offset and number of the last sample that was read; [0, 0, 0] before the first.
    """
    inode, offset, last = cursor
    try:
        with open(path, "rb", opener=open_regular) as stream:
            status = os.fstat(stream.fileno())
            if status.st_ino != inode or status.st_size < offset:  # older samples were thinned out
                offset = 0
            stream.seek(offset)
            data = stream.read(CHUNK)
    except OSError:
        return [], cursor
    is_one_line = b"\n" not in data and len(data) == CHUNK  # longer than any sample can be: skip it
    data = data if is_one_line else data[: data.rfind(b"\n") + 1]
    samples = []
    for line in data.splitlines():
        with contextlib.suppress(ValueError):  # a full disk may truncate a line
            sample = parse_json(line.decode("utf-8", "replace"))
            if conforms(sample, STORED_SAMPLE) and sample["number"] > last:
                samples.append(sample)
    newest = max([last, *(sample["number"] for sample in samples)])
    return samples, [status.st_ino, offset + len(data), newest]
