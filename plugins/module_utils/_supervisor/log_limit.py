# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep the logs of a node within their limit while the job keeps writing."""

from __future__ import annotations

import ctypes
import os
import stat

from ansible_collections.muster.training.plugins.module_utils._run.rank_logs import (
    attempt_logs,
    earlier_logs,
    rank_logs,
)

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Any, Mapping

LOG_HEAD = 1048576  # bytes kept at the beginning of a shortened log
PUNCH_HOLE = 3  # linux/falloc.h: FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE


def all_logs(plan: Mapping[str, Any], directory: str) -> list[str]:
    """Return the paths of all logs that a node's job may have."""
    attempts = [attempt_logs(number) for number in range((plan.get("attempt") or 0) + 1)]
    logs = [os.path.join(directory, logs, "launcher.log") for logs in attempts]
    for local_rank in range(plan["node"]["slots"]):
        logs += [*earlier_logs(plan, directory, local_rank), *rank_logs(plan, directory, local_rank)]
    return sorted({log for log in logs if disk_use(log)})


def disk_use(path: str) -> int:
    """Return how many bytes of disk space a log uses, or 0 if it is not a regular file of its own."""
    try:
        status = os.lstat(path)
    except OSError:
        return 0
    return status.st_blocks * 512 if stat.S_ISREG(status.st_mode) and status.st_nlink == 1 else 0


def limit_logs(logs: list[str], limit: int) -> list[str]:
    """Shorten the longest of these logs if they use more than `limit` bytes of disk in total; return those shortened.

    Leaves half of the limit for new output. Raise OSError if the file system does not support it.
    """
    use = {log: disk_use(log) for log in logs}
    if sum(use.values()) <= limit:
        return []
    share = limit // (2 * len(logs))
    longer = [log for log in logs if use[log] > share]
    for log in longer:
        head = min(LOG_HEAD, share // 4)
        remove_middle(log, head, share - head)
    return longer


def remove_middle(path: str, head: int, tail: int) -> None:
    """Free the disk space of a file between its first `head` and last `tail` bytes, which stay where they are.

    Writers continue as before. Raise OSError if the file system does not support it.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        length = os.fstat(descriptor).st_size - head - tail
        if length > 0:
            libc = ctypes.CDLL(None, use_errno=True)
            offsets = (ctypes.c_int64(head), ctypes.c_int64(length))
            if libc.fallocate(ctypes.c_int(descriptor), ctypes.c_int(PUNCH_HOLE), *offsets) != 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
    finally:
        os.close(descriptor)
