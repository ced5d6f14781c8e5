"""Three local nodes copy objects from a fake S3 server: each object once, verified, and after failures."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import http.server
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from email.message import Message
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._detached.result_line import StepError
from ansible_collections.muster.training.plugins.module_utils._files.content import CHUNK
from ansible_collections.muster.training.plugins.module_utils._stage_data import peers, pieces, transfer
from ansible_collections.muster.training.plugins.module_utils._stage_data.stage import create_source
from tests.support.programs import install
from tests.support.s3_server import S3Server
from tests.unit.hostile import BRACKETS, DIGITS
from tests.unit.supervised import eventually, free_port

MIB = 2**20
Reply = tuple[int, dict[str, str], bytes]
BODY = bytes(range(251)) * (20 * MIB // 251)


@pytest.fixture
def s3() -> Iterator[S3Server]:
    with S3Server(buckets=["data"]) as server:
        client = server.client()
        for number in range(9):
            client.put_object(Bucket="data", Key=f"train/a b/{number}", Body=b"x" * (number * 1000))
        client.put_object(Bucket="data", Key="train/", Body=b"")
        upload = client.create_multipart_upload(Bucket="data", Key="train/large")["UploadId"]
        options = {"Bucket": "data", "Key": "train/large", "UploadId": upload}
        parts = [BODY[start : start + 8 * MIB] for start in range(0, len(BODY), 8 * MIB)]
        completed_parts = [
            {"PartNumber": number, "ETag": client.upload_part(PartNumber=number, Body=part, **options)["ETag"]}
            for number, part in enumerate(parts, 1)
        ]
        client.complete_multipart_upload(MultipartUpload={"Parts": completed_parts}, **options)
        yield server
        for entry in client.list_objects_v2(Bucket="data").get("Contents", ()):
            client.delete_object(Bucket="data", Key=entry["Key"])
        client.delete_bucket(Bucket="data")


class StageCluster:
    """Nodes that are directories of this machine, each with an address in 127.0.0.0/8."""

    def __init__(self, s3: S3Server | None, root: Path, nodes: int = 3) -> None:
        self.program_path = str(install("_stage_data.stage", root / "lib"))
        self.directories = [root / f"node{number}" for number in range(nodes)]
        self.environment = dict(os.environ)
        if s3:
            self.environment.update(AWS_ACCESS_KEY_ID=s3.access_key, AWS_SECRET_ACCESS_KEY=s3.secret_key)
        self.base_request: dict[str, Any] = {
            "bucket": "data", "prefix": "train/", "include": ["*"], "manifests": "", "name": "",
            "path": "", "list": "", "bandwidth": 0.0, "reserve_gib": 0.0,
            "region": s3.region if s3 else "", "endpoint_url": s3.url if s3 else "",
            "port": free_port(), "addresses": [f"127.0.0.{11 + n}" for n in range(nodes)],
            "token": "word",
        }  # fmt: skip

    def shorten_start_timeout(self) -> None:
        """Make nodes wait only ten seconds instead of a minute for a node that has not started."""
        program = Path(self.program_path).with_name("program") / "_stage_data" / "peers.py"
        original = program.read_text()
        program.write_text(original.replace("PEER_START_TIMEOUT = 60.0", "PEER_START_TIMEOUT = 10.0"))
        assert program.read_text() != original

    def call(self, verb: str, number: int) -> dict[str, Any]:
        argv = [
            sys.executable,
            self.program_path,
            verb,
            str(self.directories[number] / ".muster-stage" / "request.json"),
        ]
        completed = subprocess.run(argv, env=self.environment, capture_output=True, text=True, check=False, timeout=300)
        assert "MUSTER-RESULT " in completed.stdout, completed.stdout + completed.stderr
        result: dict[str, Any] = json.loads(completed.stdout.rpartition("MUSTER-RESULT ")[2])
        return result

    def start(self, **overrides: Any) -> None:
        for number, directory in enumerate(self.directories):
            (directory / ".muster-stage").mkdir(parents=True, exist_ok=True)
            request = {**self.base_request, "destination": str(directory), "me": number, **overrides}
            (directory / ".muster-stage" / "request.json").write_text(json.dumps(request))
            self.call("start", number)

    def distribute(self, **overrides: Any) -> list[dict[str, Any]]:
        self.start(**overrides)
        return [self.call("follow", number) for number in range(len(self.directories))]

    def read_files(self, number: int) -> dict[str, bytes]:
        directory = self.directories[number]
        paths = [path for path in directory.rglob("*") if path.is_file() and ".muster-stage" not in path.parts]
        return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


EXPECTED_FILES = {**{f"a b/{number}": b"x" * (number * 1000) for number in range(9)}, "large": BODY}


def object_requests(s3: S3Server) -> list[str]:
    return [path for method, path in s3.requests if method == "GET" and path.startswith("/data/train/")]


def test_each_object_is_fetched_from_s3_once(s3: S3Server, tmp_path: Path) -> None:
    cluster = StageCluster(s3, tmp_path)
    s3.requests.clear()
    results = cluster.distribute()
    assert all(cluster.read_files(number) == EXPECTED_FILES for number in range(3))
    assert len(object_requests(s3)) == 9, "8 small ones and the large one; an empty one needs no request"
    assert sum(result["from_source"] for result in results) == sum(map(len, EXPECTED_FILES.values()))
    assert all(
        result["from_source"] + result["from_peers"] == sum(map(len, EXPECTED_FILES.values())) for result in results
    )
    s3.requests.clear()
    assert [result["changed"] for result in cluster.distribute()] == [False] * 3
    assert object_requests(s3) == []


def test_changed_local_file_is_fetched_again(s3: S3Server, tmp_path: Path) -> None:
    cluster = StageCluster(s3, tmp_path, nodes=1)
    cluster.distribute()
    path = cluster.directories[0] / "a b" / "8"
    path.write_bytes(b"y" + path.read_bytes()[1:])
    assert cluster.distribute()[0]["fetched"] == 1
    assert cluster.read_files(0) == EXPECTED_FILES


def test_killed_transfer_resumes(s3: S3Server, tmp_path: Path) -> None:
    cluster = StageCluster(s3, tmp_path)
    cluster.shorten_start_timeout()
    cluster.start(bandwidth=2.0)  # the large object occupies its node for ten seconds
    killed_directory, other_directory = (cluster.directories[number] / ".muster-stage" for number in (1, 2))
    piece_lists = [file / "pieces" for file in (killed_directory, other_directory)]
    eventually(lambda: all(file.exists() and file.read_text().count("\n") >= 8 for file in piece_lists))
    os.kill(json.loads((killed_directory / "status.json").read_text())["pid"], signal.SIGKILL)
    assert "ended without a result" in cluster.call("follow", 1)["step_error"]
    assert [cluster.call("follow", number)["files"] for number in (0, 2)] == [10, 10], (
        "the others did not complete without it"
    )
    s3.requests.clear()
    results = cluster.distribute()
    assert cluster.read_files(1) == EXPECTED_FILES
    assert results[0]["changed"] is results[2]["changed"] is False
    assert not list(killed_directory.glob("*.part"))


def test_staging_completes_after_endpoint_was_unavailable(s3: S3Server, tmp_path: Path) -> None:
    cluster = StageCluster(s3, tmp_path, nodes=2)
    s3.refuse = "SlowDown"
    cluster.start()
    eventually(lambda: sum(method == "GET" for method, _path in s3.requests) >= 3)
    s3.refuse = ""
    assert [cluster.call("follow", number)["files"] for number in (0, 1)] == [10, 10]


def put_checkpoint(s3: S3Server, **sha256: str) -> None:
    """Upload a checkpoint `step` of two files, with these checksums instead of the correct ones."""
    client = s3.client()
    files = []
    for name in ("model", "optimizer"):
        body = name.encode() * 1000
        client.put_object(Bucket="data", Key=f"saved/run/node0/data/step@1/{name}", Body=body)
        correct_sha256 = hashlib.sha256(body).hexdigest()
        key = f"saved/run/node0/data/step@1/{name}"
        files.append({"path": name, "key": key, "size": len(body), "sha256": sha256.get(name, correct_sha256)})
    value = {"run_id": "run", "node": "n", "node_rank": 0, "nnodes": 2, "nodes": "first",
             "checkpoints": [{"name": "step", "stamp": "1", "size": 0, "files": files}]}  # fmt: skip
    client.put_object(Bucket="data", Key="saved/run/node0/latest.json", Body=json.dumps(value).encode())


def test_checkpoint_is_fetched_by_its_manifest(s3: S3Server, tmp_path: Path) -> None:
    put_checkpoint(s3)
    cluster = StageCluster(s3, tmp_path)
    results = cluster.distribute(manifests="saved/run")
    assert all(result["files"] == 2 for result in results)
    assert cluster.read_files(2) == {"step/model": b"model" * 1000, "step/optimizer": b"optimizer" * 1000}


def test_corrupt_object_is_reported_and_not_stored(s3: S3Server, tmp_path: Path) -> None:
    put_checkpoint(s3, model="0" * 64)
    cluster = StageCluster(s3, tmp_path, nodes=1)
    message = cluster.distribute(manifests="saved/run")[0]["step_error"]
    assert "object saved/run/node0/data/step@1/model in bucket data is corrupt" in message
    assert "step/model" not in cluster.read_files(0)


@pytest.mark.parametrize(
    ("overrides", "pattern"),
    [
        ({"bucket": "nowhere"}, "bucket nowhere does not exist"),
        ({"prefix": "tarin/"}, "s3://data/tarin/ contains no matching object"),
        ({"manifests": "saved/other"}, "s3://data/saved/other contains no checkpoint"),
        ({"manifests": "saved/run", "name": "step-9"}, "has not copied checkpoint step-9 .*Available: step"),
        ({"reserve_gib": 1e9}, "GB free|TB free"),
        ({"addresses": ["192.0.2.1"]}, "cannot listen on 192.0.2.1"),
    ],
)
def test_impossible_request_is_reported_in_one_line(
    s3: S3Server, tmp_path: Path, overrides: dict[str, Any], pattern: str
) -> None:
    put_checkpoint(s3)
    message = StageCluster(s3, tmp_path, nodes=1).distribute(**overrides)[0]["step_error"]
    assert re.search(pattern, message)
    assert "\n" not in message


def test_path_traversal_in_object_names_is_refused(s3: S3Server, tmp_path: Path) -> None:
    s3.client().put_object(Bucket="data", Key="train/../../evil", Body=b"1")
    assert "is not a valid file path" in StageCluster(s3, tmp_path, nodes=1).distribute()[0]["step_error"]
    assert not (tmp_path.parent / "evil").exists()


class ReplyServer:
    """A server that replaces a node's program or acts as a proxy between it and its peers."""

    def __init__(self, address: str, port: int, reply: Callable[[str, Message], Reply]) -> None:
        self.received_text = received = bytearray()

        class ReplyHandler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                received.extend(f"{self.path}\n{self.headers}\n".encode())
                status, headers, body = reply(self.path, self.headers)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_arguments: Any) -> None:
                """Log nothing."""

        self.server = http.server.ThreadingHTTPServer((address, port), ReplyHandler)

    def __enter__(self) -> ReplyServer:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.server.shutdown()
        self.server.server_close()


def send_request(url: str, headers: dict[str, str]) -> Reply:
    """Return a server's response, even if it has an error status."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60) as response:
            return response.status, dict(response.headers), response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read()


@pytest.mark.parametrize("headers", [{}, {"Muster-Proof": "0" * 64}, {"Muster-Proof": "\xe9"}])
def test_peer_without_the_token_is_not_trusted(s3: S3Server, tmp_path: Path, headers: dict[str, str]) -> None:
    cluster = StageCluster(s3, tmp_path, nodes=2)
    key = b"ssh-ed25519 AAAA somebody\n"
    digest = hashlib.sha256(key).hexdigest()
    plan = json.dumps([["../.ssh/authorized_keys", "key", len(key), "", digest]]).encode()

    def reply(path: str, _headers: Message) -> Reply:
        body = plan if path == "/plan" else key
        return 200, {"Muster-Digest": hashlib.sha256(body).hexdigest(), **headers}, body

    cluster.directories = cluster.directories[1:]
    with ReplyServer("127.0.0.11", cluster.base_request["port"], reply) as stranger:
        cluster.start(me=1)
        result = cluster.call("follow", 0)
    assert b"/plan" in stranger.received_text
    assert b"word" not in stranger.received_text, "the token was shown"
    assert not list(tmp_path.rglob("authorized_keys"))
    assert cluster.read_files(0) == EXPECTED_FILES
    assert result["from_peers"] == 0
    assert "127.0.0.11 port" in (cluster.directories[0] / ".muster-stage" / "log").read_text()


def test_endless_reply_of_an_unverified_server_times_out(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = StageCluster(s3, tmp_path, nodes=2)
    for name, seconds in {"LONG_POLL": 0.2, "UNVERIFIED_TIMEOUT": 0.3, "PEER_START_TIMEOUT": 0}.items():
        monkeypatch.setattr(peers, name, seconds)
    peer = peers.Peers({**cluster.base_request, "me": 1}, "the source")
    ended = threading.Event()

    def drip(listener: socket.socket) -> None:
        connection, _address = listener.accept()
        with connection, contextlib.suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
            while not ended.wait(0.05):
                connection.sendall(b"x")

    with socket.create_server(("127.0.0.11", cluster.base_request["port"])) as listener:
        threading.Thread(target=drip, args=[listener], daemon=True).start()
        asking = threading.Thread(target=peer.query, args=[0, "/plan"], daemon=True)
        asking.start()
        asking.join(120)
        ended.set()
    assert not asking.is_alive(), "the request never ends"
    assert peer.unavailable[0]


@pytest.mark.parametrize("changed", ["/plan", "/piece"])
def test_data_altered_in_transit_is_discarded(s3: S3Server, tmp_path: Path, changed: str) -> None:
    cluster = StageCluster(s3, tmp_path, nodes=2)
    port, directories = cluster.base_request["port"], cluster.directories

    def reply(path: str, headers: Message) -> Reply:
        status, reply_headers, body = send_request(f"http://127.0.0.11:{port}{path}", dict(headers))
        del reply_headers["Content-Length"]
        if path.startswith(changed) and body:
            body = body[:-1] + bytes([body[-1] ^ 1])
        return status, reply_headers, body

    cluster.directories = directories[:1]
    cluster.start()
    cluster.directories = directories[1:]
    with ReplyServer("127.0.0.21", port, reply) as relay:
        cluster.start(me=1, addresses=["127.0.0.21", "127.0.0.12"])
        result = cluster.call("follow", 0)
    os.kill(json.loads((directories[0] / ".muster-stage" / "status.json").read_text())["pid"], signal.SIGKILL)
    assert changed.encode() in relay.received_text
    assert cluster.read_files(0) == EXPECTED_FILES
    assert result["from_peers"] == 0, "altered data was accepted"
    assert "was altered in transit" in (directories[1] / ".muster-stage" / "log").read_text()


def test_request_needs_fresh_authentication_with_the_token(s3: S3Server, tmp_path: Path) -> None:
    cluster = StageCluster(s3, tmp_path, nodes=2)
    request = {**cluster.base_request, "destination": str(tmp_path), "me": 0}
    first_node = transfer.NodeTransfer(request, create_source(request))
    first_node.plan = b"[]"
    server = first_node.peers.serve(first_node.handle_request)

    def request_status(path: str, token: str, *fields: str | int, node: str = "1", nonce: str = "a") -> int:
        headers = {
            "Muster-Node": node,
            "Muster-Nonce": nonce,
            "Muster-Proof": peers.compute_proof(token, *fields),
        }
        return send_request(f"http://127.0.0.11:{cluster.base_request['port']}{path}", headers)[0]

    try:
        request_fields = ("request", 0, 1, "/plan", "a")
        assert send_request(f"http://127.0.0.11:{cluster.base_request['port']}/plan", {})[0] == 401
        assert request_status("/plan", "wrong", *request_fields) == 401
        assert request_status("/done/1", "word", *request_fields) == 401, "a proof for another path"
        assert request_status("/plan", "word", *request_fields, nonce="b") == 401, "a proof for another request"
        assert request_status("/plan", "word", "request", 1, 1, "/plan", "a") == 401, "a proof for another node"
        assert request_status("/plan", "word", "request", 0, 7, "/plan", "a", node="7") == 401, (
            "not a node of this transfer"
        )
        assert first_node.peers.last_seen == {}
        assert request_status("/plan", "word", *request_fields) == 200
        assert request_status("/plan", "word", *request_fields) == 401, "a replayed request"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("failure", ["", "shorter", "longer", "cut off", "disk full"])
def test_received_piece_is_accepted_only_if_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    """It is written as it arrives; a full disk does not count as a lost peer."""
    cluster = StageCluster(None, tmp_path, nodes=2)
    body = os.urandom(3 * CHUNK + 7)
    sent = {"shorter": body[:-1], "longer": body + b"x"}.get(failure, body)
    path = tmp_path / "there"
    path.write_bytes(b"before" + (sent[: CHUNK + 1] if failure == "cut off" else sent))
    reply = peers.PeerReply(200, b"", None, len(b"before"), len(sent), hashlib.sha256(sent).hexdigest())
    sender, receiver = (
        transfer.NodeTransfer({**cluster.base_request, "destination": str(directory), "me": number}, mock.Mock())
        for number, directory in enumerate(cluster.directories)
    )
    entry = pieces.FileEntry("large", "large", len(body) + 5, "tag", "")
    (cluster.directories[1] / ".muster-stage").mkdir(parents=True)
    receiver.entries, receiver.pieces, receiver.missing_counts = [entry], [pieces.FilePiece(0, 5, len(body), 0)], {0: 2}
    if failure == "disk full":
        write_all = mock.Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
        monkeypatch.setattr(transfer, "write_all", write_all)
    server = sender.peers.serve(lambda _path: reply._replace(file=path.open("rb")))
    try:
        if failure == "disk full":
            with pytest.raises(StepError, match="is full. Free some space"):
                receiver.receive_piece(0, 0)
        else:
            assert receiver.receive_piece(0, 0) is not bool(failure)
    finally:
        server.shutdown()
        server.server_close()
    assert receiver.local_pieces == (set() if failure else {0}) and receiver.from_peers == (0 if failure else len(body))
    assert receiver.peers.unavailable[0] is (failure in ("shorter", "longer"))
    if not failure:
        assert Path(receiver.part_path(0)).read_bytes() == bytes(5) + body
        assert receiver.piece_digests == {0: reply.digest}, "the digest would be computed again for the next peer"


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/x", "a//x", "./x", "", ".muster-stage/x", "a\0b"])
def test_path_outside_the_directory_is_refused(path: str) -> None:
    with pytest.raises(StepError, match="not a path inside the directory"):
        pieces.parse_plan(json.dumps([["a", "key", 1, "", ""], [path, "key", 1, "", ""]]).encode())


@pytest.mark.parametrize(
    "plan",
    [
        *(b"", b"\xff", b"{}x", b"[1]", b'[["a"]]', b"[[1, 2, 3, 4, 5]]", BRACKETS.encode()),
        *(f'[["a", "key", {size}, "", ""]]'.encode() for size in ("1.5", "NaN", "-1", "true", "1e30", "1" + "0" * 30)),
        f'[["a", "key", {2**60}, "", ""]]'.encode(),
        f'[["a", "key", {DIGITS}, "", ""]]'.encode(),
        b'[["a", "key", 1, "", "", 5]]',
        f'[["{"x" * 5000}", "key", 1, "", ""]]'.encode(),
    ],
    ids=lambda plan: str(plan)[:40],
)
def test_invalid_file_list_is_refused(plan: bytes) -> None:
    with pytest.raises(StepError, match="sent an invalid file list"):
        pieces.parse_plan(plan)


@given(st.lists(st.integers(0, 300 * MIB), max_size=40), st.integers(1, 16))
def test_pieces_cover_all_files_and_are_shared_equally(sizes: list[int], nodes: int) -> None:
    entries = [pieces.FileEntry(str(number), str(number), size, "", "") for number, size in enumerate(sizes)]
    shares = pieces.split_into_pieces(entries, nodes)
    for number, size in enumerate(sizes):
        file_pieces = [piece for piece in shares if piece.file_index == number]
        assert sum(piece.length for piece in file_pieces) == size
        assert [piece.start for piece in file_pieces] == list(range(0, size, pieces.PIECE_SIZE))
    weights = [
        sum(piece.length + pieces.REQUEST_OVERHEAD for piece in shares if piece.owner == node) for node in range(nodes)
    ]
    assert all(0 <= piece.owner < nodes for piece in shares)
    assert max(weights) - min(weights) <= 2 * (pieces.PIECE_SIZE + pieces.REQUEST_OVERHEAD)
