# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One request to the Paperspace API over HTTP, replaceable in tests. Private to this collection."""

from __future__ import annotations

import errno
import http.client
import socket
import ssl
import time
import urllib.error
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from ansible.module_utils.urls import ConnectionError as UrlsConnectionError
from ansible.module_utils.urls import SSLValidationError, open_url

from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.errors import (
    AnswerError,
    ConnectionFailedError,
    PaperspaceError,
    TlsError,
)
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import one_line

MAX_BODY_BYTES = 64 * 1024 * 1024


class Response(NamedTuple):
    """An HTTP response. Header names are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport(Protocol):
    """Sends one request and returns the response, whatever its status.

    timeout: seconds for the whole exchange. Raises TlsError and ConnectionFailedError.
    """

    def __call__(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, timeout: float
    ) -> Response: ...


def open_url_transport(
    method: str, url: str, headers: Mapping[str, str], body: bytes | None, timeout: float
) -> Response:
    """Transport over Ansible's urls module: proxies and certificates as everywhere in Ansible.

    Redirects are not followed, so that the key is sent only to its own address; ~/.netrc is not read, because an entry
    there would replace the key.
    """
    deadline = time.monotonic() + timeout
    try:
        try:
            reply: Any = open_url(
                url,
                method=method,
                data=body,
                headers=dict(headers),
                timeout=timeout,
                http_agent="muster.training",
                follow_redirects="none",
                use_netrc=False,
                decompress=False,
            )
        except urllib.error.HTTPError as error:
            reply = error
        with reply:
            answer = {name.lower(): value for name, value in reply.headers.items()}
            return Response(int(reply.code), answer, _read_body(reply, answer, deadline, timeout))
    except (OSError, http.client.HTTPException, UrlsConnectionError, ValueError) as error:
        raise _transport_error(error, timeout) from error


def _read_body(reply: Any, headers: Mapping[str, str], deadline: float, timeout: float) -> bytes:
    """The body up to its announced length. Needs a deadline, since the socket's timeout restarts with every byte."""
    parts = []
    size = 0
    while True:
        part = reply.read1(65536)
        if not part:
            break
        parts.append(part)
        size += len(part)
        if size > MAX_BODY_BYTES:
            raise AnswerError(f"the answer is larger than {MAX_BODY_BYTES // 1024 // 1024} MiB")
        if time.monotonic() > deadline:
            raise _timed_out(timeout)
    announced = headers.get("content-length", "")
    if announced.isdigit() and size < int(announced):
        raise ConnectionFailedError(f"the connection ended after {size} of {announced} bytes")
    return b"".join(parts)


def _timed_out(timeout: float) -> ConnectionFailedError:
    return ConnectionFailedError(f"no whole answer within {timeout:g} s", hint="Try again, or raise the timeout.")


def _transport_error(error: BaseException, timeout: float) -> PaperspaceError:
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, (ssl.SSLError, SSLValidationError)):
        untrusted = TlsError(f"the TLS connection failed: {one_line(reason)}")
        untrusted.refused = isinstance(reason, (ssl.SSLCertVerificationError, SSLValidationError))
        return untrusted
    if isinstance(reason, (socket.timeout, TimeoutError)):
        return _timed_out(timeout)
    text = one_line(getattr(reason, "strerror", None) or reason) or type(reason).__name__
    if isinstance(reason, socket.gaierror):
        failure = ConnectionFailedError(f"the name of the server cannot be resolved: {text}")
        failure.passing = False  # waiting does not fix a misspelled name or a missing network
        failure.refused = True
        return failure
    failure = ConnectionFailedError(f"the connection failed: {text}")
    failure.refused = getattr(reason, "errno", None) == errno.ECONNREFUSED  # no listener, so nothing was sent
    return failure
