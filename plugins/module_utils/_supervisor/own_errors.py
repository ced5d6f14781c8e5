# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the error that a rank had before it was ended with the run.

A rank may raise an exception and then hang while its interpreter exits, or report that a collective timed out a moment
before another rank ends the run. Its exit code is then that of the signal which ended it, and says nothing.
"""

from __future__ import annotations

import collections
import math
import os
import re
import stat
import time

from ansible_collections.muster.training.plugins.module_utils._run.error_text import (
    MIN_PROGRESS,
    count_progress,
    fatal_error,
    first_error,
)
from ansible_collections.muster.training.plugins.module_utils._run.lost_peers import BARE_ABORT
from ansible_collections.muster.training.plugins.module_utils._run.rank_logs import rank_logs
from ansible_collections.muster.training.plugins.module_utils._run.safe_files import read_job_object, read_tail

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Any, Mapping

MAX_ERROR = 2000  # characters of an error
MAX_TRACEBACK = 8000  # characters of a recorded traceback
# What NCCL's watchdog writes when a collective of this rank has timed out, before it aborts the process.
WATCHDOG = re.compile(r"(?:\[Rank \d{1,7}\] )?(?:Watchdog c|C)aught collective operation timeout: [^\n]{1,1000}")

# The state of a rank's files when its node began to end its ranks. size: bytes of its log at that time; whatever was
# written later may be a reaction to the end. quiet, recorded: seconds since its log or error file was written, or None
# if the file did not exist.
Mark = collections.namedtuple("Mark", "size quiet recorded")
# When a node began to end its ranks, by its monotonic clock, and the marks of that time, by local rank; () if unknown.
RanksEnd = collections.namedtuple("RanksEnd", "moment marks")
NOT_ENDED = RanksEnd(math.inf, ())


def mark_ranks(plan: Mapping[str, Any], directory: str) -> list[Mark]:
    """Return the state of the files of a node's ranks, by local rank."""
    marks = []
    for local_rank in range(plan["node"]["slots"]):
        log = rank_logs(plan, directory, local_rank)[1]
        size, quiet = size_and_age(log)
        marks.append(Mark(size, quiet, size_and_age(error_file(log))[1]))
    return marks


def size_and_age(path: str) -> tuple[int, float | None]:
    """Return the size of a regular file and the seconds since it was written; (0, None) for anything else."""
    try:
        status = os.lstat(path)
    except OSError:
        return 0, None
    if not stat.S_ISREG(status.st_mode):
        return 0, None
    return status.st_size, max(0.0, time.time() - status.st_mtime)


def error_file(log: str) -> str:
    """Return the path of the file in which torch's @record writes the error of the rank with this log."""
    return os.path.join(os.path.dirname(log), "error.json")


def recorded_error(path: str) -> str:
    """Return the message of an error file as torch's @record writes it, or ""."""
    message = read_job_object(path).get("message", "")
    if isinstance(message, dict):
        message = message.get("message", "")
    return str(message)[:MAX_ERROR]


def recorded_traceback(path: str) -> str:
    """Return the end of the traceback in an error file as torch's @record writes it, or ""."""
    fields = read_job_object(path).get("message")
    extra = fields.get("extraInfo") if isinstance(fields, dict) else None
    stack = extra.get("py_callstack") if isinstance(extra, dict) else None
    return stack.rstrip()[-MAX_TRACEBACK:] if isinstance(stack, str) else ""


def uncaught_error(text: str, rank: int) -> str:
    """Return the exception with torch's prefix of a rank, which torch prints for uncaught exceptions only, or ""."""
    return first_error(lines_with_prefix(text, rank))


def lines_with_prefix(text: str, rank: int) -> str:
    """Return the lines of a log with torch's prefix of a rank."""
    return "\n".join(re.findall(rf"^\[(?:rank|default){rank}\]:.*$", text, re.MULTILINE))


def watchdog_error(text: str) -> str:
    """Return the first timeout that NCCL's watchdog reports in a log, or "" if the program continued after it."""
    match = WATCHDOG.search(text)
    if match is None or count_progress(text[match.end() :].splitlines()) >= MIN_PROGRESS:
        return ""
    return match[0].strip()[:MAX_ERROR]


def abort_error(text: str) -> str:
    """Return the message with which a program aborted, or "".

    faulthandler, which torch's @record enables, prints only that it did, even if NCCL's watchdog aborted the process.
    """
    error = fatal_error(text)
    return watchdog_error(text) or error if not error or BARE_ABORT.match(error) else error


def own_error(log: str, rank: int, mark: Mark | None, is_shared: bool) -> tuple[str, float | None]:
    """Return the error that a rank had before it was ended, and how many seconds before, or ("", None).

    Only errors that end a process count, since it may have caught and logged any other.

    Args:
        log: Its log.
        rank: Its number.
        mark: The state of its files when its node began to end its ranks, or None if that is unknown.
        is_shared: Whether other ranks write into the same log.
    """
    text = read_tail(log, until=None if mark is None else mark.size)
    if is_shared:
        text = lines_with_prefix(text, rank)
    elif mark is None or mark.recorded is not None:
        recorded = recorded_error(error_file(log))
        if recorded:
            return recorded, None if mark is None else mark.recorded
    error = uncaught_error(text, rank) or abort_error(text)
    return error, None if mark is None or not error else mark.quiet
