# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Render a benchmark as a short table for the terminal."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.documents import (
    Benchmark,
    CollectiveRate,
)
from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.slow_parts import (
    best_rates,
    group_by_model,
)

HEADER = ["measure", "least", "median", "most", "expected"]


def build_rows(benchmark: Benchmark) -> list[list[str]]:
    """Return one row per measure: minimum, median and maximum over all GPUs, nodes or pairs, and expected value."""
    rows = []
    for (model, dtype), group in group_by_model(benchmark["gpus"]).items():
        expected = benchmark["expected_tflops"].get(f"{model}, {dtype}")
        expected_text = f"{expected['value']:.3g} TFLOP/s: {expected['source']}" if expected is not None else ""
        rows.append(
            [f"matmul, {model}, {dtype}", *format_range([gpu["tflops"] for gpu in group], "TFLOP/s"), expected_text]
        )
    for kind in dict.fromkeys(copy["kind"] for copy in benchmark["copies"]):
        rows.append(
            [
                f"copy, {kind}",
                *format_range([copy["gbytes"] for copy in benchmark["copies"] if copy["kind"] == kind], "GB/s"),
                "",
            ]
        )
    network = benchmark["expected_network"]
    network_text = f"{network['value']:.3g} Gb/s: {network['source']}" if network is not None else ""
    for scope, scope_label in (("node", "in a node"), ("all", "over all")):
        for operation in dict.fromkeys(
            collective["op"] for collective in benchmark["collectives"] if collective["scope"] == scope
        ):
            largest_rows = largest_size_rows(benchmark["collectives"], scope, operation)
            rates = format_range([8 * collective["busbw_gbytes"] for collective in largest_rows], "Gb/s")
            reference = network_text if scope == "all" and len(benchmark["nodes"]) > 1 else ""
            rows.append([f"{operation} {scope_label}, {format_size(largest_rows[0]['bytes'])}", *rates, reference])
    if benchmark["pairs"]:
        rows.append(
            ["pairs of nodes", *format_range([pair["gbps"] for pair in benchmark["pairs"]], "Gb/s"), network_text]
        )
        rows.append(
            [
                "each node's best pair",
                *format_range(list(best_rates(benchmark["pairs"]).values()), "Gb/s"),
                network_text,
            ]
        )
        rows.append(["latency of a pair", *format_range([pair["us"] for pair in benchmark["pairs"]], "us"), ""])
    return rows


def largest_size_rows(collectives: Sequence[CollectiveRate], scope: str, operation: str) -> list[CollectiveRate]:
    """Return an operation's rows for the largest size that it reached; one per node if nodes ran separately."""
    matches = [row for row in collectives if row["scope"] == scope and row["op"] == operation]
    size = max(row["bytes"] for row in matches)
    return [row for row in matches if row["bytes"] == size]


def format_range(values: Sequence[float], unit: str) -> list[str]:
    """Format a minimum, median and maximum."""
    return [f"{value:.3g} {unit}" for value in (min(values), statistics.median(values), max(values))]


def format_size(count: int) -> str:
    """Format a number of bytes with a unit."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B"


def render(benchmark: Benchmark) -> str:
    """Return the table, followed by the findings, problems first."""
    lines = [HEADER, *build_rows(benchmark)]
    widths = [max(len(line[column]) for line in lines) for column in range(4)]
    text = ["  ".join([*map(str.ljust, line, widths), line[4]]).rstrip() for line in lines]
    for finding in sorted(benchmark["findings"], key=lambda finding: finding["severity"] != "problem"):
        text += [f"{finding['severity']}: {finding['problem']}", f"  what to do: {finding['remedy']}"]
    text += [f"left out: {omission}" for omission in benchmark["left_out"]]
    if not benchmark["complete"]:
        text.append("the benchmark did not finish")
    return "\n".join([*text, f"benchmark {benchmark['run_id']}: {benchmark['verdict']}"])
