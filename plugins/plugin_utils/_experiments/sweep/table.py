# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tables of a sweep: rows from runs, as text for a terminal and in Markdown. Pure.

Private to this collection, controller only.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.muster.training.plugins.plugin_utils._experiments.sweep.documents import (
    LARGEST,
    SAME,
    Row,
    Run,
    Table,
    Variant,
)
from ansible_collections.muster.training.plugins.plugin_utils._failures.verdict import duration
from ansible_collections.muster.training.plugins.plugin_utils._report.logbook import escaped
from ansible_collections.muster.training.plugins.plugin_utils._report.page import money, value_of

TITLES = {SAME: "The same global batch", LARGEST: "The largest batch of each"}
HOUR = 3600.0
HEADER = [
    *("variant", "nodes", "ranks", "batch a rank", "global batch", "samples/s", "a rank", "efficiency", "memory peak"),
    *("time", "cost", "1000 samples"),
]
BEST_OF = {5: max, 6: max, 8: min, 10: min, 11: min}  # column number: whether its highest or lowest value is best


def table_of(batch: str, variants: Sequence[Variant], runs: Iterable[Run]) -> Table:
    """A table of all variants, from the runs with this kind of batch. The fastest comes first, failed ones last."""
    known = [run for run in runs if run["batch"] == batch]
    rows = [row_of(one["name"], [run for run in known if run["variant"] == one["name"]]) for one in variants]
    kinds = {one["name"]: one["kind"] for one in variants}
    for row in rows:
        row["efficiency"] = efficiency(
            row, [other for other in rows if kinds[other["variant"]] == kinds[row["variant"]]]
        )
    rows.sort(key=lambda row: (not row["succeeded"], -(row["samples_per_second"] or 0.0)))
    return {"batch": batch, "rows": rows, "notes": notes_of(batch, rows, known)}


def row_of(name: str, runs: Sequence[Run]) -> Row:
    """The medians over a variant's successful repeats, or why none succeeded."""
    good = [run for run in runs if run["succeeded"]]
    first = next(iter([*good, *runs]), None)
    rates = [run["samples_per_second"] for run in good if run["samples_per_second"] is not None]
    rate = statistics.median(rates) if rates else None
    ranks = first["ranks"] if first is not None else 0
    per_hour = first["per_hour"] if first is not None else None
    return {
        "variant": name,
        "succeeded": bool(good),
        "why": "" if good else first["why"] if first is not None else "it was not run",
        "run_ids": [run["run_id"] for run in runs],
        "nnodes": first["nnodes"] if first is not None else 0,
        "ranks": ranks,
        "batch_size": first["batch_size"] if first is not None else None,
        "global_batch_size": first["global_batch_size"] if first is not None else None,
        "samples_per_second": rate,
        "least": min(rates, default=None),
        "most": max(rates, default=None),
        "per_rank": rate / ranks if rate is not None and ranks else None,
        "efficiency": None,
        "memory_mib": max((run["memory_mib"] for run in good if run["memory_mib"] is not None), default=None),
        "run_seconds": middle(run["run_seconds"] for run in good),
        "cost": middle(run["cost"] for run in good),
        "per_1000_samples": per_hour / HOUR / rate * 1000 if per_hour is not None and rate else None,
        "currency": first["currency"] if first is not None else "",
    }


def middle(values: Iterable[float | None]) -> float | None:
    """The median of the known values, None if there are none."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def efficiency(row: Row, alike: Iterable[Row]) -> float | None:
    """Samples per second per rank, relative to the row with the fewest nodes; None if all have the same size."""
    known = [one for one in alike if one["per_rank"]]
    smallest = min(known, key=lambda one: (one["nnodes"], one["ranks"]), default=None)
    if smallest is None or not row["per_rank"] or len({(one["nnodes"], one["ranks"]) for one in known}) < 2:
        return None
    return row["per_rank"] / (smallest["per_rank"] or 1.0)


def notes_of(batch: str, rows: Sequence[Row], runs: Sequence[Run]) -> list[str]:
    """Notes about a table."""
    good = [row for row in rows if row["succeeded"]]
    found = []
    batches = sorted({row["global_batch_size"] for row in good if row["global_batch_size"] is not None})
    unknown = [row["variant"] for row in good if row["global_batch_size"] is None]
    if batch == SAME and len(batches) > 1:
        told = ", ".join(value_of(one) for one in batches)
        found.append(
            f"the global batches are not the same ({told}), so speeds are hard to compare, and accuracies cannot be"
        )
    if batch == LARGEST and len(batches) > 1:
        found.append("the global batches differ: speeds can be compared, accuracies cannot")
    if unknown:
        found.append(f"{', '.join(unknown)}: no batch_size was reported, so the global batch is not known")
    silent = [row["variant"] for row in good if row["samples_per_second"] is None]
    if silent:
        found.append(
            f"{', '.join(silent)}: no throughput is known, since the job printed no "
            'MUSTER_RESULT {"samples_per_second": ...}'
        )
    found += within_range(good)
    found += [f"{run['variant']}, repeat {run['repeat']} failed: {run['why']}" for run in partly(good, runs)]
    missing = next((run["cost_missing"] for run in runs if run["succeeded"] and run["cost_missing"]), "")
    if missing:
        found.append(f"cost: {missing}")
    return found


def partly(rows: Sequence[Row], runs: Sequence[Run]) -> list[Run]:
    """The failed runs of these rows' variants, of which other repeats have succeeded."""
    names = {row["variant"] for row in rows}
    return [run for run in runs if run["variant"] in names and not run["succeeded"]]


def within_range(rows: Sequence[Row]) -> list[str]:
    """A note about variants whose range overlaps the fastest one's, or about missing ranges after a single repeat."""
    known = [row for row in rows if row["samples_per_second"] is not None]
    if len(known) < 2:
        return []
    if all(row["least"] == row["most"] for row in known):
        return ["each was measured once: a difference of a few per cent means nothing; sweep_repeats=3 gives ranges"]
    best = known[0]
    alike = [row["variant"] for row in known[1:] if (row["most"] or 0.0) >= (best["least"] or 0.0)]
    if not alike:
        return []
    return [f"{', '.join(alike)}: no slower than {best['variant']}, as far as these repeats tell"]


def rates_of(row: Row) -> str:
    """The median and, if there is one, the range."""
    if row["samples_per_second"] is None or row["least"] is None or row["most"] is None:
        return "-"
    told = value_of(row["samples_per_second"])
    return told if row["least"] == row["most"] else f"{told} ({value_of(row['least'])} to {value_of(row['most'])})"


def optional(value: float | None) -> str:
    """A number, or "-"."""
    return "-" if value is None else value_of(value)


def cells(row: Row) -> list[str]:
    """The cells of a row as text."""
    if not row["succeeded"]:
        return [row["variant"], "failed"]
    return [
        row["variant"],
        str(row["nnodes"] or "-"),
        str(row["ranks"] or "-"),
        optional(row["batch_size"]),
        optional(row["global_batch_size"]),
        rates_of(row),
        optional(row["per_rank"]),
        "-" if row["efficiency"] is None else f"{row['efficiency']:.0%}",
        "-" if row["memory_mib"] is None else f"{row['memory_mib'] / 1024:.2f} GiB",
        "-" if row["run_seconds"] is None else duration(row["run_seconds"]),
        "-" if row["cost"] is None else money(row["cost"], row["currency"]),
        "-" if row["per_1000_samples"] is None else money(row["per_1000_samples"], row["currency"]),
    ]


def columns(table: Table) -> list[int]:
    """The columns in which some row has a value."""
    rows = [cells(row) for row in table["rows"] if row["succeeded"]]
    return [place for place in range(len(HEADER)) if place == 0 or any(row[place] != "-" for row in rows)]


def failures(table: Table) -> list[str]:
    """A line for each variant that has failed."""
    return [f"{row['variant']} failed: {row['why']}" for row in table["rows"] if not row["succeeded"]]


def for_terminal(table: Table) -> str:
    """A table as aligned text."""
    kept = columns(table)
    lines = [HEADER, *(cells(row) for row in table["rows"] if row["succeeded"])]
    lines = [[line[place] for place in kept] for line in lines]
    widths = [max(len(line[place]) for line in lines) for place in range(len(kept))]
    text = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines] if len(lines) > 1 else []
    return "\n".join([TITLES[table["batch"]], *text, *failures(table), *table["notes"]])


def for_markdown(table: Table) -> str:
    """A table as Markdown, the best of each column in bold."""
    kept = columns(table)
    good = [row for row in table["rows"] if row["succeeded"]]
    best = best_cells(good)
    lines = [f"## {TITLES[table['batch']]}", ""]
    if good:
        lines += [f"| {' | '.join(HEADER[place] for place in kept)} |", f"|{'---|' * len(kept)}"]
    for row in good:
        shown = [escaped(cell) for cell in cells(row)]
        shown = [f"**{cell}**" if row["variant"] in best.get(place, ()) else cell for place, cell in enumerate(shown)]
        lines.append(f"| {' | '.join(shown[place] for place in kept)} |")
    told = [*failures(table), *table["notes"]]
    return "\n".join([*lines, *([""] if good and told else []), *(f"- {escaped(one)}" for one in told), ""])


def best_cells(rows: Sequence[Row]) -> Mapping[int, list[str]]:
    """By column, the variants with the best value; columns in which all are equal are left out."""
    found = {}
    for place, name in (
        (5, "samples_per_second"),
        (6, "per_rank"),
        (8, "memory_mib"),
        (10, "cost"),
        (11, "per_1000_samples"),
    ):
        known = {row["variant"]: row[name] for row in rows if row[name] is not None}  # type: ignore[literal-required]
        if len(set(known.values())) > 1:
            best = BEST_OF[place](known.values())
            found[place] = [variant for variant, value in known.items() if value == best]
    return found
