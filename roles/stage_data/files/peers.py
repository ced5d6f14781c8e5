"""The other nodes of a call of the role stage_data, over HTTP on node_address.

Each request and each answer proves that its sender holds this call's token, without showing it; an answer without the
proof is discarded unread. Standard library of Python >= 3.8.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import http.server
import json
import os
import socket
import threading
import time
from typing import Any, BinaryIO, Callable, Iterator, NamedTuple

from transfer import CHUNK, TransferError

PEER_START_TIMEOUT = 60.0  # seconds of initial silence allowed to a peer, which may start later than this node
LONG_POLL = 5.0  # seconds that a peer waits for a piece before it answers
UNVERIFIED_TIMEOUT = 30.0  # seconds of silence allowed before a connection has proved to be a peer's


def compute_proof(token: str, *fields: str | int) -> str:
    """A proof that its sender holds the token, bound to these words."""
    return hmac.new(token.encode(), json.dumps(fields).encode(), hashlib.sha256).hexdigest()


def is_same_proof(received: str | None, expected: str) -> bool:
    """Compare a proof with the expected one in constant time."""
    return hmac.compare_digest((received or "").encode("utf-8", "replace"), expected.encode())


def shut_down(connection: http.client.HTTPConnection) -> None:
    """End a connection on which another thread waits."""
    with contextlib.suppress(OSError, AttributeError):  # already closed
        connection.sock.shutdown(socket.SHUT_RDWR)


def read_chunks(response: http.client.HTTPResponse, length: int) -> Iterator[memoryview]:
    """The body of an answer in chunks that reuse the same memory. Raises IncompleteRead if it is cut off."""
    memory = memoryview(bytearray(CHUNK))
    while length:
        size = response.readinto(memory[:length])
        if not size:
            raise http.client.IncompleteRead(b"", length)
        yield memory[:size]
        length -= size


class PeerReply(NamedTuple):
    """The answer to a peer: a few bytes, or a piece of an open file, which is closed afterwards.

    status: HTTP's. 404: not yet; 410: never, this node has failed. start, length: of the piece, in bytes. digest: the
    SHA-256 of the content, in hex.
    """

    status: int
    body: bytes = b""
    file: BinaryIO | None = None
    start: int = 0
    length: int = 0
    digest: str = ""


class Peers:
    """One node's view of the nodes in a call.

    request: `me` (this node's number), `addresses`, `port` and `token` are used. instead: what replaces a peer that is
    gone, for the log.
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
        self.last_seen: dict[int, float] = {}  # when each peer last proved itself, by the monotonic clock
        self.started = time.monotonic()
        self.used_nonces: set[str] = set()  # nonces of answered requests
        self.lock = threading.Lock()

    def query(self, peer: int, path: str) -> bytes | None:
        """A peer's short answer, held in memory; None if it has none yet."""
        body = bytearray()
        return bytes(body) if self.receive(peer, path, body.extend) else None

    def receive(self, peer: int, path: str, take: Callable[[memoryview], object]) -> str:
        """Pass on a peer's answer as it arrives, and return its SHA-256; "" if there is none yet.

        take: gets each chunk, in memory that is reused. If "" is returned, all its chunks must be discarded: the
        connection broke, or the content was altered. Notes a peer that is gone, or fails to prove itself.
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
        # A stranger could trickle data forever, so limit the total time until there is a proof.
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
                self.reject(peer, "whoever answers does not have the token of this call")
                return ""
            timer.cancel()
            self.last_seen[peer] = time.monotonic()
            if response.status == 410:  # it has failed
                self.unavailable[peer] = True
            if response.status != 200:
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
            self.reject(peer, f"the content of {path} was changed on the way, or on that node's disk")
            return ""
        return digest

    def reject(self, peer: int, reason: str) -> None:
        """Drop a peer whose answer cannot be trusted, and log it."""
        self.unavailable[peer] = True
        message = (
            f"{self.nodes[peer]} port {self.port}: {reason}. Its answer was discarded; {self.fallback} is asked instead"
        )
        print(message, flush=True)

    def verify_request(self, path: str, node: str, nonce: str, received_proof: str | None) -> bool:
        """Whether a request is from a node that holds the token, and not a replay."""
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
        """Answer peers, only on this node's address. Raises Fault if the port is taken.

        answer: returns the answer for a path.
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
                """Log nothing: nobody would read it."""

        address = self.nodes[self.rank]
        try:
            server = http.server.ThreadingHTTPServer((address, self.port), PeerHandler)
        except OSError as error:
            raise TransferError(
                f"cannot listen on {address} port {self.port}: {error.strerror}. Choose another {self.port_variable}"
            ) from None
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server
