# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plots as Vega-Lite specifications: dictionaries that include the data, for svg.py or any other renderer.

Texts of nodes and jobs enter as data or as plain text, never as the name of a field or as an expression, which Vega
would evaluate. Lines differ in color and dashes. No background is drawn, so that a page can have its own; the
colors of lines stand out from white and from the page's dark background.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._report.best_value import find_best
from ansible_collections.muster.training.plugins.plugin_utils._report.documents import CurveNumbers, Report, gpu_name
from ansible_collections.muster.training.plugins.plugin_utils._report.downsample import buckets
from ansible_collections.muster.training.plugins.plugin_utils._report.gpu_samples import GpuSamples

SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"
# Okabe and Ito's colors for all kinds of color vision: blue, vermillion, bluish green, and a darkened reddish purple.
# Their other colors, and the original purple, have a contrast of less than 3 : 1 with a white page.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#B5578F")
DASHES = ([1, 0], [6, 3])
MAX_LINES = len(COLORS) * len(DASHES)  # maximum number of GPUs or runs that are each drawn as a line
INK, GRID = "#333333", "#dddddd"  # colors of text and axes, and of grid lines; a dark page overrides them
WIDTH, HEIGHT = 640, 220
BUCKETS = 600  # number of buckets in a line
MAX_COLUMNS, MAX_CELLS = 120, 4000  # number of maxima in a strip of many GPUs: a cell takes 55 to 100 bytes
MIN_COLUMNS = 40
GAP = 60.0  # seconds without a sample (four samples) that interrupt a line
MAX_ROWS = 64  # maximum number of GPUs that each have a row; with more, each node has a row
SHADES = 20  # distinct values in a strip, so that equal neighbors merge into one cell
MAX_CURVES = 12
FLOOR = 1e-300  # smaller magnitudes are drawn as 0


@dataclass
class Plot:
    """A plot: the base name of its files; title; caption; Vega-Lite specification; header and rows of its table."""

    name: str
    title: str
    caption: str
    spec: dict[str, Any]
    header: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)


# Name of a metric: title, unit, whether its axis begins at 0, and the axis's end, if fixed
MEASURES: dict[str, tuple[str, str, bool, float | None]] = {
    "utilization_percent": ("GPU utilization", "%", True, 100.0),
    "memory_used_mib": ("GPU memory", "GiB", True, None),
    "power_watts": ("GPU power", "W", True, None),
    "temperature_celsius": ("GPU temperature", "°C", False, None),
}
# metrics shown as strips for many GPUs; for others, the mean and the highest GPU suffice
STRIPS = ("utilization_percent", "power_watts")
FILE_NAMES = {
    "utilization_percent": "gpu-utilization",
    "memory_used_mib": "gpu-memory",
    "power_watts": "gpu-power",
    "temperature_celsius": "gpu-temperature",
}


def config() -> dict[str, Any]:
    """Return the style that all plots share."""
    return {
        "background": None,
        "font": "sans-serif",
        "view": {"stroke": None},
        "axis": {
            "labelColor": INK,
            "titleColor": INK,
            "tickColor": INK,
            "domainColor": INK,
            "gridColor": GRID,
            "labelFontSize": 12,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "labelSeparation": 8,  # pixels: the last label is shifted left of its tick, towards its neighbor
        },
        "legend": {
            "labelColor": INK,
            "titleColor": INK,
            "labelFontSize": 12,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "labelLimit": 260,
            "symbolStrokeWidth": 2.5,
        },
        "title": {"color": INK, "fontSize": 14, "anchor": "start", "fontWeight": "bold", "limit": 600},
    }


def base_spec(title: str, description: str) -> dict[str, Any]:
    """Return the keys that all specifications share."""
    return {
        "$schema": SCHEMA,
        "title": {"text": title},
        "description": description,
        "config": config(),
        "width": WIDTH,
        "height": HEIGHT,
    }


def axis(field_name: str, title: str | None, **options: Any) -> dict[str, Any]:
    """Return a quantitative axis."""
    return {"field": field_name, "type": "quantitative", "title": title, **options}


def series_encoding(names: Sequence[str]) -> dict[str, Any]:
    """Return colors and dashes for as many lines as there are names, with one legend for both."""
    colors = [COLORS[index % len(COLORS)] for index in range(len(names))]
    dashes = [DASHES[index // len(COLORS) % len(DASHES)] for index in range(len(names))]
    # the legend's symbols are strokes, even if a band of the same color is drawn below the line
    symbols = {"symbolType": "stroke", "symbolOpacity": 1}
    legend = {"orient": "bottom", "columns": 4, "title": None, **symbols} if len(names) > 1 else None
    common = {"field": "series", "type": "nominal", "legend": legend, "sort": list(names)}
    return {
        "color": {**common, "scale": {"domain": list(names), "range": colors}},
        "strokeDash": {**common, "scale": {"domain": list(names), "range": dashes}},
    }


def time_unit(seconds: float) -> tuple[str, float]:
    """Return the unit for a time axis of the given length, and the number of seconds per unit."""
    if seconds < 300:
        return "seconds", 1.0
    return ("minutes", 60.0) if seconds < 3 * 3600 else ("hours", 3600.0)


def time_span(report: Report, gpus: Sequence[GpuSamples]) -> tuple[float, float]:
    """Return the start and end of the time axis: those of the run, or of the samples if the run's are unknown or do not
    match.
    """
    first_times = [min(gpu.time) for gpu in gpus if gpu.time]
    last_times = [max(gpu.time) for gpu in gpus if gpu.time]
    if not first_times:
        return 0.0, 1.0
    start, end = report["started"], report["ended"]
    if (
        start is None
        or end is None
        or end <= start
        or statistics.median(first_times) > end
        or statistics.median(last_times) < start
    ):
        return min(first_times), max(*last_times, min(first_times) + 1.0)
    return start, end


def gpu_plots(report: Report, gpus: Sequence[GpuSamples]) -> list[Plot]:
    """Return a plot for each measure: a line per GPU or, for more than MAX_LINES GPUs, a row per GPU or two lines."""
    sampled = [gpu for gpu in gpus if gpu.time]
    plots = []
    for measure in MEASURES:
        if any(not math.isnan(value) for gpu in sampled for value in gpu.measure(measure)):
            if len(sampled) <= MAX_LINES:
                spec = line_spec(report, sampled, {gpu.name: [gpu] for gpu in sampled}, measure)
            elif measure in STRIPS:
                spec = strip_spec(report, sampled, measure)
            else:
                spec = line_spec(report, sampled, mean_and_highest(sampled, measure), measure)
            title = MEASURES[measure][0]
            header, rows = gpu_table(report, measure)
            plots.append(Plot(FILE_NAMES[measure], title, gpu_caption(report, measure), spec, header, rows))
    return plots


def to_plot_unit(measure: str, value: float) -> float:
    """Convert a value to the unit of its plot."""
    return value / 1024 if measure == "memory_used_mib" else value


def mean_and_highest(gpus: Sequence[GpuSamples], measure: str) -> dict[str, list[GpuSamples]]:
    """Return two series for a measure without a strip: the mean of all GPUs, and the GPU with the highest value."""
    peaks = [
        (max(peaks), gpu)
        for gpu in gpus
        if (peaks := [value for value in gpu.measure(measure) if not math.isnan(value)])
    ]
    highest = max(peaks, key=lambda pair: pair[0])[1]
    return {f"mean of {len(gpus)} GPUs": list(gpus), f"{highest.name}, the highest": [highest]}


def line_spec(
    report: Report, gpus: Sequence[GpuSamples], series: Mapping[str, Sequence[GpuSamples]], measure: str
) -> dict[str, Any]:
    """Return a line for each series over the run's duration, showing the mean in each bucket.

    Up to four series also have a band from the minimum to the maximum.
    """
    title, unit, zero, maximum = MEASURES[measure]
    start, end = time_span(report, gpus)
    unit_name, unit_seconds = time_unit(end - start)
    count = BUCKETS // max(1, len(series) // 2)
    values: list[dict[str, Any]] = []
    for name, members in series.items():
        pairs = (pair for gpu in members for pair in zip(gpu.time, gpu.measure(measure), strict=True))
        previous = math.inf
        for part in buckets(pairs, start, end, count):
            position = round((part.position - start) / unit_seconds, 4)
            if part.position - previous > max(2.5 * (end - start) / count, GAP):  # break the line
                values.append({"t": position, "mean": None, "min": None, "max": None, "series": name})
            previous = part.position
            numbers = {"mean": part.mean, "min": part.least, "max": part.most}
            rounded = {key: round(to_plot_unit(measure, value), 2) for key, value in numbers.items()}
            values.append({"t": position, **rounded, "series": name})
    scale: dict[str, Any] = {"zero": zero}
    if maximum is not None:
        scale["domain"] = [0, maximum]
    x = axis(
        "t",
        f"{unit_name} since the start",
        scale={"domain": [0, round((end - start) / unit_seconds, 4)], "nice": False},
    )
    names = list(series)
    line = {
        "mark": {"type": "line", "strokeWidth": 1.75, "clip": True},
        "encoding": {"x": x, "y": axis("mean", unit, scale=scale), **series_encoding(names)},
    }
    band = {
        "mark": {"type": "area", "opacity": 0.12, "aria": False, "clip": True},
        "encoding": {
            "x": x,
            "y": axis("min", unit, scale=scale),
            "y2": {"field": "max"},
            "color": series_encoding(names)["color"],
        },
    }
    layers = [band, line] if len(series) <= 4 else [line]
    return {**base_spec(f"{title} ({unit})", gpu_caption(report, measure)), "data": {"values": values}, "layer": layers}


def strip_spec(report: Report, gpus: Sequence[GpuSamples], measure: str) -> dict[str, Any]:
    """Return a row per GPU, or per node for more than MAX_ROWS GPUs; a cell's color is the mean over its time."""
    title, unit, _zero, maximum = MEASURES[measure]
    start, end = time_span(report, gpus)
    unit_name, unit_seconds = time_unit(end - start)
    rows: dict[str, list[GpuSamples]] = {}
    for gpu in gpus:
        rows.setdefault(gpu.name if len(gpus) <= MAX_ROWS else gpu.node, []).append(gpu)
    row_names = list(rows)[: MAX_CELLS // MIN_COLUMNS]
    # columns narrower than the time between two samples would sometimes be empty
    intervals = [gpu["interval_seconds"] for gpu in report["gpus"] if gpu["interval_seconds"]]
    most_columns = int((end - start) / (1.25 * max(intervals))) if intervals else MAX_COLUMNS
    columns = max(1, min(MAX_COLUMNS, max(MIN_COLUMNS, MAX_CELLS // len(row_names)), most_columns))
    parts = {
        name: buckets(
            (
                pair
                for gpu in rows[name]
                for pair in zip(gpu.time, (to_plot_unit(measure, value) for value in gpu.measure(measure)), strict=True)
            ),
            start,
            end,
            columns,
        )
        for name in row_names
    }
    means = [part.mean for buckets_of_row in parts.values() for part in buckets_of_row]
    low = 0.0 if measure != "temperature_celsius" else min(means, default=0.0)
    high = maximum if maximum is not None else max(means, default=1.0)
    shade = (high - low) / SHADES or 1.0
    width = (end - start) / columns
    cells: list[dict[str, Any]] = []
    for name in row_names:
        previous_cell: dict[str, Any] | None = None
        for part in parts[name]:
            value = round(low + round((part.mean - low) / shade) * shade, 2)
            cell_start, cell_end = (
                (part.position - width / 2 - start) / unit_seconds,
                (part.position + width / 2 - start) / unit_seconds,
            )
            if (
                previous_cell is not None
                and previous_cell["value"] == value
                and abs(previous_cell["to"] - cell_start) < width / unit_seconds / 10
            ):
                previous_cell["to"] = round(cell_end, 4)
                continue
            previous_cell = {"row": name, "from": round(cell_start, 4), "to": round(cell_end, 4), "value": value}
            cells.append(previous_cell)
    per_row = max(4, min(18, 900 // max(1, len(row_names))))
    return {
        **base_spec(f"{title} ({unit})", gpu_caption(report, measure)),
        "height": per_row * len(row_names),
        "data": {"values": cells},
        # no aria: labels for thousands of cells do not help, but the table next to the picture does
        "mark": {"type": "rect", "aria": False, "strokeWidth": 0},
        "encoding": {
            "x": axis(
                "from",
                f"{unit_name} since the start",
                scale={"domain": [0, round((end - start) / unit_seconds, 4)], "nice": False, "zero": False},
                axis={"grid": False},
            ),
            "x2": {"field": "to"},
            "y": {
                "field": "row",
                "type": "ordinal",
                "title": None,
                "sort": row_names,
                "axis": {
                    "labelFontSize": 10 if per_row >= 10 else 9,
                    "labelOverlap": True,
                    "ticks": False,
                    "labelLimit": 140,
                },
            },
            "color": {
                "field": "value",
                "type": "quantitative",
                "scale": {"scheme": "cividis", "domain": [low, high]},
                "legend": {"title": unit, "orient": "right"},
            },
        },
    }


def gpu_caption(report: Report, measure: str) -> str:
    """Return the caption for a GPU plot: one sentence with its numbers."""
    figures = [(f"{gpu['node']} GPU {gpu['index']}", get_figure(gpu, measure)) for gpu in report["gpus"]]
    known_figures = [(name, figure) for name, figure in figures if figure is not None]
    if not known_figures:
        return f"{MEASURES[measure][0]}: fewer than 8 samples of each GPU, too few for a figure."
    mean = statistics.fmean(figure["mean"] for _name, figure in known_figures)
    worst = min(known_figures, key=lambda pair: pair[1]["mean"])
    peak = max(known_figures, key=lambda pair: pair[1]["peak"])
    count = f"{len(known_figures)} GPU{'s' if len(known_figures) > 1 else ''}"
    if measure == "utilization_percent":
        least = f", from {worst[1]['mean']:.0f} % ({worst[0]}) upwards" if len(known_figures) > 1 else ""
        return f"{count} busy for {mean:.0f} % of the time on average{least}."
    if measure == "memory_used_mib":
        total = next((gpu["memory_total_mib"] for gpu in report["gpus"] if gpu_name(gpu) == peak[0]), None)
        total_text = f" of {total / 1024:.0f} GiB" if total else ""
        return f"At most {peak[1]['peak'] / 1024:.1f} GiB{total_text} used ({peak[0]})."
    if measure == "power_watts":
        limits = [gpu["power_limit_watts"] for gpu in report["gpus"] if gpu["power_limit_watts"]]
        limit = f", of a limit of {max(limits):.0f} W" if limits else ""
        least = f"; {worst[0]} least, {worst[1]['mean']:.0f} W" if len(known_figures) > 1 else ""
        return f"{mean:.0f} W on average{limit}{least}."
    return f"At most {peak[1]['peak']:.0f} °C ({peak[0]}), {mean:.0f} °C on average."


def get_figure(gpu: Mapping[str, Any], measure: str) -> Mapping[str, Any] | None:
    """Return the figure for a measure."""
    figure: Mapping[str, Any] | None = gpu[measure]
    return figure


def gpu_table(report: Report, measure: str) -> tuple[list[str], list[list[str]]]:
    """Return the table below a GPU plot."""
    unit = MEASURES[measure][1]
    digits = 1 if measure == "memory_used_mib" else 0
    rows = []
    for gpu in report["gpus"]:
        figure = get_figure(gpu, measure)
        cells = [
            "" if figure is None else f"{to_plot_unit(measure, figure[key]):.{digits}f}"
            for key in ("mean", "p5", "peak")
        ]
        rows.append([gpu_name(gpu), *cells, str(figure["samples"] if figure is not None else gpu["samples"])])
    return ["GPU", f"mean ({unit})", f"5th percentile ({unit})", f"peak ({unit})", "samples"], rows


def curve_plots(report: Report) -> list[Plot]:
    """Return a plot of each curve, losses first."""
    selected = sorted(
        (curve for curve in report["curves"] if len(curve["points"]) > 1),
        key=lambda curve: "loss" not in curve["name"].lower(),
    )[:MAX_CURVES]
    plots = []
    for number, curve in enumerate(selected, 1):
        caption = curve_caption(curve)
        header, rows = curve_table(curve)
        plots.append(Plot(f"curve-{number:02d}", curve["name"], caption, curve_spec(curve, caption), header, rows))
    return plots


def curve_caption(curve: CurveNumbers) -> str:
    """Return the caption for a curve: one sentence with its numbers."""
    unit = curve["unit"]
    last = f"Last {curve['last']:.4g} at {unit} {format_step(curve['last_step'])}"
    best = find_best(curve)
    if best is not None:
        kind = "lowest" if best.is_least else "highest"
        extremes = f"best ({kind}) {best.value:.4g} about {unit} {format_step(best.step)}"
    else:
        extremes = f"from {curve['min']:.4g} to {curve['max']:.4g}"
    return f"{last}; {extremes}; {curve['first']:.4g} at first, {curve['values']} values."


def curve_spec(curve: CurveNumbers, caption: str) -> dict[str, Any]:
    """Return the specification of one curve over the job's steps."""
    values = [
        {
            "step": round_value(point["step"]),
            "mean": round_value(point["mean"]),
            "min": round_value(point["min"]),
            "max": round_value(point["max"]),
        }
        for point in curve["points"]
    ]
    x = axis("step", curve["unit"], scale={"zero": False, "nice": False}, **step_axis(curve))
    scale = {"zero": False}
    line = {
        "mark": {
            "type": "line",
            "strokeWidth": 1.75,
            "color": COLORS[0],
            "point": len(values) <= 60 and {"color": COLORS[0]},
        },
        "encoding": {"x": x, "y": axis("mean", None, scale=scale)},
    }
    band = {
        "mark": {"type": "area", "opacity": 0.2, "color": COLORS[0], "aria": False},
        "encoding": {"x": x, "y": axis("min", None, scale=scale), "y2": {"field": "max"}},
    }
    layers = [band, line] if any(value["min"] != value["max"] for value in values) else [line]
    return {**base_spec(curve["name"], f"{curve['name']}. {caption}"), "data": {"values": values}, "layer": layers}


def step_axis(curve: CurveNumbers) -> dict[str, Any]:
    """Return the options for a step axis: no ticks between whole steps, unless a job counts in fractions."""
    whole = all(point["step"] == round(point["step"]) for point in curve["points"])
    return {"axis": {"tickMinStep": 1}} if whole else {}


def format_step(step: float) -> str:
    """Format a position on a curve: a whole number of steps, or a fraction of an epoch with up to four digits."""
    return f"{step:.0f}" if step >= 1000 or step == round(step) else f"{step:.4g}"


def round_value(value: float) -> float:
    """Round a number to six digits, which is enough for a plot."""
    return float(f"{value:.6g}") if abs(value) > FLOOR else 0.0


def curve_table(curve: CurveNumbers, limit: int = 20) -> tuple[list[str], list[list[str]]]:
    """Return the table below a curve: at most `limit` of its points, including the first and the last."""
    points = curve["points"]
    indices = sorted({round(index * (len(points) - 1) / (limit - 1)) for index in range(limit)}) if points else []
    rows = [
        [format_step(points[index]["step"]), *(f"{points[index][key]:.5g}" for key in ("mean", "min", "max"))]
        for index in indices
    ]
    return [curve["unit"], "mean", "least", "most"], rows


def comparison_plots(reports: Sequence[Report]) -> list[Plot]:
    """Return the curves that several runs have in common, overlaid by step and, if times are known, by time."""
    shared_names = [
        name
        for name in dict.fromkeys(curve["name"] for report in reports for curve in report["curves"])
        if sum(len(curve_points(report, name)) > 1 for report in reports) > 1
    ]
    selected = sorted(shared_names, key=lambda name: "loss" not in name.lower())[: MAX_CURVES // 2]
    plots = []
    for number, name in enumerate(selected, 1):
        for by in ("step", "time"):
            plot = overlay_plot(reports[:MAX_LINES], name, by)
            if plot is not None:
                plot.name = f"curve-{number:02d}-by-{by}"
                plots.append(plot)
    return plots


def curve_points(report: Report, name: str) -> list[Any]:
    """Return the points of a run's curve; empty if the run has no such curve."""
    return next((list(curve["points"]) for curve in report["curves"] if curve["name"] == name), [])


def overlay_plot(reports: Sequence[Report], name: str, by: str) -> Plot | None:
    """Return one curve for several runs by step or time, or None if fewer than two runs have at least two points for
    it.
    """
    longest = max((report["seconds"] or 0 for report in reports), default=0)
    unit_name, unit_seconds = time_unit(longest)
    values, last_values = [], []
    for report in reports:
        points = curve_points(report, name)
        started = report["started"]
        if by == "time":
            points = [] if started is None else [point for point in points if point["time"] is not None]
        if len(points) < 2:
            continue
        matching_curve = next(curve for curve in report["curves"] if curve["name"] == name)
        last_values.append((report["run_id"], matching_curve["last"], matching_curve["last_step"]))
        for point in points:
            position = point["step"] if by == "step" else (point["time"] - (started or 0.0)) / unit_seconds
            values.append({"x": round_value(position), "mean": round_value(point["mean"]), "series": report["run_id"]})
    if len(last_values) < 2:
        return None
    title = f"{name} by {by}"
    caption = "Last values: " + ", ".join(f"{run} {value:.4g}" for run, value, _step in last_values) + "."
    spec = {
        **base_spec(title, f"{title}. {caption}"),
        "data": {"values": values},
        "mark": {"type": "line", "strokeWidth": 1.75},
        "encoding": {
            "x": axis(
                "x", "step" if by == "step" else f"{unit_name} since the start", scale={"zero": False, "nice": False}
            ),
            "y": axis("mean", None, scale={"zero": False}),
            **series_encoding([report["run_id"] for report in reports]),
        },
    }
    rows = [[run, f"{step:.0f}", f"{value:.5g}"] for run, value, step in last_values]
    return Plot("", title, caption, spec, ["run", "last step", "last value"], rows)
