# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask NCCL which ranks have not launched the operation that the others are waiting for.

Since 2.24, one NCCL process of each node answers on a port of the loopback interface (RAS). It knows all ranks of the
job. Any process of the node can listen there, so the reply is bounded and trusted as little as a log.
"""

from __future__ import annotations

import re
import socket
import time

from ansible_collections.muster.training.plugins.module_utils._run.timeouts import RAS_TIMEOUT

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Mapping

ADDRESS = "NCCL_RAS_ADDR"  # variable with which a job changes the port: HOST:PORT
DEFAULT_PORT = 28028
LOCAL = ("localhost", "127.0.0.1", "[::1]")
LOOPBACK = ("127.0.0.1", "::1")  # the second address is for nodes whose network is IPv6
MAX_REPLY = 262_144  # bytes
MAX_DIFFERENCES = 3  # number of differences shown in a message
MAX_COUNTS = 4  # number of counts of a single operation shown in a message
# each with the beginning of its reply
REQUESTS = ((b"CLIENT PROTOCOL 2\n", b"SERVER PROTOCOL"), (b"TIMEOUT 1\n", b"OK"))

# As in src/ras/client_support.cc; up to 2.26, the operation was just "collective". Numbers of at most 9 or 18 digits.
COMMUNICATOR = re.compile(r"#(?P<name>[0-9]{1,9}-[0-9]{1,9}) \([0-9a-f]{1,16}\) (?P<kind>MISMATCH|INCOMPLETE|ERROR)\s*")
DIFFERENT = re.compile(r"  Communicator ranks have different (?P<operation>\w{1,40}) operation counts\s*")
LAUNCHED = r"(?:launched up to operation (?P<count>[0-9]{1,18})|not launched any operation)"
MANY = re.compile(rf"  (?P<number>[0-9]{{1,9}}) ranks have {LAUNCHED}")
SINGLE = re.compile(rf"  Rank (?P<rank>[0-9]{{1,9}}) has {LAUNCHED}")
MISSING = re.compile(r"  Missing communicator data from (?P<number>[0-9]{1,9}) (?P<what>job process|rank)")


def port_of(environment: Mapping[str, str]) -> int:
    """Return the port on which a job's NCCL responds, or 0 if it is not on this node."""
    host, _colon, port = environment.get(ADDRESS, f"localhost:{DEFAULT_PORT}").rpartition(":")
    is_number = port.isascii() and port.isdecimal() and len(port) < 6
    return int(port) if host in LOCAL and is_number else 0


def read_status(port: int, timeout: float = RAS_TIMEOUT) -> str:
    """Return as much of NCCL's job status as arrives in time, or "" if NCCL does not respond."""
    deadline = time.monotonic() + timeout
    return next(filter(None, (read_status_at(address, port, deadline) for address in LOOPBACK)), "")


def read_status_at(address: str, port: int, deadline: float) -> str:
    """Return the result of read_status() from this address."""
    try:
        with socket.create_connection((address, port), deadline - time.monotonic()) as connection:
            for request, expected in REQUESTS:
                connection.sendall(request)
                if not receive(connection, deadline, b"\n").startswith(expected):
                    return ""
            connection.sendall(b"STATUS\n")
            return receive(connection, deadline).decode("utf-8", "replace")
    except (OSError, OverflowError, ValueError):
        return ""


def receive(connection: socket.socket, deadline: float, end: bytes = b"") -> bytes:
    """Return the data received before a text, the end of the stream, MAX_REPLY bytes, or a monotonic time."""
    reply = b""
    while len(reply) < MAX_REPLY and not (end and end in reply):
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            break
        connection.settimeout(remaining)
        try:
            chunk = connection.recv(65536)
        except socket.timeout:
            break
        if not chunk:
            break
        reply += chunk
    return reply[:MAX_REPLY]


def format_launched_counts(match: re.Match[str], subject: str) -> str:
    """Return how many operations ranks have launched."""
    return f"{subject} launched {'up to operation ' + match['count'] if match['count'] else 'none'}"


class Differences:
    """The operations that ranks have launched a different number of times, from the lines of a status."""

    def __init__(self) -> None:
        self.communicator = ""
        self.operations: list[tuple[str, list[str]]] = []  # each operation, and what each rank has launched
        self.missing: list[str] = []

    def take(self, line: str) -> None:
        """Take the next line of a status."""
        header, different, missing = COMMUNICATOR.fullmatch(line), DIFFERENT.fullmatch(line), MISSING.match(line)
        if header:
            self.communicator = header["name"]
        elif different:
            name = "operations" if different["operation"] == "collective" else different["operation"]
            self.operations.append((f"{name} of communicator {self.communicator}", []))
        elif missing:
            plural = "" if missing["number"] == "1" else "es" if missing["what"] == "job process" else "s"
            self.missing.append(f"no reply from {missing['number']} {missing['what']}{plural}")
        elif self.operations:
            self.take_count(line)

    def take_count(self, line: str) -> None:
        """Take a line that says how many operations some ranks have launched."""
        many, single = MANY.match(line), SINGLE.match(line)
        if many:
            self.operations[-1][1].append(format_launched_counts(many, f"{many['number']} ranks"))
        elif single:
            self.operations[-1][1].append(format_launched_counts(single, f"rank {single['rank']}"))


def differences(status: str) -> list[str]:
    """Return a text for each operation in which the ranks of a job differ."""
    result = Differences()
    for line in status.splitlines():
        result.take(line)
    texts = [f"{name}: {', '.join(counts[:MAX_COUNTS])}" for name, counts in result.operations if counts]
    return [*texts, *result.missing][:MAX_DIFFERENCES]


def describe_nccl(environment: Mapping[str, str]) -> str:
    """Return NCCL's information about a hanging run, as a continuation of its description, or "" if there is none."""
    port = port_of(environment)
    lines = differences(read_status(port)) if port else []
    return f"; NCCL: {'; '.join(lines)}" if lines else ""
