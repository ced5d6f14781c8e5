# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A supervisor's signs of life, sent to systemd or the guard, which terminate a supervisor that hangs."""

from __future__ import annotations

import contextlib
import os
import socket

from ansible_collections.muster.training.plugins.module_utils._run.timeouts import PULSE_INTERVAL

GUARD_PIPE = "MUSTER_GUARD_PIPE"  # the pipe's descriptor, passed in a guarded supervisor's environment


class Pulse:
    """Sends signs of life of this supervisor to systemd, through NOTIFY_SOCKET, or to its guard, through a pipe."""

    def __init__(self) -> None:
        self.due = 0.0
        self.pipe = int(os.environ.pop(GUARD_PIPE, -1))
        self.address = os.environ.pop("NOTIFY_SOCKET", "")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) if self.address else None
        if self.pipe >= 0:  # no child may inherit it
            os.set_inheritable(self.pipe, False)
            os.set_blocking(self.pipe, False)
        if self.socket is not None:
            self.socket.setblocking(False)

    def beat(self, now: float) -> None:
        """Send a sign of life if one is due."""
        if now < self.due:
            return
        self.due = now + PULSE_INTERVAL
        with contextlib.suppress(OSError):  # the watching process is busy or has exited
            if self.pipe >= 0:
                os.write(self.pipe, b".")
            if self.socket is not None:
                address = self.address
                self.socket.sendto(b"WATCHDOG=1", "\0" + address[1:] if address[0] == "@" else address)
