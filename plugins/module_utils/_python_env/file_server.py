# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Serve files from the first node to the others."""

from __future__ import annotations

import http.server
import os
import secrets
import threading
import time
import urllib.request

from ansible_collections.muster.training.plugins.module_utils._python_env.paths import EnvironmentPaths

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Dict

    Data = Dict[str, Any]

IDLE_TIMEOUT = 600  # seconds without a request, after which the file server ends


class StoreHandler(http.server.SimpleHTTPRequestHandler):
    """Serves the store's files to clients with the token, and stops the server on request."""

    protocol_version = "HTTP/1.1"
    token = ""
    last = 0.0

    def do_GET(self) -> None:
        StoreHandler.last = time.monotonic()
        token, _slash, self.path = self.path[1:].partition("/")
        if not secrets.compare_digest(token.encode(), self.token.encode()):
            self.send_error(404)
            return
        if self.path == "end":
            threading.Thread(target=self.server.shutdown, daemon=True).start()
            self.path = "none"
        super().do_GET()

    def log_message(self, *_args: Any) -> None:
        """Log nothing: nobody would read it."""


def serve(request: Data) -> Data:
    """Start serving the store's files to clients with the token, in a separate process."""
    paths = EnvironmentPaths(request)
    os.makedirs(paths.store, exist_ok=True)
    StoreHandler.token = request["token"]
    StoreHandler.last = time.monotonic()
    server = http.server.ThreadingHTTPServer(
        (request["address"], 0), lambda *a: StoreHandler(*a, directory=paths.store)
    )
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
    return {"url": f"http://{request['address']}:{server.server_address[1]}", "changed": False}


def stop_serving(request: Data) -> Data:
    """Stop the server."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        opener.open(f"{request['url']}/end", timeout=10).close()
    except OSError:
        return {"changed": False}  # the server replies "not found", or has already ended
    return {"changed": False}
