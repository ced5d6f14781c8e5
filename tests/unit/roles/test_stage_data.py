"""Three nodes of one machine bring objects of a real server of S3: each once, right or not at all, and to the end."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import http.server
import importlib.util
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
from types import ModuleType
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.s3_server import S3Server
from tests.unit.supervised import eventually, free_port

ROLES = Path(__file__).resolve().parents[3] / "roles"
MIB = 2**20
Reply = tuple[int, dict[str, str], bytes]
BODY = bytes(range(251)) * (20 * MIB // 251)


@pytest.fixture(scope="module")
def stage() -> Iterator[ModuleType]:
    """The program, with what it imports beside it as on a node."""
    sys.path[:0] = [str(ROLES / role / "files") for role in ("s3_client", "stage_data")]
    spec = importlib.util.spec_from_file_location("stage", ROLES / "stage_data" / "files" / "stage.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.path[:2]


@pytest.fixture
def s3() -> Iterator[S3Server]:
    with S3Server(buckets=["data"]) as server:
        client = server.client()
        for number in range(9):
            client.put_object(Bucket="data", Key=f"train/a b/{number}", Body=b"x" * (number * 1000))
        client.put_object(Bucket="data", Key="train/", Body=b"")
        upload = client.create_multipart_upload(Bucket="data", Key="train/large")["UploadId"]
        words = {"Bucket": "data", "Key": "train/large", "UploadId": upload}
        parts = [BODY[start : start + 8 * MIB] for start in range(0, len(BODY), 8 * MIB)]
        done = [
            {"PartNumber": number, "ETag": client.upload_part(PartNumber=number, Body=body, **words)["ETag"]}
            for number, body in enumerate(parts, 1)
        ]
        client.complete_multipart_upload(MultipartUpload={"Parts": done}, **words)
        yield server
        for entry in client.list_objects_v2(Bucket="data").get("Contents", ()):
            client.delete_object(Bucket="data", Key=entry["Key"])
        client.delete_bucket(Bucket="data")


class Cluster:
    """Nodes that are directories of this machine, each with an address of its own in 127.0.0.0/8."""

    def __init__(self, s3: S3Server | None, root: Path, nodes: int = 3) -> None:
        (root / "lib").mkdir()
        for role in ("s3_client", "stage_data"):
            for file in (ROLES / role / "files").glob("*.py"):
                (root / "lib" / file.name).write_text(file.read_text())
        self.program = str(root / "lib" / "stage.py")
        self.places = [root / f"node{number}" for number in range(nodes)]
        self.env = dict(os.environ)
        if s3:
            self.env.update(AWS_ACCESS_KEY_ID=s3.access_key, AWS_SECRET_ACCESS_KEY=s3.secret_key)
        self.given: dict[str, Any] = {
            "bucket": "data", "prefix": "train/", "include": ["*"], "manifests": "", "name": "",
            "path": "", "list": "", "bandwidth": 0.0, "reserve_gib": 0.0,
            "region": s3.region if s3 else "", "endpoint_url": s3.url if s3 else "",
            "port": free_port(), "addresses": [f"127.0.0.{11 + n}" for n in range(nodes)],
            "token": "word",
        }  # fmt: skip

    def hurry(self) -> None:
        """Have nodes wait ten seconds for one that has not begun, and not a minute."""
        program = Path(self.program).with_name("peers.py")
        right = program.read_text()
        program.write_text(right.replace("PEER_PATIENCE = 60.0", "PEER_PATIENCE = 10.0"))
        assert program.read_text() != right

    def call(self, verb: str, number: int) -> dict[str, Any]:
        words = [sys.executable, self.program, verb, str(self.places[number] / ".muster-stage" / "request.json")]
        done = subprocess.run(words, env=self.env, capture_output=True, text=True, check=False, timeout=300)
        assert "MUSTER-RESULT " in done.stdout, done.stdout + done.stderr
        answer: dict[str, Any] = json.loads(done.stdout.rpartition("MUSTER-RESULT ")[2])
        return answer

    def start(self, **more: Any) -> None:
        for number, place in enumerate(self.places):
            (place / ".muster-stage").mkdir(parents=True, exist_ok=True)
            request = {**self.given, "destination": str(place), "me": number, **more}
            (place / ".muster-stage" / "request.json").write_text(json.dumps(request))
            self.call("start", number)

    def bring(self, **more: Any) -> list[dict[str, Any]]:
        self.start(**more)
        return [self.call("follow", number) for number in range(len(self.places))]

    def files(self, number: int) -> dict[str, bytes]:
        place = self.places[number]
        found = [path for path in place.rglob("*") if path.is_file() and ".muster-stage" not in path.parts]
        return {str(path.relative_to(place)): path.read_bytes() for path in found}


WANTED = {**{f"a b/{number}": b"x" * (number * 1000) for number in range(9)}, "large": BODY}


def gets(s3: S3Server) -> list[str]:
    return [path for method, path in s3.requests if method == "GET" and path.startswith("/data/train/")]


def test_each_object_is_fetched_from_s3_once(s3: S3Server, tmp_path: Path) -> None:
    cluster = Cluster(s3, tmp_path)
    s3.requests.clear()
    answers = cluster.bring()
    assert all(cluster.files(number) == WANTED for number in range(3))
    assert len(gets(s3)) == 9, "8 small ones and the large one; an empty one needs no request"
    assert sum(answer["from_source"] for answer in answers) == sum(map(len, WANTED.values()))
    assert all(answer["from_source"] + answer["from_peers"] == sum(map(len, WANTED.values())) for answer in answers)
    s3.requests.clear()
    assert [answer["changed"] for answer in cluster.bring()] == [False] * 3
    assert gets(s3) == []


def test_changed_local_file_is_fetched_again(s3: S3Server, tmp_path: Path) -> None:
    cluster = Cluster(s3, tmp_path, nodes=1)
    cluster.bring()
    path = cluster.places[0] / "a b" / "8"
    path.write_bytes(b"y" + path.read_bytes()[1:])
    assert cluster.bring()[0]["fetched"] == 1
    assert cluster.files(0) == WANTED


def test_killed_transfer_resumes(s3: S3Server, tmp_path: Path) -> None:
    cluster = Cluster(s3, tmp_path)
    cluster.hurry()
    cluster.start(bandwidth=2.0)  # the large one takes its node ten seconds
    own, other = (cluster.places[number] / ".muster-stage" for number in (1, 2))
    pieces = [each / "pieces" for each in (own, other)]
    eventually(lambda: all(each.exists() and each.read_text().count("\n") >= 8 for each in pieces))
    os.kill(json.loads((own / "status.json").read_text())["pid"], signal.SIGKILL)
    assert "ended without a result" in cluster.call("follow", 1)["fault"]
    assert [cluster.call("follow", number)["files"] for number in (0, 2)] == [10, 10], "the others do without it"
    s3.requests.clear()
    answers = cluster.bring()
    assert cluster.files(1) == WANTED
    assert answers[0]["changed"] is answers[2]["changed"] is False
    assert not list(own.glob("*.part"))


def test_staging_completes_after_endpoint_was_unavailable(s3: S3Server, tmp_path: Path) -> None:
    cluster = Cluster(s3, tmp_path, nodes=2)
    s3.refuse = "SlowDown"
    cluster.start()
    eventually(lambda: sum(method == "GET" for method, _path in s3.requests) >= 3)
    s3.refuse = ""
    assert [cluster.call("follow", number)["files"] for number in (0, 1)] == [10, 10]


def manifest(s3: S3Server, **sha256: str) -> None:
    """One checkpoint `step` of two files, with these checksums instead of the right ones."""
    client = s3.client()
    files = []
    for name in ("model", "optimizer"):
        body = name.encode() * 1000
        client.put_object(Bucket="data", Key=f"saved/run/node0/data/step@1/{name}", Body=body)
        right = hashlib.sha256(body).hexdigest()
        key = f"saved/run/node0/data/step@1/{name}"
        files.append({"path": name, "key": key, "size": len(body), "sha256": sha256.get(name, right)})
    value = {"run_id": "run", "node": "n", "node_rank": 0, "nnodes": 2, "nodes": "first",
             "checkpoints": [{"name": "step", "stamp": "1", "size": 0, "files": files}]}  # fmt: skip
    client.put_object(Bucket="data", Key="saved/run/node0/latest.json", Body=json.dumps(value).encode())


def test_checkpoint_is_fetched_by_its_manifest(s3: S3Server, tmp_path: Path) -> None:
    manifest(s3)
    cluster = Cluster(s3, tmp_path)
    answers = cluster.bring(manifests="saved/run")
    assert all(answer["files"] == 2 for answer in answers)
    assert cluster.files(2) == {"step/model": b"model" * 1000, "step/optimizer": b"optimizer" * 1000}


def test_corrupt_object_is_reported_and_not_put_in_place(s3: S3Server, tmp_path: Path) -> None:
    manifest(s3, model="0" * 64)
    cluster = Cluster(s3, tmp_path, nodes=1)
    fault = cluster.bring(manifests="saved/run")[0]["fault"]
    assert "object saved/run/node0/data/step@1/model of bucket data is corrupt" in fault
    assert "step/model" not in cluster.files(0)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"bucket": "nowhere"}, "there is no bucket nowhere"),
        ({"prefix": "tarin/"}, "s3://data/tarin/ holds no object that is wanted"),
        ({"manifests": "saved/other"}, "s3://data/saved/other holds no checkpoint"),
        ({"manifests": "saved/run", "name": "step-9"}, "has not copied a checkpoint step-9 .*There are: step"),
        ({"reserve_gib": 1e9}, "GB free|TB free"),
        ({"addresses": ["192.0.2.1"]}, "cannot listen on 192.0.2.1"),
    ],
)
def test_impossible_request_is_reported_in_one_line(
    s3: S3Server, tmp_path: Path, more: dict[str, Any], said: str
) -> None:
    manifest(s3)
    fault = Cluster(s3, tmp_path, nodes=1).bring(**more)[0]["fault"]
    assert re.search(said, fault)
    assert "\n" not in fault


def test_path_traversal_in_object_names_is_refused(s3: S3Server, tmp_path: Path) -> None:
    s3.client().put_object(Bucket="data", Key="train/../../evil", Body=b"1")
    assert "is no path of a file" in Cluster(s3, tmp_path, nodes=1).bring()[0]["fault"]
    assert not (tmp_path.parent / "evil").exists()


class OnThePort:
    """A server on a node's address and port, in place of that node's program or between it and its peers."""

    def __init__(self, address: str, port: int, reply: Callable[[str, Message], Reply]) -> None:
        self.heard = heard = bytearray()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                heard.extend(f"{self.path}\n{self.headers}\n".encode())
                status, headers, body = reply(self.path, self.headers)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_words: Any) -> None:
                """Nobody reads it."""

        self.server = http.server.ThreadingHTTPServer((address, port), Handler)

    def __enter__(self) -> OnThePort:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_why: object) -> None:
        self.server.shutdown()
        self.server.server_close()


def ask(url: str, headers: dict[str, str]) -> Reply:
    """What a server answers, whatever the status."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read()


@pytest.mark.parametrize("shows", [{}, {"Muster-Proof": "0" * 64}, {"Muster-Proof": "\xe9"}])
def test_peer_without_the_token_is_not_trusted(s3: S3Server, tmp_path: Path, shows: dict[str, str]) -> None:
    cluster = Cluster(s3, tmp_path, nodes=2)
    key = b"ssh-ed25519 AAAA somebody\n"
    digest = hashlib.sha256(key).hexdigest()
    plan = json.dumps([["../.ssh/authorized_keys", "key", len(key), "", digest]]).encode()

    def reply(path: str, _headers: Message) -> Reply:
        body = plan if path == "/plan" else key
        return 200, {"Muster-Digest": hashlib.sha256(body).hexdigest(), **shows}, body

    cluster.places = cluster.places[1:]
    with OnThePort("127.0.0.11", cluster.given["port"], reply) as stranger:
        cluster.start(me=1)
        answer = cluster.call("follow", 0)
    assert b"/plan" in stranger.heard
    assert b"word" not in stranger.heard, "the token was shown"
    assert not list(tmp_path.rglob("authorized_keys"))
    assert cluster.files(0) == WANTED
    assert answer["from_peers"] == 0
    assert "127.0.0.11 port" in (cluster.places[0] / ".muster-stage" / "log").read_text()


def test_endless_answer_of_a_stranger_is_given_up(
    s3: S3Server, tmp_path: Path, stage: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(s3, tmp_path, nodes=2)
    peers = sys.modules[stage.Peers.__module__]
    for name, seconds in {"LONG_POLL": 0.2, "STRANGER_PATIENCE": 0.3, "PEER_PATIENCE": 0}.items():
        monkeypatch.setattr(peers, name, seconds)
    one = stage.Peers({**cluster.given, "me": 1}, "the source")
    ended = threading.Event()

    def drip(listener: socket.socket) -> None:
        connection, _address = listener.accept()
        with connection, contextlib.suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
            while not ended.wait(0.05):
                connection.sendall(b"x")

    with socket.create_server(("127.0.0.11", cluster.given["port"])) as listener:
        threading.Thread(target=drip, args=[listener], daemon=True).start()
        asking = threading.Thread(target=one.ask, args=[0, "/plan"], daemon=True)
        asking.start()
        asking.join(120)
        ended.set()
    assert not asking.is_alive(), "it waits for ever"
    assert one.gone[0]


@pytest.mark.parametrize("changed", ["/plan", "/piece"])
def test_data_altered_in_transit_is_discarded(s3: S3Server, tmp_path: Path, changed: str) -> None:
    cluster = Cluster(s3, tmp_path, nodes=2)
    port, places = cluster.given["port"], cluster.places

    def reply(path: str, headers: Message) -> Reply:
        status, shown, body = ask(f"http://127.0.0.11:{port}{path}", dict(headers))
        del shown["Content-Length"]
        if path.startswith(changed) and body:
            body = body[:-1] + bytes([body[-1] ^ 1])
        return status, shown, body

    cluster.places = places[:1]
    cluster.start()
    cluster.places = places[1:]
    with OnThePort("127.0.0.21", port, reply) as relay:
        cluster.start(me=1, addresses=["127.0.0.21", "127.0.0.12"])
        answer = cluster.call("follow", 0)
    os.kill(json.loads((places[0] / ".muster-stage" / "status.json").read_text())["pid"], signal.SIGKILL)
    assert changed.encode() in relay.heard
    assert cluster.files(0) == WANTED
    assert answer["from_peers"] == 0, "something that was changed was taken"
    assert "was changed on the way" in (places[1] / ".muster-stage" / "log").read_text()


def test_request_needs_a_fresh_proof_of_the_token(s3: S3Server, tmp_path: Path, stage: ModuleType) -> None:
    cluster = Cluster(s3, tmp_path, nodes=2)
    one = stage.Stage({**cluster.given, "destination": str(tmp_path), "me": 0})
    one.plan = b"[]"
    server = one.peers.serve(one.answer)

    def asked(path: str, token: str, *words: str | int, node: str = "1", nonce: str = "a") -> int:
        headers = {
            "Muster-Node": node,
            "Muster-Nonce": nonce,
            "Muster-Proof": sys.modules[stage.Peers.__module__].proof(token, *words),
        }
        return ask(f"http://127.0.0.11:{cluster.given['port']}{path}", headers)[0]

    try:
        right = ("request", 0, 1, "/plan", "a")
        assert ask(f"http://127.0.0.11:{cluster.given['port']}/plan", {})[0] == 401
        assert asked("/plan", "wrong", *right) == 401
        assert asked("/done/1", "word", *right) == 401, "a proof for another path"
        assert asked("/plan", "word", *right, nonce="b") == 401, "a proof for another request"
        assert asked("/plan", "word", "request", 1, 1, "/plan", "a") == 401, "a proof for another node"
        assert asked("/plan", "word", "request", 0, 7, "/plan", "a", node="7") == 401, "no node of this call"
        assert one.peers.heard == {}
        assert asked("/plan", "word", *right) == 200
        assert asked("/plan", "word", *right) == 401, "heard before"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("fault", ["", "shorter", "longer", "cut off", "disk full"])
def test_received_piece_counts_only_if_complete(
    tmp_path: Path, stage: ModuleType, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """It is written as it arrives; a full disk does not count as a lost peer."""
    cluster = Cluster(None, tmp_path, nodes=2)
    peers = sys.modules[stage.Peers.__module__]
    body = os.urandom(3 * peers.CHUNK + 7)
    told = {"shorter": body[:-1], "longer": body + b"x"}.get(fault, body)
    there = tmp_path / "there"
    there.write_bytes(b"before" + (told[: peers.CHUNK + 1] if fault == "cut off" else told))
    answer = peers.Answer(200, b"", None, len(b"before"), len(told), hashlib.sha256(told).hexdigest())
    giver, taker = (
        stage.Stage({**cluster.given, "destination": str(place), "me": number})
        for number, place in enumerate(cluster.places)
    )
    entry = stage.Entry("large", "large", len(body) + 5, "tag", "")
    (cluster.places[1] / ".muster-stage").mkdir(parents=True)
    taker.entries, taker.pieces, taker.left = [entry], [stage.Piece(0, 5, len(body), 0)], {0: 2}
    if fault == "disk full":
        full = mock.Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
        monkeypatch.setattr(stage, "write_all", full)
    server = giver.peers.serve(lambda _path: answer._replace(file=there.open("rb")))
    try:
        if fault == "disk full":
            with pytest.raises(stage.Fault, match="is full. Make room"):
                taker.receive(0, 0)
        else:
            assert taker.receive(0, 0) is not bool(fault)
    finally:
        server.shutdown()
        server.server_close()
    assert taker.pieces_here == (set() if fault else {0}) and taker.from_peers == (0 if fault else len(body))
    assert taker.peers.gone[0] is (fault in ("shorter", "longer"))
    if not fault:
        assert Path(taker.part_path(0)).read_bytes() == bytes(5) + body
        assert taker.digests == {0: answer.digest}, "the digest would be computed again for the next peer"


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/x", "a//x", "./x", "", ".muster-stage/x", "a\0b"])
def test_path_outside_the_directory_is_refused(stage: ModuleType, path: str) -> None:
    with pytest.raises(stage.Fault, match="no path below the directory"):
        stage.read_plan(json.dumps([["a", "key", 1, "", ""], [path, "key", 1, "", ""]]).encode())


@pytest.mark.parametrize("told", [b"", b"\xff", b"{}x", b"[1]", b'[["a"]]', b"[[1, 2, 3, 4, 5]]"])
def test_invalid_file_list_is_refused(stage: ModuleType, told: bytes) -> None:
    with pytest.raises(stage.Fault, match="cannot be read"):
        stage.read_plan(told)


@given(st.lists(st.integers(0, 300 * MIB), max_size=40), st.integers(1, 16))
def test_pieces_cover_all_files_and_are_shared_equally(stage: ModuleType, sizes: list[int], nodes: int) -> None:
    wanted = sys.modules["wanted"]
    entries = [stage.Entry(str(number), str(number), size, "", "") for number, size in enumerate(sizes)]
    pieces = wanted.cut(entries, nodes)
    for number, size in enumerate(sizes):
        own = [piece for piece in pieces if piece.entry == number]
        assert sum(piece.length for piece in own) == size
        assert [piece.start for piece in own] == list(range(0, size, wanted.PIECE))
    weights = [sum(piece.length + wanted.OVERHEAD for piece in pieces if piece.owner == node) for node in range(nodes)]
    assert all(0 <= piece.owner < nodes for piece in pieces)
    assert max(weights) - min(weights) <= 2 * (wanted.PIECE + wanted.OVERHEAD)
