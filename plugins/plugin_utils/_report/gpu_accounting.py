# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the driver's accounting records for a run's processes from accounting.csv."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from ansible_collections.muster.training.plugins.module_utils._run.gpu_samples import ACCOUNTING_ON
from ansible_collections.muster.training.plugins.plugin_utils._report.documents import ProcessNumbers
from ansible_collections.muster.training.plugins.plugin_utils._report.gpu_samples import parse_value

GPU_FIELDS, PROCESS_FIELDS = 3, 6
MAX_LINES = 100_000  # number of lines read: 16 GPUs keep 4000 processes each
MAX_PROCESSES = 256  # number of processes on a node
MAX_PID_DIGITS = 10  # digits


def read_processes(node: str, lines: Iterable[str]) -> list[ProcessNumbers]:
    """Return the processes of a run, by GPU, from two snapshots of the records, taken at the job's start and after its
    end.

    Each snapshot is one line per GPU, then one per process, including those of earlier jobs. Processes that had ended
    before the first snapshot are not the run's. Without a second snapshot the list is empty.
    """
    snapshots: list[tuple[dict[str, int], list[list[str]]]] = []
    previous_count = 0
    for number, line in enumerate(lines):
        fields = [field.strip() for field in line.split(",")]
        if number >= MAX_LINES:
            break
        if len(fields) == GPU_FIELDS and fields[2] == ACCOUNTING_ON and is_pid(fields[0]):
            if previous_count != GPU_FIELDS or not snapshots:
                snapshots.append(({}, []))
            snapshots[-1][0][fields[1]] = int(fields[0])
        elif len(fields) == PROCESS_FIELDS and snapshots and fields[0] in snapshots[-1][0] and is_pid(fields[1]):
            snapshots[-1][1].append(fields)
        previous_count = len(fields)
    if len(snapshots) < 2:
        return []
    earlier = {tuple(fields) for fields in snapshots[0][1] if parse_value(fields[5]) > 0}
    indices, last_records = snapshots[-1]
    processes = [
        process_numbers(node, indices[fields[0]], fields) for fields in last_records if tuple(fields) not in earlier
    ]
    return sorted(processes, key=lambda process: (process["gpu"], process["pid"]))[:MAX_PROCESSES]


def is_pid(text: str) -> bool:
    """Return whether a text is a process id."""
    return text.isascii() and text.isdigit() and len(text) <= MAX_PID_DIGITS


def process_numbers(node: str, gpu: int, fields: Sequence[str]) -> ProcessNumbers:
    """Return the figures of one process."""
    utilization, memory_utilization, peak, milliseconds = (value_or_none(field) for field in fields[2:])
    return {
        "node": node,
        "gpu": gpu,
        "pid": int(fields[1]),
        "utilization_percent": utilization,
        "memory_utilization_percent": memory_utilization,
        "memory_peak_mib": peak,
        "seconds": None if milliseconds is None else milliseconds / 1000,
    }


def value_or_none(text: str) -> float | None:
    """Return a value, or None for [N/A] and similar texts."""
    value = parse_value(text)
    return None if math.isnan(value) else value
