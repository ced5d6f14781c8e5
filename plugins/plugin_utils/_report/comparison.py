# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Several runs side by side: one column per run, differing settings first. Pure.

Private to this collection, controller only.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from ansible_collections.muster.training.plugins.plugin_utils._failures.verdict import duration
from ansible_collections.muster.training.plugins.plugin_utils._report.documents import Report
from ansible_collections.muster.training.plugins.plugin_utils._report.page import (
    Shown,
    environment,
    money,
    value_of,
    when,
)
from ansible_collections.muster.training.plugins.plugin_utils._report.plots import LINES

MISSING = "-"


def differences(reports: Sequence[Report]) -> list[list[str]]:
    """The settings that differ between runs: name, and the value in each run."""
    names = dict.fromkeys(name for report in reports for name in report["settings"])
    rows = [[name, *(report["settings"].get(name, MISSING) for report in reports)] for name in names]
    return [row for row in rows if len(set(row[1:])) > 1]


def metrics(reports: Sequence[Report]) -> tuple[list[list[str]], list[list[str]]]:
    """Rows of the jobs' metrics and the last values of their curves: those with numbers, and those with texts."""
    told = [{one["name"]: value_of(one["value"]) for one in report["metrics"]} for report in reports]
    for known, report in zip(told, reports, strict=True):
        for curve in report["curves"]:
            known.setdefault(f"{curve['name']}, last", f"{curve['last']:.5g}")
    texts = {one["name"] for report in reports for one in report["metrics"] if isinstance(one["value"], str)}
    rows: tuple[list[list[str]], list[list[str]]] = ([], [])
    for name in dict.fromkeys(name for known in told for name in known):
        rows[name in texts].append([name, *(known.get(name, MISSING) for known in told)])
    return rows


def row(name: str, reports: Sequence[Report], tell: Callable[[Report], str]) -> list[list[str]]:
    """One row of a table as a list, empty if no run has a value."""
    cells = [tell(report) or MISSING for report in reports]
    return [] if set(cells) == {MISSING} else [[name, *cells]]


def sections(reports: Sequence[Report], numbers: list[list[str]]) -> list[tuple[str, list[list[str]]]]:
    """The tables below the settings: metrics, time, throughput, GPUs, cost. numbers: the rows of the first."""
    return [
        ("Metrics", numbers),
        (
            "Time",
            row("time", reports, lambda report: "" if report["seconds"] is None else duration(report["seconds"]))
            + [
                line
                for name in dict.fromkeys(stage["name"] for report in reports for stage in report["stages"])
                for line in row(name, reports, lambda report, name=name: stage_of(report, name))  # type: ignore[misc]
            ],
        ),
        (
            "Throughput",
            row("samples a second", reports, lambda report: amount(report["samples_per_second"]))
            + row("of each process", reports, of_each),
        ),
        (
            "GPUs",
            row("utilisation, mean", reports, lambda report: mean(report, "utilization_percent", "%"))
            + row("memory, peak", reports, memory)
            + row("power, mean", reports, lambda report: mean(report, "power_watts", "W"))
            + row("temperature, mean", reports, lambda report: mean(report, "temperature_celsius", "°C")),
        ),
        (
            "Cost",
            row("the run", reports, lambda report: price(report, "run"))
            + row("of it until a GPU was busy", reports, lambda report: price(report, "start_up"))
            + row("of it for idle GPUs", reports, lambda report: price(report, "idle_gpus"))
            + row("1000 samples", reports, lambda report: price(report, "per_1000_samples")),
        ),
    ]


def stage_of(report: Report, name: str) -> str:
    """The duration of a stage of a run, "" if it has no such stage."""
    return next((duration(stage["seconds"]) for stage in report["stages"] if stage["name"] == name), "")


def amount(value: float | None) -> str:
    """A number, "" if it is unknown."""
    return "" if value is None else value_of(value)


def of_each(report: Report) -> str:
    """Samples per second of each process."""
    rate, size = report["samples_per_second"], report["world_size"]
    return "" if rate is None or not size else value_of(rate / size)


def mean(report: Report, measure: str, unit: str) -> str:
    """The mean of a measure over all GPUs."""
    means = [gpu[measure]["mean"] for gpu in report["gpus"] if gpu[measure] is not None]  # type: ignore[literal-required]
    return f"{statistics.fmean(means):.0f} {unit}" if means else ""


def memory(report: Report) -> str:
    """The peak memory of a GPU."""
    peaks = [gpu["memory_used_mib"]["peak"] for gpu in report["gpus"] if gpu["memory_used_mib"] is not None]
    return f"{max(peaks) / 1024:.1f} GiB" if peaks else ""


def price(report: Report, of: str) -> str:
    """A part of the cost."""
    found: float | None = report["cost"][of]  # type: ignore[literal-required]
    return "" if found is None else money(found, report["cost"]["currency"])


def render_comparison(reports: Sequence[Report], plots: Sequence[Shown], now: float, note: str = "") -> str:
    """The page. now: seconds since 1970; note: message about missing pictures."""
    notes = [note] if note else []
    if len(reports) > LINES:
        notes.append(f"plots show the first {LINES} runs")
    batches = {report["settings"].get("batch size per rank", "") + str(report["world_size"]) for report in reports}
    if len(batches) > 1:
        notes.append(
            "the runs differ in their global batch (processes, or batch per rank): compare their speed, and accuracies "
            "only with care"
        )
    names = [report["run_id"] for report in reports]
    numbers, texts = metrics(reports)
    return (
        environment()
        .get_template("comparison.html.j2")
        .render(
            title=f"{len(reports)} runs compared",
            reports=reports,
            header=["", *names],
            differences=differences(reports),
            sections=sections(reports, numbers),
            texts=texts,
            plots=plots,
            notes=notes,
            made=when(now),
        )
    )
