# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Comparison of a benchmark with an earlier one."""

from __future__ import annotations

from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.baseline import compare
from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.documents import Benchmark
from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.read import read_measurements
from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.slow_parts import judge
from tests.unit.plugins.plugin_utils.experiments.benchmark.measurements import document, names_of


def benchmark(nodes: int, name: str, **more: Any) -> Benchmark:
    return judge(read_measurements(document(nodes, **more), names_of(nodes)), None, name)


def test_regressions_are_reported_worst_first() -> None:
    before = benchmark(3, "before")
    now = benchmark(
        3,
        "now",
        rate=lambda item, peer: 8.5 if (item, peer) == (0, 2) else 9.5,
        tflops=lambda rank: 120.0 if rank == 1 else 240.0,
    )
    worse = [item for item in compare(now, before)["findings"] if item["id"] == "benchmark-worse"]
    assert [item["about"] for item in worse] == [["gpu1 rank 0"], ["gpu0", "gpu2"]]
    assert worse[0]["problem"] == "matmul on gpu1 rank 0: 120 TFLOP/s, but 250 in before"
    assert "between gpu0 and gpu2: 8.5 Gb/s, but 10 in before" in compare(now, before)["verdict"]


def test_equal_or_better_figures_are_not_reported() -> None:
    before = benchmark(3, "before")
    for now in (benchmark(3, "now"), benchmark(3, "now", tflops=lambda _rank: 300.0)):
        changed = compare(now, before)
        assert changed["findings"] == [] and changed["compared_with"] == "before"


def test_nodes_missing_from_the_baseline_are_named() -> None:
    changed = compare(benchmark(3, "now"), benchmark(2, "before"))
    assert [item["problem"] for item in changed["findings"]] == ["gpu2 is not in before"]
    baseline = benchmark(2, "before")
    for row in (*baseline["gpus"], *baseline["copies"]):
        row["node"] = "elsewhere"
    for pair in baseline["pairs"]:
        pair["a"] = "elsewhere"
    baseline["collectives"] = []
    assert (
        "the runs have no measurements in common" in compare(benchmark(2, "now"), baseline)["findings"][-1]["problem"]
    )
