# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A supervisor's signs of life, for whoever ends one that hangs. Private to this collection."""

from __future__ import annotations

import contextlib
import os
import socket

PULSE_INTERVAL = 1.0  # seconds between two signs of life
GUARD_PIPE = "MUSTER_GUARD_PIPE"  # the descriptor of it, in a guarded supervisor's environment


class Pulse:
    """Shows who watches over this supervisor that it lives: systemd, by NOTIFY_SOCKET, or our guard, by a pipe."""

    def __init__(self) -> None:
        self.due = 0.0
        self.pipe = int(os.environ.pop(GUARD_PIPE, -1))
        self.address = os.environ.pop("NOTIFY_SOCKET", "")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) if self.address else None
        if self.pipe >= 0:  # no child of ours may hold it
            os.set_inheritable(self.pipe, False)
            os.set_blocking(self.pipe, False)
        if self.socket is not None:
            self.socket.setblocking(False)

    def beat(self, now: float) -> None:
        """Show it, if it is time to."""
        if now < self.due:
            return
        self.due = now + PULSE_INTERVAL
        with contextlib.suppress(OSError):  # who watches is busy, or gone
            if self.pipe >= 0:
                os.write(self.pipe, b".")
            if self.socket is not None:
                address = self.address
                self.socket.sendto(b"WATCHDOG=1", "\0" + address[1:] if address[0] == "@" else address)
