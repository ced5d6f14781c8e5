# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the kernel log for GPU errors: the ring buffer, or systemd's journal if only root can read that."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time

from ansible_collections.muster.training.plugins.module_utils._health.xid_catalogue import parse_line

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from ansible_collections.muster.training.plugins.module_utils._health.xid_catalogue import GpuError

RING = "/dev/kmsg"
MAX_RECORD = 8192  # bytes; the kernel's own limit on a record (CONSOLE_EXT_LOG_MAX)
MAX_RECORDS = 200_000  # number of records read at once; a 16 MiB ring buffer holds fewer
MAX_ERRORS = 100  # number of errors that are kept; a broken GPU repeats itself
RECORD = re.compile(rb"(?P<priority>[0-9]+),[0-9]+,(?P<time>[0-9]+),[^;\n]*;(?P<text>[^\n]*)")
JOURNAL = ("-k", "-b", "-q", "--no-pager", "-o", "short-unix")
JOURNAL_LINE = re.compile(r"(?P<time>[0-9]+(?:\.[0-9]+)?) (?P<text>.*)")
KERNEL = 8  # values from this one on belong to other facilities: programs' own messages


def journal_command(*options: str) -> list[str]:
    """Return the command that prints the kernel's messages of this boot from systemd's journal, or [] without one."""
    program = shutil.which("journalctl") or shutil.which("journalctl", path="/usr/bin:/bin")
    return [program, *JOURNAL, *options] if program else []


def parse_record(record: bytes, boot: float) -> tuple[float, str] | None:
    """Return the time and text of a ring buffer record, or None if the record was not written by the kernel itself.

    boot: the time at which the monotonic clock began, in seconds since 1970.
    """
    match = RECORD.match(record)
    if match is None or int(match["priority"]) >= KERNEL:
        return None
    return boot + int(match["time"]) / 1e6, match["text"].decode("utf-8", "replace")


def read_records(descriptor: int, limit: int = MAX_RECORDS) -> list[bytes]:
    """Return the records that can be read without waiting."""
    records: list[bytes] = []
    while len(records) < limit:
        try:
            record = os.read(descriptor, MAX_RECORD)
        except BrokenPipeError:  # records were overwritten before they were read; the next read continues
            continue
        except OSError:
            break
        if not record:
            break
        records.append(record)
    return records


def boot_time() -> float:
    """Return the time at which the monotonic clock began, in seconds since 1970."""
    return time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)


def parse_journal(text: str) -> list[tuple[float, str]]:
    """Return the time and text of each journal line in the format short-unix."""
    matches = map(JOURNAL_LINE.match, text.splitlines())
    return [(float(match["time"]), match["text"]) for match in matches if match]


def find_errors(messages: Iterable[tuple[float, str]]) -> list[dict[str, Any]]:
    """Return the newest GPU errors in kernel messages, as plain data: the fields of GpuError, and time.

    Repetitions of an error are merged, with the time of the last.
    """
    errors: dict[tuple[Any, ...], dict[str, Any]] = {}
    for moment, text in messages:
        error = parse_line(text)
        if error is not None:
            key = (error.kind, error.code, error.pci)
            earlier = errors.pop(key, None)
            repeats = earlier["count"] if earlier else 0
            errors[key] = {**error._asdict(), "time": moment, "count": repeats + 1}
    return list(errors.values())[-MAX_ERRORS:]


class KernelLog:
    """The kernel messages that arrive from now on; reading never blocks."""

    def __init__(self, path: str = RING) -> None:
        self.error = ""  # reason why the records cannot be read
        self.descriptor: int | None = None
        try:
            self.descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with contextlib.suppress(OSError):  # a pipe delivers only new messages
                os.lseek(self.descriptor, 0, os.SEEK_END)
        except OSError as error:
            self.error = error.strerror or str(error)

    def new_errors(self) -> list[GpuError]:
        """Return the GPU errors that the kernel has reported since the last call."""
        if self.descriptor is None:
            return []
        records = [parse_record(record, 0.0) for record in read_records(self.descriptor)]
        errors = [parse_line(record[1]) for record in records if record]
        return [error for error in errors if error is not None]

    def close(self) -> None:
        """Close the log."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None
