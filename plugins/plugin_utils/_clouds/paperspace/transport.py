# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""HTTP transport for the Paperspace client."""

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
    ConnectionFailedError,
    InvalidReplyError,
    PaperspaceError,
    TlsError,
)
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import single_line

MAX_BODY_BYTES = 64 * 1024 * 1024


class Response(NamedTuple):
    """An HTTP response. Header names are lowercase."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport(Protocol):
    """Sends one request, and returns the response whatever its status.

    timeout: seconds for the whole exchange. Raise TlsError and ConnectionFailedError.
    """

    def __call__(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, timeout: float
    ) -> Response: ...


def open_url_transport(
    method: str, url: str, headers: Mapping[str, str], body: bytes | None, timeout: float
) -> Response:
    """Send a request with Ansible's urls module, which handles proxies and certificates as elsewhere in Ansible.

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
            reply_headers = {name.lower(): value for name, value in reply.headers.items()}
            return Response(int(reply.code), reply_headers, _read_body(reply, reply_headers, deadline, timeout))
    except (OSError, http.client.HTTPException, UrlsConnectionError, ValueError) as error:
        raise transport_error(error, timeout) from error


def _read_body(reply: Any, headers: Mapping[str, str], deadline: float, timeout: float) -> bytes:
    """Read the body. This needs a deadline, because the socket timeout restarts with every byte."""
    chunks = []
    size = 0
    while True:
        chunk = reply.read1(65536)
        if not chunk:
            break
        chunks.append(chunk)
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            raise InvalidReplyError(f"the response is larger than {MAX_BODY_BYTES // 1024 // 1024} MiB")
        if time.monotonic() > deadline:
            raise _timeout_error(timeout)
    content_length = headers.get("content-length", "")
    if content_length.isdigit() and size < int(content_length):
        raise ConnectionFailedError(f"the connection ended after {size} of {content_length} bytes")
    return b"".join(chunks)


def _timeout_error(timeout: float) -> ConnectionFailedError:
    return ConnectionFailedError(f"no complete response within {timeout:g} s", hint="Try again, or raise the timeout.")


def transport_error(error: BaseException, timeout: float) -> PaperspaceError:
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, (ssl.SSLError, SSLValidationError)):
        tls_error = TlsError(f"the TLS connection failed: {single_line(reason)}")
        tls_error.refused = isinstance(reason, (ssl.SSLCertVerificationError, SSLValidationError))
        return tls_error
    if isinstance(reason, (socket.timeout, TimeoutError)):
        return _timeout_error(timeout)
    text = single_line(getattr(reason, "strerror", None) or reason) or type(reason).__name__
    if isinstance(reason, socket.gaierror):
        failure = ConnectionFailedError(f"cannot resolve the server's name: {text}")
        failure.transient = False  # waiting does not fix a misspelled name or a missing network
        failure.refused = True
        return failure
    failure = ConnectionFailedError(f"the connection failed: {text}")
    failure.refused = getattr(reason, "errno", None) == errno.ECONNREFUSED  # nothing is listening, so nothing was sent
    return failure
