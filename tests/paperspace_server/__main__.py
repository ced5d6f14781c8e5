# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The test server by hand: python -m tests.paperspace_server --port 0 --machines 4. Ends at Ctrl-C or SIGTERM."""

from __future__ import annotations

import argparse
import json
import signal
import threading
from pathlib import Path

from .account import Account, Host
from .document import DOCUMENT
from .faults import Fault
from .objects import machine
from .server import PaperspaceServer


def main() -> None:
    """Serve until a signal comes."""
    parser = argparse.ArgumentParser(prog="python -m tests.paperspace_server", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 (the default) takes a free one")
    parser.add_argument("--key", default="test-key", help="the API key that is accepted (default: test-key)")
    parser.add_argument("--machines", type=int, default=2, help="how many machines the account has (default: 2)")
    parser.add_argument(
        "--machines-file",
        type=Path,
        help='instead: a JSON list of machines with the fields that differ, as [{"name": "a", "publicIp": "..."}]',
    )
    parser.add_argument(
        "--hosts-file",
        type=Path,
        help='what new machines are: a JSON list of test hosts, as [{"private": "10.0.0.2", "public": "10.0.0.2"}]',
    )
    parser.add_argument("--typing", choices=["documented", "observed"], default="documented")
    parser.add_argument("--certificate", type=Path, help="PEM file; turns TLS on")
    parser.add_argument("--private-key", type=Path, help="PEM file")
    parser.add_argument(
        "--fault", action="append", default=[], help='JSON, as {"path": "/machines", "status": 503, "times": 2}'
    )
    arguments = parser.parse_args()
    changes = json.loads(arguments.machines_file.read_text()) if arguments.machines_file else [{}] * arguments.machines
    hosts = [Host(**host) for host in json.loads(arguments.hosts_file.read_text())] if arguments.hosts_file else None
    server = PaperspaceServer(
        Account([machine(number, **change) for number, change in enumerate(changes)], hosts=hosts),
        key=arguments.key,
        typing=arguments.typing,
        port=arguments.port,
        certificate=arguments.certificate,
        private_key=arguments.private_key,
    )
    server.faults = [Fault(**json.loads(text)) for text in arguments.fault]
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    with server:
        print(f"PAPERSPACE_API_URL={server.url} PAPERSPACE_API_KEY={server.key}", flush=True)
        if server.document is None:
            print(f"Not strict: the official API document is not at {DOCUMENT.name} beside the checkout", flush=True)
        stopped.wait()


main()
