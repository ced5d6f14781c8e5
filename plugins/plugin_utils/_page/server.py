# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page's HTTP server, on this machine's loopback address.

Other users of this machine and other pages in the browser can send requests to it, too. So each document needs the
token, which only the printed URL has: after its #, which a browser sends to nobody. A page of another origin cannot
send the token's header without asking first, which is refused, nor read a reply. There are no cookies.
"""

from __future__ import annotations

import hmac
import json
import re
import secrets
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._files.bounded import replace_non_finite
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import PAGE_REQUEST_TIMEOUT
from ansible_collections.muster.training.plugins.plugin_utils._page.api import ApiError, PageApi

ADDRESS = "127.0.0.1"
STATIC = Path(__file__).with_name("static")
FILES = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
}
API = "/api/"
# A name of this machine, with any port, since ssh -L may use a different one. Attackers can make other names resolve to
# this machine.
HOST = re.compile(r"(?:127\.0\.0\.1|localhost|\[::1\])(?::[0-9]{1,5})?", re.ASCII)
MAX_PARAMETERS = 2000  # characters
MAX_THREADS = 128
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


def new_token() -> str:
    """Return an unguessable token."""
    return secrets.token_urlsafe(32)


def read_parameters(query: str) -> dict[str, str]:
    """Return the parameters in a URL, using the last value for each name. Raise ApiError."""
    if len(query) > MAX_PARAMETERS:
        raise ApiError(414, "the URL is too long")
    try:
        return dict(urllib.parse.parse_qsl(query, max_num_fields=20, errors="replace"))
    except ValueError:
        raise ApiError(400, "the URL cannot be read") from None


class PageHandler(BaseHTTPRequestHandler):
    """Serves one connection from a browser."""

    server: PageServer
    protocol_version = "HTTP/1.1"
    server_version = "muster"
    sys_version = ""
    timeout = PAGE_REQUEST_TIMEOUT

    def do_GET(self) -> None:
        """Send a file of the page, or a document."""
        self.answer(self.get)

    def do_POST(self) -> None:
        """Start a command."""
        self.answer(self.post)

    def answer(self, method: Any) -> None:
        """Send the return value of a method, or its error."""
        try:
            self.check_host()
            method(urllib.parse.urlsplit(self.path))
        except ApiError as error:
            self.close_connection = True  # an unread body may follow
            self.send_json(error.status, {"error": str(error)})
        except (ConnectionError, TimeoutError):
            self.close_connection = True
        except Exception as error:  # a defect: the page shows it and continues
            self.close_connection = True
            self.send_json(500, {"error": f"./muster page failed: {type(error).__name__}"})

    def get(self, url: urllib.parse.SplitResult) -> None:
        """Send a file, which needs no token because it contains no run data, or a document."""
        if url.path in FILES:
            name, kind = FILES[url.path]
            self.send(200, (STATIC / name).read_bytes(), kind)
            return
        path = self.api_path(url)
        self.send_json(200, self.server.api.get(path, read_parameters(url.query)))

    def post(self, url: urllib.parse.SplitResult) -> None:
        """Start a command, if the page itself requests it."""
        path = self.api_path(url)
        self.check_origin()
        if self.headers.get("Content-Length", "0") != "0" or self.headers.get("Transfer-Encoding"):
            raise ApiError(413, "a command has no content")
        self.send_json(202, self.server.api.post(path))

    def api_path(self, url: urllib.parse.SplitResult) -> str:
        """Return the path of a document. Raise ApiError if it is not a document path, or the token is missing."""
        if not url.path.startswith(API):
            raise ApiError(404, "unknown path")
        kind, _space, token = self.headers.get("Authorization", "").partition(" ")
        if kind != "Bearer" or not hmac.compare_digest(token.encode(), self.server.token.encode()):
            raise ApiError(401, "open the URL that ./muster page printed: it contains this page's token")
        return url.path[len(API) - 1 :]

    def check_host(self) -> None:
        """Raise ApiError if the request is for another host name, to prevent DNS rebinding."""
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or not HOST.fullmatch(hosts[0]):
            raise ApiError(421, "open the URL that ./muster page printed")

    def check_origin(self) -> None:
        """Raise ApiError if the request comes from another page."""
        is_own = self.headers.get("Origin") == f"http://{self.headers['Host']}"
        if not is_own or self.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
            raise ApiError(403, "only the page itself can start a command")

    def send_json(self, status: int, document: Any) -> None:
        """Send a document."""
        text = json.dumps(replace_non_finite(document), ensure_ascii=True)
        self.send(status, text.encode(), "application/json")

    def send(self, status: int, content: bytes, kind: str) -> None:
        """Send a reply."""
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Send a protocol error, such as an unknown method, without text from the request."""
        self.close_connection = True
        self.send_json(405 if code == 501 else code, {"error": "this server supports only GET and POST"})

    def log_message(self, *_arguments: Any) -> None:
        """Log nothing: the terminal belongs to the user."""


class PageServer(ThreadingHTTPServer):
    """Serves the page until it is closed."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 32

    def __init__(self, api: PageApi, port: int = 0, token: str = "") -> None:
        """Start listening. Raise OSError if the port is in use."""
        self.api = api
        self.token = token or new_token()
        super().__init__((ADDRESS, port), PageHandler)

    @property
    def port(self) -> int:
        """The port on which the server listens."""
        return int(self.server_address[1])

    def url(self, run_id: str = "") -> str:
        """Return the URL of the start page, or of a run's page."""
        run = f"&run={urllib.parse.quote(run_id)}" if run_id else ""
        return f"http://{ADDRESS}:{self.port}/#token={self.token}{run}"

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Return whether to serve a connection, since other users of this machine may open any number of
        connections.
        """
        return threading.active_count() < MAX_THREADS

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a broken connection: the browser sends the request again."""
