# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""End the client processes of connections whose reply is no longer needed.

Ansible ends the process of an interrupted task, with its process group. With a password, ssh has a session of its own,
so that it cannot ask the terminal; it would run until the node has replied, to nobody. The process that keeps a
connection open for later calls is no child of this one, and continues.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def child_processes() -> set[int]:
    """Return the direct children of this process; none if the system does not provide them in /proc."""
    children: set[int] = set()
    with contextlib.suppress(OSError):
        for thread in Path("/proc/self/task").iterdir():
            with contextlib.suppress(OSError):  # a thread that has exited
                children.update(map(int, (thread / "children").read_text().split()))
    return children


def end_child_processes() -> None:
    """Send SIGTERM to the direct children of this process."""
    for child in child_processes():
        with contextlib.suppress(OSError):  # it has exited, or belongs to root, as sudo does
            os.kill(child, signal.SIGTERM)


@contextlib.contextmanager
def ending_child_processes() -> Iterator[None]:
    """End the remaining children of this process at the end of the block, or when a signal ends this process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.getsignal(number) for number in SIGNALS}

    def end(number: int, frame: Any) -> None:
        end_child_processes()
        handler = handlers[signal.Signals(number)]
        signal.signal(number, handler)
        if callable(handler):
            handler(number, frame)
        elif handler == signal.SIG_DFL:
            os.kill(os.getpid(), number)

    for number in SIGNALS:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        end_child_processes()
