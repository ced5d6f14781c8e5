# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Paperspace API v1 over real HTTP on this machine, with an imagined account behind it and faults on demand.

It stands in for https://api.paperspace.com/v1 as far as this collection uses it: the team's session, machines, events,
private networks, network drives, templates, snapshots, static addresses and startup scripts. What the operations do is
in account.py, what costs in meter.py, what may go wrong in faults.py, other people's things in strangers.py. Nobody has
held it against the live service: where the documents do not say what happens (the words of a refusal, a network that
still has a drive, `name=` as a filter, a deletion asked for twice), it does what is hardest for a client. Capacity,
prices and times are imagined.

Strict where the official API document is, when that is at hand (see document.py): requests that it does not allow are
refused, and an answer of the server's own that it does not allow is recorded and fails the test that caused it.
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

from .account import Account, Refused
from .document import DOCUMENT, Document
from .faults import Fault
from .objects import REGION_NAMES, Object
from .routes import Request, Route, route_of

Typing = Literal["documented", "observed"]

#: The live API's body for a missing and for a wrong key.
UNAUTHORIZED = ("UNAUTHORIZED", "You must be logged in to access this method.")


class PaperspaceServer:
    """The server as a context manager: it listens on 127.0.0.1 while it is entered.

    faults: the first that applies to a request hits it.

    typing: "documented" as the document says; "observed" as the live API was seen to answer: sizes as strings, the
    region's full name, null as the last page's cursor. certificate, private_key: PEM files, for TLS.
    busy_seconds: time spent on answers. violations: answers of its own that the document does not allow.
    """

    def __init__(
        self,
        account: Account | None = None,
        *,
        key: str = "test-key",
        typing: Typing = "documented",
        port: int = 0,
        certificate: Path | None = None,
        private_key: Path | None = None,
    ) -> None:
        self.account = account or Account()
        self.key = key
        self.typing = typing
        self.faults: list[Fault] = []
        self.requests: list[Request] = []
        self.violations: list[str] = []
        self.busy_seconds = 0.0
        self.document = Document() if DOCUMENT.exists() else None
        self.stopping = threading.Event()
        self.lock = threading.Lock()
        self._scheme = "http"
        handler = type("Handler", (_Handler,), {"owner": self})
        self._http = _Server(("127.0.0.1", port), handler)
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
            raise AssertionError("the test server's answers break the API document: " + "; ".join(self.violations))

    def answer(self, request: Request, raw_body: bytes) -> tuple[int, Any]:
        """Status and content of the answer to a request, before any fault."""
        route, part = route_of(request)
        try:
            if request.headers.get("authorization") != f"Bearer {self.key}":
                if route and route.template == "/auth/session":
                    return 200, None  # so the service, and 401 for all else
                raise Refused(401, *UNAUTHORIZED)
            if route is None:
                raise Refused(404, "NOT_FOUND", "Not found")
            self._check_request(route, request, raw_body)
            status, content = 200, copy.deepcopy(route.run(self.account, part, request))
        except Refused as refused:
            status, content = refused.status, {"message": refused.message, "code": refused.code}
        if self.document and (status != 200 or (route and self.document.has(route.method, route.template))):
            method, template = (route.method, route.template) if route else ("", "")
            self.violations += self.document.in_answer(method, template, status, content)
        return status, _observed(content) if self.typing == "observed" else content

    def _check_request(self, route: Route, request: Request, raw_body: bytes) -> None:
        content_type = request.headers.get("content-type")
        if content_type == "application/json" and not raw_body:
            raise Refused(400, "PARSE_ERROR", "Failed to parse request body")
        if self.document and self.document.has(route.method, route.template):
            problems = self.document.in_query(route.method, route.template, request.query)
            problems += self.document.in_body(route.method, route.template, request.body)
            if problems:
                raise Refused(400, "BAD_REQUEST", "Input validation failed: " + "; ".join(problems))


def _observed(content: Any) -> Any:
    """An answer with the types that the live API was seen to use where the document says otherwise."""
    if isinstance(content, list):
        return [_observed(part) for part in content]
    if not isinstance(content, dict):
        return content
    seen: Object = {name: _observed(value) for name, value in content.items()}
    for name in ("ram", "storageTotal", "storageUsed", "memory"):
        if isinstance(seen.get(name), int):
            seen[name] = str(seen[name])
    if "region" in seen:
        seen["region"] = REGION_NAMES.get(seen["region"], seen["region"])
    if "hasMore" in seen:
        seen.setdefault("nextPage", None)
    return seen


class _Server(http.server.ThreadingHTTPServer):
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away, or refuses the certificate, is what tests are about; all else is a defect here."""
        error = sys.exc_info()[1]
        if not isinstance(error, (ConnectionError, ssl.SSLError)):
            self.RequestHandlerClass.owner.violations.append(repr(error))  # type: ignore[attr-defined]


class _Handler(http.server.BaseHTTPRequestHandler):
    owner: PaperspaceServer
    protocol_version = "HTTP/1.1"

    def date_time_string(self, timestamp: float | None = None) -> str:
        """The header Date, by the account's clock."""
        return super().date_time_string(self.owner.account.now().timestamp() if timestamp is None else timestamp)

    def log_message(self, *_: object) -> None:
        """No access log: tests read PaperspaceServer.requests."""

    def _serve(self) -> None:
        began = time.perf_counter()
        split = urllib.parse.urlsplit(self.path)
        raw_body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        # Like the live service: a body of any other type stays unread, and only the first value of a key counts.
        is_json = headers.get("content-type") == "application/json" and raw_body
        query: dict[str, str] = {}
        for name, value in urllib.parse.parse_qsl(split.query, keep_blank_values=True):
            query.setdefault(name, value)
        path = split.path.removeprefix("/v1") if split.path.startswith("/v1/") else "(outside /v1)"
        request = Request(self.command, path, query, headers, json.loads(raw_body) if is_json else None)
        with self.owner.lock:
            self.owner.requests.append(request)
            fault = next((f for f in self.owner.faults if f.applies(request.method, path)), Fault())
            status, content = self.owner.answer(request, raw_body) if fault.carries_out else (503, None)
        if fault.next_page is not None and isinstance(content, dict):
            content.update(hasMore=True, nextPage=fault.next_page)
        text = json.dumps(content) if fault.body is None else fault.body
        body = text.replace("{authorization}", headers.get("authorization", "")).encode()
        self.owner.stopping.wait(fault.delay)
        self._send(fault, fault.status or status, body)
        self.owner.busy_seconds += time.perf_counter() - began

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815 (the names are http.server's)

    def _send(self, fault: Fault, status: int, body: bytes) -> None:
        self.close_connection = True
        if fault.drop:
            return
        self.send_response(status)
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **fault.headers}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        body = body[: fault.truncate]
        if fault.drip:
            for byte in body:
                self.wfile.write(bytes([byte]))
                if self.owner.stopping.wait(fault.drip):
                    break
        else:
            self.wfile.write(body)
