# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The log book: a Markdown page per run, and a table of all runs. The user's notes below MARK are kept.

Pure. Private to this collection, controller only.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ansible_collections.muster.training.plugins.plugin_utils._failures.verdict import duration
from ansible_collections.muster.training.plugins.plugin_utils._report.documents import Report
from ansible_collections.muster.training.plugins.plugin_utils._report.page import (
    GPU_HEADER,
    cost_facts,
    gpu_row,
    money,
    run_facts,
    throughput,
    value_of,
)
from ansible_collections.muster.training.plugins.plugin_utils._report.report import where_failed

MARK = "<!-- notes -->"
INVITATION = "\nWhat you write below this line is kept when the page is rewritten.\n"
README = "README.md"
# Starts Markdown markup anywhere; an underscore between letters does not, and a bare address would become a link
SPECIAL = re.compile(r"([\\`*\[\]|~$]|(?<![^\W_])_|_(?![^\W_])|:(?=//))")
AT_START = re.compile(r"([#+=-]+(?=\s|\Z)|\d+(?=[.)](?:\s|\Z)))")  # makes a line a heading, a list or a rule
LONGEST_CELL = 200
MOST_GPUS = 64  # in the table of a page
TITLE = "# Log book"


class Row(NamedTuple):
    """A run in the table of all runs."""

    started: float
    run_id: str
    state: str
    nodes: str
    metrics: str
    seconds: float | None
    utilization: float | None
    memory_mib: float | None
    cost: str
    page: str  # of the log book, or the page itself, relative to it


def escaped(text: str) -> str:
    """A text escaped for Markdown, in one line: nothing in it is markup, a tag, a link or the end of a cell."""
    text = " ".join(text[:LONGEST_CELL].split())
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = re.sub(r"\bwww\.", r"www\\.", SPECIAL.sub(r"\\\1", text), flags=re.IGNORECASE)
    begins = AT_START.match(text)
    return text if begins is None else f"\\{text}" if not text[0].isdigit() else f"{begins[1]}\\{text[begins.end() :]}"


def code_block(text: str) -> list[str]:
    """Lines unchanged, between fences longer than any inside."""
    longest = max((len(found) for found in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return [fence, *text.split("\n"), fence]


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table; the cells are escaped."""
    return [
        f"| {' | '.join(escaped(cell) for cell in header)} |",
        f"|{'---|' * len(header)}",
        *(f"| {' | '.join(escaped(cell) for cell in row)} |" for row in rows),
    ]


def date_of(seconds: float | None) -> str:
    """A date in this machine's time zone; "0000-00-00" if unknown."""
    known = seconds is not None and 0 <= seconds < 1e11
    return time.strftime("%Y-%m-%d", time.localtime(seconds)) if known else "0000-00-00"


def file_name(report: Report) -> str:
    """The name of a run's page."""
    started = report["started"] if report["started"] is not None else report["ended"] or report["made"]
    return f"{date_of(started)}-{report['run_id']}.md"


def notes_of(former: str) -> str:
    """The mark and the user's notes below it; an invitation to write if former has no mark."""
    _before, mark, rest = former.partition(f"\n{MARK}\n")
    return f"{MARK}\n{rest}" if mark else f"{MARK}\n{INVITATION}"


def page(report: Report, record: str, plots: Sequence[tuple[str, str, str]], former: str = "") -> str:
    """The page of a run. record: its directory relative to the log book.

    plots: each picture's title, caption and file in the record. former: the page's previous text.
    """
    lines = [f"# {escaped(report['run_id'])}", "", escaped_long(report["verdict"]), ""]
    lines += table(["", ""], run_facts(report))
    lines += ["", f"[Report]({record}/report.html), [numbers]({record}/report.json)", ""]
    if report["findings"]:
        lines += ["## Findings", ""]
        lines += [f"- {escaped_long(one['found'])}: {escaped_long(one['remedy'])}" for one in report["findings"]]
        lines += [""]
    if report["metrics"]:
        lines += ["## Metrics", ""]
        lines += table(["measure", "value"], [[one["name"], value_of(one["value"])] for one in report["metrics"]])
        lines += [""]
    rate = throughput(report)
    if rate:
        lines += ["## Throughput", "", *table(["", ""], rate), ""]
    if report["gpus"]:
        lines += ["## GPUs", "", *table(GPU_HEADER, [gpu_row(gpu) for gpu in report["gpus"][:MOST_GPUS]]), ""]
    if report["stages"]:
        rows = [[stage["name"], duration(stage["seconds"])] for stage in report["stages"]]
        lines += ["## Time", "", *table(["part", "time"], rows), ""]
    failure = report["failure"]
    if failure is not None:
        lines += ["## What failed first", "", escaped_long(f"{where_failed(failure)}: {failure['error']}"), ""]
        if failure["cause"] is not None:
            lines += [f"Cause: {escaped_long(failure['cause']['cause'])}", ""]
            lines += [f"What to do: {escaped_long(failure['cause']['remedy'])}", ""]
        if failure["lines"]:
            lines += [*code_block("\n".join(failure["lines"])), ""]
    lines += ["## Cost", ""]
    lines += table(["", ""], cost_facts(report)) if cost_facts(report) else []
    lines += [f"Not known: {escaped_long(report['cost']['missing'])}."] if report["cost"]["missing"] else []
    lines += [""]
    if report["repeat"]:
        lines += ["## How to repeat it", "", *code_block(report["repeat"]), ""]
    for title, caption, file in plots:
        lines += [f"![{escaped(title)}: {escaped(caption)}]({record}/{file})", ""]
    return "\n".join(lines) + "\n" + notes_of(former)


def escaped_long(text: str) -> str:
    """A sentence escaped for Markdown, without LONGEST_CELL's limit."""
    return "".join(escaped_piece(piece) for piece in re.split(r"(\s+)", text))


def escaped_piece(piece: str) -> str:
    """A word, or the blanks between two."""
    if not piece.strip():
        return " " if piece else ""
    return "".join(escaped(piece[at : at + LONGEST_CELL]) for at in range(0, len(piece), LONGEST_CELL))


def row_of(report: Report, page_name: str) -> Row:
    """A run's row in the table of all runs."""
    gpus = report["gpus"]
    used = [gpu["utilization_percent"]["mean"] for gpu in gpus if gpu["utilization_percent"] is not None]
    memory = [gpu["memory_used_mib"]["peak"] for gpu in gpus if gpu["memory_used_mib"] is not None]
    numbers = [one for one in report["metrics"] if not isinstance(one["value"], str)][:3]
    cost = report["cost"]
    return Row(
        started=report["started"] or report["ended"] or 0.0,
        run_id=report["run_id"],
        state=report["state"],
        nodes=f"{report['nnodes']}, {report['world_size']} processes",
        metrics=", ".join(f"{one['name']} {value_of(one['value'])}" for one in numbers),
        seconds=report["seconds"],
        utilization=sum(used) / len(used) if used else None,
        memory_mib=max(memory, default=None),
        cost="" if cost["run"] is None else money(cost["run"], cost["currency"]),
        page=page_name,
    )


def index(rows: Iterable[Row], former: str = "") -> str:
    """The table of all runs, the newest first. former: its previous text."""
    lines = [
        TITLE,
        "",
        "All runs, the newest first; made from the records of the runs.",
        "",
        "| date | run | how it went | nodes | metrics | time | GPU utilisation | GPU memory | cost |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: (-row.started, row.run_id)):
        name = f"[{escaped(row.run_id)}]({row.page})" if row.page else escaped(row.run_id)
        cells = [
            date_of(row.started),
            name,
            escaped(row.state),
            escaped(row.nodes),
            escaped(row.metrics),
            "" if row.seconds is None else duration(row.seconds),
            "" if row.utilization is None else f"{row.utilization:.0f} %",
            "" if row.memory_mib is None else f"{row.memory_mib / 1024:.1f} GiB",
            escaped(row.cost),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", ""]) + notes_of(former)
