# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A local HTTP server that simulates the Paperspace API v1, with injectable faults.

It replaces https://api.paperspace.com/v1 as far as this collection uses it: the team's session, machines, events,
private networks, network drives, templates, snapshots, static addresses and startup scripts. account.py has the
operations, meter.py the costs, faults.py the faults, strangers.py other people's resources. It has not been compared
with the live service: where the behavior is undocumented (error messages, deleting a network that still has a drive,
`name=` as a filter, a repeated deletion), it does what is hardest for a client. Capacity, prices and times are
fictitious.

If the official API document is available (see document.py), requests that violate it are rejected, and a reply of this
server that violates it is recorded and fails the test that caused it.
"""

from __future__ import annotations

import copy
import http.server
import json
import ssl
import sys
import threading
import time
import urllib.parse
from pathlib import Path
from typing import Any, Literal

from .account import AccountError, PaperspaceAccount
from .document import DOCUMENT, ApiDocument
from .faults import PaperspaceFault
from .objects import REGION_NAMES, Object
from .routes import ApiRoute, Request, find_route

Typing = Literal["documented", "observed"]

# The live API's response body for a missing key and for a wrong key.
UNAUTHORIZED = ("UNAUTHORIZED", "You must be logged in to access this method.")


class PaperspaceServer:
    """The server as a context manager, inside of which it listens on 127.0.0.1.

    Args:
        typing: "documented" as in the document; "observed" as the live API was seen to reply: sizes as strings, the
            region's full name, null as the last page's cursor
        certificate, private_key: PEM files, for TLS

    Attributes:
        faults: the first that applies to a request affects it
        busy_seconds: time spent on replies
        violations: replies of this server that violate the document
    """

    def __init__(  # noqa: PLR0913
        self,
        account: PaperspaceAccount | None = None,
        *,
        key: str = "test-key",
        typing: Typing = "documented",
        port: int = 0,
        certificate: Path | None = None,
        private_key: Path | None = None,
    ) -> None:
        self.account = account or PaperspaceAccount()
        self.key = key
        self.typing = typing
        self.faults: list[PaperspaceFault] = []
        self.requests: list[Request] = []
        self.violations: list[str] = []
        self.busy_seconds = 0.0
        self.document = ApiDocument() if DOCUMENT.exists() else None
        self.stopping = threading.Event()
        self.lock = threading.Lock()
        self._scheme = "http"
        handler = type("Handler", (_PaperspaceHandler,), {"owner": self})
        self._http = _PaperspaceHttpServer(("127.0.0.1", port), handler)
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, private_key)
            self._http.socket = context.wrap_socket(self._http.socket, server_side=True, do_handshake_on_connect=False)
            self._scheme = "https"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05})

    @property
    def url(self) -> str:
        """The API's base URL."""
        return f"{self._scheme}://127.0.0.1:{self._http.server_address[1]}/v1"

    def __enter__(self) -> PaperspaceServer:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.stopping.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()
        if kind is None and self.violations:
            raise AssertionError("the test server's replies violate the API document: " + "; ".join(self.violations))

    def handle(self, request: Request, raw_body: bytes) -> tuple[int, Any]:
        """Return the status and content of the reply to a request, before any fault."""
        route, part = find_route(request)
        try:
            if request.headers.get("authorization") != f"Bearer {self.key}":
                if route and route.template == "/auth/session":
                    return 200, None  # like the real service, which replies 401 to everything else
                raise AccountError(401, *UNAUTHORIZED)
            if route is None:
                raise AccountError(404, "NOT_FOUND", "Not found")
            self._check_request(route, request, raw_body)
            status, content = 200, copy.deepcopy(route.run(self.account, part, request))
        except AccountError as refused:
            status, content = refused.status, {"message": refused.message, "code": refused.code}
        if self.document and (status != 200 or (route and self.document.has_operation(route.method, route.template))):
            method, template = (route.method, route.template) if route else ("", "")
            self.violations += self.document.check_reply(method, template, status, content)
        return status, _as_observed(content) if self.typing == "observed" else content

    def _check_request(self, route: ApiRoute, request: Request, raw_body: bytes) -> None:
        content_type = request.headers.get("content-type")
        if content_type == "application/json" and not raw_body:
            raise AccountError(400, "PARSE_ERROR", "Failed to parse request body")
        if self.document and self.document.has_operation(route.method, route.template):
            problems = self.document.check_query(route.method, route.template, request.query)
            problems += self.document.check_body(route.method, route.template, request.body)
            if problems:
                raise AccountError(400, "BAD_REQUEST", "Input validation failed: " + "; ".join(problems))


def _as_observed(content: Any) -> Any:
    """Convert a reply to the types that the live API was seen to use instead of the documented ones."""
    if isinstance(content, list):
        return [_as_observed(part) for part in content]
    if not isinstance(content, dict):
        return content
    observed: Object = {name: _as_observed(value) for name, value in content.items()}
    for name in ("ram", "storageTotal", "storageUsed", "memory"):
        if isinstance(observed.get(name), int):
            observed[name] = str(observed[name])
    if "region" in observed:
        observed["region"] = REGION_NAMES.get(observed["region"], observed["region"])
    if "hasMore" in observed:
        observed.setdefault("nextPage", None)
    return observed


class _PaperspaceHttpServer(http.server.ThreadingHTTPServer):
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect or reject the certificate, as tests intend; record any other error."""
        error = sys.exc_info()[1]
        if not isinstance(error, (ConnectionError, ssl.SSLError)):
            self.RequestHandlerClass.owner.violations.append(repr(error))  # type: ignore[attr-defined]


class _PaperspaceHandler(http.server.BaseHTTPRequestHandler):
    owner: PaperspaceServer
    protocol_version = "HTTP/1.1"

    def date_time_string(self, timestamp: float | None = None) -> str:
        """The header Date, by the account's clock."""
        return super().date_time_string(self.owner.account.now().timestamp() if timestamp is None else timestamp)

    def log_message(self, *_: object) -> None:
        """No access log: tests read PaperspaceServer.requests."""

    def _serve(self) -> None:
        started = time.perf_counter()
        split = urllib.parse.urlsplit(self.path)
        raw_body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        # like the live service: a body of any other type is ignored, and only the first value for a key counts
        is_json = headers.get("content-type") == "application/json" and raw_body
        query: dict[str, str] = {}
        for name, value in urllib.parse.parse_qsl(split.query, keep_blank_values=True):
            query.setdefault(name, value)
        path = split.path.removeprefix("/v1") if split.path.startswith("/v1/") else "(outside /v1)"
        request = Request(self.command, path, query, headers, json.loads(raw_body) if is_json else None)
        with self.owner.lock:
            self.owner.requests.append(request)
            injected = next((f for f in self.owner.faults if f.applies(request.method, path)), PaperspaceFault())
            status, content = self.owner.handle(request, raw_body) if injected.carries_out else (503, None)
        if injected.next_page is not None and isinstance(content, dict):
            content.update(hasMore=True, nextPage=injected.next_page)
        body_text = json.dumps(content) if injected.body is None else injected.body
        body = body_text.replace("{authorization}", headers.get("authorization", "")).encode()
        self.owner.stopping.wait(injected.delay)
        self._send(injected, injected.status or status, body)
        self.owner.busy_seconds += time.perf_counter() - started

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

    def _send(self, injected: PaperspaceFault, status: int, body: bytes) -> None:
        self.close_connection = True
        if injected.drop:
            return
        self.send_response(status)
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **injected.headers}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        body = body[: injected.truncate]
        if injected.drip:
            for byte in body:
                self.wfile.write(bytes([byte]))
                if self.owner.stopping.wait(injected.drip):
                    break
        else:
            self.wfile.write(body)
