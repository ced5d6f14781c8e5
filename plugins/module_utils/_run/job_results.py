# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Results that a job reports in lines ``MUSTER_RESULT {...}`` of rank 0's log; used on nodes and the controller."""

from __future__ import annotations

import contextlib
import json
import math
import os

from ansible_collections.muster.training.plugins.module_utils._files.bounded import (
    file_size,
    open_regular,
    parse_json,
    replace_non_finite,
)
from ansible_collections.muster.training.plugins.module_utils._run.rank_logs import earlier_logs, rank_logs
from ansible_collections.muster.training.plugins.module_utils._run.safe_files import read_tail, write_private

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Dict, Mapping

    Data = Dict[str, Any]

FILE = "job_results.jsonl"  # in the run directory on rank 0's node: a finished run's reports, one JSON object per line
LIMIT = 2**20  # size limit of the file in bytes; the last reports are kept
MARK = b"MUSTER_RESULT "  # marks the beginning of a line in which a job reports results
REPORT = MARK.decode()
MAX_LINE_BYTES = 65536  # maximum length of such a line in bytes; a longer line is treated as ordinary output
BLOCK = 262144  # bytes of a log read at once
NOT_FINITE = "_not_finite"  # key in job_results.jsonl for the names of values that were nan or infinite
MAX_DEPTH = 20  # maximum nesting depth of a job's report: its parsers are recursive


def nesting_depth(value: Any) -> int:
    """Return how deeply objects and lists are nested."""
    values, levels = [value], 0
    while True:
        values = [item for item in values if isinstance(item, (dict, list))]
        if not values:
            return levels
        levels += 1
        values = [inner for item in values for inner in (item.values() if isinstance(item, dict) else item)]


def parse_report(line: str) -> Data | None:
    """Return the report in a line ``MUSTER_RESULT {...}``, or None if it is missing or not safe to use.

    A job may print anything, and must not crash the code that shows the report or reads the record later.
    """
    return read_object(line[len(REPORT) :]) if line.startswith(REPORT) and len(line) <= MAX_LINE_BYTES else None


def read_object(text: str) -> Data | None:
    """Return the JSON object of a report, or None if it is not an object, or nested too deeply."""
    try:
        report = parse_json(text)
    except ValueError:
        return None
    return report if isinstance(report, dict) and nesting_depth(report) <= MAX_DEPTH else None


def encode_report(report: Data) -> str:
    """Return a report as valid JSON, with null for nan and infinity, and with their names listed under NOT_FINITE."""
    names = [name for name, value in report.items() if isinstance(value, float) and not math.isfinite(value)]
    fields = replace_non_finite(report)
    return json.dumps({**fields, NOT_FINITE: names} if names else fields)


def restore_report(report: Mapping[str, Any]) -> Data:
    """Return a report that encode_report() wrote, with nan for each value that was not finite."""
    names = report.get(NOT_FINITE)
    restored = {name: value for name, value in report.items() if name != NOT_FINITE}
    if isinstance(names, list):
        restored.update({name: math.nan for name in names if isinstance(name, str) and name in restored})
    return restored


def add_report(values: Data, report: Data) -> None:
    """Add a report to the last value of each key. The keys of the newest report are the last ones."""
    for key in report:
        values.pop(key, None)
    values.update(report)


def merge_reports(lines: str) -> Data:
    """Return the last value of each key in the lines of job_results.jsonl, in the order of their reports."""
    values: Data = {}
    for line in lines.splitlines():
        add_report(values, restore_report(read_object(line) or {}))
    return values


def results_between(path: str, start: int, end: int, limit: int) -> bytes:
    """Return the last `limit` bytes of the reports in a section of a log; the section starts with a whole line."""
    reports = []
    remainder = b"\n"
    with contextlib.suppress(OSError), open(path, "rb", opener=open_regular) as stream:
        stream.seek(start)
        while start < end:
            block = stream.read(min(BLOCK, end - start))
            if not block:
                break
            start += len(block)
            lines = remainder + block
            last = lines.rfind(b"\n")
            begin = lines.find(b"\n" + MARK)
            while 0 <= begin < last:
                stop = lines.find(b"\n", begin + 1)
                reports.append(lines[begin + 1 : stop + 1])
                begin = lines.find(b"\n" + MARK, stop)
            remainder = lines[last:] if len(lines) - last <= MAX_LINE_BYTES else b""
    return b"".join(reports)[-limit:]


def load_reports(path: str, plan: Data) -> str:
    """Return the lines of a finished run's job_results.jsonl, after extracting them from rank 0's logs the first time.

    path: the run's directory on rank 0's node.
    """
    file = os.path.join(path, FILE)
    if os.path.lexists(file):
        return read_tail(file, LIMIT)
    output = b""
    for log in dict.fromkeys([*earlier_logs(plan, path, 0), *rank_logs(plan, path, 0)]):
        with contextlib.suppress(OSError):
            output += results_between(log, 0, file_size(log), LIMIT)
    objects = [parse_report(line.rstrip("\r")) for line in output.decode("utf-8", "replace").split("\n")]
    lines = "".join(encode_report(report) + "\n" for report in objects if report is not None)
    if len(lines) > LIMIT:
        lines = lines[-LIMIT:].partition("\n")[2]
    temporary = f"{file}.{os.getpid()}.tmp"
    try:
        write_private(temporary, lines)
        os.replace(temporary, file)
    except OSError:  # if the disk is full: the next request extracts them again
        with contextlib.suppress(OSError):
            os.unlink(temporary)
    return lines
