# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Serve files from the first node to the others."""

from __future__ import annotations

import http.server
import os
import secrets
import socket
import threading
import time
import urllib.request

from ansible_collections.muster.training.plugins.module_utils._python_env.paths import EnvironmentPaths

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Dict

    Data = Dict[str, Any]

IDLE_TIMEOUT = 600  # seconds without a request that contains the token after which the file server ends
REQUEST_TIMEOUT = 60  # seconds for which a connection may be idle
MAX_CONNECTIONS = 256  # number of simultaneous connections; a cluster has at most 64 nodes, each with a few downloads


class StoreHandler(http.server.SimpleHTTPRequestHandler):
    """Serves the store's files to clients with the token, and stops the server on request."""

    protocol_version = "HTTP/1.1"
    timeout = REQUEST_TIMEOUT
    token = ""
    last = 0.0

    def do_GET(self) -> None:
        token, _slash, self.path = self.path[1:].partition("/")
        if not secrets.compare_digest(token.encode(), self.token.encode()):
            self.send_error(404)
            self.close_connection = True
            return
        StoreHandler.last = time.monotonic()
        if self.path == "end":
            threading.Thread(target=self.server.shutdown, daemon=True).start()
            self.path = "none"
        super().do_GET()

    def do_HEAD(self) -> None:
        self.send_error(405)  # file names and sizes also need the token, and no client asks for them
        self.close_connection = True

    def log_message(self, *_args: Any) -> None:
        """Log nothing: the log would not be read."""


class StoreServer(http.server.ThreadingHTTPServer):
    """Serves each connection in its own thread, up to MAX_CONNECTIONS at once; others are closed."""

    slots = threading.BoundedSemaphore(MAX_CONNECTIONS)

    def verify_request(self, _request: Any, _client_address: Any) -> bool:
        return self.slots.acquire(blocking=False)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        slots = self.slots  # connections from which verify_request() took one
        try:
            super().process_request_thread(request, client_address)
        finally:
            slots.release()


def serve(request: Data) -> Data:
    """Start serving the store's files to clients with the token, in a separate process."""
    paths = EnvironmentPaths(request)
    os.makedirs(paths.store, exist_ok=True)
    StoreHandler.token = request["token"]
    StoreHandler.last = time.monotonic()
    address = request["address"]
    StoreServer.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
    server = StoreServer((address, 0), lambda *a: StoreHandler(*a, directory=paths.store))
    if os.fork() == 0:
        os.setsid()
        for number in (0, 1, 2):
            os.dup2(os.open(os.devnull, os.O_RDWR), number)

        def watch() -> None:
            while time.monotonic() - StoreHandler.last < IDLE_TIMEOUT:
                time.sleep(5)
            server.shutdown()

        threading.Thread(target=watch, daemon=True).start()
        server.serve_forever()
        os._exit(0)
    host = f"[{address}]" if ":" in address else address
    return {"url": f"http://{host}:{server.server_address[1]}", "changed": False}


def stop_serving(request: Data) -> Data:
    """Stop the server."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        opener.open(f"{request['url']}/end", timeout=10).close()
    except OSError:
        return {"changed": False}  # the server replies "not found", or has already ended
    return {"changed": False}
