# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find rank 0's logs in a record, split them into lines, and apply a user's patterns within a time limit."""

from __future__ import annotations

import contextlib
import re
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import IO, Any

from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import (
    clean_text,
    to_int,
    to_list,
    to_mapping,
    to_mappings,
)
from ansible_collections.muster.training.plugins.plugin_utils._report.printed_metrics import MAX_LINE

CHUNK = 1 << 16  # bytes read at a time
MAX_LOG_SIZE = 64 << 20  # bytes of a single log
MAX_LOGS = 32
MAX_ATTEMPTS = 1000
MAX_PATTERNS, MAX_PATTERN = 20, 500  # number of patterns, and number of characters of each
PATTERN_SECONDS = 10.0  # seconds for all of a user's patterns in all lines: a pattern may take exponential time
RANK_LOG = re.compile(
    r"logs/node(?P<node>\d{1,6})/(?:attempt-(?P<attempt>\d{1,6})/)?ranks/(?:.*/)?0/(?P<name>std(?:out|err)\.log)\Z"
)
LAUNCHER_LOG = re.compile(r"logs/node(?P<node>\d{1,6})/(?:attempt-(?P<attempt>\d{1,6})/)?launcher\.log\Z")


class TooSlowError(Exception):
    """Matching a pattern took too long."""


def first_nodes(plan: Any, result: Any) -> dict[int, int]:
    """Return, for each attempt, the node_rank of the node that had rank 0, if the run's result lists it."""
    names = [clean_text(node.get("name"), 100) for node in to_mappings(to_mapping(plan).get("nodes"))]
    nodes: dict[int, int] = {}
    for record in to_mappings(to_mapping(result).get("attempts"), MAX_ATTEMPTS):
        first, number = to_list(record.get("nodes"), 1), to_int(record.get("number"))
        if first and first[0] in names:
            nodes[number] = names.index(first[0])
    return nodes


def has_rank_zero(match: re.Match[str], nodes: Mapping[int, int]) -> bool:
    """Return whether a log comes from the node that had rank 0 in its attempt."""
    return int(match["node"]) == nodes.get(int(match["attempt"] or 0), 0)


def rank_zero_logs(paths: list[str], nodes: Mapping[int, int] = MappingProxyType({})) -> dict[str, list[str]]:
    """Return rank 0's logs by name, in the order of attempts, or the launcher's log if ranks have no separate logs.

    nodes: the node_rank of the node that had rank 0, by attempt, if it was not the first node.
    """
    logs: dict[str, list[str]] = {}
    for path in sorted(paths, key=attempt_order):
        match = RANK_LOG.match(path)
        if match is not None and has_rank_zero(match, nodes) and sum(map(len, logs.values())) < MAX_LOGS:
            logs.setdefault(match["name"], []).append(path)
    launcher_logs = [
        path
        for path in sorted(paths, key=attempt_order)
        if (match := LAUNCHER_LOG.match(path)) is not None and has_rank_zero(match, nodes)
    ][:MAX_LOGS]
    if not logs and launcher_logs:
        logs["launcher.log"] = launcher_logs
    return logs


def attempt_order(path: str) -> tuple[int, int, str]:
    """Return the sort key for a log: attempt-1 comes after the first attempt, and torchrun's attempt_10 after
    attempt_9.
    """
    attempt = re.search(r"/attempt-([0-9]{1,6})/", path)
    start = re.search(r"/attempt_([0-9]{1,6})/", path)
    return int(attempt[1]) if attempt is not None else 0, int(start[1]) if start is not None else 0, path


def split_output(stream: IO[bytes], limit: int = MAX_LOG_SIZE) -> Iterator[str]:
    """Yield the lines of a log as a terminal shows them: a carriage return also ends a line.

    A progress bar is a single line of megabytes otherwise. Lines longer than MAX_LINE are omitted.
    """
    remainder, skipping = b"", False
    while limit > 0 and (chunk := stream.read(min(CHUNK, limit))):
        limit -= len(chunk)
        *lines, remainder = (remainder + chunk).replace(b"\r", b"\n").split(b"\n")
        for line in lines:
            if not skipping and line and len(line) <= 4 * MAX_LINE:  # bytes of UTF-8
                yield line.decode("utf-8", "replace")
            skipping = False
        if len(remainder) > 4 * MAX_LINE:
            remainder, skipping = b"", True
    if remainder and not skipping:
        yield remainder.decode("utf-8", "replace")


def compile_patterns(values: Any) -> list[re.Pattern[str]]:
    """Return the valid patterns among a plan's metrics."""
    patterns = []
    for value in to_list(values, MAX_PATTERNS):
        if isinstance(value, str) and len(value) <= MAX_PATTERN:
            with contextlib.suppress(re.error, RecursionError, OverflowError):
                patterns.append(re.compile(value))
    return patterns


@contextlib.contextmanager
def limited_time(seconds: float = PATTERN_SECONDS, patterns: Sequence[re.Pattern[str]] = ()) -> Iterator[None]:
    """Raise TooSlowError in the block after this many seconds, even while a pattern is being matched.

    Only the main thread can be interrupted; in others, and without patterns, nothing happens.
    """
    if not patterns or threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: Any) -> None:
        raise TooSlowError

    previous_handler = signal.signal(signal.SIGALRM, interrupt)
    previous_seconds, _interval = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, previous_seconds)
        signal.signal(signal.SIGALRM, previous_handler)
