# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the hub until Ctrl-C or SIGTERM: python -m tests.support.hub_server --model org/tiny=DIRECTORY."""

from __future__ import annotations

import argparse
import json
import signal
import threading
from pathlib import Path

from .faults import HubFault
from .repository import Kind, read_directory
from .server import HubServer


def main() -> None:
    """Serve until a signal arrives."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.hub_server", description=__doc__)
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 (the default) selects a free one")
    parser.add_argument("--model", action="append", default=[], help="NAME=DIRECTORY")
    parser.add_argument("--dataset", action="append", default=[], help="NAME=DIRECTORY")
    parser.add_argument(
        "--gated", action="append", default=[], help="name of a repository whose license must be accepted"
    )
    parser.add_argument(
        "--token", action="append", default=[], help="a valid token; NAME after a = accepts that license"
    )
    parser.add_argument("--fault", action="append", default=[], help='JSON, as {"path": "resolve", "status": 503}')
    arguments = parser.parse_args()
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    server = HubServer(arguments.address, port=arguments.port)
    kinds: list[tuple[Kind, list[str]]] = [("model", arguments.model), ("dataset", arguments.dataset)]
    for kind, definitions in kinds:
        for text in definitions:
            name, _mark, directory = text.partition("=")
            server.add(kind, name, read_directory(Path(directory)), gated=name in arguments.gated)
    for text in arguments.token:
        token, _mark, name = text.partition("=")
        server.tokens.setdefault(token, set()).add(name)
    server.faults = [HubFault(**json.loads(text)) for text in arguments.fault]
    with server:
        print(f"HF_ENDPOINT={server.url}", flush=True)
        stopped.wait()


main()
