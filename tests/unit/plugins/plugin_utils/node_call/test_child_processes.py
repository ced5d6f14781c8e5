# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Child processes are terminated with their parent, even in separate sessions; orphaned grandchildren are not."""

from __future__ import annotations

import os
import signal
import subprocess
import threading

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._node_call.child_processes import (
    child_processes,
    ending_child_processes,
)

SLEEP = ["sleep", "1000"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_children_and_reaches_the_earlier_handler(number: signal.Signals) -> None:
    received: list[int] = []
    earlier = signal.signal(number, lambda signal_number, _frame: received.append(signal_number))
    try:
        with ending_child_processes():
            child = subprocess.Popen(SLEEP, start_new_session=True)
            assert child.pid in child_processes()
            os.kill(os.getpid(), number)
            assert child.wait(60) == -signal.SIGTERM
    finally:
        signal.signal(number, earlier)
    assert received == [number]


def test_remaining_children_are_ended_and_handlers_are_restored() -> None:
    handler = signal.getsignal(signal.SIGTERM)
    with ending_child_processes():
        child = subprocess.Popen(SLEEP)
    assert child.wait(60) == -signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == handler


def test_other_threads_do_not_change_handlers() -> None:
    handlers: list[object] = []

    def block() -> None:
        with ending_child_processes():
            handlers.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=block)
    thread.start()
    thread.join(60)
    assert handlers == [signal.getsignal(signal.SIGTERM)]
