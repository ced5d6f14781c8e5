# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compare runs side by side: one column per run, differing settings first."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence

from ansible_collections.muster.training.plugins.plugin_utils._record.code_tree import differing_files
from ansible_collections.muster.training.plugins.plugin_utils._report.documents import Report
from ansible_collections.muster.training.plugins.plugin_utils._report.page import (
    RenderedPlot,
    environment,
    format_money,
    format_time,
    format_value,
)
from ansible_collections.muster.training.plugins.plugin_utils._report.plots import MAX_LINES
from ansible_collections.muster.training.plugins.plugin_utils._report.report import CODE, SCRIPT_CONTENT
from ansible_collections.muster.training.plugins.plugin_utils._text.duration import format_duration
from ansible_collections.muster.training.plugins.plugin_utils._text.name_list import format_list

MISSING = "-"
CODE_NAMES = (CODE, SCRIPT_CONTENT)


def differing_settings(reports: Sequence[Report]) -> list[list[str]]:
    """Return the settings that differ between runs: the name, and the value in each run."""
    names = dict.fromkeys(name for report in reports for name in report["settings"])
    rows = [[name, *(report["settings"].get(name, MISSING) for report in reports)] for name in names]
    # it is unknown whether code that was not recorded differs
    return [row for row in rows if len(set(row[1:])) > 1 and not (row[0] in CODE_NAMES and MISSING in row)]


def unknown_code_note(reports: Sequence[Report]) -> str:
    """Return a note if the records of some runs lack the code, or an empty string."""
    unknown = [report["run_id"] for report in reports if CODE not in report["settings"]]
    if not unknown:
        return ""
    part = "" if any(SCRIPT_CONTENT not in report["settings"] for report in reports) else "other than the script "
    return (
        f"it is unknown whether code {part}differs, since it is not in the record of {format_list(unknown)}. Code "
        "is recorded by launches with code_source, or with code in a job file"
    )


def metric_rows(reports: Sequence[Report]) -> tuple[list[list[str]], list[list[str]]]:
    """Return rows for the jobs' metrics and for the last values of their curves, as numbers and as texts."""
    values_by_run = [
        {metric["name"]: format_value(metric["value"]) for metric in report["metrics"]} for report in reports
    ]
    for values, report in zip(values_by_run, reports, strict=True):
        for curve in report["curves"]:
            values.setdefault(f"{curve['name']}, last", f"{curve['last']:.5g}")
    texts = {metric["name"] for report in reports for metric in report["metrics"] if isinstance(metric["value"], str)}
    rows: tuple[list[list[str]], list[list[str]]] = ([], [])
    for name in dict.fromkeys(name for values in values_by_run for name in values):
        rows[name in texts].append([name, *(values.get(name, MISSING) for values in values_by_run)])
    return rows


def comparison_row(name: str, reports: Sequence[Report], get_value: Callable[[Report], str]) -> list[list[str]]:
    """Return one table row as a list, which is empty if no run has a value."""
    cells = [get_value(report) or MISSING for report in reports]
    return [] if set(cells) == {MISSING} else [[name, *cells]]


def comparison_sections(reports: Sequence[Report], numbers: list[list[str]]) -> list[tuple[str, list[list[str]]]]:
    """Return the tables below the settings: metrics, time, throughput, GPUs, cost. numbers: the rows of metrics."""
    return [
        ("Metrics", numbers),
        (
            "Time",
            comparison_row(
                "time", reports, lambda report: "" if report["seconds"] is None else format_duration(report["seconds"])
            )
            + [
                line
                for name in dict.fromkeys(stage["name"] for report in reports for stage in report["stages"])
                for line in comparison_row(name, reports, lambda report, name=name: stage_duration(report, name))  # type: ignore[misc]
            ],
        ),
        (
            "Throughput",
            comparison_row("samples a second", reports, lambda report: format_number(report["samples_per_second"]))
            + comparison_row("of each process", reports, rate_per_process),
        ),
        (
            "GPUs",
            comparison_row("utilization, mean", reports, lambda report: gpu_mean(report, "utilization_percent", "%"))
            + comparison_row("memory, peak", reports, peak_memory)
            + comparison_row("power, mean", reports, lambda report: gpu_mean(report, "power_watts", "W"))
            + comparison_row(
                "temperature, mean", reports, lambda report: gpu_mean(report, "temperature_celsius", "°C")
            ),
        ),
        (
            "Cost",
            comparison_row("the run", reports, lambda report: format_price(report, "run"))
            + comparison_row("of which until a GPU was busy", reports, lambda report: format_price(report, "start_up"))
            + comparison_row("of which for idle GPUs", reports, lambda report: format_price(report, "idle_gpus"))
            + comparison_row("1000 samples", reports, lambda report: format_price(report, "per_1000_samples")),
        ),
    ]


def stage_duration(report: Report, name: str) -> str:
    """Return the duration of a stage in a run, or an empty string if the run has no such stage."""
    return next((format_duration(stage["seconds"]) for stage in report["stages"] if stage["name"] == name), "")


def format_number(value: float | None) -> str:
    """Format a number as text, or return an empty string if it is unknown."""
    return "" if value is None else format_value(value)


def rate_per_process(report: Report) -> str:
    """Return the samples per second of each process."""
    rate, size = report["samples_per_second"], report["world_size"]
    return "" if rate is None or not size else format_value(rate / size)


def gpu_mean(report: Report, measure: str, unit: str) -> str:
    """Return the mean of a measure over all GPUs."""
    means = [gpu[measure]["mean"] for gpu in report["gpus"] if gpu[measure] is not None]  # type: ignore[literal-required]
    return f"{statistics.fmean(means):.0f} {unit}" if means else ""


def peak_memory(report: Report) -> str:
    """Return the peak memory of a GPU."""
    peaks = [gpu["memory_used_mib"]["peak"] for gpu in report["gpus"] if gpu["memory_used_mib"] is not None]
    return f"{max(peaks) / 1024:.1f} GiB" if peaks else ""


def format_price(report: Report, part: str) -> str:
    """Format a part of the cost as text."""
    amount: float | None = report["cost"][part]  # type: ignore[literal-required]
    return "" if amount is None else format_money(amount, report["cost"]["currency"])


def render_comparison(
    reports: Sequence[Report],
    plots: Sequence[RenderedPlot],
    now: float,
    note: str = "",
    trees: Sequence[Mapping[str, str] | None] = (),
) -> str:
    """Return the page.

    Args:
        reports: The reports of the runs.
        plots: The plots.
        now: Seconds since 1970.
        note: Message about missing pictures.
        trees: For each run the fingerprints of its code's files, or None.
    """
    files, more_files = differing_files(trees)
    notes = [text for text in (unknown_code_note(reports), note) if text]
    if len(reports) > MAX_LINES:
        notes.append(f"plots show the first {MAX_LINES} runs")
    batches = {report["settings"].get("batch size per rank", "") + str(report["world_size"]) for report in reports}
    if len(batches) > 1:
        notes.append(
            "the runs differ in their global batch size (number of processes, or batch size per rank): compare "
            "their speeds and accuracies with care"
        )
    names = [report["run_id"] for report in reports]
    numbers, texts = metric_rows(reports)
    return (
        environment()
        .get_template("comparison.html.j2")
        .render(
            title=f"{len(reports)} runs compared",
            reports=reports,
            header=["", *names],
            differences=differing_settings(reports),
            files=files,
            more_files=more_files,
            sections=comparison_sections(reports, numbers),
            texts=texts,
            plots=plots,
            notes=notes,
            made=format_time(now),
        )
    )
