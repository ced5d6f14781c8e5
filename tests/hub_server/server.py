# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A hub of models and data sets over real HTTP, with its storage on a port of its own, and faults on demand."""

from __future__ import annotations

import hashlib
import http.server
import json
import re
import socket
import struct
import sys
import threading
import urllib.parse
from typing import Any, NamedTuple

from .faults import Fault
from .repository import File, Kind, Repository

TREE_PAGE = 50
API = re.compile(r"/api/(models|datasets)/([^/]+/[^/]+)(?:/(revision|tree)/([^/]+)(/.*)?)?")
RESOLVE = re.compile(r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)")


class Asked(NamedTuple):
    """A request that came."""

    method: str
    path: str
    token: str


class Answer(NamedTuple):
    """What is sent."""

    status: int
    headers: dict[str, str]
    body: bytes


class Refused(Exception):
    """A request that the hub refuses: status, X-Error-Code, X-Error-Message."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


class HubServer:
    """The hub as a context manager: it listens on an address of this machine while it is entered.

    tokens: what is taken, with the names of the gated repositories that its account may read.
    faults: the first that applies to a request hits it; storage_faults: to one of the storage.
    requests, storage_requests: what came, in order. ranges: the headers Range of them.
    problems: what a client must not do, and defects here; they fail the test when the server is left.
    """

    def __init__(self, address: str = "127.0.0.1", *, port: int = 0) -> None:
        self.address = address
        self.repositories: dict[tuple[Kind, str], Repository] = {}
        self.tokens: dict[str, set[str]] = {}
        self.faults: list[Fault] = []
        self.storage_faults: list[Fault] = []
        self.requests: list[Asked] = []
        self.storage_requests: list[Asked] = []
        self.ranges: list[str] = []
        self.problems: list[str] = []
        self.stopping = threading.Event()
        self.lock = threading.Lock()
        self._hub = _Server((address, port), type("Hub", (_Handler,), {"owner": self, "storage": False}))
        self._storage = _Server((address, 0), type("Storage", (_Handler,), {"owner": self, "storage": True}))
        self._threads = [
            threading.Thread(target=one.serve_forever, kwargs={"poll_interval": 0.05})
            for one in (self._hub, self._storage)
        ]

    @property
    def url(self) -> str:
        """What HF_ENDPOINT must say."""
        return f"http://{self.address}:{self._hub.server_address[1]}"

    def __enter__(self) -> HubServer:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.stopping.set()
        for server, thread in zip((self._hub, self._storage), self._threads, strict=True):
            server.shutdown()
            thread.join()
            server.server_close()
        if kind is None and self.problems:
            raise AssertionError("; ".join(self.problems))

    def add(self, kind: Kind, name: str, files: dict[str, bytes], *, gated: bool = False) -> Repository:
        """A repository with one commit on main."""
        made = self.repositories[kind, name] = Repository(kind, name, gated)
        made.commit(files)
        return made

    # - what is answered

    def answer(self, asked: Asked, query: dict[str, str]) -> Answer:
        """The hub's answer."""
        path = asked.path
        try:
            if asked.token and asked.token not in self.tokens:
                raise Refused(401, "", "Invalid credentials in Authorization header")
            if path == "/api/whoami-v2":
                if not asked.token:
                    raise Refused(401, "", "Invalid username or password.")
                return _json({"type": "user", "name": "somebody", "auth": {"type": "access_token"}})
            if found := API.fullmatch(path):
                kind: Kind = "model" if found[1] == "models" else "dataset"
                return self.api(self.repository(kind, found[2], asked), found[3], found[4] or "main", asked, query)
            if found := RESOLVE.fullmatch(path):
                kind = "dataset" if found[1] else "model"
                return self.resolve(self.repository(kind, found[2], asked), found[3], found[4], asked)
            raise Refused(404, "", "Sorry, we can't find the page you are looking for.")
        except Refused as refused:
            headers = {"X-Error-Message": refused.message, **({"X-Error-Code": refused.code} if refused.code else {})}
            return _json({"error": refused.message}, refused.status, headers)

    def repository(self, kind: Kind, name: str, asked: Asked) -> Repository:
        """What is named. Who shows no token learns of a missing one no more than of a private one."""
        found = self.repositories.get((kind, name))
        if found and (asked.token or not found.private):
            return found
        if asked.token:
            raise Refused(404, "RepoNotFound", "Repository not found")
        raise Refused(401, "RepoNotFound", "Invalid username or password.")

    def commit_of(self, repository: Repository, revision: str) -> str:
        """The commit that is meant."""
        found = repository.resolve(urllib.parse.unquote(revision))
        if not found:
            raise Refused(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return found

    def api(self, repository: Repository, verb: str, revision: str, asked: Asked, query: dict[str, str]) -> Answer:
        """What is known of a commit."""
        commit = self.commit_of(repository, revision)
        files = repository.commits[commit]
        if verb == "tree":
            start = int(query.get("cursor", "0"))
            page = list(files.items())[start : start + TREE_PAGE]
            more = {}
            if start + TREE_PAGE < len(files):
                words = urllib.parse.urlencode({**query, "cursor": start + TREE_PAGE})
                more["Link"] = f'<{self.url}{asked.path}?{words}>; rel="next"'
            return _json([_in_tree(path, one) for path, one in page], headers=more)
        blobs = query.get("blobs", "").lower() == "true"
        return _json(
            {
                "_id": commit[:24],
                "id": repository.name,
                "author": repository.name.split("/")[0],
                "sha": commit,
                "private": repository.private,
                "gated": "auto" if repository.gated else False,
                "disabled": False,
                "tags": [],
                "downloads": 0,
                "likes": 0,
                "siblings": [_sibling(path, one) if blobs else {"rfilename": path} for path, one in files.items()],
            }
        )

    def resolve(self, repository: Repository, revision: str, path: str, asked: Asked) -> Answer:
        """A file, or where it is."""
        if repository.gated and repository.name not in self.tokens.get(asked.token, ()):
            kind, name = repository.kind, repository.name
            if not asked.token:
                raise Refused(
                    401,
                    "GatedRepo",
                    f"Access to {kind} {name} is restricted. You must have access to it and be authenticated to "
                    "access it. Please log in.",
                )
            raise Refused(
                403,
                "GatedRepo",
                f"Access to {kind} {name} is restricted and you are not in the authorized list. "
                f"Visit https://huggingface.co/{name} to ask for access.",
            )
        commit = self.commit_of(repository, revision)
        one = repository.commits[commit].get(urllib.parse.unquote(path))
        if one is None:
            raise Refused(404, "EntryNotFound", "Entry not found")
        headers = {"X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        if not one.large:
            return Answer(200, {**headers, "ETag": f'"{one.blob}"', "Content-Type": "text/plain"}, one.body)
        host, port = self._storage.server_address[:2]
        where = f"http://{host!s}:{port}/{one.sha256}?X-Signature={_signature(one.sha256)}"
        linked = {"X-Linked-Etag": f'"{one.sha256}"', "X-Linked-Size": str(len(one.body)), "Location": where}
        return Answer(302, {**headers, **linked, "ETag": f'"{one.blob}"'}, b"Found. Redirecting")

    def stored(self, asked: Asked, query: dict[str, str]) -> Answer:
        """A content of the storage."""
        if asked.token:
            self.problems.append("a token was shown to the storage")
            return Answer(400, {}, b"<Error><Code>InvalidArgument</Code></Error>")
        sha256 = asked.path.strip("/")
        if query.get("X-Signature") != _signature(sha256):
            return Answer(403, {}, b"<Error><Code>AccessDenied</Code></Error>")
        for repository in list(self.repositories.values()):
            for commit in list(repository.commits.values()):
                for one in commit.values():
                    if one.large and one.sha256 == sha256:
                        return Answer(200, {"ETag": f'"{sha256}"', "Accept-Ranges": "bytes"}, one.body)
        return Answer(404, {}, b"<Error><Code>NoSuchKey</Code></Error>")


def _json(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Answer:
    return Answer(status, {"Content-Type": "application/json", **(headers or {})}, json.dumps(content).encode())


def _signature(sha256: str) -> str:
    """What makes an address of the storage one that the hub gave."""
    return hashlib.sha256(f"signed {sha256}".encode()).hexdigest()[:20]


def _in_tree(path: str, one: File) -> dict[str, Any]:
    told: dict[str, Any] = {"type": "file", "path": path, "oid": one.blob, "size": len(one.body)}
    if one.large:
        told["lfs"] = {"oid": one.sha256, "size": len(one.body), "pointerSize": len(one.pointer)}
    return told


def _sibling(path: str, one: File) -> dict[str, Any]:
    told: dict[str, Any] = {"rfilename": path, "blobId": one.blob, "size": len(one.body)}
    if one.large:
        told["lfs"] = {"sha256": one.sha256, "size": len(one.body), "pointerSize": len(one.pointer)}
    return told


class _Server(http.server.ThreadingHTTPServer):
    request_queue_size = 64
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is what tests are about; all else is a defect here."""
        error = sys.exc_info()[1]
        if not isinstance(error, ConnectionError):
            self.RequestHandlerClass.owner.problems.append(repr(error))  # type: ignore[attr-defined]


class _Handler(http.server.BaseHTTPRequestHandler):
    owner: HubServer
    storage: bool
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """No access log: tests read HubServer.requests."""

    def _serve(self) -> None:
        owner = self.owner
        split = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(split.query, keep_blank_values=True))
        asked = Asked(self.command, split.path, self.headers.get("Authorization", "").removeprefix("Bearer "))
        with owner.lock:
            (owner.storage_requests if self.storage else owner.requests).append(asked)
            faults = owner.storage_faults if self.storage else owner.faults
            fault = next((one for one in faults if one.applies(asked.method, asked.path)), Fault())
            if self.headers.get("Range"):
                owner.ranges.append(self.headers["Range"])
        owner.stopping.wait(fault.delay)
        answer = owner.stored(asked, query) if self.storage else owner.answer(asked, query)
        if fault.status:
            answer = Answer(fault.status, {"Content-Type": "application/json", **fault.headers}, fault.body.encode())
        if answer.status == 200:
            answer = self._ranged(answer)
        body = answer.body
        if fault.spoil and body:
            body = body[:-1] + bytes([body[-1] ^ 1])
        self.send_response(answer.status)
        for name, value in {"Content-Length": str(len(body)), **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body if fault.cut < 0 else body[: fault.cut])
        if fault.cut >= 0:
            self.close_connection = True
            if fault.reset:
                self.wfile.flush()
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()

    do_GET = do_HEAD = _serve  # noqa: N815 (the names are http.server's)

    def _ranged(self, answer: Answer) -> Answer:
        """The part that was asked for."""
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if not found:
            return answer
        size = len(answer.body)
        start, last = int(found[1]), min(int(found[2] or size - 1), size - 1)
        if start >= size:
            return Answer(416, {"Content-Range": f"bytes */{size}"}, b"")
        headers = {**answer.headers, "Content-Range": f"bytes {start}-{last}/{size}"}
        return Answer(206, headers, answer.body[start : last + 1])
