"""A model and a dataset of a fake hub are copied to three local nodes: few requests, verified, usable offline."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.hub_server.faults import HubFault, rate_limit_fault
from tests.support.hub_server.server import HubServer
from tests.support.programs import install
from tests.unit.roles.test_stage_data import StageCluster

WEIGHTS = bytes(range(256)) * 4000
FILES = {
    "config.json": b'{"a": 1}',
    "copy.json": b'{"a": 1}',
    "sub/model.safetensors": WEIGHTS,
    "model.bin": b"old" * 1000,
    "empty": b"",
}
EXPECTED_FILES = {name: body for name, body in FILES.items() if name != "model.bin"}
TOKEN = "hf_" + "t" * 20
OFFLINE = """
import json, sys, huggingface_hub
kind, name, revision = sys.argv[1:]
print(huggingface_hub.snapshot_download(name, repo_type=kind, revision=revision or None))
"""


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with HubServer() as server:
        server.add("model", "org/tiny", FILES)
        server.add("dataset", "org/rows", {"train/0.csv": b"1,2\n" * 1000, "README.md": b"#"})
        server.tokens[TOKEN] = set()
        yield server


class HubCluster(StageCluster):
    """Nodes with separate Hugging Face home directories."""

    def __init__(self, hub: HubServer, root: Path) -> None:
        super().__init__(None, root)
        install("_hub.hub", root / "lib")
        install("_stage_data.free_space", root / "lib")
        self.root = root
        self.homes = [root / f"home{number}" for number in range(3)]
        self.directories = [home / "hub" for home in self.homes]
        self.environment |= {"HF_HOME": "/nowhere", "HF_HUB_OFFLINE": "1", "HF_TOKEN": "hf_not_this_one"}
        self.requested_items = [
            make_request("model", "org/tiny", ignore=["*.bin"]),
            make_request("dataset", "org/rows", allow=["train/*"]),
        ]
        self.request: dict[str, Any] = {
            "home": str(self.homes[0]),
            "endpoint": hub.url,
            "reserve_gib": 0.0,
            "retry_timeout": 5.0,
        }
        self.base_request.update(
            bucket="", path=str(self.directories[0]), list=str(self.homes[0] / ".muster-hub" / "names.json")
        )
        for home in self.homes:
            home.mkdir()

    def step(self, verb: str, **overrides: Any) -> dict[str, Any]:
        completed = subprocess.run(
            [sys.executable, str(self.root / "lib" / "hub.py"), verb],
            input=json.dumps({**self.request, "requested": self.requested_items, **overrides}),
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert "MUSTER-RESULT " in completed.stdout, completed.stdout + completed.stderr
        assert TOKEN not in completed.stdout + completed.stderr
        result: dict[str, Any] = json.loads(completed.stdout.rpartition("MUSTER-RESULT ")[2])
        return {**result, "output": completed.stdout + completed.stderr}

    def fetch(self, **overrides: Any) -> dict[str, Any]:
        resolved = self.step("resolve", **overrides)
        return resolved if "step_error" in resolved else self.step("fetch", **overrides)

    def fetch_error(self, **overrides: Any) -> str:
        message: str = self.fetch(**overrides)["step_error"]
        assert "\n" not in message
        return message

    def snapshot_offline(self, number: int, kind: str, name: str, revision: str = "") -> dict[str, bytes]:
        """Return the files that a program on a node finds without network access."""
        environment = {
            **self.environment,
            "HF_HOME": str(self.homes[number]),
            "HF_HUB_OFFLINE": "1",
            "HF_ENDPOINT": "http://127.0.0.1:1",
        }
        argv = [sys.executable, "-c", OFFLINE, kind, name, revision]
        completed = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, timeout=300)
        assert completed.returncode == 0, completed.stderr
        directory = Path(completed.stdout.strip())
        return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def make_request(kind: str, name: str, **overrides: Any) -> dict[str, Any]:
    return {"kind": kind, "name": name, "revision": "main", "allow": [], "ignore": [], **overrides}


@pytest.fixture
def nodes(hub: HubServer, tmp_path: Path) -> HubCluster:
    return HubCluster(hub, tmp_path)


def test_files_fetched_once_are_available_offline_on_all_nodes(hub: HubServer, nodes: HubCluster) -> None:
    assert nodes.fetch()["fetched"] == 5
    assert os.stat(nodes.homes[0] / ".muster-hub").st_mode & 0o077 == 0
    results = nodes.distribute()
    for number in range(3):
        assert nodes.snapshot_offline(number, "model", "org/tiny") == EXPECTED_FILES
        assert nodes.snapshot_offline(number, "dataset", "org/rows", "main") == {"train/0.csv": b"1,2\n" * 1000}
    assert results[0]["from_source"] == 0, "present files were copied"
    assert len(hub.storage_requests) == 2, "a large file was fetched twice"
    assert nodes.read_files(1) == nodes.read_files(2)
    blob = nodes.directories[2] / "models--org--tiny" / "blobs" / hashlib.sha256(WEIGHTS).hexdigest()
    assert blob.read_bytes() == WEIGHTS and not blob.is_symlink()


def test_second_run_queries_hub_once_per_repository_and_changes_nothing(hub: HubServer, nodes: HubCluster) -> None:
    nodes.fetch()
    hub.requests.clear()
    assert nodes.fetch()["changed"] is False
    assert [request.path for request in hub.requests] == [
        "/api/models/org/tiny/revision/main",
        "/api/datasets/org/rows/revision/main",
    ]
    commit = hub.repositories["model", "org/tiny"].refs["main"]
    nodes.requested_items = [make_request("model", "org/tiny", revision=commit)]
    nodes.fetch()
    hub.requests.clear()
    assert nodes.fetch()["changed"] is False
    assert hub.requests == [], "a commit cannot change"


def test_only_files_changed_on_the_hub_are_fetched(hub: HubServer, nodes: HubCluster) -> None:
    nodes.fetch()
    hub.repositories["model", "org/tiny"].commit({**FILES, "config.json": b"{}"})
    hub.storage_requests.clear()
    assert nodes.fetch()["changed"] is True
    nodes.distribute()
    assert nodes.snapshot_offline(2, "model", "org/tiny") == {**EXPECTED_FILES, "config.json": b"{}"}
    assert hub.storage_requests == []


def test_token_is_read_from_the_hugging_face_home(hub: HubServer, nodes: HubCluster) -> None:
    hub.add("model", "org/gated", FILES, gated=True)
    nodes.requested_items = [make_request("model", "org/gated")]
    message = nodes.fetch_error()
    assert re.search(
        r"model org/gated is gated, and no token is set. Accept its license at \S+/org/gated, then", message
    )
    assert "export HF_TOKEN" in message
    (nodes.homes[0] / "token").write_text(TOKEN)
    assert "the token's account has not been granted access" in nodes.fetch_error()
    hub.tokens[TOKEN].add("org/gated")
    assert nodes.fetch()["fetched"] == 5
    assert {request.token for request in hub.requests} == {"", TOKEN}


@pytest.mark.parametrize(
    ("token", "item", "pattern"),
    [
        (
            "",
            make_request("model", "org/none"),
            "has no model org/none, or it is private and no token is set. Correct",
        ),
        (TOKEN, make_request("dataset", "org/none"), "has no data set org/none, or the token's account cannot see it"),
        (
            "hf_wrong",
            make_request("model", "org/tiny"),
            "does not recognize the token. Create one at .*/settings/tokens, then export HF",
        ),
        ("", make_request("model", "org/tiny", revision="v9"), "model org/tiny has no revision v9. Set it to a branch"),
        ("", make_request("model", "org/tiny", allow=["*.gguf"]), "no file that matches the patterns"),
    ],
)
def test_hub_error_is_reported_in_one_line(nodes: HubCluster, token: str, item: dict[str, Any], pattern: str) -> None:
    if token:
        (nodes.homes[0] / "token").write_text(token)
    nodes.requested_items = [item]
    assert re.search(pattern, nodes.fetch_error())


def test_short_rate_limit_is_waited_out_and_a_long_one_is_reported(hub: HubServer, nodes: HubCluster) -> None:
    hub.faults = [
        rate_limit_fault(1, path="/api/", times=1),
        rate_limit_fault(1, path="/resolve/", method="HEAD", times=1),
    ]
    result = nodes.fetch()
    assert result["fetched"] == 5
    hub.faults = [rate_limit_fault(3600, path="/api/")]
    assert re.search(
        r"is not accepting any more requests for the next 3600 s \(429\). Run this again after \d\d:\d\d:\d\d UTC",
        nodes.fetch_error(),
    )
    hub.faults = []
    assert nodes.fetch()["changed"] is False


def test_unreachable_hub_is_reported(nodes: HubCluster) -> None:
    message = nodes.fetch_error(endpoint="http://127.0.0.1:1", retry_timeout=0.5)
    assert re.search("http://127.0.0.1:1 is not responding: .*refused.* correct hugging_face_endpoint", message)


def test_fetch_survives_cut_connections(hub: HubServer, nodes: HubCluster) -> None:
    hub.faults = [HubFault(path="config.json", method="HEAD", times=2, cut=0, reset=True)]
    hub.storage_faults = [HubFault(cut=700000, times=1), HubFault(cut=700000, times=1, reset=True)]
    assert nodes.fetch()["fetched"] == 5
    assert next(nodes.directories[0].rglob("model.safetensors")).read_bytes() == WEIGHTS


def test_failing_hub_is_reported_and_next_run_completes(hub: HubServer, nodes: HubCluster) -> None:
    hub.storage_faults = [HubFault(status=503)]
    assert "responded with 503" in nodes.fetch_error(retry_timeout=0.5)
    hub.storage_faults = []
    assert "step_error" not in nodes.fetch()
    nodes.distribute()
    assert nodes.snapshot_offline(1, "model", "org/tiny") == EXPECTED_FILES


def test_corrupt_download_is_fetched_again_and_never_kept(hub: HubServer, nodes: HubCluster) -> None:
    hub.storage_faults = [HubFault(spoil=True, times=1)]
    assert "step_error" not in nodes.fetch(), "the file was not fetched again"
    large = next(nodes.directories[0].rglob("model.safetensors"))
    large.write_bytes(WEIGHTS[:-1] + b"?")
    hub.storage_faults = [HubFault(spoil=True)]
    assert "was downloaded twice with content that does not match" in nodes.fetch_error()
    assert not large.exists()
    hub.storage_faults = []
    assert nodes.fetch()["fetched"] == 1
    assert large.read_bytes() == WEIGHTS


def test_corrupt_file_on_a_node_is_fetched_from_a_peer(hub: HubServer, nodes: HubCluster) -> None:
    nodes.fetch()
    nodes.distribute()
    next(nodes.directories[1].rglob("model.safetensors")).write_bytes(WEIGHTS[:-1] + b"?")
    hub.requests.clear()
    assert [result["fetched"] for result in nodes.distribute()] == [0, 1, 0]
    assert nodes.snapshot_offline(1, "model", "org/tiny") == EXPECTED_FILES
    assert hub.requests == []


def test_lack_of_disk_space_is_reported_before_anything_is_fetched(hub: HubServer, nodes: HubCluster) -> None:
    assert nodes.step("resolve")["sizes"] == {"models--org--tiny": len(WEIGHTS) + 8, "datasets--org--rows": 4000}
    assert re.search("free, but needs 1.0 MB plus a reserve of 1e.09 GiB", nodes.fetch_error(reserve_gib=1e9))
    assert hub.storage_requests == []
    argv = [sys.executable, str(nodes.root / "lib" / "free_space.py"), str(nodes.homes[1]), "1e9"]
    completed = subprocess.run(argv, input='{"models--org--tiny": 5}', capture_output=True, text=True, check=False)
    assert completed.returncode == 1 and "but needs 5 B plus a reserve of 1e+09 GiB" in completed.stdout
    argv[3] = "0"
    assert subprocess.run(argv, input='{"x": 5}', capture_output=True, text=True, check=False).returncode == 0


def test_full_disk_is_reported_and_next_run_completes(hub: HubServer, nodes: HubCluster) -> None:
    directory = nodes.homes[0] / "hub"
    directory.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(directory)], check=False)
    if mounted.returncode:
        pytest.skip("a file system of its own cannot be mounted here")
    try:
        nodes.step("resolve")
        (directory / "filler").write_bytes(b"x" * 100000)
        assert re.search("has .* free, but needs 1.0 MB|is full", nodes.step("fetch")["step_error"])
        subprocess.run(["mount", "-o", "remount,size=64m", str(directory)], check=True)
        assert "step_error" not in nodes.step("fetch")
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)


def test_path_traversal_in_hub_file_names_is_refused(hub: HubServer, nodes: HubCluster) -> None:
    hub.repositories["model", "org/tiny"].commit({"../../../evil": b"1"})
    assert "lists the file '../../../evil' in org/tiny, which is outside the repository" in nodes.fetch_error()
    assert not list(nodes.root.rglob("evil"))
