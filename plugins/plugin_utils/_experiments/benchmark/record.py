# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The benchmark in a run's record: measurements and findings. Private to this collection, controller only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.documents import VERSION, Benchmark
from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.read import Measured, read_measured
from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.slow_parts import judge
from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import clean, mapping, mappings
from ansible_collections.muster.training.plugins.plugin_utils._record.reader import Files

MEASURED = "logs/node0/measured/benchmark.json"  # as written by rank 0
JUDGED = "benchmark.json"  # in the record itself


def measured_in(record: Path, network_gbps: float | None = None) -> Measured | None:
    """The measurements of this record's run; None if it was not a benchmark, or nothing was fetched."""
    files = Files(record)
    document = files.document(MEASURED)
    if not isinstance(document, dict):
        return None
    nodes = mappings(mapping(files.document("plan.json")).get("nodes"))
    return read_measured(document, [clean(node.get("name"), 100) for node in nodes], network_gbps)


def benchmark_in(record: Path) -> Benchmark | None:
    """The benchmark of a record: as judged, or else judged now without second measurements."""
    known: Any = Files(record).document(JUDGED)
    if isinstance(known, dict) and known.get("version") == VERSION and Benchmark.__annotations__.keys() <= known.keys():
        judged: Benchmark = known  # type: ignore[assignment]
        return judged
    measured = measured_in(record)
    return judge(measured, None, record.name) if measured is not None else None
