# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Requests between the nodes of a transfer, over HTTP on node_address.

Each request and each reply proves that its sender holds the token of this transfer, without showing it; a reply without
a valid proof is discarded unread.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import http.server
import json
import os
import re
import socket
import threading
import time
from typing import Any, BinaryIO, Callable, Iterator, NamedTuple

from ansible_collections.muster.training.plugins.module_utils._detached.result_line import StepError, print_line
from ansible_collections.muster.training.plugins.module_utils._files.content import CHUNK

PEER_START_TIMEOUT = 60.0  # seconds that a peer may need to start, since nodes start at different times
LONG_POLL = 5.0  # seconds for which a peer waits for a piece before it replies
MAX_REPLY = 512 * 2**20  # maximum number of bytes of a reply that is kept in memory, such as the list of files
MAX_CONTENT = 2**40  # maximum number of bytes of a reply that is written to a file
UNVERIFIED_TIMEOUT = 30.0  # seconds of silence allowed before the other side is verified as a peer


def compute_proof(token: str, *fields: str | int) -> str:
    """Return an HMAC which proves that the sender holds the token, bound to these fields."""
    return hmac.new(token.encode(), json.dumps(fields).encode(), hashlib.sha256).hexdigest()


def is_same_proof(received: str | None, expected: str) -> bool:
    """Compare a proof with the expected one in constant time."""
    return hmac.compare_digest((received or "").encode("utf-8", "replace"), expected.encode())


def shut_down(connection: http.client.HTTPConnection) -> None:
    """Shut down a connection that another thread is waiting on."""
    with contextlib.suppress(OSError, AttributeError):  # already closed
        connection.sock.shutdown(socket.SHUT_RDWR)


def read_chunks(response: http.client.HTTPResponse, length: int) -> Iterator[memoryview]:
    """Yield the body of a response in chunks that reuse the same memory. Raise IncompleteRead if it is cut off."""
    memory = memoryview(bytearray(CHUNK))
    while length:
        size = response.readinto(memory[:length])
        if not size:
            raise http.client.IncompleteRead(b"", length)
        yield memory[:size]
        length -= size


class PeerReply(NamedTuple):
    """A reply to a peer: a few bytes, or a piece of an open file, which is closed afterwards.

    Attributes:
        status: HTTP status. 404: not available yet; 410: never available, since this node has failed.
        start, length: The range of the piece, in bytes.
        digest: The SHA-256 of the content, in hex.
    """

    status: int
    body: bytes = b""
    file: BinaryIO | None = None
    start: int = 0
    length: int = 0
    digest: str = ""


class Peers:
    """One node's view of the nodes of a transfer.

    Args:
        request: `me` (this node's number), `addresses`, `port` and `token` are used.
        fallback: the replacement for an unavailable peer, for the log.
    """

    def __init__(self, request: dict[str, Any], fallback: str) -> None:
        self.rank: int = request["me"]
        self.nodes: list[str] = request["addresses"]
        self.port: int = request["port"]
        self.port_variable: str = request.get("port_variable", "stage_data_port")
        self.token: str = request["token"]
        self.fallback = fallback
        self.other_nodes = [number for number in range(len(self.nodes)) if number != self.rank]
        self.unavailable = {number: False for number in range(len(self.nodes))}
        self.last_seen: dict[int, float] = {}  # monotonic time at which each peer was last verified to be a peer
        self.started = time.monotonic()
        self.used_nonces: set[str] = set()  # nonces of accepted requests
        self.lock = threading.Lock()

    def query(self, peer: int, path: str) -> bytes | None:
        """Return a peer's short reply, or None if it has none yet."""
        body = bytearray()
        return bytes(body) if self.receive(peer, path, body.extend, MAX_REPLY) else None

    def receive(self, peer: int, path: str, take: Callable[[memoryview], object], limit: int = MAX_CONTENT) -> str:
        """Pass on a peer's reply as it arrives, and return its SHA-256, or "" if there is none yet.

        A peer that has failed or cannot be verified is marked as unavailable.

        Args:
            take: Gets each chunk, in memory that is reused. If "" is returned, discard all its chunks: the connection
                broke, or the content was altered.
            limit: Bytes beyond which a reply is refused.
        """
        nonce = os.urandom(16).hex()
        request_fields = (peer, self.rank, path, nonce)
        headers = {
            "Muster-Node": str(self.rank),
            "Muster-Nonce": nonce,
            "Muster-Proof": compute_proof(self.token, "request", *request_fields),
        }
        timeout = LONG_POLL + UNVERIFIED_TIMEOUT
        connection = http.client.HTTPConnection(self.nodes[peer], self.port, timeout=timeout)
        # An unverified server could send data indefinitely, a little at a time, so limit the total time until the proof
        # arrives.
        timer = threading.Timer(timeout, shut_down, [connection])
        timer.daemon = True
        try:
            connection.connect()
            timer.start()
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            length, digest = response.getheader("Content-Length", ""), response.getheader("Muster-Digest", "")
            expected = compute_proof(self.token, "answer", *request_fields, response.status, length, digest)
            if not is_same_proof(response.getheader("Muster-Proof"), expected):
                self.reject(peer, "the server at this address does not have this transfer's token")
                return ""
            timer.cancel()
            self.last_seen[peer] = time.monotonic()
            if response.status == 410:  # the peer has failed
                self.unavailable[peer] = True
            if response.status != 200:
                return ""
            if not re.match(r"[0-9]{1,15}\Z", length) or int(length) > limit:
                self.reject(peer, f"the reply to {path} has the length {length[:20]!r}; at most {limit} is allowed")
                return ""
            received_hash = hashlib.sha256()
            for chunk in read_chunks(response, int(length)):
                received_hash.update(chunk)
                take(chunk)
        except (OSError, http.client.HTTPException):
            timeout = 10.0 if peer in self.last_seen else PEER_START_TIMEOUT
            if time.monotonic() - self.last_seen.get(peer, self.started) > timeout:
                self.unavailable[peer] = True
            else:
                time.sleep(0.5)
            return ""
        finally:
            timer.cancel()
            connection.close()
        if received_hash.hexdigest() != digest:
            self.reject(peer, f"the content of {path} was altered in transit or on that node's disk")
            return ""
        return digest

    def reject(self, peer: int, reason: str) -> None:
        """Mark a peer whose reply cannot be trusted as unavailable, and log it."""
        self.unavailable[peer] = True
        message = (
            f"{self.nodes[peer]} port {self.port}: {reason}. The reply was discarded; using {self.fallback} instead"
        )
        print_line(message)

    def verify_request(self, path: str, node: str, nonce: str, received_proof: str | None) -> bool:
        """Return whether a request is from a node that holds the token, and not a replay."""
        if node not in map(str, range(len(self.nodes))):
            return False
        if not is_same_proof(received_proof, compute_proof(self.token, "request", self.rank, int(node), path, nonce)):
            return False
        with self.lock:
            if nonce in self.used_nonces:
                return False
            self.used_nonces.add(nonce)
        self.last_seen[int(node)] = time.monotonic()
        return True

    def serve(self, handle: Callable[[str], PeerReply]) -> http.server.ThreadingHTTPServer:
        """Serve peers, only on this node's address. Raise StepError if the port is in use.

        Args:
            handle: Returns the reply for a path.
        """
        peers = self

        class PeerHandler(http.server.BaseHTTPRequestHandler):
            timeout = UNVERIFIED_TIMEOUT

            def do_GET(self) -> None:
                node, nonce = self.headers.get("Muster-Node", ""), self.headers.get("Muster-Nonce", "")
                if not peers.verify_request(self.path, node, nonce, self.headers.get("Muster-Proof")):
                    self.send_response(401)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                self.connection.settimeout(None)  # a peer may be slow to receive a piece
                reply = handle(self.path)
                with reply.file or contextlib.nullcontext():
                    length = str(reply.length or len(reply.body))
                    digest = reply.digest or hashlib.sha256(reply.body).hexdigest()
                    proof_fields = ("answer", peers.rank, int(node), self.path, nonce, reply.status, length, digest)
                    self.send_response(reply.status)
                    self.send_header("Content-Length", length)
                    self.send_header("Muster-Digest", digest)
                    self.send_header("Muster-Proof", compute_proof(peers.token, *proof_fields))
                    self.end_headers()
                    if reply.file:
                        self.connection.sendfile(reply.file, reply.start, reply.length)
                    else:
                        self.wfile.write(reply.body)

            def log_message(self, *_arguments: Any) -> None:
                """Log nothing."""

        address = self.nodes[self.rank]

        class PeerServer(http.server.ThreadingHTTPServer):
            address_family = socket.AF_INET6 if ":" in address else socket.AF_INET

        try:
            server = PeerServer((address, self.port), PeerHandler)
        except OSError as error:
            raise StepError(
                f"cannot listen on {address} port {self.port}: {error.strerror}. Choose another {self.port_variable}"
            ) from None
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server
