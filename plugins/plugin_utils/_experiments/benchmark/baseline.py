# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compare a benchmark with an earlier one."""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.documents import Benchmark
from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.slow_parts import (
    PLATEAU,
    make_finding,
    summarize,
)
from ansible_collections.muster.training.plugins.plugin_utils._report.documents import ReportFinding
from ansible_collections.muster.training.plugins.plugin_utils._text.name_list import format_list

WORSE_RATIO = 0.9  # fraction of the earlier value


def comparable_figures(benchmark: Benchmark) -> dict[str, tuple[float, str, list[str]]]:
    """Return the comparable figures by name: value, unit, and the affected ranks or nodes. Higher is better."""
    values: dict[str, tuple[float, str, list[str]]] = {}
    for gpu in benchmark["gpus"]:
        name = f"{gpu['node']} rank {gpu['local_rank']}"
        values[f"matmul on {name}"] = (gpu["alone_tflops"] or gpu["tflops"], "TFLOP/s", [name])
    for copy in benchmark["copies"]:
        name = f"{copy['node']} rank {copy['local_rank']}"
        values[f"copy ({copy['kind']}) on {name}"] = (copy["gbytes"], "GB/s", [name])
    for pair in benchmark["pairs"]:
        ends = sorted((pair["a"], pair["b"]))
        values[f"between {ends[0]} and {ends[1]}"] = (pair["alone_gbps"] or pair["gbps"], "Gb/s", ends)
    for operation in benchmark["collectives"]:
        if operation["bytes"] >= PLATEAU:
            scope_name = operation["node"] or "all nodes"
            name = f"{operation['op']} of {operation['bytes'] >> 20} MiB over {scope_name}"
            values[name] = (operation["busbw_gbytes"], "GB/s", [operation["node"]] if operation["node"] else [])
    return values


def relative_figures(current: Benchmark, baseline: Benchmark) -> Mapping[str, float]:
    """Return each figure that both benchmarks have as a ratio to the earlier value."""
    baseline_figures = comparable_figures(baseline)
    return {
        name: value / baseline_figures[name][0]
        for name, (value, _unit, _about) in comparable_figures(current).items()
        if name in baseline_figures
    }


def compare(current: Benchmark, baseline: Benchmark) -> Benchmark:
    """Return the benchmark with a finding for each worse figure, worst first, and for nodes not in the baseline."""
    baseline_figures, current_figures = comparable_figures(baseline), comparable_figures(current)
    ratios = relative_figures(current, baseline)
    findings: list[ReportFinding] = []
    for name, ratio in sorted(ratios.items(), key=lambda item: item[1]):
        if ratio < WORSE_RATIO:
            value, unit, about = current_figures[name]
            text = f"{name}: {value:.3g} {unit}, but {baseline_figures[name][0]:.3g} in {baseline['run_id']}"
            remedy = (
                "check what has changed since then (the machine, its driver, its neighbors), then rerun the benchmark"
            )
            findings.append(
                make_finding(
                    "benchmark-worse", "problem", about, text, remedy, now=value, before=baseline_figures[name][0]
                )
            )
    new_nodes = [node for node in current["nodes"] if node not in baseline["nodes"]]
    if new_nodes:
        text = f"{format_list(new_nodes)} {'is' if len(new_nodes) == 1 else 'are'} not in {baseline['run_id']}"
        findings.append(make_finding("benchmark-new-nodes", "hint", new_nodes, text, "nothing is compared for them"))
    if not ratios:
        text = f"nothing can be compared with {baseline['run_id']}: the runs have no measurements in common"
        findings.append(
            make_finding(
                "benchmark-no-baseline",
                "hint",
                [],
                text,
                ("specify a benchmark of the same nodes with -e baseline=RUN"),
            )
        )
    compared: Benchmark = {
        **current,
        "findings": [*current["findings"], *findings],
        "compared_with": baseline["run_id"],
    }
    compared["verdict"] = summarize(compared)
    return compared
