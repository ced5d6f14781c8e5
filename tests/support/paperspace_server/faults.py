# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fault injection between the server and its client."""

from __future__ import annotations

import dataclasses
import re

BAD_GATEWAY = "<!DOCTYPE html><html><head><title>502: Bad gateway</title></head><body>cloudflare</body></html>"
BUSY = '{"message": "Too many requests", "code": "TOO_MANY_REQUESTS"}'


@dataclasses.dataclass
class PaperspaceFault:
    """An injected fault, and the requests that it affects.

    Attributes:
        path: regular expression for the whole path below /v1
        method: "*" is any
        skip: number of matching requests to pass first
        times: how often the fault occurs, None for always
        carried_out: whether the operation is executed; a status of 4xx is a rejection and never executes it

    The other fields replace or change the reply; `{authorization}` in body is the received header.
    """

    path: str = ".*"
    method: str = "GET"
    skip: int = 0
    times: int | None = None
    status: int | None = None
    body: str | None = None
    headers: dict[str, str] = dataclasses.field(default_factory=dict)
    delay: float = 0.0
    drip: float = 0.0
    truncate: int | None = None
    drop: bool = False
    next_page: str | None = None
    carried_out: bool = True

    def applies(self, method: str, path: str) -> bool:
        """Return whether the fault affects this request, and count it."""
        if self.method not in ("*", method) or not re.fullmatch(self.path, path) or self.times == 0:
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        if self.times is not None:
            self.times -= 1
        return True

    @property
    def carries_out(self) -> bool:
        """Whether the operation is executed anyway."""
        return self.carried_out and not (self.status is not None and 400 <= self.status < 500)


def lose_reply(path: str = ".*", *, method: str = "POST", skip: int = 0, times: int | None = 1) -> PaperspaceFault:
    """Execute the operation and close the connection without a reply."""
    return PaperspaceFault(path, method, skip, times, drop=True)


def bad_gateway(path: str = ".*", *, method: str = "POST", skip: int = 0, times: int | None = 1) -> PaperspaceFault:
    """Execute the operation and reply with a proxy's HTML error page."""
    return PaperspaceFault(
        path, method, skip, times, status=502, body=BAD_GATEWAY, headers={"Content-Type": "text/html"}
    )


def too_many_requests(
    path: str = ".*", *, method: str = "*", skip: int = 0, times: int | None = 1, retry_after: int | None = None
) -> PaperspaceFault:
    """Reply 429, with or without the seconds to wait."""
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    return PaperspaceFault(path, method, skip, times, status=429, body=BUSY, headers=headers)


def disconnect_after(skip: int, *, carried_out: bool) -> list[PaperspaceFault]:
    """Disconnect the client after `skip` requests. carried_out: whether the next one is still executed.

    This simulates a killed client: later requests are neither executed nor answered.
    """
    last = PaperspaceFault(method="*", skip=skip, times=1, drop=True, carried_out=carried_out)
    return [last, PaperspaceFault(method="*", skip=skip, drop=True, carried_out=False)]
