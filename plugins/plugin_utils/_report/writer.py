# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write the report on one or several runs: page, numbers, plots and logbook.

All files are in the record of the run and in the logbook, which only their user can read: arguments and output of a
job may contain secrets. Each file is written completely or not at all.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import socket
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.record import load_benchmark
from ansible_collections.muster.training.plugins.plugin_utils._record import code_tree
from ansible_collections.muster.training.plugins.plugin_utils._record.code_tree import read_files
from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import clean_text
from ansible_collections.muster.training.plugins.plugin_utils._record.reader import RecordFiles, read_record
from ansible_collections.muster.training.plugins.plugin_utils._report import logbook
from ansible_collections.muster.training.plugins.plugin_utils._report.benchmark import benchmark_plots
from ansible_collections.muster.training.plugins.plugin_utils._report.comparison import render_comparison
from ansible_collections.muster.training.plugins.plugin_utils._report.documents import VERSION, Report
from ansible_collections.muster.training.plugins.plugin_utils._report.page import RenderedPlot, render_plot, render_run
from ansible_collections.muster.training.plugins.plugin_utils._report.plots import (
    Plot,
    comparison_plots,
    curve_plots,
    gpu_plots,
)
from ansible_collections.muster.training.plugins.plugin_utils._report.report import (
    adapt_report,
    all_gpus,
    compose_report,
)
from ansible_collections.muster.training.plugins.plugin_utils._report.svg import DrawingError, draw

PAGE, NUMBERS, PLOTS = "report.html", "report.json", "plots"
# points of the curves, in the same order as in report.json; stored separately, as a table of all runs does not need
# them
CURVES = "curves.json"
PICTURES = (".svg", ".png", ".vl.json")
MAX_PAGE_SIZE = 4 << 20  # size in bytes of a page in the logbook, which is read again to preserve the user's notes
MAX_RUNS = 10_000  # number of runs in the table
# Keys that are missing in reports from earlier releases.
ADDED_KEYS: dict[str, Any] = {"program": [], "variables": [], "origin": []}
MAX_SMI_LINES, MAX_SMI_LINE = 200, 200


class WrittenReport(NamedTuple):
    """A page, its report, and why it has no pictures (empty if it has them)."""

    page: Path
    report: Report
    drawing_error: str


def write_file(path: Path, content: str | bytes) -> None:
    """Write a private file atomically: its user sees either all of it or the previous file."""
    data = content.encode("utf-8", "replace") if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name[:100]}.{os.getpid()}")
    try:
        temporary.touch(mode=0o600)
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)  # incomplete, for example because the disk was full
        raise


def make_private_directory(path: Path) -> None:
    """Make a directory private to its user, even if it was created by an earlier release."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = path.lstat()
    if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and status.st_mode & 0o077:
        path.chmod(0o700)


def write_plots(plots: Sequence[Plot], directory: Path) -> tuple[list[RenderedPlot], str]:
    """Write the specification of each plot and, if it can be drawn, its pictures.

    Returns:
        The plots for the page, and why pictures are missing, or an empty string.
    """
    rendered, drawing_error, names = [], "", set()
    if plots:
        directory.mkdir(exist_ok=True)
    for plot in plots:
        files: dict[str, str | bytes] = {".vl.json": json.dumps(plot.spec) + "\n"}
        svg = ""
        try:
            picture = draw(plot.spec)
            svg = picture.inline
            files |= {".svg": picture.svg, ".png": picture.png}
        except DrawingError as error:
            drawing_error = str(error)
        for ending, content in files.items():
            write_file(directory / f"{plot.name}{ending}", content)
            names.add(f"{plot.name}{ending}")
        rendered.append(render_plot(plot, svg))
    if directory.is_dir():  # remove the files of an earlier report
        for path in directory.iterdir():
            if path.name.endswith(PICTURES) and path.name not in names:
                path.unlink()
    return rendered, drawing_error


def split_plots(
    plots: list[RenderedPlot], first: int, second: int
) -> tuple[list[RenderedPlot], list[RenderedPlot], list[RenderedPlot]]:
    """Split plots into the first few, the next few, and the rest."""
    return plots[:first], plots[first : first + second], plots[first + second :]


def write_report(record: Path, book: Path, now: float, adapt: Callable[[str], str] = str) -> WrittenReport:
    """Write the report on one run to its record, and its page to the logbook.

    now: seconds since 1970; adapt: returns a message with its commands as this user types them.
    """
    make_private_directory(record)
    run_record = read_record(record, record.name)
    report = adapt_report(compose_report(run_record, now), adapt)
    benchmark = load_benchmark(record)
    if benchmark is not None:
        report["findings"] = [*benchmark["findings"], *report["findings"]]
    figures = benchmark_plots(benchmark) if benchmark is not None else []
    curves, gpus = curve_plots(report), gpu_plots(report, all_gpus(run_record))
    drawn, drawing_error = write_plots([*figures, *curves, *gpus], record / PLOTS)
    of_benchmark, of_curves, of_gpus = split_plots(drawn, len(figures), len(curves))
    smi_outputs = [
        (node.name, "\n".join(clean_text(line, MAX_SMI_LINE) for line in node.nvidia_smi.splitlines()[:MAX_SMI_LINES]))
        for node in run_record.nodes
        if node.nvidia_smi
    ]
    content = render_run(
        report,
        of_curves,
        of_gpus,
        str(record),
        smi_outputs,
        drawing_error,
        ssh_target(),
        benchmark,
        of_benchmark,
        adapt(logs_command(report)),
    )
    curves_without_points: list[Any] = [{**curve, "points": []} for curve in report["curves"]]
    write_file(record / CURVES, json.dumps([curve["points"] for curve in report["curves"]], allow_nan=False) + "\n")
    write_file(
        record / NUMBERS, json.dumps({**report, "curves": curves_without_points}, indent=1, allow_nan=False) + "\n"
    )
    write_file(record / PAGE, content)
    pictures = (
        []
        if drawing_error
        else [(plot.title, plot.caption, f"{PLOTS}/{plot.name}.svg") for plot in [*figures, *curves, *gpus]]
    )
    write_logbook(report, record, book, pictures)
    return WrittenReport(record / PAGE, report, drawing_error)


def logs_command(report: Report) -> str:
    """Return the command that shows the output of the rank that failed first, or an empty string."""
    failure = report["failure"]
    if failure is None or failure["rank"] is None:
        return ""
    return f"ansible-playbook logs.yml -e run_id={report['run_id']} -e rank={failure['rank']}"


def ssh_target() -> str:
    """Return this account and machine as USER@HOST, for ssh from another machine."""
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (OSError, KeyError):  # a container may have no name for the account
        return socket.gethostname()


def write_logbook(report: Report, record: Path, book: Path, pictures: Sequence[tuple[str, str, str]]) -> None:
    """Write a run's page, and the table of all runs; the user's notes below the mark are preserved."""
    make_private_directory(book)
    name = logbook.page_file_name(report)
    record_path = os.path.relpath(record, book)
    write_file(book / name, logbook.render_page(report, record_path, pictures, read_page(book / name)))
    rows = []
    for path in sorted(record.parent.iterdir())[:MAX_RUNS]:
        if path.is_symlink() or not path.is_dir():
            continue
        run_report = report if path.name == record.name else read_report(path)
        if run_report is not None:
            page = logbook.page_file_name(run_report)
            rows.append(logbook.logbook_row(run_report, page if (book / page).exists() else ""))
    write_file(book / logbook.README, logbook.render_index(rows, read_page(book / logbook.README)))


def read_page(path: Path) -> str:
    """Return the text of a page in the logbook, or an empty string if it does not exist.

    Raise OSError if it is too large.
    """
    try:
        if path.stat().st_size > MAX_PAGE_SIZE:
            raise OSError(f"{path} is larger than {MAX_PAGE_SIZE} bytes: shorten it, so that your notes can be kept")
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return ""


def read_report(record: Path) -> Report | None:
    """Return the report.json of a run, without the points of its curves; None if it is missing or has another
    version.
    """
    document: Any = RecordFiles(record).read_json(NUMBERS)
    if not isinstance(document, dict) or document.get("version") != VERSION:
        return None
    complete: Any = {**ADDED_KEYS, **document}
    report: Report | None = complete if Report.__annotations__.keys() <= complete.keys() else None
    for curve in report["curves"] if report is not None else []:
        curve.setdefault("unit", "step")  # a report written before curves had a unit
    return report


def add_points(report: Report, record: Path) -> Report | None:
    """Return the report with the points of its curves, or None if they are missing or do not match."""
    points = RecordFiles(record).read_json(CURVES)
    if not isinstance(points, list) or len(points) != len(report["curves"]):
        return None
    for curve, curve_points in zip(report["curves"], points, strict=True):
        curve["points"] = curve_points
    return report


def is_current(record: Path) -> bool:
    """Return whether report.json exists and is newer than all its sources."""
    try:
        modified = (record / NUMBERS).stat().st_mtime
    except OSError:
        return False
    sources = [
        record / "plan.json",
        record / "result.json",
        record / code_tree.FILE,
        record / "benchmark.json",
        record / "logs",
        *(record / "logs").glob("*"),
    ]
    return all(not source.exists() or source.stat().st_mtime <= modified for source in sources)


def write_comparison(
    records: Sequence[Path], book: Path, target: Path | None, now: float, adapt: Callable[[str], str] = str
) -> tuple[Path, str]:
    """Write the page that compares runs, and the reports on those without an up-to-date one.

    Args:
        records: Directories of the runs.
        book: Directory of the logbook.
        target: Directory of the page; by default one in the logbook.
        now: Seconds since 1970.
        adapt: Returns a message with its commands as this user types them.

    Returns:
        The page, and why it has no pictures, or an empty string.
    """
    reports = []
    for record in records:
        current = read_report(record) if is_current(record) else None
        complete = add_points(current, record) if current is not None else None
        reports.append(complete if complete is not None else write_report(record, book, now, adapt).report)
    directory = target if target is not None else book / comparison_name([record.name for record in records])
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    plots, drawing_error = write_plots(comparison_plots(reports), directory / PLOTS)
    trees = [read_files(RecordFiles(record).read_json(code_tree.FILE)) for record in records]
    write_file(directory / PAGE, render_comparison(reports, plots, now, drawing_error, trees))
    return directory / PAGE, drawing_error


def comparison_name(run_ids: Sequence[str]) -> str:
    """Return the name of a comparison's directory. A long name is shortened, with a hash to make it unique."""
    name = "comparison-" + "-".join(run_ids)
    return name if len(name) <= 120 else f"{name[:100]}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"
