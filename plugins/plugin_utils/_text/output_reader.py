# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Detect whether anything is still reading the output of ansible-playbook, as in `./muster launch ... | head -1`."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import stat
import sys
from collections.abc import Iterator


def has_reader(pid: int) -> bool:
    """Return whether the standard output of a process has a reader; True unless it is a pipe without readers."""
    path = f"/proc/{pid}/fd/1"
    try:
        if not stat.S_ISFIFO(os.stat(path).st_mode):
            return True
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return error.errno != errno.ENXIO  # raised when a named pipe that has no reader is opened for writing
    try:
        poll = select.poll()
        poll.register(descriptor, 0)
        return not any(event & select.POLLERR for _descriptor, event in poll.poll(0))
    finally:
        os.close(descriptor)


def end_play_without_reader(pid: int) -> None:
    """End ansible-playbook, the parent process of an action, if nothing is reading its output anymore.

    Otherwise it would wait forever: the thread in which it shows what an action sends ends at the first broken pipe,
    and no task ends without it.
    """
    if not has_reader(pid):
        os.kill(pid, signal.SIGTERM)


@contextlib.contextmanager
def discard_unread_output() -> Iterator[None]:
    """Discard the output of this process if its reader has ended, as in `./muster check train.py | head -1`."""
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python writes the rest when it exits
