# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the test server: python -m tests.support.paperspace_server --port 0 --machines 4. Ctrl-C or SIGTERM stops it."""

from __future__ import annotations

import argparse
import json
import signal
import threading
from pathlib import Path

from .account import HostAddresses, PaperspaceAccount
from .document import DOCUMENT
from .faults import PaperspaceFault
from .objects import machine
from .server import PaperspaceServer


def main() -> None:
    """Serve until a signal arrives."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.paperspace_server", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 (the default) selects a free one")
    parser.add_argument("--key", default="test-key", help="the accepted API key (default: test-key)")
    parser.add_argument("--machines", type=int, default=2, help="number of machines in the account (default: 2)")
    parser.add_argument(
        "--machines-file",
        type=Path,
        help='instead: a JSON list of machines with the fields to change, such as [{"name": "a", "publicIp": "..."}]',
    )
    parser.add_argument(
        "--hosts-file",
        type=Path,
        help='test hosts that back new machines: a JSON list such as [{"private": "10.0.0.2", "public": "10.0.0.2"}]',
    )
    parser.add_argument("--typing", choices=["documented", "observed"], default="documented")
    parser.add_argument("--certificate", type=Path, help="PEM file; enables TLS")
    parser.add_argument("--private-key", type=Path, help="PEM file")
    parser.add_argument(
        "--fault", action="append", default=[], help='JSON, such as {"path": "/machines", "status": 503, "times": 2}'
    )
    arguments = parser.parse_args()
    changes = json.loads(arguments.machines_file.read_text()) if arguments.machines_file else [{}] * arguments.machines
    hosts = (
        [HostAddresses(**host) for host in json.loads(arguments.hosts_file.read_text())]
        if arguments.hosts_file
        else None
    )
    server = PaperspaceServer(
        PaperspaceAccount([machine(number, **change) for number, change in enumerate(changes)], hosts=hosts),
        key=arguments.key,
        typing=arguments.typing,
        port=arguments.port,
        certificate=arguments.certificate,
        private_key=arguments.private_key,
    )
    server.faults = [PaperspaceFault(**json.loads(text)) for text in arguments.fault]
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    with server:
        print(f"PAPERSPACE_API_URL={server.url} PAPERSPACE_API_KEY={server.key}", flush=True)
        if server.document is None:
            print(
                f"Requests are not validated: {DOCUMENT.name}, the API document, is missing",
                flush=True,
            )
        stopped.wait()


main()
