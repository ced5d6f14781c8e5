# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The best interval between checkpoints, from Young's formula and the save time reported by the program's last run."""

from __future__ import annotations

import math
from pathlib import Path

from ansible_collections.muster.training.plugins.module_utils._files.bounded import read_json
from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import to_mapping, to_number

# GPU hours between two hardware failures. Meta's research clusters: 7.9 hours on 1,024 GPUs, 1.8 on 16,384 (arXiv
# 2410.21680). Rented machines of mixed age fail more often, and spot machines are taken away far more often.
GPU_HOURS_TO_FAILURE = 8000.0
MAX_RECORDS = 50  # number of newest runs that are searched


def seconds_to_failure(gpus: int) -> float:
    """Return the expected number of seconds between two hardware failures in a run."""
    return GPU_HOURS_TO_FAILURE * 3600 / max(1, gpus)


def best_interval(seconds_to_save: float, between_failures: float) -> float:
    """Return the seconds between two checkpoints that minimize the time lost to saving and to repeated work (Young)."""
    return math.sqrt(2 * seconds_to_save * between_failures)


def reported_seconds(records: Path, program: str) -> float | None:
    """Return the save time from a program's newest run that reported checkpoint_seconds, or None.

    records: directory of the run records.
    """
    plans = []
    for path in records.glob("*/plan.json"):
        try:
            plans.append((path.stat().st_mtime, path))
        except OSError:
            continue
    for _time, path in sorted(plans, reverse=True)[:MAX_RECORDS]:
        if path.is_symlink() or path.parent.is_symlink() or to_mapping(read_json(str(path))).get("program") != program:
            continue
        result = to_mapping(read_json(str(path.parent / "result.json")))
        seconds = to_number(to_mapping(result.get("job_results")).get("checkpoint_seconds"))
        if seconds is not None and 0 < seconds < 1e6:
            return seconds
    return None


def format_duration(seconds: float) -> str:
    """Format a duration for users: 8 s, 25 min, 2 h 13 min."""
    if seconds < 100:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    return f"{minutes // 60} h" + (f" {minutes % 60} min" if minutes % 60 and minutes < 24 * 60 else "")
