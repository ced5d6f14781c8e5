# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Three nodes of one machine have the same image afterwards, fetched once; the engine is a stand-in."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tarfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from tests.fake_engine import archive_of
from tests.unit.supervised import free_port

CHECKOUT = Path(__file__).resolve().parents[3]
ROLES = CHECKOUT / "roles"
FILES = (
    "s3_client/files/transfer.py",
    "stage_data/files/wanted.py",
    "stage_data/files/peers.py",
    "stage_data/files/stage.py",
    "container_image/files/image.py",
)
ENGINE = CHECKOUT / "plugins" / "module_utils" / "_containers" / "image_transfer.py"
LOOK = "import json, sys; from engine import look; print(json.dumps(look(json.loads(sys.argv[1]))))"
MIB = 2**20
NAME = "registry.example/team/torch:1"
PULLED = f"pulled {NAME}\n".encode() * 4000


def digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def make_engine(directory: Path, name: str) -> Path:
    """A directory of PATH with an engine of this name."""
    directory.mkdir()
    path = directory / name
    words = f'ENGINE_NAME={name} exec {sys.executable} -S {CHECKOUT}/tests/fake_engine.py "$@"'
    path.write_text(f"#!/bin/sh\n{words}\n")
    path.chmod(0o755)
    return directory


class Cluster:
    """Nodes that are directories of this machine, each with an engine and an address of its own in 127.0.0.0/8."""

    def __init__(self, root: Path, engine: str = "docker", nodes: int = 3) -> None:
        self.lib = root / "lib"
        self.lib.mkdir()
        for path in FILES:
            (self.lib / Path(path).name).write_text((ROLES / path).read_text())
        (self.lib / "engine.py").write_text(ENGINE.read_text())
        self.engine, self.bin = engine, make_engine(root / "bin", engine)
        self.places = [root / f"node{number}" for number in range(nodes)]
        for place in self.places:
            (place / ".muster-stage").mkdir(parents=True, mode=0o700)
            (place / "store").mkdir()
        self.given: dict[str, Any] = {
            "engine": engine, "name": NAME, "base": NAME, "archive": "", "archive_ids": [], "context": "",
            "dockerfile": "", "requirements": "", "label": "", "refresh": False, "registry_user": "",
            "registry_password": "", "reserve_gib": 0.0, "port": free_port(), "token": "word",
            "names": [f"node{number}" for number in range(nodes)],
            "addresses": [f"127.0.0.{31 + number}" for number in range(nodes)],
        }  # fmt: skip

    def environment(self, number: int) -> dict[str, str]:
        store = str(self.places[number] / "store")
        return {**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}", "ENGINE_STORE": store}

    def python(self, number: int, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words],
            env=self.environment(number),
            cwd=self.lib,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
            stdin=subprocess.DEVNULL,
        )
        assert done.stdout, done.stderr
        return done.stdout

    def call(self, verb: str, number: int) -> dict[str, Any]:
        request = str(self.places[number] / ".muster-stage" / "request.json")
        said = self.python(number, str(self.lib / "image.py"), verb, request)
        answer: dict[str, Any] = json.loads(said.rpartition("MUSTER-RESULT ")[2])
        return answer

    def look(self, number: int, **more: str) -> dict[str, Any]:
        given = {"engine": self.engine, "name": NAME, **more}
        answer: dict[str, Any] = json.loads(self.python(number, "-c", LOOK, json.dumps(given)))
        return answer

    def ids(self) -> list[str]:
        return [self.look(number)["id"] for number in range(len(self.places))]

    def bring(self, **more: Any) -> list[dict[str, Any]]:
        ids = self.ids()
        for number, place in enumerate(self.places):
            request = {**self.given, "destination": str(place), "me": number, "ids": ids, **more}
            (place / ".muster-stage" / "request.json").write_text(json.dumps(request))
        for number in range(len(self.places)):
            self.call("start", number)
        return [self.call("follow", number) for number in range(len(self.places))]

    def calls(self, verb: str) -> list[list[str]]:
        """What each engine was asked to do of a kind."""
        stores = [place / "store" / "calls" for place in self.places]
        lines = [store.read_text().splitlines() if store.exists() else [] for store in stores]
        return [[line for line in one if f" {verb} " in f" {line} "] for one in lines]

    def have(self, number: int, body: bytes, name: str = NAME) -> None:
        program = "import sys; from tests.fake_engine import keep; keep(sys.stdin.buffer.read(), sys.argv[1])"
        words = [sys.executable, "-c", program, name]
        subprocess.run(words, env=self.environment(number), cwd=CHECKOUT, input=body, check=True)

    def left(self) -> list[str]:
        """What is left of the way."""
        return [str(path.relative_to(place)) for place in self.places for path in place.rglob("*")
                if path.suffix in (".tar", ".part", ".new") or path.name in ("login", "pieces")]  # fmt: skip


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


@pytest.mark.parametrize("name", ["docker", "podman"])
def test_image_is_pulled_once_and_passed_on_to_all_nodes(tmp_path: Path, name: str) -> None:
    cluster = Cluster(tmp_path, name)
    answers = cluster.bring()
    assert [answer.get("id") for answer in answers] == [digest(PULLED)] * 3, answers
    assert [len(one) for one in cluster.calls("pull")] == [1, 0, 0]
    assert [answer["changed"] for answer in answers] == [True] * 3
    assert [answer["from_peers"] for answer in answers] == [0, len(archive_of(PULLED)), len(archive_of(PULLED))]
    assert cluster.ids() == [digest(PULLED)] * 3 and cluster.left() == []
    again = cluster.bring()
    assert [(answer["changed"], answer["from_peers"]) for answer in again] == [(False, 0)] * 3
    assert [len(one) for one in cluster.calls("save")] == [1, 0, 0], "a second call writes no archive"


def test_node_with_the_image_gets_nothing_and_older_one_is_replaced(cluster: Cluster) -> None:
    cluster.have(0, PULLED)
    cluster.have(1, PULLED, "another/name")
    cluster.have(2, b"an older one")
    answers = cluster.bring()
    assert [answer["from_peers"] for answer in answers] == [0, 0, len(archive_of(PULLED))]
    assert [answer["changed"] for answer in answers] == [False, True, True]
    assert cluster.ids() == [digest(PULLED)] * 3
    assert cluster.calls("pull") == [[], [], []] and cluster.calls("load")[1] == []


def test_archive_of_several_pieces_is_passed_on_as_it_is(cluster: Cluster, tmp_path: Path) -> None:
    """The others get it while the first node still loads it, which ends last here."""
    body = os.urandom(MIB) * 70
    (tmp_path / "image.tar").write_bytes(archive_of(body))
    (cluster.places[0] / "store" / "first").write_text(str(cluster.places[2] / "store" / f"image-{digest(body)}"))
    ids = cluster.look(0, archive=str(tmp_path / "image.tar"))["archive"]
    assert ids == [digest(body)]
    answers = cluster.bring(archive=str(tmp_path / "image.tar"), archive_ids=ids)
    assert [answer.get("id") for answer in answers] == ids * 3, answers
    assert [answer["changed"] for answer in answers] == [True] * 3
    assert cluster.calls("pull") == cluster.calls("save") == [[], [], []]
    assert (tmp_path / "image.tar").exists() and cluster.left() == []
    again = cluster.bring(archive=str(tmp_path / "image.tar"), archive_ids=ids)
    assert [(answer["changed"], answer["from_peers"]) for answer in again] == [(False, 0)] * 3
    assert [len(one) for one in cluster.calls("load")] == [1, 1, 1]


def test_archive_of_unknown_size_is_saved_by_the_engine(cluster: Cluster, tmp_path: Path) -> None:
    body = b"\x28\xb5\x2f\xfd" + os.urandom(MIB)
    (tmp_path / "image.tar").write_bytes(archive_of(body))
    answers = cluster.bring(archive=str(tmp_path / "image.tar"), archive_ids=[digest(body)])
    assert [answer.get("id") for answer in answers] == [digest(body)] * 3, answers
    assert [len(one) for one in cluster.calls("save")] == [1, 0, 0]


def test_failed_load_is_reported_and_next_call_completes(cluster: Cluster, tmp_path: Path) -> None:
    body = os.urandom(MIB)
    (tmp_path / "image.tar").write_bytes(archive_of(body))
    (cluster.places[0] / "store" / "full").touch()
    given = {"archive": str(tmp_path / "image.tar"), "archive_ids": [digest(body)]}
    answers = cluster.bring(**given)
    assert "no space left on device" in answers[0]["fault"] and "--tags docker_data_root" in answers[0]["fault"]
    (cluster.places[0] / "store" / "full").unlink()
    assert [answer.get("id") for answer in cluster.bring(**given)] == [digest(body)] * 3


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(
    ("layer", "size"),
    [
        (b"0" * 5000, 5000),
        (gzip.compress(b"0" * 5000), 5000),
        (gzip.compress(b"0" * 5000) + gzip.compress(b""), 0),
        (b"\x28\xb5\x2f\xfd" + b"0" * 5000, 0),
        (b"", 0),
    ],
    ids=["plain", "gzip", "gzip of two parts", "zstd", "empty"],
)
def test_unpacked_size_is_found_without_unpacking_the_archive(
    engine: ModuleType, tmp_path: Path, layer: bytes, size: int, whole: bool
) -> None:
    """By what gzip writes at its end; where that does not tell, 0. A layer of no bytes has a manifest beside it."""
    packed = archive_of(layer)
    (tmp_path / "image.tar").write_bytes(gzip.compress(packed) if whole else packed)
    manifest = len(json.dumps([{"Config": f"{digest(layer)}.json"}]))
    assert engine.unpacked_size(str(tmp_path / "image.tar")) == (size + manifest if size or not layer else 0)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"nothing of the kind", "cannot be read: file could not be opened successfully"),
        (b"", "cannot be read: "),
    ],
)
def test_file_that_is_not_an_image_archive_is_refused(
    cluster: Cluster, tmp_path: Path, content: bytes, said: str
) -> None:
    (tmp_path / "image.tar").write_bytes(content)
    assert said in cluster.look(0, archive=str(tmp_path / "image.tar"))["fault"]


def test_archive_is_read_before_the_engine_is_installed(
    engine: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in check mode, where a role before has only said that it would install it."""
    monkeypatch.setenv("PATH", "/nowhere")
    (tmp_path / "image.tar").write_bytes(archive_of(b"body"))
    asked = {"engine": "docker", "name": NAME, "archive": str(tmp_path / "image.tar")}
    told = engine.look(asked)
    assert told["fault"] == "there is no docker" and told["archive"] == [digest(b"body")]


def test_requirements_are_one_layer_rebuilt_only_when_they_change(cluster: Cluster) -> None:
    words = {"base": "torch:2", "requirements": "einops==0.8\n", "label": "first"}
    (first, *_others) = cluster.bring(**words)
    built = "FROM localhost/muster-"
    assert cluster.look(2)["label"] == "first" and "fault" not in first
    (build,) = cluster.calls("build")[0]
    assert "--network=host" in build and "--label=muster.source=first" in build
    body = next((cluster.places[1] / "store").glob(f"image-{first['id']}")).read_text()
    assert built in body and body.count("\nRUN ") == 1 and "einops" not in body, "as text that no shell reads"
    assert [answer["changed"] for answer in cluster.bring(**words)] == [False] * 3
    assert [answer["changed"] for answer in cluster.bring(**{**words, "label": "second"})] == [True] * 3
    assert [len(one) for one in cluster.calls("build")] == [2, 0, 0]


def test_registry_password_is_in_no_command_line_and_not_kept(cluster: Cluster) -> None:
    (cluster.places[0] / "store" / "refuse").write_text("me s3cr3t")
    denied = cluster.bring(registry_user="me", registry_password="wrong")
    assert "pull access denied" in denied[0]["fault"]
    assert "Correct container_image_registry_user, container_image_registry_password" in denied[0]["fault"]
    assert "node0, from which the image comes, has failed" in denied[1]["fault"]
    answers = cluster.bring(registry_user="me", registry_password="s3cr3t")
    assert [answer.get("id") for answer in answers] == [digest(PULLED)] * 3, answers
    assert cluster.calls("login")[0][-1].endswith("login --username me --password-stdin registry.example")
    assert not any("s3cr3t" in line for node in cluster.calls("") for line in node)
    kept = [
        path for place in cluster.places for path in place.rglob("*") if path.is_file() and path.name != "request.json"
    ]
    assert [path for path in kept if path.name != "refuse" and b"s3cr3t" in path.read_bytes()] == []


def test_full_disk_is_reported_with_remedy_and_next_call_resumes(cluster: Cluster) -> None:
    short = cluster.bring(reserve_gib=10.0**6)
    assert "has" in short[0]["fault"] and "Needed:" in short[0]["fault"], short
    full = cluster.places[2] / "store" / "full"
    full.touch()
    answers = cluster.bring()
    assert [answer.get("id") for answer in answers[:2]] == [digest(PULLED)] * 2, answers
    said = answers[2]["fault"]
    assert "no space left on device" in said and "--tags docker_data_root -e docker_data_root_path=" in said
    assert f"{cluster.places[2]}/store, where docker keeps images, has" in said and "free. Needed: more, for an" in said
    full.unlink()
    again = cluster.bring()
    assert [answer.get("id") for answer in again] == [digest(PULLED)] * 3, again
    assert again[2]["from_peers"] == 0, "what has arrived is not brought again"


def test_needed_space_is_computed_for_each_disk(cluster: Cluster) -> None:
    program = """import json; from image import room_needed
print(json.dumps([room_needed(100, 90, *disks) for disks in ((1, 1, 1), (1, 1, 2), (1, 2, 1), (1, 2, 3))]))"""
    assert json.loads(cluster.python(0, "-c", program)) == [
        {"1": 290}, {"1": 200, "2": 90}, {"1": 190, "2": 100}, {"1": 100, "2": 100, "3": 90},
    ]  # fmt: skip


# An image on a node, as its program has it; `free` is what a disk has.
IMAGE = """
import json, os, shutil, sys, types
import image
from image import Entry, Fault, Image
one = Image(json.loads(sys.argv[1]))
def disk(free): shutil.disk_usage = lambda path: types.SimpleNamespace(free=free())
"""


def test_incomplete_archive_is_removed_before_space_is_checked(cluster: Cluster) -> None:
    cluster.have(0, PULLED)
    given = {**cluster.given, "destination": str(cluster.places[0]), "me": 0, "ids": cluster.ids()}
    left = cluster.places[0] / "image.tar.new"
    left.write_bytes(b"x" * MIB)
    program = f"""{IMAGE}
disk(lambda: 0 if os.path.exists(sys.argv[2]) else 10**12)
print(json.dumps(one.save(one.engine.find(one.name))))"""
    assert json.loads(cluster.python(0, "-c", program, json.dumps(given), str(left)))[0] == len(archive_of(PULLED))


@pytest.mark.parametrize("there", ["", "half", "whole"])
def test_space_is_required_only_for_missing_parts(cluster: Cluster, there: str) -> None:
    """The disk has room for the image, and for half of its archive."""
    given = {**cluster.given, "destination": str(cluster.places[1]), "me": 1, "ids": ["", "", ""]}
    program = f"""{IMAGE}
body, there = os.urandom({4 * MIB}), sys.argv[2]
one.entries = [Entry("image.tar", "id", len(body), str(len(body)), __import__("hashlib").sha256(body).hexdigest())]
if there:
    with open(one.part_path(0) if there == "half" else one.target(0), "wb") as stream:
        stream.write(body[: {2 * MIB}] if there == "half" else body)
        stream.flush()
        os.fsync(stream.fileno())
one.engine.room = lambda: (one.root, {6 * MIB} + {MIB // 4})
one.engine.unpacks_in = lambda: "/proc"
disk(lambda: 10**12)
try:
    print(json.dumps(one.check_room(len(body), len(body) - one.room_taken()) or ""))
except Fault as fault:
    print(json.dumps(str(fault)))"""
    said = json.loads(cluster.python(1, "-c", program, json.dumps(given), there))
    assert said == "" if there else "where docker keeps images, has" in said, said


@pytest.mark.parametrize(("came", "right"), [(2, True), (1, False)])
def test_archive_received_in_verified_pieces_is_not_hashed_again(cluster: Cluster, came: int, right: bool) -> None:
    """Its digest is wrong here, which shows only if it is read."""
    given = {**cluster.given, "destination": str(cluster.places[1]), "me": 1, "ids": ["", "", ""]}
    program = f"""{IMAGE}
import wanted
size = wanted.PIECE + 1
one.entries = [Entry("image.tar", "id", size, str(size), "0" * 64)]
one.pieces, one.first, one.left = one.share(), [0], {{0: 3}}
os.truncate(os.open(one.part_path(0), os.O_RDWR | os.O_CREAT), size)
for number in range(int(sys.argv[2])):
    one.arrived(number, "from_peers")
print(json.dumps(one.is_right(0, one.part_path(0))))"""
    assert json.loads(cluster.python(1, "-c", program, json.dumps(given), str(came))) is right


def test_node_that_was_absent_gets_the_image_next_time(cluster: Cluster) -> None:
    """The others do without it at first."""
    given = {"names": ["node0", "node1"], "addresses": cluster.given["addresses"][:2]}
    places, cluster.places = cluster.places, cluster.places[:2]
    assert [answer.get("id") for answer in cluster.bring(**given)] == [digest(PULLED)] * 2
    cluster.places = places
    answers = cluster.bring()
    assert [answer["from_peers"] for answer in answers] == [0, 0, len(archive_of(PULLED))]


@pytest.fixture
def engine() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("engine", ENGINE)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module


@pytest.mark.parametrize("name", ["docker", "podman"])
def test_output_of_docker_and_podman_is_understood(
    engine: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """While it pulls, the login is where that engine looks for it."""
    monkeypatch.setenv("ENGINE_STORE", str(tmp_path))
    monkeypatch.setenv("PATH", f"{make_engine(tmp_path / 'bin', name)}:{os.environ['PATH']}")
    (tmp_path / "refuse").write_text("me s3cr3t")
    asked, login = engine.Engine(name), tmp_path / "login"
    assert asked.find(NAME) is None and asked.room()[0] == str(tmp_path)
    assert asked.unpacks_in() == {"docker": str(tmp_path), "podman": "/var/tmp"}[name]
    assert asked.run("pull", NAME).returncode != 0
    with engine.logged_in(asked, NAME, "me", "s3cr3t", str(login)):
        assert asked.run("pull", NAME).returncode == 0
    assert asked.find(NAME) == (digest(PULLED), len(PULLED), "") and not login.exists()
    file = tmp_path / "Dockerfile"
    file.write_text("FROM a")
    asked.run("build", "--label=muster.source=of-this", "--tag=b:1", "--file", str(file))
    assert asked.find("b:1").label == "of-this"


@pytest.mark.parametrize(
    ("uid", "file", "runroot"), [(0, "/etc/containers/", True), (1000, "~/.config/containers/", False)]
)
def test_podman_remedy_names_the_right_storage_conf(
    engine: ModuleType, monkeypatch: pytest.MonkeyPatch, uid: int, file: str, runroot: bool
) -> None:
    """With all that podman needs in that file: with graphroot alone root's does not start."""
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    said = engine.Engine("podman").remedy()
    assert f"{file}storage.conf" in said and "[storage], driver = " in said and ("runroot = " in said) == runroot


@pytest.mark.parametrize(
    ("name", "uid", "words"),
    [
        ("docker", 1000, ["build"]),
        ("podman", 0, ["build"]),
        ("podman", 1000, ["--cgroup-manager=cgroupfs", "build"]),
    ],
)
def test_rootless_podman_builds_with_cgroupfs(
    engine: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str, uid: int, words: list[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    assert engine.Engine(name).builder() == words


@pytest.mark.parametrize(
    ("name", "registry", "whole"),
    [
        ("torch", "docker.io", "docker.io/library/torch"),
        ("pytorch/pytorch:2.5", "docker.io", "docker.io/pytorch/pytorch:2.5"),
        ("docker.io/a/b", "docker.io", "docker.io/a/b"),
        ("nvcr.io/nvidia/pytorch:24.10-py3", "nvcr.io", "nvcr.io/nvidia/pytorch:24.10-py3"),
        ("host:5000/a", "host:5000", "host:5000/a"),
        ("localhost/a", "localhost", "localhost/a"),
    ],
)
def test_registry_and_full_name_are_derived_from_image_name(
    engine: ModuleType, name: str, registry: str, whole: str
) -> None:
    assert (engine.registry_of(name), engine.whole_name(name)) == (registry, whole)


@pytest.mark.parametrize(
    ("said", "user", "todo"),
    [
        ("manifest for host:5000/a:2 not found: manifest unknown: manifest unknown", "me", "image's name and tag"),
        ("name unknown: repository name not known to registry", "", "image's name and tag"),
        (
            "pull access denied for a, repository does not exist or may require 'docker login'",
            "",
            "or give container_im",
        ),
        ("unauthorized: authentication required", "me", "Correct container_image_registry_user, container_image_reg"),
        ('invalid username/password: unauthorized: ""', "me", "Correct container_image_registry_user, container_image"),
        ("toomanyrequests: You have reached your pull rate limit", "", "a login may pull more"),
        (
            "dial tcp 10.0.0.2:5000: connect: connection refused",
            "me",
            "See whether host:5000 runs and `curl https://ho",
        ),
        ("lookup host on 127.0.0.53:53: no such host", "", "See whether host:5000 runs"),
        ("x509: certificate signed by unknown authority", "", "into /etc/docker/certs.d/host:5000/ca.crt on this node"),
        ("toomanyrequests: You have reached your pull rate limit", "me", "Wait, then run this again"),
        ("http: server gave HTTP response to HTTPS client", "", "insecure-registries: [host:5000]"),
        ("something else", "", ""),
        ("mkdir /var/lib/x: permission denied", "me", ""),
        ("x509: certificate has expired or is not yet valid", "", ""),
    ],
)
def test_known_registry_errors_get_a_remedy(engine: ModuleType, said: str, user: str, todo: str) -> None:
    fault = engine.Engine("docker").registry_fault(
        "a cannot be pulled", "host:5000", subprocess.CompletedProcess([], 1, "", said), user
    )
    assert str(fault).startswith(f"a cannot be pulled: {said}.") and todo in str(fault)
    assert todo or str(fault).endswith(f"{said}.")


def test_certificate_remedy_for_docker_hub_is_system_wide(engine: ModuleType) -> None:
    said = engine.registry_remedy("x509: certificate signed by unknown authority", "docker.io", "")
    assert "/usr/local/share/ca-certificates/NAME.crt" in said and "certs.d" not in said


@pytest.mark.parametrize(
    ("said", "user", "todo"),
    [
        (
            "pull access denied for team/base, may require 'docker login': denied: requested access",
            "",
            "name after FROM",
        ),
        ("ERROR: failed to resolve source metadata for ghcr.io/a/b:1: 403 Forbidden", "", "name after FROM"),
        (
            "Error: creating build container: reading manifest 1 in ghcr.io/a/b: unauthorized",
            "me",
            "Correct container_im",
        ),
        ("toomanyrequests: You have reached your pull rate limit", "", "a login may pull more"),
        ("E: Could not open lock file: open (13: Permission denied)", "", ""),
        ("HTTP Error 403: Forbidden: the step `pip install` failed", "", ""),
        ("write /layer.tar: no space left on device", "", "--tags docker_data_root"),
    ],
)
def test_refused_base_image_of_a_build_gets_a_remedy(engine: ModuleType, said: str, user: str, todo: str) -> None:
    done = subprocess.CompletedProcess([], 1, "", said)
    told = str(engine.Engine("docker").build_fault("a:1 cannot be built", done, user))
    assert told.startswith(f"a:1 cannot be built: {said}") and todo in told
    assert ("container_image_registry_user" in told) == bool(todo and "docker_data_root" not in todo)


def test_context_hash_depends_on_contents_but_not_on_git(engine: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM a\n")
    (tmp_path / ".git").mkdir()
    before = engine.context_hash(str(tmp_path))
    (tmp_path / ".git" / "HEAD").write_text("x")
    assert engine.context_hash(str(tmp_path)) == before
    (tmp_path / "Dockerfile").write_text("FROM b\n")
    assert engine.context_hash(str(tmp_path)) != before


def test_context_is_hashed_without_loading_whole_files(engine: ModuleType, tmp_path: Path) -> None:
    with (tmp_path / "weights").open("wb") as stream:
        stream.truncate(16 * MIB)
    tracemalloc.start()
    try:
        engine.context_hash(str(tmp_path))
        assert tracemalloc.get_traced_memory()[1] < 8 * MIB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("link", [False, True])
def test_socket_or_pipe_in_a_context_is_refused(
    engine: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, link: bool
) -> None:
    monkeypatch.chdir(tmp_path)  # the name of a socket is short
    context = tmp_path / "context"
    context.mkdir()
    place = Path("there") if link else Path("context/odd")
    if link:
        (context / "odd").symlink_to("../there")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(place))
    for _kind in ("socket", "pipe"):
        said = engine.look({"context": str(context)})["fault"]
        assert f"{context}/odd is not a regular file. Needed: " in said and "\n" not in said
        place.unlink()
        os.mkfifo(place)
    place.unlink()
    if link:
        assert engine.look({"context": str(context)})["fault"] == "", "a link to nothing harms nobody"


@pytest.mark.parametrize(
    ("config", "digests", "known", "wrong"),
    [
        (f"{'a' * 64}.json", [], ["a" * 64], ""),
        (f"blobs/sha256/{'a' * 64}", [f"sha256:{'b' * 64}"], ["a" * 64, "b" * 64], ""),
        ("--help.json", [], [], "'--help.json'"),
        (f"{'A' * 64}.json", [], [], f"'{'A' * 64}.json'"),
        (f"{'a' * 64}.json", ["--help"], [], "'--help'"),
        (f"{'a' * 64}.json", [f"sha256:{'b' * 64}\n"], [], f"'sha256:{'b' * 64}\\n'"),
        (f"{'a' * 64}.json", [5], [], "5"),
    ],
)
def test_archive_must_name_its_image_by_digests(
    engine: ModuleType, tmp_path: Path, config: str, digests: list[object], known: list[str], wrong: str
) -> None:
    """An engine is asked for them, and must never be given a word such as --help."""
    (tmp_path / "manifest.json").write_text(json.dumps([{"Config": config}]))
    (tmp_path / "index.json").write_text(json.dumps({"manifests": [{"digest": one} for one in digests]}))
    path = tmp_path / "image.tar"
    with tarfile.open(path, "w") as archive:
        for name in ("manifest.json", "index.json"):
            archive.add(tmp_path / name, name)
    told = engine.look({"archive": str(path)})
    assert told["archive"] == known
    assert f"image.tar calls its image {wrong}. Needed: " in told["fault"] if wrong else not told["fault"]


# --- The role's own tasks ---------------------------------------------------------------------------------------------


def tasks_of(name: str) -> dict[str, Any]:
    """The tasks of a file of the role, by their names."""
    path = str(ROLES / "container_image" / "tasks" / name)
    return {task["name"]: task for task in DataLoader().load_from_file(path, trusted_as_template=True)}


def value_of(expression: str, **variables: Any) -> Any:
    return Templar(DataLoader(), variables=variables).template(trust_as_template(f"{{{{ {expression} }}}}"))


@pytest.mark.parametrize(
    ("there", "missing"),
    [(["podman", "newuidmap"], False), (["podman"], True), (["newuidmap"], True), ([], True)],
)
def test_podman_is_installed_only_where_a_part_is_missing(tmp_path: Path, there: list[str], missing: bool) -> None:
    tasks = tasks_of("install.yml")
    asked, installs = tasks["Check for podman"], tasks["Install podman and its rootless dependencies"]
    (tmp_path / "sh").symlink_to(shutil.which("sh") or "/bin/sh")
    for name in there:
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    words = shlex.split(asked["ansible.builtin.command"])
    done = subprocess.run(words, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    told = {"rc": done.returncode, "stdout": done.stdout, "stdout_lines": done.stdout.splitlines()}
    assert value_of(installs["when"], __container_image_podman=told, ansible_check_mode=False) is missing


def test_lingering_is_enabled_only_where_systemd_runs() -> None:
    given = tasks_of("install.yml")["Ensure the user's services run without a login"]["ansible.builtin.command"]
    assert given["argv"][:2] == ["loginctl", "enable-linger"] and given["removes"] == "/run/systemd/system"


@pytest.mark.parametrize(
    ("given", "user"),
    [
        ({}, ""),
        ({"job": {"image": "torch:1"}}, ""),
        ({"job": {"user": "alice"}}, "alice"),
        ({"job": {"user": "alice"}, "launch_user": "bob"}, "bob"),
    ],
)
def test_image_belongs_to_the_user_who_runs_the_job(given: dict[str, Any], user: str) -> None:
    path = str(ROLES / "container_image" / "defaults" / "main.yml")
    defaults = DataLoader().load_from_file(path, trusted_as_template=True)
    assert Templar(DataLoader(), variables=given).template(defaults["container_image_user"]) == user


def test_user_cannot_replace_build_context_while_root_writes_it(tmp_path: Path) -> None:
    """All directories of the context stay root's; the user gets only the files, once all of them are there."""
    tasks = tasks_of("configure.yml")
    names = list(tasks)
    copies = "Copy the build context to the first node"
    gives = "Ensure the user owns the files of the build context"
    assert tasks[copies]["ansible.builtin.copy"]["owner"] == "root" and names.index(copies) + 1 == names.index(gives)
    context = tmp_path / "context"
    (context / "sub").mkdir(parents=True)
    for name in ("Dockerfile", "sub/file"):
        (context / name).touch()
    (context / "link").symlink_to("/etc/passwd")
    (tmp_path / "chown").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "chown").chmod(0o755)
    known = {"__container_image_root_path": str(tmp_path), "__container_image_user": "alice"}
    words = Templar(DataLoader(), variables=known).template(tasks[gives]["ansible.builtin.command"]["argv"])
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    user, *given = done.stdout.split()
    assert user == "alice" and sorted(given) == [f"{context}/Dockerfile", f"{context}/sub/file"]
