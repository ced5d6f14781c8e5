# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Injected faults: which requests fail, how, and how often."""

from __future__ import annotations

import re
from dataclasses import dataclass, field


@dataclass
class HubFault:
    """A fault in responses, injected by a test.

    Attributes:
        path, method: Patterns of the affected requests.
        times: How often, -1 for always.
        status, headers, body: Sent instead.
        cut: Bytes of the body after which the connection ends, -1 for none.
        reset: Whether it then ends with a reset.
        spoil: Whether one bit of the body is flipped.
        delay: Seconds before the response.
    """

    path: str = ""
    method: str = "GET|HEAD"
    times: int = -1
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: str = ""
    cut: int = -1
    reset: bool = False
    spoil: bool = False
    delay: float = 0.0

    def applies(self, method: str, path: str) -> bool:
        """Return whether the fault affects this request, and count that it does."""
        if not self.times or not re.fullmatch(self.method, method) or not re.search(self.path, path):
            return False
        self.times -= self.times > 0
        return True


def rate_limit_fault(seconds: int, **fields: object) -> HubFault:
    """Return a fault with which the hub asks to wait for this many seconds."""
    body = '{"error":"We had to rate limit you. Retry later."}'
    headers = {"Retry-After": str(seconds), "RateLimit": f'"api";r=0;t={seconds}'}
    return HubFault(status=429, headers=headers, body=body, **fields)  # type: ignore[arg-type]
