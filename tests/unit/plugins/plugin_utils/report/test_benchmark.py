# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The benchmark in the report of its run: figures, self-contained plots, findings, and hostile measurements."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.read import read_measurements
from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.slow_parts import judge
from ansible_collections.muster.training.plugins.plugin_utils._report.benchmark import benchmark_plots
from ansible_collections.muster.training.plugins.plugin_utils._report.writer import write_report
from tests.unit.plugins.plugin_utils.experiments.benchmark.measurements import document, names_of
from tests.unit.plugins.plugin_utils.report.records import HOSTILE, START, write_record
from tests.unit.plugins.plugin_utils.report.test_writer import check_page


def record_with(directory: Path, document_of_job: dict[str, Any], nodes: int) -> Path:
    record = write_record(directory / "runs", nodes=nodes, gpus=2)
    measured = record / "logs" / "node0" / "measured"
    measured.mkdir()
    (measured / "benchmark.json").write_text(json.dumps(document_of_job))
    return record


def test_benchmark_report_has_figures_and_plots(tmp_path: Path) -> None:
    measurements = document(
        4, gpus=2, rate=lambda item, peer: 8.0 + item + peer, left_out=["broadcast over all from 1 bytes on"]
    )
    measurements["copies"][0]["correct"] = False
    record = record_with(tmp_path, measurements, 4)
    written = write_report(record, tmp_path / "logbook", START)
    page = check_page(written.page.read_text())
    assert "Figures of the benchmark" in written.page.read_text()
    for arguments in (
        "pairs of nodes",
        "271 TFLOP/s: the best result measured by others",
        "Left out: broadcast over all",
    ):
        assert arguments in page.text
    assert written.report["findings"][0]["id"] == "benchmark-wrong-copy"
    names = {path.name for path in (record / "plots").glob("benchmark-*.vl.json")}
    assert names == {f"benchmark-{item}.vl.json" for item in ("bandwidth", "latency", "matmul", "pairs")}
    # the verdict takes precedence once it exists
    judged = judge(read_measurements(measurements, names_of(4)), None, "first")
    judged["verdict"] = "all of them were asleep"
    (record / "benchmark.json").write_text(json.dumps(judged))
    assert "all of them were asleep" in write_report(record, tmp_path / "logbook", START).page.read_text()


def test_run_without_a_benchmark_has_no_benchmark_section(tmp_path: Path) -> None:
    written = write_report(write_record(tmp_path / "runs"), tmp_path / "logbook", START)
    assert "Benchmark" not in written.page.read_text()


def test_hostile_measurements_are_shown_as_text(tmp_path: Path) -> None:
    measurements = document(3, model=HOSTILE, left_out=[HOSTILE])
    measurements["ranks"][0].update(interface=HOSTILE, interface_mbps=1000)
    for row in measurements["ranks"][1:]:
        row.update(interface=HOSTILE, interface_mbps=2000)
    record = record_with(tmp_path, measurements, 3)
    check_page(write_report(record, tmp_path / "logbook", START).page.read_text())


def test_expected_bandwidth_is_a_separate_line_in_the_plot() -> None:
    result = judge(read_measurements(document(3), names_of(3), 100.0), None, "b")
    plot = next(item for item in benchmark_plots(result) if item.name == "benchmark-bandwidth")
    lines, rule = plot.spec["layer"]
    assert rule["data"]["values"] == [{"expected": 90.0}] and "x" not in rule["encoding"], "or it is a fence"
    assert lines["encoding"]["x"]["scale"]["type"] == "log"
    assert "90 Gb/s is expected (90% of benchmark_network_gbps)" in plot.caption
    assert plot.rows[0][0] == "1 KiB" and plot.header == ["size", "all_reduce"]
    pairs = next(item for item in benchmark_plots(result) if item.name == "benchmark-pairs")
    assert len(pairs.spec["data"]["values"]) == 6 and len(pairs.rows) == 3
