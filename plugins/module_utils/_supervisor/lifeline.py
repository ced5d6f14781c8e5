# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run's lifeline: one TCP connection from each supervisor to rank 0's supervisor.

It speaks JSON, one object per line, at most 64 KiB. After the greeting, which is the first three lines, each line is
preceded by "MAC ": the HMAC, with a key derived from the token and both nonces, of the sender, the line's number and
the line. So no third party can add, replace, reorder or repeat a line.
  server: {"nonce"}  peer: {"node_rank", "nonce", "mac"}  server: {"mac"}
  peer:   {"type": "beat", "quiet"} | {"type": "ready", "launcher_log"} | {"type": "running"}
  peer:   {"type": "report", "report"} | {"type": "stop", "reason"}
  peer:   {"type": "failing", "text"} before the report, if it takes time to end the remaining processes on this node
  peer:   {"type": "mount", "text"} if a mount has died during the run or come back
  peer:   {"type": "logs", "text"} if its logs were shortened
  peer:   {"type": "debugger", "text"} if one of its ranks waits for a debugger, or is attached to one
  peer:   {"type": "metrics", "text"} if it cannot write its metrics for node_exporter
  peer:   {"type": "notice", "source", "text", "ends", "seconds"} if all ranks of the run must save
  peer:   {"type": "saving", "text"} once its ranks have received a notice, or have saved
  peer:   {"type": "gpus", "text"} if nvidia-smi no longer finds all GPUs healthy, or does again
  peer:   {"type": "stacks", "groups"}, the reply to "collect"
  peer:   {"type": "prepared", "reply"}, the reply to "prepare"
  server: {"type": "member", "node_rank", "name", "address", "generation"} if a node was replaced; peers return it
  server: {"type": "prepare", "request"} before another attempt: check the node, offer or copy a checkpoint
  server: {"type": "collect"} to ask for the stacks of a run that may hang
  server: {"type": "beat"} | {"type": "go"} | {"type": "stop", "reason"} | {"type": "end", "state", "message"}
  server: {"type": "save", "number", "notice"} if the ranks must save
  server: {"type": "attempt", "number", "members", "hub", ...} before another attempt
  server: {"type": "state", ...} | {"type": "record", "record"} | {"type": "event", "event"}: see replica.py
  server: {"type": "handover", "reason"} if its node leaves a run that continues: another node must lead it
  server: {"type": "start", "command"} if rank 0's launcher starts the processes on the other nodes, as mpirun does
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import selectors
import socket

from ansible_collections.muster.training.plugins.module_utils._files.bounded import parse_json

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Container

    from ansible_collections.muster.training.plugins.module_utils._run.documents import Data

MAX_LINE = 65536
MAX_BACKLOG = 262144  # bytes of unread output beyond which a connection is dropped


def handshake_mac(token: str, side: str, run_id: str, node_rank: int, server_nonce: str, peer_nonce: str) -> str:  # noqa: PLR0913
    """Return the hex HMAC-SHA256 with which one side proves that it holds the run's token."""
    text = "|".join((side, run_id, str(node_rank), server_nonce, peer_nonce))
    # an unauthenticated nonce may hold half a surrogate pair, which JSON can encode and UTF-8 cannot
    return hmac.new(token.encode(), text.encode("utf-8", "backslashreplace"), hashlib.sha256).hexdigest()


def line_mac(key: bytes, side: str, number: int, line: bytes) -> bytes:
    """Return the hex HMAC-SHA256 of one line of a lifeline; number: how many lines its side sent before it."""
    return hmac.digest(key, f"{side}|{number}|".encode() + line, "sha256").hex().encode()


def authenticate_rank(
    connection: LifelineConnection, message: Data, token: str, run_id: str, ranks: Container[int]
) -> int | None:
    """Return the node_rank of a peer whose message proves that it holds the token, or None if it does not.

    ranks: those that a peer may have.
    """
    rank, nonce, mac = message.get("node_rank"), message.get("nonce"), message.get("mac")
    if not isinstance(rank, int) or isinstance(rank, bool) or rank not in ranks:
        return None
    if not isinstance(nonce, str) or not isinstance(mac, str):
        return None
    expected = handshake_mac(token, "peer", run_id, rank, connection.nonce, nonce).encode()
    return rank if hmac.compare_digest(mac.encode("utf-8", "replace"), expected) else None


class LifelineConnection:
    """A connection between two supervisors, which exchanges lines through bounded buffers.

    Until it is opened with a key, the other side is not trusted, and lines are read one at a time: the next may already
    have a MAC.
    """

    def __init__(self, sock: socket.socket, now: float) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.inbox = b""
        self.outbox = b""
        self.events = selectors.EVENT_READ  # events that the supervisor's selector waits for
        self.opened = now
        self.last_heard = now
        self.nonce = os.urandom(16).hex()
        self.node_rank: int | None = None  # set once the other side has proved that it has the token
        self.stage = "nonce"  # stage of a peer's connection to rank 0: nonce | mac | open
        self.expected = ""  # the proof that rank 0 must send
        self.lines_key = ""  # the key for subsequent lines
        self.key: bytes | None = None
        self.side, self.other_side = "", ""
        self.sent = self.received = 0  # number of lines with a MAC
        self.closed = False

    def open(self, node_rank: int, key: str) -> None:
        """Trust the other side from now on; key: a MAC that only both sides can compute."""
        self.node_rank, self.key = node_rank, key.encode()
        self.side, self.other_side = ("server", "peer") if node_rank else ("peer", "server")

    def send(self, message: Data) -> None:
        line = json.dumps(message).encode()
        if self.key is not None:
            line = line_mac(self.key, self.side, self.sent, line) + b" " + line
            self.sent += 1
        self.outbox += line + b"\n"
        if len(self.outbox) > MAX_BACKLOG:
            self.closed = True
        else:
            self.flush()

    def flush(self) -> None:
        while self.outbox and not self.closed:
            try:
                sent = self.sock.send(self.outbox)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                self.closed = True
                return
            self.outbox = self.outbox[sent:]

    def receive(self) -> list[Data]:
        """Return the messages that have arrived; any other data closes the connection."""
        messages = self.lines()
        while not self.closed and not (messages and self.node_rank is None):
            try:
                data = self.sock.recv(MAX_LINE)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                self.closed = True
                break
            if not data:
                self.closed = True
                break
            self.inbox += data
            messages += self.lines()
            if self.node_rank is None:  # read only one chunk before authentication
                break
        return messages

    def lines(self) -> list[Data]:
        """Return the messages in the inbox; only the first before authentication."""
        messages: list[Data] = []
        while b"\n" in self.inbox and not self.closed and not (messages and self.node_rank is None):
            line, self.inbox = self.inbox.split(b"\n", 1)
            try:
                message = parse_json(self.verify_line(line).decode("utf-8"))
            except ValueError:
                message = None
            if isinstance(message, dict):
                messages.append(message)
            else:
                self.closed = True
        if len(self.inbox) > MAX_LINE and b"\n" not in self.inbox[: MAX_LINE + 1]:
            self.closed = True
        return messages

    def verify_line(self, line: bytes) -> bytes:
        """Return the content of a line. Raise ValueError if its MAC is not that of the other side's next line."""
        if self.key is None:
            return line
        mac, _blank, content = line.partition(b" ")
        if not hmac.compare_digest(mac, line_mac(self.key, self.other_side, self.received, content)):
            raise ValueError("wrong MAC: the line is forged or replayed")
        self.received += 1
        return content
