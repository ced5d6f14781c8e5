# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The measurements of a launch, from its record. Private to this collection, controller only."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TypedDict

from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.launches import Ended
from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import clean, mapping, number
from ansible_collections.muster.training.plugins.plugin_utils._record.reader import Files, read_record
from ansible_collections.muster.training.plugins.plugin_utils._report.report import compose, where_failed

LONGEST_WHY = 300


class Measured(TypedDict):
    """The fields of a Run that come from the record."""

    succeeded: bool
    why: str
    launch_seconds: float
    run_seconds: float | None
    nnodes: int
    ranks: int
    batch_size: float | None
    global_batch_size: float | None
    samples_per_second: float | None
    memory_mib: float | None
    cost: float | None
    per_hour: float | None
    currency: str
    cost_missing: str


def measured(record: Path, ended: Ended, log: Path, now: float) -> Measured:
    """The measurements of a finished launch, or why it failed. log: its output; now: seconds since 1970."""
    known = read_record(record, record.name)
    result = mapping(Files(record).document("result.json"))
    report = compose(known, now)
    told = {name: found for name, one in mapping(result.get("said")).items() if (found := number(one)) is not None}
    used = [value for node in known.nodes for gpu in node.gpus for value in gpu.measure("memory_used_mib")]
    batch, ranks = told.get("batch_size"), report["world_size"]
    failed = report["failure"]
    if ended.late:
        why = f"it ran for {ended.seconds:.0f} s and was stopped: raise sweep_timeout, or let it do less"
    elif not result:
        why = f"it was not launched: {ended.failures[-1] if ended.failures else f'see {log}'}"
    elif failed is not None:
        why = f"{where_failed(failed)}: {failed['error']}"
    else:
        why = report["reason"] or f"it left no message: see {log}"
    succeeded = report["state"] == "succeeded" and not ended.late
    return {
        "succeeded": succeeded,
        "why": "" if succeeded else clean(why, LONGEST_WHY),
        "launch_seconds": ended.seconds,
        "run_seconds": report["seconds"],
        "nnodes": report["nnodes"],
        "ranks": ranks,
        "batch_size": batch,
        "global_batch_size": told.get("global_batch_size") or (batch * ranks if batch and ranks else None),
        "samples_per_second": report["samples_per_second"],
        "memory_mib": told.get("peak_memory_mib") or max((one for one in used if not math.isnan(one)), default=None),
        "cost": report["cost"]["run"],
        "per_hour": report["cost"]["per_hour"],
        "currency": report["cost"]["currency"],
        "cost_missing": report["cost"]["missing"],
    }
