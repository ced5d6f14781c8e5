# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Paperspace API v1 over real HTTP on this machine, with an imagined account behind it and faults on demand.

Strict where the official API document is, when that is at hand (see document.py): requests that it does not allow are
refused, and an answer of the server's own that it does not allow is recorded and fails the test that caused it.
"""

from __future__ import annotations

import copy
import dataclasses
import http.server
import json
import re
import ssl
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

from .account import REGION_NAMES, Account, Object, Refused
from .document import DOCUMENT, Document

Typing = Literal["documented", "observed"]

#: The live API's body for a missing and for a wrong key.
UNAUTHORIZED = ("UNAUTHORIZED", "You must be logged in to access this method.")


@dataclasses.dataclass
class Fault:
    """What goes wrong, where and how often.

    path: regular expression for the whole path below /v1. skip: requests to let pass first. times: how often, None is
    always. The rest says what happens instead of, or to, the answer; `{authorization}` in body is the header received.
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

    def applies(self, method: str, path: str) -> bool:
        """Whether this request is hit; counts it."""
        if method != self.method or not re.fullmatch(self.path, path) or self.times == 0:
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        if self.times is not None:
            self.times -= 1
        return True


class Request(NamedTuple):
    """A request as it was received."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


class Route(NamedTuple):
    """An operation: its path in the document and what it does."""

    method: str
    template: str
    run: Callable[[Account, dict[str, str], Request], Any]


ROUTES = (
    Route("GET", "/machines", lambda a, p, r: a.page(a.machines, r.query)),
    Route("POST", "/machines", lambda a, p, r: a.create_machine(r.body)),
    Route("GET", "/machines/{id}", lambda a, p, r: a.find_machine(p["id"])),
    Route("DELETE", "/machines/{id}", lambda a, p, r: a.delete_machine(p["id"])),
    Route("PATCH", "/machines/{id}/start", lambda a, p, r: a.act(p["id"], "start")),
    Route("PATCH", "/machines/{id}/stop", lambda a, p, r: a.act(p["id"], "stop")),
    Route("PATCH", "/machines/{id}/restart", lambda a, p, r: a.act(p["id"], "restart")),
    Route("GET", "/machine-events", lambda a, p, r: a.page(a.events, r.query)),
    Route("GET", "/machine-events/{id}", lambda a, p, r: a.find_event(p["id"])),
    Route("GET", "/machine-availability", lambda a, p, r: {"available": r.query["machineType"] not in a.unavailable}),
    Route("GET", "/private-networks", lambda a, p, r: a.page(a.networks, r.query)),
    Route("POST", "/private-networks", lambda a, p, r: a.create_network(r.body)),
    Route("GET", "/private-networks/{id}", lambda a, p, r: a.find_network(p["id"])),
    Route("DELETE", "/private-networks/{id}", lambda a, p, r: a.delete_network(p["id"])),
)


class PaperspaceServer:
    """The server as a context manager: it listens on 127.0.0.1 while it is entered.

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
        route, parts = _route(request)
        try:
            if request.headers.get("authorization") != f"Bearer {self.key}":
                raise Refused(401, *UNAUTHORIZED)
            if route is None:
                raise Refused(404, "NOT_FOUND", "Not found")
            self._check_request(route, request, raw_body)
            status, content = 200, copy.deepcopy(route.run(self.account, parts, request))
        except Refused as refused:
            status, content = refused.status, {"message": refused.message, "code": refused.code}
        if self.document and (route or status != 200):
            method, template = (route.method, route.template) if route else ("GET", "/machines")
            self.violations += self.document.in_answer(method, template, status, content)
        return status, _observed(content) if self.typing == "observed" else content

    def _check_request(self, route: Route, request: Request, raw_body: bytes) -> None:
        content_type = request.headers.get("content-type")
        if content_type == "application/json" and not raw_body:
            raise Refused(400, "PARSE_ERROR", "Failed to parse request body")
        if self.document:
            problems = self.document.in_query(route.method, route.template, request.query)
            problems += self.document.in_body(route.method, route.template, request.body)
            if problems:
                raise Refused(400, "BAD_REQUEST", "Input validation failed: " + "; ".join(problems))


def _route(request: Request) -> tuple[Route | None, dict[str, str]]:
    for route in ROUTES:
        pattern = re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(route.template))
        match = re.fullmatch(pattern, request.path)
        if match and route.method == request.method:
            return route, {name: urllib.parse.unquote(part) for name, part in match.groupdict().items()}
    return None, {}


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
            status, content = self.owner.answer(request, raw_body)
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
