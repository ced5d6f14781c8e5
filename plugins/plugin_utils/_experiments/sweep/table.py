# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Build a sweep's tables, and render them as text for the terminal and as Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.muster.training.plugins.plugin_utils._experiments.sweep.documents import (
    LARGEST,
    SAME,
    SweepTable,
    Variant,
    VariantRow,
    VariantRun,
)
from ansible_collections.muster.training.plugins.plugin_utils._report.logbook import escape
from ansible_collections.muster.training.plugins.plugin_utils._report.page import format_money, format_value
from ansible_collections.muster.training.plugins.plugin_utils._text.duration import format_duration

TITLES = {SAME: "The same global batch", LARGEST: "The largest batch of each"}
HOUR = 3600.0
HEADER = [
    *("variant", "nodes", "ranks", "batch a rank", "global batch", "samples/s", "a rank", "efficiency", "memory peak"),
    *("time", "cost", "1000 samples"),
]
# column number: whether the column's highest or lowest value is best
BEST_OF = {5: max, 6: max, 8: min, 10: min, 11: min}


def build_table(batch: str, variants: Sequence[Variant], runs: Iterable[VariantRun]) -> SweepTable:
    """Return a table of all variants with this kind of batch size, fastest first and failed variants last."""
    batch_runs = [run for run in runs if run["batch"] == batch]
    rows = [
        build_row(variant["name"], [run for run in batch_runs if run["variant"] == variant["name"]])
        for variant in variants
    ]
    kinds = {variant["name"]: variant["kind"] for variant in variants}
    for row in rows:
        row["efficiency"] = efficiency(
            row, [candidate for candidate in rows if kinds[candidate["variant"]] == kinds[row["variant"]]]
        )
    rows.sort(key=lambda row: (not row["succeeded"], -(row["samples_per_second"] or 0.0)))
    return {"batch": batch, "rows": rows, "notes": build_notes(batch, rows, batch_runs)}


def build_row(name: str, runs: Sequence[VariantRun]) -> VariantRow:
    """Return the medians over a variant's successful repeats, or the reason why none succeeded."""
    succeeded = [run for run in runs if run["succeeded"]]
    first = next(iter([*succeeded, *runs]), None)
    rates = [run["samples_per_second"] for run in succeeded if run["samples_per_second"] is not None]
    rate = statistics.median(rates) if rates else None
    ranks = first["ranks"] if first is not None else 0
    per_hour = first["per_hour"] if first is not None else None
    return {
        "variant": name,
        "succeeded": bool(succeeded),
        "reason": "" if succeeded else first["reason"] if first is not None else "it was not run",
        "run_ids": [run["run_id"] for run in runs],
        "nnodes": first["nnodes"] if first is not None else 0,
        "ranks": ranks,
        "batch_size": first["batch_size"] if first is not None else None,
        "global_batch_size": first["global_batch_size"] if first is not None else None,
        "samples_per_second": rate,
        "min": min(rates, default=None),
        "max": max(rates, default=None),
        "per_rank": rate / ranks if rate is not None and ranks else None,
        "efficiency": None,
        "memory_mib": max((run["memory_mib"] for run in succeeded if run["memory_mib"] is not None), default=None),
        "run_seconds": optional_median(run["run_seconds"] for run in succeeded),
        "cost": optional_median(run["cost"] for run in succeeded),
        "per_1000_samples": per_hour / HOUR / rate * 1000 if per_hour is not None and rate else None,
        "currency": first["currency"] if first is not None else "",
    }


def optional_median(values: Iterable[float | None]) -> float | None:
    """Return the median of the known values, or None."""
    known_values = [value for value in values if value is not None]
    return statistics.median(known_values) if known_values else None


def efficiency(row: VariantRow, similar_rows: Iterable[VariantRow]) -> float | None:
    """Return the samples per second per rank, relative to the smallest row; None if all rows have the same size."""
    measured_rows = [similar for similar in similar_rows if similar["per_rank"]]
    smallest = min(measured_rows, key=lambda similar: (similar["nnodes"], similar["ranks"]), default=None)
    if (
        smallest is None
        or not row["per_rank"]
        or len({(similar["nnodes"], similar["ranks"]) for similar in measured_rows}) < 2
    ):
        return None
    return row["per_rank"] / (smallest["per_rank"] or 1.0)


def build_notes(batch: str, rows: Sequence[VariantRow], runs: Sequence[VariantRun]) -> list[str]:
    """Return the notes about a table."""
    succeeded = [row for row in rows if row["succeeded"]]
    notes = []
    batches = sorted({row["global_batch_size"] for row in succeeded if row["global_batch_size"] is not None})
    unknown = [row["variant"] for row in succeeded if row["global_batch_size"] is None]
    if batch == SAME and len(batches) > 1:
        sizes = ", ".join(format_value(size) for size in batches)
        notes.append(
            f"the global batch sizes differ ({sizes}), so speeds are hard to compare, and accuracies cannot be compared"
        )
    if batch == LARGEST and len(batches) > 1:
        notes.append("the global batch sizes differ: speeds can be compared, accuracies cannot")
    if unknown:
        notes.append(f"{', '.join(unknown)}: no batch_size was reported, so the global batch size is unknown")
    without_rate = [row["variant"] for row in succeeded if row["samples_per_second"] is None]
    if without_rate:
        notes.append(
            f"{', '.join(without_rate)}: the throughput is unknown, since the job printed no "
            'MUSTER_RESULT {"samples_per_second": ...}'
        )
    notes += range_notes(succeeded)
    notes += [
        f"{run['variant']}, repeat {run['repeat']} failed: {run['reason']}" for run in failed_repeats(succeeded, runs)
    ]
    missing = next((run["cost_missing"] for run in runs if run["succeeded"] and run["cost_missing"]), "")
    if missing:
        notes.append(f"cost: {missing}")
    return notes


def failed_repeats(rows: Sequence[VariantRow], runs: Sequence[VariantRun]) -> list[VariantRun]:
    """Return the failed runs of variants in these rows that also have successful repeats."""
    names = {row["variant"] for row in rows}
    return [run for run in runs if run["variant"] in names and not run["succeeded"]]


def range_notes(rows: Sequence[VariantRow]) -> list[str]:
    """Note which variants' ranges overlap that of the fastest, or that a single repeat provides no ranges."""
    measured_rows = [row for row in rows if row["samples_per_second"] is not None]
    if len(measured_rows) < 2:
        return []
    if all(row["min"] == row["max"] for row in measured_rows):
        return [
            (
                "each was measured once, so a difference of a few percent is not significant; set sweep_repeats=3 "
                "to get ranges"
            )
        ]
    best = measured_rows[0]
    overlapping = [row["variant"] for row in measured_rows[1:] if (row["max"] or 0.0) >= (best["min"] or 0.0)]
    if not overlapping:
        return []
    return [f"{', '.join(overlapping)}: not measurably slower than {best['variant']} in these repeats"]


def format_rate(row: VariantRow) -> str:
    """Format the median and, if there is one, the range."""
    if row["samples_per_second"] is None or row["min"] is None or row["max"] is None:
        return "-"
    median = format_value(row["samples_per_second"])
    return (
        median if row["min"] == row["max"] else f"{median} ({format_value(row['min'])} to {format_value(row['max'])})"
    )


def format_optional(value: float | None) -> str:
    """Format a number, or "-"."""
    return "-" if value is None else format_value(value)


def format_cells(row: VariantRow) -> list[str]:
    """Return the cells of a row as text."""
    if not row["succeeded"]:
        return [row["variant"], "failed"]
    return [
        row["variant"],
        str(row["nnodes"] or "-"),
        str(row["ranks"] or "-"),
        format_optional(row["batch_size"]),
        format_optional(row["global_batch_size"]),
        format_rate(row),
        format_optional(row["per_rank"]),
        "-" if row["efficiency"] is None else f"{row['efficiency']:.0%}",
        "-" if row["memory_mib"] is None else f"{row['memory_mib'] / 1024:.2f} GiB",
        "-" if row["run_seconds"] is None else format_duration(row["run_seconds"]),
        "-" if row["cost"] is None else format_money(row["cost"], row["currency"]),
        "-" if row["per_1000_samples"] is None else format_money(row["per_1000_samples"], row["currency"]),
    ]


def used_columns(table: SweepTable) -> list[int]:
    """Return the columns in which at least one row has a value."""
    rows = [format_cells(row) for row in table["rows"] if row["succeeded"]]
    return [column for column in range(len(HEADER)) if column == 0 or any(row[column] != "-" for row in rows)]


def failure_lines(table: SweepTable) -> list[str]:
    """Return a line for each variant that has failed."""
    return [f"{row['variant']} failed: {row['reason']}" for row in table["rows"] if not row["succeeded"]]


def render_text(table: SweepTable) -> str:
    """Render a table as aligned text."""
    columns = used_columns(table)
    lines = [HEADER, *(format_cells(row) for row in table["rows"] if row["succeeded"])]
    lines = [[line[column] for column in columns] for line in lines]
    widths = [max(len(line[column]) for line in lines) for column in range(len(columns))]
    text = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines] if len(lines) > 1 else []
    return "\n".join([TITLES[table["batch"]], *text, *failure_lines(table), *table["notes"]])


def render_markdown(table: SweepTable) -> str:
    """Render a table as Markdown, with the best value in each column in bold."""
    columns = used_columns(table)
    succeeded = [row for row in table["rows"] if row["succeeded"]]
    best = best_variants(succeeded)
    lines = [f"## {TITLES[table['batch']]}", ""]
    if succeeded:
        lines += [f"| {' | '.join(HEADER[column] for column in columns)} |", f"|{'---|' * len(columns)}"]
    for row in succeeded:
        row_cells = [escape(cell) for cell in format_cells(row)]
        row_cells = [
            f"**{cell}**" if row["variant"] in best.get(column, ()) else cell for column, cell in enumerate(row_cells)
        ]
        lines.append(f"| {' | '.join(row_cells[column] for column in columns)} |")
    notes = [*failure_lines(table), *table["notes"]]
    return "\n".join([*lines, *([""] if succeeded and notes else []), *(f"- {escape(note)}" for note in notes), ""])


def best_variants(rows: Sequence[VariantRow]) -> Mapping[int, list[str]]:
    """Return the variants with the best value, by column, omitting columns in which all values are equal."""
    variants_by_column = {}
    for column, name in (
        (5, "samples_per_second"),
        (6, "per_rank"),
        (8, "memory_mib"),
        (10, "cost"),
        (11, "per_1000_samples"),
    ):
        values = {row["variant"]: row[name] for row in rows if row[name] is not None}  # type: ignore[literal-required]
        if len(set(values.values())) > 1:
            best = BEST_OF[column](values.values())
            variants_by_column[column] = [variant for variant, value in values.items() if value == best]
    return variants_by_column
