# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What goes wrong with a request, and how often."""

from __future__ import annotations

import re
from dataclasses import dataclass, field


@dataclass
class HubFault:
    """One way in which an answer is not what it should be.

    path, method: patterns of the requests that it hits. times: how often, -1 for ever.
    status, headers, body: sent instead. cut: bytes of the body after which the connection ends, -1 for none.
    reset: whether it then ends by a reset. spoil: whether one bit of the body is turned.
    delay: seconds before the answer.
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
        """Whether it hits this request; counts that it does."""
        if not self.times or not re.fullmatch(self.method, method) or not re.search(self.path, path):
            return False
        self.times -= self.times > 0
        return True


def rate_limit_fault(seconds: int, **fields: object) -> HubFault:
    """The hub asks to wait so many seconds."""
    body = '{"error":"We had to rate limit you. Retry later."}'
    headers = {"Retry-After": str(seconds), "RateLimit": f'"api";r=0;t={seconds}'}
    return HubFault(status=429, headers=headers, body=body, **fields)  # type: ignore[arg-type]
