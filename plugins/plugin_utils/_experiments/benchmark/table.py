# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A benchmark as a short table for a terminal. Pure. Private to this collection, controller only."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.documents import (
    Benchmark,
    Collective,
)
from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.slow_parts import best_of, by_model

HEADER = ["measure", "least", "median", "most", "expected"]


def rows_of(found: Benchmark) -> list[list[str]]:
    """One line per measure: minimum, median and maximum of all GPUs, nodes or pairs, and the expected value."""
    rows = []
    for (model, dtype), group in by_model(found["gpus"]).items():
        expected = found["expected_tflops"].get(f"{model}, {dtype}")
        told = f"{expected['value']:.3g} TFLOP/s: {expected['source']}" if expected is not None else ""
        rows.append([f"matmul, {model}, {dtype}", *three([gpu["tflops"] for gpu in group], "TFLOP/s"), told])
    for kind in dict.fromkeys(copy["kind"] for copy in found["copies"]):
        rows.append(
            [f"copy, {kind}", *three([copy["gbytes"] for copy in found["copies"] if copy["kind"] == kind], "GB/s"), ""]
        )
    network = found["expected_network"]
    line = f"{network['value']:.3g} Gb/s: {network['source']}" if network is not None else ""
    for scope, words in (("node", "in a node"), ("all", "over all")):
        for operation in dict.fromkeys(one["op"] for one in found["collectives"] if one["scope"] == scope):
            largest = of_largest(found["collectives"], scope, operation)
            rates = three([8 * one["busbw_gbytes"] for one in largest], "Gb/s")
            across = line if scope == "all" and len(found["nodes"]) > 1 else ""
            rows.append([f"{operation} {words}, {size_of(largest[0]['bytes'])}", *rates, across])
    if found["pairs"]:
        rows.append(["pairs of nodes", *three([pair["gbps"] for pair in found["pairs"]], "Gb/s"), line])
        rows.append(["each node's best pair", *three(list(best_of(found["pairs"]).values()), "Gb/s"), line])
        rows.append(["latency of a pair", *three([pair["us"] for pair in found["pairs"]], "us"), ""])
    return rows


def of_largest(collectives: Sequence[Collective], scope: str, operation: str) -> list[Collective]:
    """An operation's rows with the largest size it reached; one row per node if nodes were measured separately."""
    own = [one for one in collectives if one["scope"] == scope and one["op"] == operation]
    size = max(one["bytes"] for one in own)
    return [one for one in own if one["bytes"] == size]


def three(values: Sequence[float], unit: str) -> list[str]:
    return [f"{value:.3g} {unit}" for value in (min(values), statistics.median(values), max(values))]


def size_of(count: int) -> str:
    """Bytes in words for a person."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B"


def render(found: Benchmark) -> str:
    """The table, followed by the findings, problems first."""
    lines = [HEADER, *rows_of(found)]
    widths = [max(len(line[column]) for line in lines) for column in range(4)]
    text = ["  ".join([*map(str.ljust, line, widths), line[4]]).rstrip() for line in lines]
    for one in sorted(found["findings"], key=lambda one: one["severity"] != "problem"):
        text += [f"{one['severity']}: {one['found']}", f"  what to do: {one['remedy']}"]
    text += [f"left out: {one}" for one in found["left_out"]]
    if not found["complete"]:
        text.append("the benchmark did not finish")
    return "\n".join([*text, f"benchmark {found['run_id']}: {found['verdict']}"])
