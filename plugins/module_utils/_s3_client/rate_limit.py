# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Limit the bandwidth that a program uses."""

from __future__ import annotations

import threading
import time


class RateLimiter:
    """A thread-safe limit in bytes per second; 0 means unlimited."""

    def __init__(self, bytes_per_second: float) -> None:
        self.rate = bytes_per_second
        self.free_at = 0.0
        self.lock = threading.Lock()

    def acquire(self, size: int) -> None:
        """Wait until this many bytes may be sent."""
        if self.rate <= 0:
            return
        with self.lock:
            now = time.monotonic()
            start = max(now, self.free_at)
            self.free_at = start + size / self.rate
        time.sleep(start - now)
