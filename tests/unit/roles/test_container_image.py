# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Three nodes on one machine get the same image, fetched only once, with a fake container engine."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tarfile
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from ansible_collections.muster.training.plugins.module_utils._containers import image_transfer as engine
from tests.support.fake_engine import archive_of
from tests.support.programs import install
from tests.unit.hostile import BRACKETS
from tests.unit.supervised import free_port

CHECKOUT = Path(__file__).resolve().parents[3]
ROLES = CHECKOUT / "roles"
PACKAGE = "ansible_collections.muster.training.plugins.module_utils"
INSPECT = f"""import json, sys
from {PACKAGE}._containers.image_transfer import inspect
print(json.dumps(inspect(json.loads(sys.argv[1]))))"""
MIB = 2**20
NAME = "registry.example/team/torch:1"
PULLED = f"pulled {NAME}\n".encode() * 4000


def digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def make_engine(directory: Path, name: str) -> Path:
    """Create and return a directory for PATH with an engine of this name."""
    directory.mkdir()
    path = directory / name
    command = f'ENGINE_NAME={name} exec {sys.executable} -S {CHECKOUT}/tests/support/fake_engine.py "$@"'
    path.write_text(f"#!/bin/sh\n{command}\n")
    path.chmod(0o755)
    return directory


class ImageCluster:
    """Nodes that are directories of this machine, each with an engine and an address in 127.0.0.0/8."""

    def __init__(self, root: Path, engine: str = "docker", nodes: int = 3) -> None:
        self.lib = root / "lib"
        install("_container_image.image", self.lib)
        self.engine, self.bin = engine, make_engine(root / "bin", engine)
        self.directories = [root / f"node{number}" for number in range(nodes)]
        for directory in self.directories:
            (directory / ".muster-stage").mkdir(parents=True, mode=0o700)
            (directory / "store").mkdir()
        self.base_request: dict[str, Any] = {
            "engine": engine, "name": NAME, "base": NAME, "archive": "", "archive_ids": [], "context": "",
            "dockerfile": "", "requirements": "", "label": "", "refresh": False, "registry_user": "",
            "registry_password": "", "reserve_gib": 0.0, "port": free_port(), "token": "word",
            "names": [f"node{number}" for number in range(nodes)],
            "addresses": [f"127.0.0.{31 + number}" for number in range(nodes)],
        }  # fmt: skip

    def environment(self, number: int) -> dict[str, str]:
        store = str(self.directories[number] / "store")
        return {**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}", "ENGINE_STORE": store}

    def python(self, number: int, *arguments: str) -> str:
        completed = subprocess.run(
            [sys.executable, *arguments],
            env=self.environment(number),
            cwd=self.lib,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
            stdin=subprocess.DEVNULL,
        )
        assert completed.stdout, completed.stderr
        return completed.stdout

    def call(self, verb: str, number: int) -> dict[str, Any]:
        request = str(self.directories[number] / ".muster-stage" / "request.json")
        output = self.python(number, str(self.lib / "image.py"), verb, request)
        result: dict[str, Any] = json.loads(output.rpartition("MUSTER-RESULT ")[2])
        return result

    def inspect(self, number: int, **overrides: str) -> dict[str, Any]:
        request = {"engine": self.engine, "name": NAME, **overrides}
        result: dict[str, Any] = json.loads(self.python(number, "-c", INSPECT, json.dumps(request)))
        return result

    def ids(self) -> list[str]:
        return [self.inspect(number)["id"] for number in range(len(self.directories))]

    def distribute(self, **overrides: Any) -> list[dict[str, Any]]:
        image_ids = self.ids()
        for number, directory in enumerate(self.directories):
            request = {**self.base_request, "destination": str(directory), "me": number, "ids": image_ids, **overrides}
            (directory / ".muster-stage" / "request.json").write_text(json.dumps(request))
        for number in range(len(self.directories)):
            self.call("start", number)
        return [self.call("follow", number) for number in range(len(self.directories))]

    def calls(self, verb: str) -> list[list[str]]:
        """Return the requests of one kind that each engine received."""
        call_files = [directory / "store" / "calls" for directory in self.directories]
        lines = [call_file.read_text().splitlines() if call_file.exists() else [] for call_file in call_files]
        return [[line for line in node_lines if f" {verb} " in f" {line} "] for node_lines in lines]

    def store_image(self, number: int, body: bytes, name: str = NAME) -> None:
        program = (
            "import sys; from tests.support.fake_engine import store_image; "
            "store_image(sys.stdin.buffer.read(), sys.argv[1])"
        )
        argv = [sys.executable, "-c", program, name]
        subprocess.run(argv, env=self.environment(number), cwd=CHECKOUT, input=body, check=True)

    def leftover_files(self) -> list[str]:
        """Return temporary files that were not removed."""
        return [str(path.relative_to(directory)) for directory in self.directories for path in directory.rglob("*")
                if path.suffix in (".tar", ".part", ".new") or path.name in ("login", "pieces")]  # fmt: skip


@pytest.fixture
def cluster(tmp_path: Path) -> ImageCluster:
    return ImageCluster(tmp_path)


@pytest.mark.parametrize("name", [pytest.param("docker", marks=pytest.mark.thorough), "podman"])
def test_image_is_pulled_once_and_passed_on_to_all_nodes(tmp_path: Path, name: str) -> None:
    cluster = ImageCluster(tmp_path, name)
    results = cluster.distribute()
    assert [result.get("id") for result in results] == [digest(PULLED)] * 3, results
    assert [len(calls) for calls in cluster.calls("pull")] == [1, 0, 0]
    assert [result["changed"] for result in results] == [True] * 3
    assert [result["from_peers"] for result in results] == [0, len(archive_of(PULLED)), len(archive_of(PULLED))]
    assert cluster.ids() == [digest(PULLED)] * 3 and cluster.leftover_files() == []
    again = cluster.distribute()
    assert [(result["changed"], result["from_peers"]) for result in again] == [(False, 0)] * 3
    assert [len(calls) for calls in cluster.calls("save")] == [1, 0, 0], "a second call wrote an archive"


def test_node_with_the_image_gets_nothing_and_an_older_image_is_replaced(cluster: ImageCluster) -> None:
    cluster.store_image(0, PULLED)
    cluster.store_image(1, PULLED, "another/name")
    cluster.store_image(2, b"an older one")
    results = cluster.distribute()
    assert [result["from_peers"] for result in results] == [0, 0, len(archive_of(PULLED))]
    assert [result["changed"] for result in results] == [False, True, True]
    assert cluster.ids() == [digest(PULLED)] * 3
    assert cluster.calls("pull") == [[], [], []] and cluster.calls("load")[1] == []


def test_archive_of_several_pieces_is_passed_on_unchanged(cluster: ImageCluster, tmp_path: Path) -> None:
    """The other nodes receive the archive while the first node is still loading it."""
    body = os.urandom(MIB) * 70
    (tmp_path / "image.tar").write_bytes(archive_of(body))
    (cluster.directories[0] / "store" / "first").write_text(
        str(cluster.directories[2] / "store" / f"image-{digest(body)}")
    )
    ids = cluster.inspect(0, archive=str(tmp_path / "image.tar"))["archive"]
    assert ids == [digest(body)]
    results = cluster.distribute(archive=str(tmp_path / "image.tar"), archive_ids=ids)
    assert [result.get("id") for result in results] == ids * 3, results
    assert [result["changed"] for result in results] == [True] * 3
    assert cluster.calls("pull") == cluster.calls("save") == [[], [], []]
    assert (tmp_path / "image.tar").exists() and cluster.leftover_files() == []
    again = cluster.distribute(archive=str(tmp_path / "image.tar"), archive_ids=ids)
    assert [(result["changed"], result["from_peers"]) for result in again] == [(False, 0)] * 3
    assert [len(calls) for calls in cluster.calls("load")] == [1, 1, 1]


def test_archive_of_unknown_size_is_saved_by_the_engine(cluster: ImageCluster, tmp_path: Path) -> None:
    body = b"\x28\xb5\x2f\xfd" + os.urandom(MIB)
    (tmp_path / "image.tar").write_bytes(archive_of(body))
    results = cluster.distribute(archive=str(tmp_path / "image.tar"), archive_ids=[digest(body)])
    assert [result.get("id") for result in results] == [digest(body)] * 3, results
    assert [len(calls) for calls in cluster.calls("save")] == [1, 0, 0]


def test_failed_load_is_reported_and_next_call_completes(cluster: ImageCluster, tmp_path: Path) -> None:
    body = os.urandom(MIB)
    (tmp_path / "image.tar").write_bytes(archive_of(body))
    (cluster.directories[0] / "store" / "full").touch()
    overrides = {"archive": str(tmp_path / "image.tar"), "archive_ids": [digest(body)]}
    results = cluster.distribute(**overrides)
    assert (
        "no space left on device" in results[0]["step_error"] and "--tags docker_data_root" in results[0]["step_error"]
    )
    (cluster.directories[0] / "store" / "full").unlink()
    assert [result.get("id") for result in cluster.distribute(**overrides)] == [digest(body)] * 3


@pytest.mark.parametrize("compressed", [False, True])
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
def test_unpacked_size_is_determined_without_unpacking_the_archive(
    tmp_path: Path, layer: bytes, size: int, compressed: bool
) -> None:
    """gzip stores the size at the end of the file; 0 means unknown. A zero-byte layer has a manifest next to it."""
    packed = archive_of(layer)
    (tmp_path / "image.tar").write_bytes(gzip.compress(packed) if compressed else packed)
    manifest = len(json.dumps([{"Config": f"{digest(layer)}.json"}]))
    assert engine.unpacked_size(str(tmp_path / "image.tar")) == (size + manifest if size or not layer else 0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"nothing of the kind", "cannot be read: file could not be opened successfully"),
        (b"", "cannot be read: "),
    ],
)
def test_file_that_is_not_an_image_archive_is_refused(
    cluster: ImageCluster, tmp_path: Path, content: bytes, message: str
) -> None:
    (tmp_path / "image.tar").write_bytes(content)
    assert message in cluster.inspect(0, archive=str(tmp_path / "image.tar"))["engine_error"]


def test_archive_is_read_before_the_engine_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In check mode, an earlier role only reports that it would install the engine."""
    monkeypatch.setenv("PATH", "/nowhere")
    (tmp_path / "image.tar").write_bytes(archive_of(b"body"))
    request = {"engine": "docker", "name": NAME, "archive": str(tmp_path / "image.tar")}
    state = engine.inspect(request)
    assert state["engine_error"] == "docker is not installed" and state["archive"] == [digest(b"body")]


def test_requirements_are_one_layer_rebuilt_only_when_they_change(cluster: ImageCluster) -> None:
    overrides = {"base": "torch:2", "requirements": "einops==0.8\n", "label": "first"}
    (first, *_other_results) = cluster.distribute(**overrides)
    from_line = "FROM localhost/muster-"
    assert cluster.inspect(2)["label"] == "first" and "step_error" not in first
    (build,) = cluster.calls("build")[0]
    assert "--network=host" in build and "--label=muster.source=first" in build
    body = next((cluster.directories[1] / "store").glob(f"image-{first['id']}")).read_text()
    assert from_line in body and body.count("\nRUN ") == 1 and "einops" not in body, (
        "requirements must be encoded, since a shell reads the line"
    )
    assert [result["changed"] for result in cluster.distribute(**overrides)] == [False] * 3
    assert [result["changed"] for result in cluster.distribute(**{**overrides, "label": "second"})] == [True] * 3
    assert [len(calls) for calls in cluster.calls("build")] == [2, 0, 0]


def test_registry_password_appears_in_no_command_line_and_is_not_kept(cluster: ImageCluster) -> None:
    (cluster.directories[0] / "store" / "refuse").write_text("me s3cr3t")
    denied = cluster.distribute(registry_user="me", registry_password="wrong")
    assert "pull access denied" in denied[0]["step_error"]
    assert "Correct container_image_registry_user, container_image_registry_password" in denied[0]["step_error"]
    assert "node0, which provides the image, has failed" in denied[1]["step_error"]
    results = cluster.distribute(registry_user="me", registry_password="s3cr3t")
    assert [result.get("id") for result in results] == [digest(PULLED)] * 3, results
    assert cluster.calls("login")[0][-1].endswith("login --username me --password-stdin registry.example")
    assert not any("s3cr3t" in line for node in cluster.calls("") for line in node)
    stored_files = [
        path
        for directory in cluster.directories
        for path in directory.rglob("*")
        if path.is_file() and path.name != "request.json"
    ]
    assert [path for path in stored_files if path.name != "refuse" and b"s3cr3t" in path.read_bytes()] == []


def test_full_disk_is_reported_with_remedy_and_next_call_resumes(cluster: ImageCluster) -> None:
    short = cluster.distribute(reserve_gib=10.0**6)
    assert " free, but needs " in short[0]["step_error"] and "plus a reserve of" in short[0]["step_error"], short
    full = cluster.directories[2] / "store" / "full"
    full.touch()
    results = cluster.distribute()
    assert [result.get("id") for result in results[:2]] == [digest(PULLED)] * 2, results
    message = results[2]["step_error"]
    assert "no space left on device" in message and "--tags docker_data_root -e docker_data_root_path=" in message
    assert (
        f"{cluster.directories[2]}/store, where docker keeps images, has" in message
        and "free, but loading the " in message
        and " image needs more than twice its size there" in message
    )
    full.unlink()
    again = cluster.distribute()
    assert [result.get("id") for result in again] == [digest(PULLED)] * 3, again
    assert again[2]["from_peers"] == 0, "received data was transferred again"


def test_needed_space_is_computed_for_each_disk(cluster: ImageCluster) -> None:
    program = f"""import json; from {PACKAGE}._container_image.transfer import bytes_needed
print(json.dumps([bytes_needed(100, 90, *disks) for disks in ((1, 1, 1), (1, 1, 2), (1, 2, 1), (1, 2, 3))]))"""
    assert json.loads(cluster.python(0, "-c", program)) == [
        {"1": 290}, {"1": 200, "2": 90}, {"1": 190, "2": 100}, {"1": 100, "2": 100, "3": 90},
    ]  # fmt: skip


# Creates an image transfer on a node, and can fake the free space on its disks.
CREATE_TRANSFER = f"""
import json, os, shutil, sys, types
from {PACKAGE}._container_image.transfer import FileEntry, ImageTransfer, StepError
transfer = ImageTransfer(json.loads(sys.argv[1]))
def set_free_space(free): shutil.disk_usage = lambda path: types.SimpleNamespace(free=free())
"""


def test_incomplete_archive_is_removed_before_space_is_checked(cluster: ImageCluster) -> None:
    cluster.store_image(0, PULLED)
    request = {**cluster.base_request, "destination": str(cluster.directories[0]), "me": 0, "ids": cluster.ids()}
    partial = cluster.directories[0] / "image.tar.new"
    partial.write_bytes(b"x" * MIB)
    program = f"""{CREATE_TRANSFER}
set_free_space(lambda: 0 if os.path.exists(sys.argv[2]) else 10**12)
print(json.dumps(transfer.save_archive(transfer.engine.find(transfer.name))))"""
    assert json.loads(cluster.python(0, "-c", program, json.dumps(request), str(partial)))[0] == len(archive_of(PULLED))


@pytest.mark.parametrize("present", ["", "half", "whole"])
def test_space_is_required_only_for_missing_parts(cluster: ImageCluster, present: str) -> None:
    """The disk has space for the image, and for half of its archive."""
    request = {**cluster.base_request, "destination": str(cluster.directories[1]), "me": 1, "ids": ["", "", ""]}
    program = f"""{CREATE_TRANSFER}
body, present = os.urandom({4 * MIB}), sys.argv[2]
sha256 = __import__("hashlib").sha256(body).hexdigest()
transfer.entries = [FileEntry("image.tar", "id", len(body), str(len(body)), sha256)]
if present:
    with open(transfer.part_path(0) if present == "half" else transfer.target(0), "wb") as stream:
        stream.write(body[: {2 * MIB}] if present == "half" else body)
        stream.flush()
        os.fsync(stream.fileno())
transfer.engine.free_space = lambda: (transfer.root, {6 * MIB} + {MIB // 4})
transfer.engine.unpack_directory = lambda: "/proc"
set_free_space(lambda: 10**12)
try:
    print(json.dumps(transfer.check_disk_space(len(body), len(body) - transfer.archive_bytes_on_disk()) or ""))
except StepError as error:
    print(json.dumps(str(error)))"""
    message = json.loads(cluster.python(1, "-c", program, json.dumps(request), present))
    assert message == "" if present else "where docker keeps images, has" in message, message


@pytest.mark.parametrize(("received", "matches"), [(2, True), (1, False)])
def test_archive_received_in_verified_pieces_is_not_hashed_again(
    cluster: ImageCluster, received: int, matches: bool
) -> None:
    """The wrong digest is detected only if the archive is read."""
    request = {**cluster.base_request, "destination": str(cluster.directories[1]), "me": 1, "ids": ["", "", ""]}
    program = f"""{CREATE_TRANSFER}
from {PACKAGE}._stage_data.pieces import PIECE_SIZE
size = PIECE_SIZE + 1
transfer.entries = [FileEntry("image.tar", "id", size, str(size), "0" * 64)]
transfer.pieces, transfer.first_pieces, transfer.missing_counts = transfer.assign_pieces(), [0], {{0: 3}}
os.truncate(os.open(transfer.part_path(0), os.O_RDWR | os.O_CREAT), size)
for number in range(int(sys.argv[2])):
    transfer.record_piece(number, "from_peers")
print(json.dumps(transfer.matches_content(0, transfer.part_path(0))))"""
    assert json.loads(cluster.python(1, "-c", program, json.dumps(request), str(received))) is matches


def test_node_that_was_absent_gets_the_image_next_time(cluster: ImageCluster) -> None:
    """The first call succeeds without it."""
    overrides = {"names": ["node0", "node1"], "addresses": cluster.base_request["addresses"][:2]}
    directories, cluster.directories = cluster.directories, cluster.directories[:2]
    assert [result.get("id") for result in cluster.distribute(**overrides)] == [digest(PULLED)] * 2
    cluster.directories = directories
    results = cluster.distribute()
    assert [result["from_peers"] for result in results] == [0, 0, len(archive_of(PULLED))]


@pytest.mark.parametrize("name", ["docker", "podman"])
def test_output_of_docker_and_podman_is_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """During a pull, the login is stored where that engine expects it."""
    monkeypatch.setenv("ENGINE_STORE", str(tmp_path))
    monkeypatch.setenv("PATH", f"{make_engine(tmp_path / 'bin', name)}:{os.environ['PATH']}")
    (tmp_path / "refuse").write_text("me s3cr3t")
    tested_engine, login = engine.Engine(name), tmp_path / "login"
    assert tested_engine.find(NAME) is None and tested_engine.free_space()[0] == str(tmp_path)
    assert tested_engine.unpack_directory() == {"docker": str(tmp_path), "podman": "/var/tmp"}[name]
    assert tested_engine.run("pull", NAME).returncode != 0
    with engine.temporary_login(tested_engine, NAME, "me", "s3cr3t", str(login)):
        assert tested_engine.run("pull", NAME).returncode == 0
    assert tested_engine.find(NAME) == (digest(PULLED), len(PULLED), "") and not login.exists()
    file = tmp_path / "Dockerfile"
    file.write_text("FROM a")
    tested_engine.run("build", "--label=muster.source=of-this", "--tag=b:1", "--file", str(file))
    built = tested_engine.find("b:1")
    assert built and built.label == "of-this"


@pytest.mark.parametrize(
    ("uid", "file", "runroot"), [(0, "/etc/containers/", True), (1000, "~/.config/containers/", False)]
)
def test_podman_remedy_names_the_right_storage_conf(
    monkeypatch: pytest.MonkeyPatch, uid: int, file: str, runroot: bool
) -> None:
    """The remedy lists all settings that podman needs in that file: root's podman needs more than graphroot."""
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    remedy = engine.Engine("podman").remedy()
    assert f"{file}storage.conf" in remedy and "[storage], driver = " in remedy and ("runroot = " in remedy) == runroot


@pytest.mark.parametrize(
    ("name", "uid", "arguments"),
    [
        ("docker", 1000, ["build"]),
        ("podman", 0, ["build"]),
        ("podman", 1000, ["--cgroup-manager=cgroupfs", "build"]),
    ],
)
def test_rootless_podman_builds_with_cgroupfs(
    monkeypatch: pytest.MonkeyPatch, name: str, uid: int, arguments: list[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    assert engine.Engine(name).builder() == arguments


@pytest.mark.parametrize(
    ("name", "registry", "qualified"),
    [
        ("torch", "docker.io", "docker.io/library/torch"),
        ("pytorch/pytorch:2.5", "docker.io", "docker.io/pytorch/pytorch:2.5"),
        ("docker.io/a/b", "docker.io", "docker.io/a/b"),
        ("nvcr.io/nvidia/pytorch:24.10-py3", "nvcr.io", "nvcr.io/nvidia/pytorch:24.10-py3"),
        ("host:5000/a", "host:5000", "host:5000/a"),
        ("localhost/a", "localhost", "localhost/a"),
    ],
)
def test_registry_and_full_name_are_derived_from_image_name(name: str, registry: str, qualified: str) -> None:
    assert (engine.registry_of(name), engine.qualified_name(name)) == (registry, qualified)


@pytest.mark.parametrize(
    ("message", "user", "remedy"),
    [
        ("manifest for host:5000/a:2 not found: manifest unknown: manifest unknown", "me", "image's name and tag"),
        ("name unknown: repository name not known to registry", "", "image's name and tag"),
        (
            "pull access denied for a, repository does not exist or may require 'docker login'",
            "",
            "or set container_im",
        ),
        ("unauthorized: authentication required", "me", "Correct container_image_registry_user, container_image_reg"),
        ('invalid username/password: unauthorized: ""', "me", "Correct container_image_registry_user, container_image"),
        ("toomanyrequests: You have reached your pull rate limit", "", "a login raises the limit"),
        (
            "dial tcp 10.0.0.2:5000: connect: connection refused",
            "me",
            "Check whether host:5000 is running, and whether this node can reach it with `curl https://ho",
        ),
        ("lookup host on 127.0.0.53:53: no such host", "", "Check whether host:5000 is running"),
        ("x509: certificate signed by unknown authority", "", "into /etc/docker/certs.d/host:5000/ca.crt on this node"),
        ("toomanyrequests: You have reached your pull rate limit", "me", "Wait, then run this again"),
        ("http: server gave HTTP response to HTTPS client", "", "insecure-registries: [host:5000]"),
        ("something else", "", ""),
        ("mkdir /var/lib/x: permission denied", "me", ""),
        ("x509: certificate has expired or is not yet valid", "", ""),
    ],
)
def test_known_registry_errors_get_a_remedy(message: str, user: str, remedy: str) -> None:
    error = engine.Engine("docker").registry_error(
        "a cannot be pulled", "host:5000", subprocess.CompletedProcess([], 1, "", message), user
    )
    assert str(error).startswith(f"a cannot be pulled: {message}.") and remedy in str(error)
    assert remedy or str(error).endswith(f"{message}.")


def test_certificate_remedy_for_docker_hub_is_system_wide() -> None:
    remedy = engine.suggest_remedy("x509: certificate signed by unknown authority", "docker.io", "")
    assert "/usr/local/share/ca-certificates/NAME.crt" in remedy and "certs.d" not in remedy


@pytest.mark.parametrize(
    ("message", "user", "remedy"),
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
        ("toomanyrequests: You have reached your pull rate limit", "", "a login raises the limit"),
        ("E: Could not open lock file: open (13: Permission denied)", "", ""),
        ("HTTP Error 403: Forbidden: the step `pip install` failed", "", ""),
        ("write /layer.tar: no space left on device", "", "--tags docker_data_root"),
    ],
)
def test_refused_base_image_of_a_build_gets_a_remedy(message: str, user: str, remedy: str) -> None:
    completed = subprocess.CompletedProcess([], 1, "", message)
    error = str(engine.Engine("docker").build_error("a:1 cannot be built", completed, user))
    assert error.startswith(f"a:1 cannot be built: {message}") and remedy in error
    assert ("container_image_registry_user" in error) == bool(remedy and "docker_data_root" not in remedy)


def test_context_hash_depends_on_contents_but_not_on_git(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM a\n")
    (tmp_path / ".git").mkdir()
    before = engine.context_hash(str(tmp_path))
    (tmp_path / ".git" / "HEAD").write_text("x")
    assert engine.context_hash(str(tmp_path)) == before
    (tmp_path / "Dockerfile").write_text("FROM b\n")
    assert engine.context_hash(str(tmp_path)) != before


def test_context_is_hashed_without_loading_whole_files(tmp_path: Path) -> None:
    with (tmp_path / "weights").open("wb") as stream:
        stream.truncate(16 * MIB)
    tracemalloc.start()
    try:
        engine.context_hash(str(tmp_path))
        assert tracemalloc.get_traced_memory()[1] < 8 * MIB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("link", [False, True])
def test_socket_or_pipe_in_a_context_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, link: bool) -> None:
    monkeypatch.chdir(tmp_path)  # the length of a socket's path is limited
    context = tmp_path / "context"
    context.mkdir()
    path = Path("there") if link else Path("context/odd")
    if link:
        (context / "odd").symlink_to("../there")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
    for _kind in ("socket", "pipe"):
        message = engine.inspect({"context": str(context)})["engine_error"]
        assert (
            f"{context}/odd is not a regular file, but everything next to a Dockerfile is copied " in message
            and "\n" not in message
        )
        path.unlink()
        os.mkfifo(path)
    path.unlink()
    if link:
        assert engine.inspect({"context": str(context)})["engine_error"] == "", "a broken link must be accepted"


@pytest.mark.parametrize(
    ("config", "digests", "expected_ids", "wrong"),
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
    tmp_path: Path, config: str, digests: list[object], expected_ids: list[str], wrong: str
) -> None:
    """They become arguments of the engine, so they must not be options such as --help."""
    (tmp_path / "manifest.json").write_text(json.dumps([{"Config": config}]))
    (tmp_path / "index.json").write_text(json.dumps({"manifests": [{"digest": item} for item in digests]}))
    path = tmp_path / "image.tar"
    with tarfile.open(path, "w") as archive:
        for name in ("manifest.json", "index.json"):
            archive.add(tmp_path / name, name)
    state = engine.inspect({"archive": str(path)})
    assert state["archive"] == expected_ids
    assert (
        f"image.tar refers to its image as {wrong} instead of by its SHA-256. Save it again" in state["engine_error"]
        if wrong
        else not state["engine_error"]
    )


@pytest.mark.parametrize(
    "text",
    [BRACKETS, BRACKETS + "]" * len(BRACKETS), "5", '[{"Config": 5}]', "[5]", '{"a": 1}'],
    ids=lambda text: text[:12],
)
def test_archive_with_a_hostile_manifest_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with tarfile.open(tmp_path / "image.tar", "w") as archive:
        archive.add(tmp_path / "manifest.json", "manifest.json")
    state = engine.inspect({"archive": str(tmp_path / "image.tar")})
    assert "image.tar is not an image archive. Save one image with" in state["engine_error"]


# --- The role's tasks -------------------------------------------------------------------------------------------------


def tasks_of(name: str) -> dict[str, Any]:
    """Return the tasks in one of the role's files, by name."""
    path = str(ROLES / "container_image" / "tasks" / name)
    return {task["name"]: task for task in DataLoader().load_from_file(path, trusted_as_template=True)}


def value_of(expression: str, **variables: Any) -> Any:
    return Templar(DataLoader(), variables=variables).template(trust_as_template(f"{{{{ {expression} }}}}"))


@pytest.mark.parametrize(
    ("present", "missing"),
    [(["podman", "newuidmap"], False), (["podman"], True), (["newuidmap"], True), ([], True)],
)
def test_podman_is_installed_only_where_a_part_is_missing(tmp_path: Path, present: list[str], missing: bool) -> None:
    tasks = tasks_of("install.yml")
    check, installs = tasks["Check for podman"], tasks["Install podman and its rootless dependencies"]
    (tmp_path / "sh").symlink_to(shutil.which("sh") or "/bin/sh")
    for name in present:
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    argv = shlex.split(check["ansible.builtin.command"])
    completed = subprocess.run(argv, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    result = {"rc": completed.returncode, "stdout": completed.stdout, "stdout_lines": completed.stdout.splitlines()}
    assert value_of(installs["when"], __container_image_podman=result, ansible_check_mode=False) is missing


def test_lingering_is_enabled_only_where_systemd_runs() -> None:
    command = tasks_of("install.yml")["Ensure the user's services run without a login"]["ansible.builtin.command"]
    assert command["argv"][:2] == ["loginctl", "enable-linger"] and command["removes"] == "/run/systemd/system"


@pytest.mark.parametrize(
    ("variables", "user"),
    [
        ({}, ""),
        ({"job": {"image": "torch:1"}}, ""),
        ({"job": {"user": "alice"}}, "alice"),
        ({"job": {"user": "alice"}, "launch_user": "bob"}, "bob"),
    ],
)
def test_image_belongs_to_the_user_who_runs_the_job(variables: dict[str, Any], user: str) -> None:
    path = str(ROLES / "container_image" / "defaults" / "main.yml")
    defaults = DataLoader().load_from_file(path, trusted_as_template=True)
    assert Templar(DataLoader(), variables=variables).template(defaults["container_image_user"]) == user


def test_user_cannot_replace_build_context_while_root_writes_it(tmp_path: Path) -> None:
    """Root keeps all directories of the context; the user gets only the files, once all of them exist."""
    tasks = tasks_of("configure.yml")
    names = list(tasks)
    copy_task = "Copy the build context to the first node"
    ownership_task = "Ensure the user owns the files of the build context"
    assert tasks[copy_task]["ansible.builtin.copy"]["owner"] == "root" and names.index(copy_task) + 1 == names.index(
        ownership_task
    )
    context = tmp_path / "context"
    (context / "sub").mkdir(parents=True)
    for name in ("Dockerfile", "sub/file"):
        (context / name).touch()
    (context / "link").symlink_to("/etc/passwd")
    (tmp_path / "chown").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "chown").chmod(0o755)
    variables = {"__container_image_root_path": str(tmp_path), "__container_image_user": "alice"}
    argv = Templar(DataLoader(), variables=variables).template(tasks[ownership_task]["ansible.builtin.command"]["argv"])
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    completed = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
    user, *paths = completed.stdout.split()
    assert user == "alice" and sorted(paths) == [f"{context}/Dockerfile", f"{context}/sub/file"]
