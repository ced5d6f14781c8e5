"""The other nodes of a call of the role stage_data, over HTTP on node_address.

Each request and each answer proves that its sender holds the token of this call, and never shows it; an answer without
that proof is discarded unread. Standard library of Python >= 3.8.
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

PEER_PATIENCE = 60.0  # seconds for which a peer may be silent at the beginning; it may be started later than we are
LONG_POLL = 5.0  # seconds for which a peer is asked to wait for a piece
STRANGER_PATIENCE = 30.0  # seconds for which a connection may be silent before it has proved that it is a peer's


def proof(token: str, *words: str | int) -> str:
    """What shows that its sender holds the token, and binds it to these words."""
    return hmac.new(token.encode(), json.dumps(words).encode(), hashlib.sha256).hexdigest()


def same_proof(given: str | None, expected: str) -> bool:
    """Whether a proof is the expected one, in a time that does not tell how much of it is right."""
    return hmac.compare_digest((given or "").encode("utf-8", "replace"), expected.encode())


def end(connection: http.client.HTTPConnection) -> None:
    """End a connection on which another thread waits."""
    with contextlib.suppress(OSError, AttributeError):  # it has ended by itself
        connection.sock.shutdown(socket.SHUT_RDWR)


def chunks_of(answer: http.client.HTTPResponse, length: int) -> Iterator[memoryview]:
    """The body of an answer, each chunk in the memory of the one before. Raises IncompleteRead where it is cut off."""
    memory = memoryview(bytearray(CHUNK))
    while length:
        size = answer.readinto(memory[:length])
        if not size:
            raise http.client.IncompleteRead(b"", length)
        yield memory[:size]
        length -= size


class Answer(NamedTuple):
    """What a peer is told: a few bytes, or a piece of an open file, which is closed afterwards.

    status: of HTTP. 404: not yet; 410: never, this node has failed. start, length: of the piece, in bytes. digest: the
    SHA-256 of what is sent, hexadecimal.
    """

    status: int
    body: bytes = b""
    file: BinaryIO | None = None
    start: int = 0
    length: int = 0
    digest: str = ""


class Peers:
    """The nodes of one call, as one of them sees them.

    request: its `me` (this node's number), `addresses`, `port`, `token`. instead: what is asked in place of a peer that
    is gone, for the log.
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
        self.heard: dict[int, float] = {}  # when each one has last proved itself, by the monotonic clock
        self.began = time.monotonic()
        self.used: set[str] = set()  # nonces of the requests that were answered
        self.lock = threading.Lock()

    def ask(self, peer: int, path: str) -> bytes | None:
        """A peer's answer; None where it has none yet. Of a few bytes: it is held in memory."""
        body = bytearray()
        return bytes(body) if self.receive(peer, path, body.extend) else None

    def receive(self, peer: int, path: str, take: Callable[[memoryview], object]) -> str:
        """Hand on a peer's answer as it comes, and return its SHA-256; "" where there is none yet.

        take: gets one chunk after the other, in memory that is used again. All that it got is to be forgotten where ""
        is returned: the connection broke, or the content was changed. Notes a peer that is gone, and one that proves
        nothing.
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
        # A stranger may send a little now and then for ever: until there is a proof, there is an end to the whole.
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
        """Do without a peer whose answer cannot be believed, and say so in the log."""
        self.gone[peer] = True
        said = f"{self.nodes[peer]} port {self.port}: {why}. Its answer was discarded; {self.instead} is asked instead"
        print(said, flush=True)

    def is_from_peer(self, path: str, node: str, nonce: str, given: str | None) -> bool:
        """Whether a request is of a node that holds the token, and not one that was heard before."""
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
        """Answer peers, on the address of this node alone. Raises Fault where its port is taken.

        answer: gives what is told for a path.
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
                self.connection.settimeout(None)  # a peer may be slow to take a piece
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
                """Nobody reads it."""

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
