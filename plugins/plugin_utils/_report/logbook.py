# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The logbook: a Markdown page per run, and a table of all runs. The user's notes below MARK are preserved."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import clean_text
from ansible_collections.muster.training.plugins.plugin_utils._report.documents import Report
from ansible_collections.muster.training.plugins.plugin_utils._report.page import (
    CURVE_HEADER,
    GPU_HEADER,
    cost_facts,
    curve_row,
    format_money,
    format_value,
    gpu_row,
    missing_price,
    run_facts,
    throughput,
)
from ansible_collections.muster.training.plugins.plugin_utils._report.report import failure_location
from ansible_collections.muster.training.plugins.plugin_utils._text.duration import format_duration

MARK = "<!-- notes -->"
INVITATION = "\nYour notes below this line are kept when the page is rewritten.\n"
README = "README.md"
# Starts Markdown markup anywhere; an underscore between letters does not, and a bare address would become a link
MARKUP = re.compile(r"([\\`*\[\]|~$]|(?<![^\W_])_|_(?![^\W_])|:(?=//))")
AT_START = re.compile(r"([#+=-]+(?=\s|\Z)|\d+(?=[.)](?:\s|\Z)))")  # makes a line a heading, a list or a rule
MAX_CELL = 200
MAX_GPUS, MAX_CURVES = 64, 30  # maximum sizes of the tables on a page
TITLE = "# Log book"


class LogbookRow(NamedTuple):
    """A run in the table of all runs."""

    started: float
    run_id: str
    state: str  # state, including the error for a failed run
    job: str  # job with its arguments, and the name of the directory it was started in
    nodes: str
    metrics: str
    seconds: float | None
    utilization: float | None
    memory_mib: float | None
    cost: str
    page: str  # path of the run's page, relative to the logbook


def escape(text: str) -> str:
    """Escape a text for Markdown, on one line, so that it cannot contain markup, a tag, a link or the end of a cell."""
    text = " ".join(text[:MAX_CELL].split())
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = re.sub(r"\bwww\.", r"www\\.", MARKUP.sub(r"\\\1", text), flags=re.IGNORECASE)
    begins = AT_START.match(text)
    return text if begins is None else f"\\{text}" if not text[0].isdigit() else f"{begins[1]}\\{text[begins.end() :]}"


def code_block(text: str) -> list[str]:
    """Return lines unchanged, between fences longer than any fence within them."""
    longest = max((len(fence_match) for fence_match in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return [fence, *text.split("\n"), fence]


def format_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a Markdown table; the cells are escaped."""
    return [
        f"| {' | '.join(escape(cell) for cell in header)} |",
        f"|{'---|' * len(header)}",
        *(f"| {' | '.join(escape(cell) for cell in row)} |" for row in rows),
    ]


def format_date(seconds: float | None) -> str:
    """Format a date in this machine's time zone, or return "0000-00-00" if it is unknown."""
    valid = seconds is not None and 0 <= seconds < 1e11
    return time.strftime("%Y-%m-%d", time.localtime(seconds)) if valid else "0000-00-00"


def page_file_name(report: Report) -> str:
    """Return the name of a run's page."""
    started = report["started"] if report["started"] is not None else report["ended"] or report["created"]
    return f"{format_date(started)}-{report['run_id']}.md"


def user_notes(previous: str) -> str:
    """Return the mark and the user's notes below it, or a prompt to write notes if the previous page has no mark."""
    _before, mark, notes = previous.partition(f"\n{MARK}\n")
    return f"{MARK}\n{notes}" if mark else f"{MARK}\n{INVITATION}"


def render_page(report: Report, record: str, plots: Sequence[tuple[str, str, str]], previous: str = "") -> str:  # noqa: C901
    """Return the page of a run.

    Args:
        report: The run's report.
        record: The run's directory, relative to the logbook.
        plots: Each picture's title, caption and file in the record.
        previous: The previous text of the page.
    """
    lines = [f"# {escape(report['run_id'])}", "", escape_long(report["verdict"]), ""]
    failure = report["failure"]
    if failure is not None:
        lines += ["## What failed first", "", escape_long(f"{failure_location(failure)}: {failure['error']}"), ""]
        if failure["cause"] is not None:
            name = "Cause" if failure["cause"]["confidence"] == "error" else "Possible cause"
            lines += [f"{name}: {escape_long(failure['cause']['cause'])}", ""]
            if failure["cause"]["evidence"]:
                lines += [f"Its log says: {escape_long(failure['cause']['evidence'])}", ""]
            lines += [f"What to do: {escape_long(failure['cause']['remedy'])}", ""]
        if failure["lines"]:
            lines += [*code_block("\n".join(failure["lines"])), ""]
    lines += format_table(["", ""], run_facts(report))
    lines += ["", f"[Report]({record}/report.html), [numbers]({record}/report.json)", ""]
    if report["findings"]:
        lines += ["## Findings", ""]
        lines += [
            f"- {escape_long(finding['problem'])}: {escape_long(finding['remedy'])}" for finding in report["findings"]
        ]
        lines += [""]
    if report["curves"]:
        rows = [curve_row(curve) for curve in report["curves"][:MAX_CURVES]]
        lines += ["## Curves", "", *format_table(CURVE_HEADER, rows), ""]
    metrics = [*report["metrics"], *report["printed_once"]]
    if metrics:
        lines += ["## Metrics", ""]
        lines += format_table(
            ["measure", "value"], [[metric["name"], format_value(metric["value"])] for metric in metrics]
        )
        lines += [""]
    rate = throughput(report)
    if rate:
        lines += ["## Throughput", "", *format_table(["", ""], rate), ""]
    if report["gpus"]:
        lines += ["## GPUs", "", *format_table(GPU_HEADER, [gpu_row(gpu) for gpu in report["gpus"][:MAX_GPUS]]), ""]
    if report["stages"]:
        rows = [[stage["name"], format_duration(stage["seconds"])] for stage in report["stages"]]
        lines += ["## Time", "", *format_table(["part", "time"], rows), ""]
    costs, missing = cost_facts(report), missing_price(report)
    if costs or missing:
        lines += ["## Cost", "", *(format_table(["", ""], costs) if costs else [])]
        lines += [f"Unknown: {escape_long(missing)}.", ""] if missing else [""]
    repeat = [command for command in (report["repeat_exactly"], report["repeat"]) if command]
    if repeat:
        origin = [f"- {escape_long(line)}" for line in report["origin"]]
        lines += ["## How to repeat it", ""]
        if len(repeat) > 1:
            lines += ["The first command restores the recorded code, settings and environment.", ""]
        lines += [*code_block("\n".join(repeat)), "", *origin, *([""] if origin else [])]
    for title, caption, file in plots:
        lines += [f"![{escape(title)}: {escape(caption)}]({record}/{file})", ""]
    return "\n".join(lines) + "\n" + user_notes(previous)


def escape_long(text: str) -> str:
    """Escape a sentence for Markdown, without the limit of MAX_CELL."""
    return "".join(escape_piece(piece) for piece in re.split(r"(\s+)", text))


def escape_piece(piece: str) -> str:
    """Escape a word, or the whitespace between two words."""
    if not piece.strip():
        return " " if piece else ""
    return "".join(escape(piece[start : start + MAX_CELL]) for start in range(0, len(piece), MAX_CELL))


def logbook_row(report: Report, page_name: str) -> LogbookRow:
    """Return a run's row in the table of all runs."""
    gpus = report["gpus"]
    utilizations = [gpu["utilization_percent"]["mean"] for gpu in gpus if gpu["utilization_percent"] is not None]
    memory = [gpu["memory_used_mib"]["peak"] for gpu in gpus if gpu["memory_used_mib"] is not None]
    numbers = {metric["name"]: metric["value"] for metric in report["metrics"] if not isinstance(metric["value"], str)}
    numbers = numbers or {curve["name"]: curve["last"] for curve in report["curves"]}
    cost, failure = report["cost"], report["failure"]
    directory = report["working_directory"].rstrip("/").rpartition("/")[2][: MAX_CELL // 2]
    program = shlex.join(report["program"])
    in_directory = f" in {directory}" if program and directory else ""
    return LogbookRow(
        started=report["started"] or report["ended"] or 0.0,
        run_id=report["run_id"],
        state=report["state"] + (f": {failure['error'].partition(chr(10))[0]}" if failure and failure["error"] else ""),
        job=clean_text(program, MAX_CELL - len(in_directory)) + in_directory,
        nodes=f"{report['nnodes']}, {report['world_size']} processes",
        metrics=", ".join(f"{name} {format_value(value)}" for name, value in [*numbers.items()][:3]),
        seconds=report["seconds"],
        utilization=sum(utilizations) / len(utilizations) if utilizations else None,
        memory_mib=max(memory, default=None),
        cost="" if cost["run"] is None else format_money(cost["run"], cost["currency"]),
        page=page_name,
    )


def render_index(rows: Iterable[LogbookRow], previous: str = "") -> str:
    """Render the table of all runs, newest first. previous: the table's previous text."""
    lines = [
        TITLE,
        "",
        "All runs, newest first; generated from their records.",
        "",
        "| date | run | how it went | job | nodes | metrics | time | GPU utilization | GPU memory | cost |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: (-row.started, row.run_id)):
        name = f"[{escape(row.run_id)}]({row.page})" if row.page else escape(row.run_id)
        cells = [
            format_date(row.started),
            name,
            escape(row.state),
            escape(row.job),
            escape(row.nodes),
            escape(row.metrics),
            "" if row.seconds is None else format_duration(row.seconds),
            "" if row.utilization is None else f"{row.utilization:.0f} %",
            "" if row.memory_mib is None else f"{row.memory_mib / 1024:.1f} GiB",
            escape(row.cost),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", ""]) + user_notes(previous)
