# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A hub of models and data sets over real HTTP, with its storage on a separate port, and injected faults."""

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

from .faults import HubFault
from .repository import HubFile, HubRepository, Kind

TREE_PAGE = 50
API = re.compile(r"/api/(models|datasets)/([^/]+/[^/]+)(?:/(revision|tree)/([^/]+)(/.*)?)?")
RESOLVE = re.compile(r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)")


class HubRequest(NamedTuple):
    """A received request."""

    method: str
    path: str
    token: str


class HubResponse(NamedTuple):
    """A response to send."""

    status: int
    headers: dict[str, str]
    body: bytes


class HubRefusalError(Exception):
    """A refused request: status, X-Error-Code, X-Error-Message."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


class HubServer:
    """The hub as a context manager: it listens on an address of this machine while it is entered.

    Attributes:
        tokens: Valid tokens, with the names of the gated repositories that their accounts may read.
        faults, storage_faults: The first that applies to a request affects it.
        requests, storage_requests: Received requests, in order.
        ranges: Their Range headers.
        problems: Invalid requests and bugs of this server; they fail the test on exit.
    """

    def __init__(self, address: str = "127.0.0.1", *, port: int = 0) -> None:
        self.address = address
        self.repositories: dict[tuple[Kind, str], HubRepository] = {}
        self.tokens: dict[str, set[str]] = {}
        self.faults: list[HubFault] = []
        self.storage_faults: list[HubFault] = []
        self.requests: list[HubRequest] = []
        self.storage_requests: list[HubRequest] = []
        self.ranges: list[str] = []
        self.problems: list[str] = []
        self.stopping = threading.Event()
        self.lock = threading.Lock()
        self._hub = _HubHTTPServer((address, port), type("Hub", (_HubHandler,), {"owner": self, "storage": False}))
        self._storage = _HubHTTPServer((address, 0), type("Storage", (_HubHandler,), {"owner": self, "storage": True}))
        self._threads = [
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
            for server in (self._hub, self._storage)
        ]

    @property
    def url(self) -> str:
        """The value for HF_ENDPOINT."""
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

    def add(self, kind: Kind, name: str, files: dict[str, bytes], *, gated: bool = False) -> HubRepository:
        """Add a repository with one commit on main."""
        repository = self.repositories[kind, name] = HubRepository(kind, name, gated)
        repository.commit(files)
        return repository

    # - responses

    def respond(self, request: HubRequest, query: dict[str, str]) -> HubResponse:
        """Return the hub's response to a request."""
        path = request.path
        try:
            if request.token and request.token not in self.tokens:
                raise HubRefusalError(401, "", "Invalid credentials in Authorization header")
            if path == "/api/whoami-v2":
                if not request.token:
                    raise HubRefusalError(401, "", "Invalid username or password.")
                return _json_response({"type": "user", "name": "somebody", "auth": {"type": "access_token"}})
            if match := API.fullmatch(path):
                kind: Kind = "model" if match[1] == "models" else "dataset"
                return self.commit_response(
                    self.find_repository(kind, match[2], request), match[3], match[4] or "main", request, query
                )
            if match := RESOLVE.fullmatch(path):
                kind = "dataset" if match[1] else "model"
                return self.file_response(self.find_repository(kind, match[2], request), match[3], match[4], request)
            raise HubRefusalError(404, "", "Sorry, we can't find the page you are looking for.")
        except HubRefusalError as error:
            headers = {"X-Error-Message": error.message, **({"X-Error-Code": error.code} if error.code else {})}
            return _json_response({"error": error.message}, error.status, headers)

    def find_repository(self, kind: Kind, name: str, request: HubRequest) -> HubRepository:
        """Return a repository. Without a token, a missing one is indistinguishable from a private one."""
        match = self.repositories.get((kind, name))
        if match and (request.token or not match.private):
            return match
        if request.token:
            raise HubRefusalError(404, "RepoNotFound", "Repository not found")
        raise HubRefusalError(401, "RepoNotFound", "Invalid username or password.")

    def resolve_commit(self, repository: HubRepository, revision: str) -> str:
        """Return the commit of a revision."""
        commit = repository.resolve(urllib.parse.unquote(revision))
        if not commit:
            raise HubRefusalError(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return commit

    def commit_response(
        self, repository: HubRepository, verb: str, revision: str, request: HubRequest, query: dict[str, str]
    ) -> HubResponse:
        """Return the metadata of a commit."""
        commit = self.resolve_commit(repository, revision)
        files = repository.commits[commit]
        if verb == "tree":
            start = int(query.get("cursor", "0"))
            page = list(files.items())[start : start + TREE_PAGE]
            headers = {}
            if start + TREE_PAGE < len(files):
                next_query = urllib.parse.urlencode({**query, "cursor": start + TREE_PAGE})
                headers["Link"] = f'<{self.url}{request.path}?{next_query}>; rel="next"'
            return _json_response([_tree_entry(path, file) for path, file in page], headers=headers)
        blobs = query.get("blobs", "").lower() == "true"
        return _json_response(
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
                "siblings": [_sibling(path, file) if blobs else {"rfilename": path} for path, file in files.items()],
            }
        )

    def file_response(self, repository: HubRepository, revision: str, path: str, request: HubRequest) -> HubResponse:
        """Return a file, or its location in the storage."""
        if repository.gated and repository.name not in self.tokens.get(request.token, ()):
            kind, name = repository.kind, repository.name
            if not request.token:
                raise HubRefusalError(
                    401,
                    "GatedRepo",
                    f"Access to {kind} {name} is restricted. You must have access to it and be authenticated to "
                    "access it. Please log in.",
                )
            raise HubRefusalError(
                403,
                "GatedRepo",
                f"Access to {kind} {name} is restricted and you are not in the authorized list. "
                f"Visit https://huggingface.co/{name} to ask for access.",
            )
        commit = self.resolve_commit(repository, revision)
        file = repository.commits[commit].get(urllib.parse.unquote(path))
        if file is None:
            raise HubRefusalError(404, "EntryNotFound", "Entry not found")
        headers = {"X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        if not file.large:
            return HubResponse(200, {**headers, "ETag": f'"{file.blob}"', "Content-Type": "text/plain"}, file.body)
        host, port = self._storage.server_address[:2]
        location = f"http://{host!s}:{port}/{file.sha256}?X-Signature={_signature(file.sha256)}"
        linked_headers = {
            "X-Linked-Etag": f'"{file.sha256}"',
            "X-Linked-Size": str(len(file.body)),
            "Location": location,
        }
        return HubResponse(302, {**headers, **linked_headers, "ETag": f'"{file.blob}"'}, b"Found. Redirecting")

    def storage_response(self, request: HubRequest, query: dict[str, str]) -> HubResponse:
        """Return a file of the storage."""
        if request.token:
            self.problems.append("a token was shown to the storage")
            return HubResponse(400, {}, b"<Error><Code>InvalidArgument</Code></Error>")
        sha256 = request.path.strip("/")
        if query.get("X-Signature") != _signature(sha256):
            return HubResponse(403, {}, b"<Error><Code>AccessDenied</Code></Error>")
        for repository in list(self.repositories.values()):
            for commit in list(repository.commits.values()):
                for file in commit.values():
                    if file.large and file.sha256 == sha256:
                        return HubResponse(200, {"ETag": f'"{sha256}"', "Accept-Ranges": "bytes"}, file.body)
        return HubResponse(404, {}, b"<Error><Code>NoSuchKey</Code></Error>")


def _json_response(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> HubResponse:
    return HubResponse(status, {"Content-Type": "application/json", **(headers or {})}, json.dumps(content).encode())


def _signature(sha256: str) -> str:
    """Return the signature that marks a storage URL as issued by the hub."""
    return hashlib.sha256(f"signed {sha256}".encode()).hexdigest()[:20]


def _tree_entry(path: str, file: HubFile) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": "file", "path": path, "oid": file.blob, "size": len(file.body)}
    if file.large:
        entry["lfs"] = {"oid": file.sha256, "size": len(file.body), "pointerSize": len(file.pointer)}
    return entry


def _sibling(path: str, file: HubFile) -> dict[str, Any]:
    entry: dict[str, Any] = {"rfilename": path, "blobId": file.blob, "size": len(file.body)}
    if file.large:
        entry["lfs"] = {"sha256": file.sha256, "size": len(file.body), "pointerSize": len(file.pointer)}
    return entry


class _HubHTTPServer(http.server.ThreadingHTTPServer):
    request_queue_size = 64
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Record errors as problems, except lost connections, which tests cause."""
        error = sys.exc_info()[1]
        if not isinstance(error, ConnectionError):
            self.RequestHandlerClass.owner.problems.append(repr(error))  # type: ignore[attr-defined]


class _HubHandler(http.server.BaseHTTPRequestHandler):
    owner: HubServer
    storage: bool
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """No access log: tests read HubServer.requests."""

    def _serve(self) -> None:
        owner = self.owner
        split = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(split.query, keep_blank_values=True))
        request = HubRequest(self.command, split.path, self.headers.get("Authorization", "").removeprefix("Bearer "))
        with owner.lock:
            (owner.storage_requests if self.storage else owner.requests).append(request)
            faults = owner.storage_faults if self.storage else owner.faults
            injected = next(
                (candidate for candidate in faults if candidate.applies(request.method, request.path)), HubFault()
            )
            if self.headers.get("Range"):
                owner.ranges.append(self.headers["Range"])
        owner.stopping.wait(injected.delay)
        response = owner.storage_response(request, query) if self.storage else owner.respond(request, query)
        if injected.status:
            response = HubResponse(
                injected.status, {"Content-Type": "application/json", **injected.headers}, injected.body.encode()
            )
        if response.status == 200:
            response = self._apply_range(response)
        body = response.body
        if injected.spoil and body:
            body = body[:-1] + bytes([body[-1] ^ 1])
        self.send_response(response.status)
        for name, value in {"Content-Length": str(len(body)), **response.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body if injected.cut < 0 else body[: injected.cut])
        if injected.cut >= 0:
            self.close_connection = True
            if injected.reset:
                self.wfile.flush()
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()

    do_GET = do_HEAD = _serve

    def _apply_range(self, response: HubResponse) -> HubResponse:
        """Return the requested range."""
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if not match:
            return response
        size = len(response.body)
        start, last = int(match[1]), min(int(match[2] or size - 1), size - 1)
        if start >= size:
            return HubResponse(416, {"Content-Range": f"bytes */{size}"}, b"")
        headers = {**response.headers, "Content-Range": f"bytes {start}-{last}/{size}"}
        return HubResponse(206, headers, response.body[start : last + 1])
