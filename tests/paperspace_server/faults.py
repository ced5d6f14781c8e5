# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What goes wrong between the server and its client, on demand."""

from __future__ import annotations

import dataclasses
import re

BAD_GATEWAY = "<!DOCTYPE html><html><head><title>502: Bad gateway</title></head><body>cloudflare</body></html>"
BUSY = '{"message": "Too many requests", "code": "TOO_MANY_REQUESTS"}'


@dataclasses.dataclass
class Fault:
    """What goes wrong, where and how often.

    path: regular expression for the whole path below /v1. method: "*" is any. skip: requests to let pass first. times:
    how often, None is always. carried_out: whether the operation is; a status of 4xx is a refusal and carries out
    nothing. The rest says what happens instead of, or to, the answer; `{authorization}` in body is the header received.
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
        """Whether this request is hit; counts it."""
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
        """Whether the operation is carried out all the same."""
        return self.carried_out and not (self.status is not None and 400 <= self.status < 500)


def answer_lost(path: str = ".*", *, method: str = "POST", skip: int = 0, times: int | None = 1) -> Fault:
    """The operation is carried out and the connection ends without an answer."""
    return Fault(path, method, skip, times, drop=True)


def bad_gateway(path: str = ".*", *, method: str = "POST", skip: int = 0, times: int | None = 1) -> Fault:
    """The operation is carried out and a proxy answers in HTML."""
    return Fault(path, method, skip, times, status=502, body=BAD_GATEWAY, headers={"Content-Type": "text/html"})


def too_many(
    path: str = ".*", *, method: str = "*", skip: int = 0, times: int | None = 1, retry_after: int | None = None
) -> Fault:
    """429, with or without the seconds to wait."""
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    return Fault(path, method, skip, times, status=429, body=BUSY, headers=headers)


def broken_off(skip: int, *, carried_out: bool) -> list[Fault]:
    """The client reaches the server no more, after so many requests. carried_out: whether the next one still is.

    As if the client had been killed there: what it sends from then on is neither carried out nor answered.
    """
    last = Fault(method="*", skip=skip, times=1, drop=True, carried_out=carried_out)
    return [last, Fault(method="*", skip=skip, drop=True, carried_out=False)]
