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

from transfer import CHUNK, Fault

PEER_PATIENCE = 60.0  # seconds of initial silence allowed to a peer, which may start later than this node
LONG_POLL = 5.0  # seconds that a peer waits for a piece before it answers
STRANGER_PATIENCE = 30.0  # seconds of silence allowed before a connection has proved to be a peer's


def proof(token: str, *words: str | int) -> str:
    """A proof that its sender holds the token, bound to these words."""
    return hmac.new(token.encode(), json.dumps(words).encode(), hashlib.sha256).hexdigest()


def same_proof(given: str | None, expected: str) -> bool:
    """Compare a proof with the expected one in constant time."""
    return hmac.compare_digest((given or "").encode("utf-8", "replace"), expected.encode())


def end(connection: http.client.HTTPConnection) -> None:
    """End a connection on which another thread waits."""
    with contextlib.suppress(OSError, AttributeError):  # already closed
        connection.sock.shutdown(socket.SHUT_RDWR)


def chunks_of(answer: http.client.HTTPResponse, length: int) -> Iterator[memoryview]:
    """The body of an answer in chunks that reuse the same memory. Raises IncompleteRead if it is cut off."""
    memory = memoryview(bytearray(CHUNK))
    while length:
        size = answer.readinto(memory[:length])
        if not size:
            raise http.client.IncompleteRead(b"", length)
        yield memory[:size]
        length -= size


class Answer(NamedTuple):
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

    def __init__(self, request: dict[str, Any], instead: str) -> None:
        self.me: int = request["me"]
        self.nodes: list[str] = request["addresses"]
        self.port: int = request["port"]
        self.port_variable: str = request.get("port_variable", "stage_data_port")
        self.token: str = request["token"]
        self.instead = instead
        self.others = [number for number in range(len(self.nodes)) if number != self.me]
        self.gone = {number: False for number in range(len(self.nodes))}
        self.heard: dict[int, float] = {}  # when each peer last proved itself, by the monotonic clock
        self.began = time.monotonic()
        self.used: set[str] = set()  # nonces of answered requests
        self.lock = threading.Lock()

    def ask(self, peer: int, path: str) -> bytes | None:
        """A peer's short answer, held in memory; None if it has none yet."""
        body = bytearray()
        return bytes(body) if self.receive(peer, path, body.extend) else None

    def receive(self, peer: int, path: str, take: Callable[[memoryview], object]) -> str:
        """Pass on a peer's answer as it arrives, and return its SHA-256; "" if there is none yet.

        take: gets each chunk, in memory that is reused. If "" is returned, all its chunks must be discarded: the
        connection broke, or the content was altered. Notes a peer that is gone, or fails to prove itself.
        """
        nonce = os.urandom(16).hex()
        asked = (peer, self.me, path, nonce)
        headers = {
            "Muster-Node": str(self.me),
            "Muster-Nonce": nonce,
            "Muster-Proof": proof(self.token, "request", *asked),
        }
        patience = LONG_POLL + STRANGER_PATIENCE
        connection = http.client.HTTPConnection(self.nodes[peer], self.port, timeout=patience)
        # A stranger could trickle data forever, so limit the total time until there is a proof.
        strangers_end = threading.Timer(patience, end, [connection])
        strangers_end.daemon = True
        try:
            connection.connect()
            strangers_end.start()
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            length, digest = answer.getheader("Content-Length", ""), answer.getheader("Muster-Digest", "")
            expected = proof(self.token, "answer", *asked, answer.status, length, digest)
            if not same_proof(answer.getheader("Muster-Proof"), expected):
                self.discard(peer, "whoever answers does not have the token of this call")
                return ""
            strangers_end.cancel()
            self.heard[peer] = time.monotonic()
            if answer.status == 410:  # it has failed
                self.gone[peer] = True
            if answer.status != 200:
                return ""
            came = hashlib.sha256()
            for chunk in chunks_of(answer, int(length)):
                came.update(chunk)
                take(chunk)
        except (OSError, http.client.HTTPException):
            patience = 10.0 if peer in self.heard else PEER_PATIENCE
            if time.monotonic() - self.heard.get(peer, self.began) > patience:
                self.gone[peer] = True
            else:
                time.sleep(0.5)
            return ""
        finally:
            strangers_end.cancel()
            connection.close()
        if came.hexdigest() != digest:
            self.discard(peer, f"the content of {path} was changed on the way, or on that node's disk")
            return ""
        return digest

    def discard(self, peer: int, why: str) -> None:
        """Drop a peer whose answer cannot be trusted, and log it."""
        self.gone[peer] = True
        said = f"{self.nodes[peer]} port {self.port}: {why}. Its answer was discarded; {self.instead} is asked instead"
        print(said, flush=True)

    def is_from_peer(self, path: str, node: str, nonce: str, given: str | None) -> bool:
        """Whether a request is from a node that holds the token, and not a replay."""
        if node not in map(str, range(len(self.nodes))):
            return False
        if not same_proof(given, proof(self.token, "request", self.me, int(node), path, nonce)):
            return False
        with self.lock:
            if nonce in self.used:
                return False
            self.used.add(nonce)
        self.heard[int(node)] = time.monotonic()
        return True

    def serve(self, answer: Callable[[str], Answer]) -> http.server.ThreadingHTTPServer:
        """Answer peers, only on this node's address. Raises Fault if the port is taken.

        answer: returns the answer for a path.
        """
        ours = self

        class Handler(http.server.BaseHTTPRequestHandler):
            timeout = STRANGER_PATIENCE

            def do_GET(self) -> None:
                node, nonce = self.headers.get("Muster-Node", ""), self.headers.get("Muster-Nonce", "")
                if not ours.is_from_peer(self.path, node, nonce, self.headers.get("Muster-Proof")):
                    self.send_response(401)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                self.connection.settimeout(None)  # a peer may be slow to receive a piece
                told = answer(self.path)
                with told.file or contextlib.nullcontext():
                    length = str(told.length or len(told.body))
                    digest = told.digest or hashlib.sha256(told.body).hexdigest()
                    words = ("answer", ours.me, int(node), self.path, nonce, told.status, length, digest)
                    self.send_response(told.status)
                    self.send_header("Content-Length", length)
                    self.send_header("Muster-Digest", digest)
                    self.send_header("Muster-Proof", proof(ours.token, *words))
                    self.end_headers()
                    if told.file:
                        self.connection.sendfile(told.file, told.start, told.length)
                    else:
                        self.wfile.write(told.body)

            def log_message(self, *_words: Any) -> None:
                """Log nothing: nobody would read it."""

        address = self.nodes[self.me]
        try:
            server = http.server.ThreadingHTTPServer((address, self.port), Handler)
        except OSError as error:
            raise Fault(
                f"cannot listen on {address} port {self.port}: {error.strerror}. Choose another {self.port_variable}"
            ) from None
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server
