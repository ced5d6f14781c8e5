"""Fixtures: the test hosts of this scenario, clean nodes before each test, and a webhook."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab import Lab
from tests.support import drive

PORT = 8088
MESSAGES = "/root/messages"
SERVER = f"""
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        with open({MESSAGES!r}, "ab") as stream:
            stream.write(self.rfile.read(int(self.headers["Content-Length"])) + b"\\n")
        self.send_response(204)
        self.end_headers()
http.server.ThreadingHTTPServer(("", {PORT}), Handler).serve_forever()
"""


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """Yield four untouched test hosts for this scenario only: others repair defects that a run must tolerate."""
    with drive.own_lab("launch", nodes=4) as lab:
        for node in lab.nodes:
            lab.exec(node.name, ["rm", "-rf", "/home/muster/.muster"])
        yield lab


@pytest.fixture
def nodes(lab: Lab) -> Iterator[list[str]]:
    """Yield the names of the nodes, which are on, reachable and without runs before and after the test."""
    with drive.clean_nodes(lab, 4) as names:
        yield names


class Webhook:
    """A server for notifications, on a node without runs."""

    def __init__(self, lab: Lab, node: str) -> None:
        self.lab = lab
        self.node = node
        self.url = f"http://{next(host.address for host in lab.nodes if host.name == node)}:{PORT}/secret"

    def messages(self, event: str) -> list[dict[str, Any]]:
        """Return the messages about an event that have arrived."""
        text = self.lab.exec(self.node, ["cat", MESSAGES]).stdout
        return [message for message in map(json.loads, text.splitlines()) if message["event"] == event]


@pytest.fixture
def webhook(lab: Lab, nodes: list[str]) -> Iterator[Webhook]:
    """Yield a server on the last node that stores each message."""
    server = Webhook(lab, nodes[-1])
    lab.exec(server.node, ["rm", "-f", MESSAGES])
    drive.output_of(lab, server.node, "systemd-run", "--unit=webhook", "--collect", "python3", "-c", SERVER)
    probe = ["python3", "-c", f"import socket; socket.create_connection(('127.0.0.1', {PORT}), 1)"]
    drive.eventually("the server listens", lambda: lab.exec(server.node, probe).returncode == 0, 60)
    yield server
    lab.exec(server.node, ["systemctl", "stop", "webhook"])
