# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make processes write their stacks, using the signal that is safe for what each process is doing.

faulthandler follows the frames of the interrupted thread from a signal handler. That is safe while the thread is
blocked or executes C code. While it executes Python code, Python 3.12 and newer crash occasionally, since a frame may
be half built. So a running process gets a signal that Python itself handles, between two bytecodes, and faulthandler's
only if it does not reply, which means that it is in C code.
"""

from __future__ import annotations

import time

from ansible_collections.muster.training.plugins.module_utils._files.bounded import file_size
from ansible_collections.muster.training.plugins.module_utils._run.processes import process_status, signal_all
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import (
    PYTHON_STACK_TIMEOUT,
    SLEEP_SAMPLE_INTERVAL,
    STACK_POLL_INTERVAL,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.programs.stack_hook import (
    PYTHON_STACK_SIGNAL,
    STACK_SIGNAL,
)

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Iterable, Mapping

ASLEEP = (b"S", b"D")  # first letters of a process state


def main_thread_activity(pid: int) -> tuple[bytes, ...]:
    """Return the state of a process's main thread and its number of context switches; empty texts if it has ended."""
    status = process_status(pid)
    names = (b"State", b"voluntary_ctxt_switches", b"nonvoluntary_ctxt_switches")
    return tuple(status.get(name, b"") for name in names)


def sleeping(pids: Iterable[int]) -> set[int]:
    """Return the processes whose main threads have been sleeping without interruption since a moment ago."""
    before = {pid: main_thread_activity(pid) for pid in pids}
    time.sleep(SLEEP_SAMPLE_INTERVAL)
    return {
        pid
        for pid, activity in before.items()
        if activity[0][:1] in ASLEEP and activity[1] and main_thread_activity(pid) == activity
    }


class StackFiles:
    """The files that some processes write their stacks to, and how far each has been written."""

    def __init__(self, paths: Mapping[int, str]) -> None:
        self.paths = dict(paths)  # each process's stack file, by pid
        self.before = {pid: file_size(path) for pid, path in self.paths.items()}
        self.sizes = dict(self.before)

    def wait(self, pids: Iterable[int], deadline: float) -> set[int]:
        """Wait until these processes have written their stacks; return the processes that have not done so in time."""
        waiting = set(pids)
        while waiting and time.monotonic() < deadline:
            time.sleep(STACK_POLL_INTERVAL)
            for pid in list(waiting):
                size = file_size(self.paths[pid])
                if size == self.sizes[pid] and size > self.before[pid]:  # the file has stopped growing
                    waiting.remove(pid)
                self.sizes[pid] = size
        return waiting


def request_stacks(files: StackFiles, timeout: float) -> set[int]:
    """Make all processes write their stacks; return the processes that did not within the timeout, in seconds."""
    begin = time.monotonic()
    asleep = sleeping(files.paths)
    running = set(files.paths) - asleep
    signal_all(asleep, STACK_SIGNAL)
    signal_all(running, PYTHON_STACK_SIGNAL)
    in_c_code = files.wait(running, begin + min(PYTHON_STACK_TIMEOUT, timeout / 2))
    signal_all(in_c_code, STACK_SIGNAL)
    return files.wait(asleep | in_c_code, begin + timeout)
