# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read a benchmark from the record of a run: its measurements and findings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.documents import VERSION, Benchmark
from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.read import (
    BenchmarkMeasurements,
    read_measurements,
)
from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.slow_parts import judge
from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import clean_text, to_mapping, to_mappings
from ansible_collections.muster.training.plugins.plugin_utils._record.reader import RecordFiles

MEASUREMENTS_FILE = "logs/node0/measured/benchmark.json"  # file written by rank 0
BENCHMARK_FILE = "benchmark.json"  # file in the record itself


def load_measurements(record: Path, network_gbps: float | None = None) -> BenchmarkMeasurements | None:
    """Return the measurements in a run's record, or None if it has none."""
    files = RecordFiles(record)
    document = files.read_json(MEASUREMENTS_FILE)
    if not isinstance(document, dict):
        return None
    nodes = to_mappings(to_mapping(files.read_json("plan.json")).get("nodes"))
    return read_measurements(document, [clean_text(node.get("name"), 100) for node in nodes], network_gbps)


def load_benchmark(record: Path) -> Benchmark | None:
    """Return the benchmark in a record; if it was not judged, judge it now, without repeated measurements."""
    document: Any = RecordFiles(record).read_json(BENCHMARK_FILE)
    if (
        isinstance(document, dict)
        and document.get("version") == VERSION
        and Benchmark.__annotations__.keys() <= document.keys()
    ):
        benchmark: Benchmark = document  # type: ignore[assignment]
        return benchmark
    measurements = load_measurements(record)
    return judge(measurements, None, record.name) if measurements is not None else None
