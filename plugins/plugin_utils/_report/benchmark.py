# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plots of a benchmark's results in a report, each with its table."""

from __future__ import annotations

import statistics
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.documents import Benchmark
from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.slow_parts import (
    best_rates,
    gpu_label,
)
from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.table import (
    format_size,
    largest_size_rows,
)
from ansible_collections.muster.training.plugins.plugin_utils._report.plots import (
    MAX_ROWS,
    Plot,
    axis,
    base_spec,
    series_encoding,
)

MAX_WIDTH = 560  # size in pixels of the picture of all pairs
MAX_TABLE_ROWS = 600  # number of pairs in the table below a plot


def benchmark_plots(benchmark: Benchmark) -> list[Plot]:
    """Return plots of collectives by size (bandwidth and time), of each GPU's rate, and of each pair of nodes."""
    plots = []
    if any(collective["scope"] == "all" for collective in benchmark["collectives"]):
        plots += [bandwidth_plot(benchmark), latency_plot(benchmark)]
    if benchmark["gpus"]:
        plots.append(rate_plot(benchmark))
    if len(benchmark["nodes"]) > 2 and benchmark["pairs"]:
        plots.append(pair_plot(benchmark))
    return plots


def values_by_size(benchmark: Benchmark, field: str, scale: float) -> tuple[list[dict[str, Any]], list[str]]:
    """Return one measure of the operations over all ranks, by size, and the names of the operations."""
    rows = [row for row in benchmark["collectives"] if row["scope"] == "all"]
    names = list(dict.fromkeys(row["op"] for row in rows))
    values = [{"bytes": row["bytes"], "value": float(f"{scale * row[field]:.4g}"), "series": row["op"]} for row in rows]  # type: ignore[literal-required]
    return values, names


def size_axis_layer(values: list[dict[str, Any]], names: list[str], unit: str, logarithmic: bool) -> dict[str, Any]:
    """Return a layer with a line per operation over a logarithmic axis of bytes."""
    x = axis("bytes", "bytes", scale={"type": "log", "base": 4}, axis={"format": "~s"})
    scale = {"type": "log"} if logarithmic else {"zero": True}
    return {
        "mark": {"type": "line", "point": True, "strokeWidth": 1.75},
        "encoding": {"x": x, "y": axis("value", unit, scale=scale), **series_encoding(names)},
    }


def size_table(values: list[dict[str, Any]], names: list[str]) -> tuple[list[str], list[list[str]]]:
    """Return the same values as a table: a row per size, a column per operation."""
    sizes = sorted({value["bytes"] for value in values})
    cells = {(value["bytes"], value["series"]): f"{value['value']:.4g}" for value in values}
    return ["size", *names], [[format_size(size), *(cells.get((size, name), "") for name in names)] for size in sizes]


def bandwidth_plot(benchmark: Benchmark) -> Plot:
    """Return a plot of the bus bandwidth of each operation."""
    values, names = values_by_size(benchmark, "busbw_gbytes", 8.0)
    best = {name: 8 * largest_size_rows(benchmark["collectives"], "all", name)[0]["busbw_gbytes"] for name in names}
    caption = ", ".join(f"{name} {rate:.3g} Gb/s" for name, rate in best.items()) + ", each at its largest size"
    expected = benchmark["expected_network"]
    layers = [size_axis_layer(values, names, "Gb/s", False)]
    if expected is not None and len(benchmark["nodes"]) > 1:
        caption += f"; {expected['value']:.3g} Gb/s is expected ({expected['source']})"
        layers.append(
            {
                "data": {"values": [{"expected": expected["value"]}]},
                "mark": {"type": "rule", "strokeDash": [2, 4], "color": "#777777"},
                "encoding": {"y": axis("expected", "Gb/s")},
            }
        )
    spec = {
        **base_spec("Collectives over all ranks: bandwidth of a link (Gb/s)", caption),
        "data": {"values": values},
        "layer": layers,
    }
    header, rows = size_table(values, names)
    return Plot("benchmark-bandwidth", "Collectives over all ranks: bandwidth", f"{caption}.", spec, header, rows)


def latency_plot(benchmark: Benchmark) -> Plot:
    """Return a plot of the time that each operation takes."""
    values, names = values_by_size(benchmark, "us", 1.0)
    least = min(values, key=lambda value: (value["bytes"], value["value"]))
    caption = f"{least['series']} of {format_size(least['bytes'])} takes {least['value']:.3g} microseconds"
    layer = size_axis_layer(values, names, "microseconds", True)
    spec = {
        **base_spec("Collectives over all ranks: time (microseconds)", caption),
        "data": {"values": values},
        **layer,
    }
    header, rows = size_table(values, names)
    return Plot("benchmark-latency", "Collectives over all ranks: time", f"{caption}.", spec, header, rows)


def rate_plot(benchmark: Benchmark) -> Plot:
    """Return a plot of the rate of each GPU, or of only the slowest GPUs if there are too many."""
    unit = "TFLOP/s"
    slowest = sorted(benchmark["gpus"], key=lambda gpu: gpu["tflops"])[:MAX_ROWS]
    gpus = [gpu for gpu in benchmark["gpus"] if gpu in slowest]
    median = statistics.median(gpu["tflops"] for gpu in benchmark["gpus"])
    caption = (
        f"{gpu_label(slowest[0])} reaches {slowest[0]['tflops']:.3g} {unit} while all are computing; the median "
        f"is {median:.3g}"
    ) + (f"; the slowest {MAX_ROWS} of {len(benchmark['gpus'])} are shown" if len(benchmark["gpus"]) > MAX_ROWS else "")
    names = [gpu_label(gpu) for gpu in gpus]
    values = [{"row": gpu_label(gpu), "value": float(f"{gpu['tflops']:.4g}")} for gpu in gpus]
    spec = {
        **base_spec(f"Matrices ({unit})", caption),
        "height": max(40, 14 * len(gpus)),
        "data": {"values": values},
        "mark": {"type": "bar", "color": "#0072B2"},
        "encoding": {
            "x": axis("value", unit, scale={"zero": True}),
            "y": {"field": "row", "type": "ordinal", "title": None, "sort": names},
        },
    }
    rows = []
    for gpu in gpus:
        expected = benchmark["expected_tflops"].get(f"{gpu['model']}, {gpu['dtype']}")
        rows.append(
            [
                gpu_label(gpu),
                gpu["model"],
                gpu["dtype"],
                f"{gpu['tflops']:.4g}",
                "" if gpu["alone_tflops"] is None else f"{gpu['alone_tflops']:.4g}",
                "" if expected is None else f"{expected['value']:.4g}",
                "" if expected is None else expected["source"],
            ]
        )
    header = ["GPU", "model", "type", f"{unit}, all at once", "by itself", "expected", "source"]
    return Plot("benchmark-matmul", "Matrices, all GPUs at the same time", f"{caption}.", spec, header, rows)


def pair_plot(benchmark: Benchmark) -> Plot:
    """Return a plot of the rate of each pair of nodes. Nodes are sorted by the rate with their best peer."""
    best = best_rates(benchmark["pairs"])
    order = sorted(best, key=lambda node: best[node])
    least = min(benchmark["pairs"], key=lambda pair: pair["gbps"])
    caption = (
        f"Each node with its best peer: {min(best.values()):.3g} ({order[0]}) to {max(best.values()):.3g} Gb/s; the "
        f"slowest pair is {least['a']} and {least['b']}, {least['gbps']:.3g} Gb/s"
    )
    cells = [
        {"one": ends[0], "other": ends[1], "value": float(f"{pair['gbps']:.4g}")}
        for pair in benchmark["pairs"]
        for ends in ((pair["a"], pair["b"]), (pair["b"], pair["a"]))
    ]
    labels = {"labelFontSize": 10, "labelOverlap": True, "ticks": False, "labelLimit": 140}
    side: dict[str, Any] = {"type": "ordinal", "title": None, "sort": order, "axis": labels}
    size = max(120, min(MAX_WIDTH, 24 * len(order)))
    spec = {
        **base_spec("Pairs of nodes (Gb/s in each direction)", caption),
        "width": size,
        "height": size,
        "data": {"values": cells},
        "mark": {"type": "rect", "aria": False, "strokeWidth": 0},
        "encoding": {
            "x": {"field": "one", **side},
            "y": {"field": "other", **side},
            "color": {
                "field": "value",
                "type": "quantitative",
                "scale": {"scheme": "cividis", "domainMin": 0},
                "legend": {"title": "Gb/s", "orient": "right"},
            },
        },
    }
    rows = [
        [
            f"{pair['a']} {pair['b']}",
            f"{pair['gbps']:.4g}",
            "" if pair["alone_gbps"] is None else f"{pair['alone_gbps']:.4g}",
            f"{pair['us']:.4g}",
        ]
        for pair in sorted(benchmark["pairs"], key=lambda pair: pair["gbps"])[:MAX_TABLE_ROWS]
    ]
    header = ["pair", "Gb/s", "by itself", "microseconds"]
    return Plot("benchmark-pairs", "Pairs of nodes", f"{caption}.", spec, header, rows)
