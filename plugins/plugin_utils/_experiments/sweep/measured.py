# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The measurements of a launch, from its record."""

from __future__ import annotations

import math
from pathlib import Path

from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.launches import PlaybookResult
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sweep.documents import RunMeasurements
from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import clean_text, to_mapping, to_number
from ansible_collections.muster.training.plugins.plugin_utils._record.reader import RecordFiles, read_record
from ansible_collections.muster.training.plugins.plugin_utils._report.report import compose_report, failure_location

MAX_REASON = 300


def measure_run(record: Path, launch_result: PlaybookResult, log: Path, now: float) -> RunMeasurements:
    """Return a launch's measurements, or why it failed. log: the launch's output; now: seconds since 1970."""
    run_record = read_record(record, record.name)
    result = to_mapping(RecordFiles(record).read_json("result.json"))
    report = compose_report(run_record, now)
    numbers = {
        name: value
        for name, item in to_mapping(result.get("job_results")).items()
        if (value := to_number(item)) is not None
    }
    gpu_memory = [value for node in run_record.nodes for gpu in node.gpus for value in gpu.measure("memory_used_mib")]
    batch, ranks = numbers.get("batch_size"), report["world_size"]
    failure = report["failure"]
    if launch_result.timed_out:
        reason = (
            f"it ran for {launch_result.seconds:.0f} s and was stopped: raise sweep_timeout, or give it less work to do"
        )
    elif not result:
        reason = f"it was not launched: {launch_result.failures[-1] if launch_result.failures else f'see {log}'}"
    elif failure is not None:
        reason = f"{failure_location(failure)}: {failure['error']}"
    else:
        reason = report["reason"] or f"it left no message: see {log}"
    succeeded = report["state"] == "succeeded" and not launch_result.timed_out
    return {
        "succeeded": succeeded,
        "reason": "" if succeeded else clean_text(reason, MAX_REASON),
        "launch_seconds": launch_result.seconds,
        "run_seconds": report["seconds"],
        "nnodes": report["nnodes"],
        "ranks": ranks,
        "batch_size": batch,
        "global_batch_size": numbers.get("global_batch_size") or (batch * ranks if batch and ranks else None),
        "samples_per_second": report["samples_per_second"],
        "memory_mib": numbers.get("peak_memory_mib")
        or max((memory for memory in gpu_memory if not math.isnan(memory)), default=None),
        "cost": report["cost"]["run"],
        "per_hour": report["cost"]["per_hour"],
        "currency": report["cost"]["currency"],
        "cost_missing": report["cost"]["missing"],
    }
