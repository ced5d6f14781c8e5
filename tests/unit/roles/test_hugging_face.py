"""A model and a data set of a hub come to three nodes of this machine: asked for once, right, and found offline."""

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

from tests.hub_server.faults import Fault, too_many
from tests.hub_server.server import HubServer
from tests.unit.roles.test_stage_data import ROLES, Cluster

WEIGHTS = bytes(range(256)) * 4000
FILES = {
    "config.json": b'{"a": 1}',
    "copy.json": b'{"a": 1}',
    "sub/model.safetensors": WEIGHTS,
    "model.bin": b"old" * 1000,
    "empty": b"",
}
WANTED = {name: body for name, body in FILES.items() if name != "model.bin"}
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


class Nodes(Cluster):
    """Nodes with a home of Hugging Face each."""

    def __init__(self, hub: HubServer, root: Path) -> None:
        super().__init__(None, root)
        (root / "lib" / "hub.py").write_text((ROLES / "hugging_face" / "files" / "hub.py").read_text())
        self.root = root
        self.homes = [root / f"home{number}" for number in range(3)]
        self.places = [home / "hub" for home in self.homes]
        self.env |= {"HF_HOME": "/nowhere", "HF_HUB_OFFLINE": "1", "HF_TOKEN": "hf_not_this_one"}
        self.wanted = [wanted("model", "org/tiny", ignore=["*.bin"]), wanted("dataset", "org/rows", allow=["train/*"])]
        self.request: dict[str, Any] = {
            "home": str(self.homes[0]),
            "endpoint": hub.url,
            "reserve_gib": 0.0,
            "patience": 5.0,
        }
        self.given.update(bucket="", path=str(self.places[0]), list=str(self.homes[0] / ".muster-hub" / "names.json"))
        for home in self.homes:
            home.mkdir()

    def step(self, verb: str, **more: Any) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, str(self.root / "lib" / "hub.py"), verb],
            input=json.dumps({**self.request, "wanted": self.wanted, **more}),
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert "MUSTER-RESULT " in done.stdout, done.stdout + done.stderr
        assert TOKEN not in done.stdout + done.stderr
        answer: dict[str, Any] = json.loads(done.stdout.rpartition("MUSTER-RESULT ")[2])
        return {**answer, "output": done.stdout + done.stderr}

    def fetch(self, **more: Any) -> dict[str, Any]:
        asked = self.step("ask", **more)
        return asked if "fault" in asked else self.step("fetch", **more)

    def fault(self, **more: Any) -> str:
        fault: str = self.fetch(**more)["fault"]
        assert "\n" not in fault
        return fault

    def offline(self, number: int, kind: str, name: str, revision: str = "") -> dict[str, bytes]:
        """What a program finds on a node that asks nobody."""
        env = {
            **self.env,
            "HF_HOME": str(self.homes[number]),
            "HF_HUB_OFFLINE": "1",
            "HF_ENDPOINT": "http://127.0.0.1:1",
        }
        words = [sys.executable, "-c", OFFLINE, kind, name, revision]
        done = subprocess.run(words, env=env, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stderr
        place = Path(done.stdout.strip())
        return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def wanted(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "name": name, "revision": "main", "allow": [], "ignore": [], **more}


@pytest.fixture
def nodes(hub: HubServer, tmp_path: Path) -> Nodes:
    return Nodes(hub, tmp_path)


def test_files_fetched_once_are_found_offline_on_all_nodes(hub: HubServer, nodes: Nodes) -> None:
    assert nodes.fetch()["fetched"] == 5
    assert os.stat(nodes.homes[0] / ".muster-hub").st_mode & 0o077 == 0
    answers = nodes.bring()
    for number in range(3):
        assert nodes.offline(number, "model", "org/tiny") == WANTED
        assert nodes.offline(number, "dataset", "org/rows", "main") == {"train/0.csv": b"1,2\n" * 1000}
    assert answers[0]["from_source"] == 0, "what is there is not copied"
    assert len(hub.storage_requests) == 2, "each large file once"
    assert nodes.files(1) == nodes.files(2)
    blob = nodes.places[2] / "models--org--tiny" / "blobs" / hashlib.sha256(WEIGHTS).hexdigest()
    assert blob.read_bytes() == WEIGHTS and not blob.is_symlink()


def test_second_run_asks_hub_once_per_repository_and_changes_nothing(hub: HubServer, nodes: Nodes) -> None:
    nodes.fetch()
    hub.requests.clear()
    assert nodes.fetch()["changed"] is False
    assert [one.path for one in hub.requests] == [
        "/api/models/org/tiny/revision/main",
        "/api/datasets/org/rows/revision/main",
    ]
    commit = hub.repositories["model", "org/tiny"].refs["main"]
    nodes.wanted = [wanted("model", "org/tiny", revision=commit)]
    nodes.fetch()
    hub.requests.clear()
    assert nodes.fetch()["changed"] is False
    assert hub.requests == [], "a commit cannot change"


def test_only_files_changed_on_the_hub_are_fetched(hub: HubServer, nodes: Nodes) -> None:
    nodes.fetch()
    hub.repositories["model", "org/tiny"].commit({**FILES, "config.json": b"{}"})
    hub.storage_requests.clear()
    assert nodes.fetch()["changed"] is True
    nodes.bring()
    assert nodes.offline(2, "model", "org/tiny") == {**WANTED, "config.json": b"{}"}
    assert hub.storage_requests == []


def test_token_is_read_from_the_hugging_face_home(hub: HubServer, nodes: Nodes) -> None:
    hub.add("model", "org/gated", FILES, gated=True)
    nodes.wanted = [wanted("model", "org/gated")]
    said = nodes.fault()
    assert re.search(
        r"model org/gated is gated, and there is no token. Accept its licence at \S+/org/gated, then", said
    )
    assert "export HF_TOKEN" in said
    (nodes.homes[0] / "token").write_text(TOKEN)
    assert "the token's account has not been granted access" in nodes.fault()
    hub.tokens[TOKEN].add("org/gated")
    assert nodes.fetch()["fetched"] == 5
    assert {one.token for one in hub.requests} == {"", TOKEN}


@pytest.mark.parametrize(
    ("token", "one", "said"),
    [
        ("", wanted("model", "org/none"), "has no model org/none, or it is private and there is no token. Correct"),
        (TOKEN, wanted("dataset", "org/none"), "has no data set org/none, or the token's account may not see it"),
        ("hf_wrong", wanted("model", "org/tiny"), "does not know the token. Make one at .*/settings/tokens, export HF"),
        ("", wanted("model", "org/tiny", revision="v9"), "model org/tiny has no revision v9. Correct it"),
        ("", wanted("model", "org/tiny", allow=["*.gguf"]), "no file that the patterns allow"),
    ],
)
def test_refusal_of_the_hub_is_reported_in_one_line(nodes: Nodes, token: str, one: dict[str, Any], said: str) -> None:
    if token:
        (nodes.homes[0] / "token").write_text(token)
    nodes.wanted = [one]
    assert re.search(said, nodes.fault())


def test_short_rate_limit_is_waited_for_and_long_one_reported(hub: HubServer, nodes: Nodes) -> None:
    hub.faults = [too_many(1, path="/api/", times=1), too_many(1, path="/resolve/", method="HEAD", times=1)]
    answer = nodes.fetch()
    assert answer["fetched"] == 5
    hub.faults = [too_many(3600, path="/api/")]
    assert re.search(
        r"accepts no more requests for 3600 s \(429\). Run this again after \d\d:\d\d:\d\d UTC", nodes.fault()
    )
    hub.faults = []
    assert nodes.fetch()["changed"] is False


def test_unreachable_hub_is_reported(nodes: Nodes) -> None:
    said = nodes.fault(endpoint="http://127.0.0.1:1", patience=0.5)
    assert re.search("http://127.0.0.1:1 does not answer: .*refused.* correct hugging_face_endpoint", said)


def test_fetch_survives_cut_connections(hub: HubServer, nodes: Nodes) -> None:
    hub.faults = [Fault(path="config.json", method="HEAD", times=2, cut=0, reset=True)]
    hub.storage_faults = [Fault(cut=700000, times=1), Fault(cut=700000, times=1, reset=True)]
    assert nodes.fetch()["fetched"] == 5
    assert next(nodes.places[0].rglob("model.safetensors")).read_bytes() == WEIGHTS


def test_failing_hub_is_reported_and_next_run_completes(hub: HubServer, nodes: Nodes) -> None:
    hub.storage_faults = [Fault(status=503)]
    assert "answered 503" in nodes.fault(patience=0.5)
    hub.storage_faults = []
    assert "fault" not in nodes.fetch()
    nodes.bring()
    assert nodes.offline(1, "model", "org/tiny") == WANTED


def test_corrupt_download_is_fetched_again_and_never_kept(hub: HubServer, nodes: Nodes) -> None:
    hub.storage_faults = [Fault(spoil=True, times=1)]
    assert "fault" not in nodes.fetch(), "it is brought again"
    large = next(nodes.places[0].rglob("model.safetensors"))
    large.write_bytes(WEIGHTS[:-1] + b"?")
    hub.storage_faults = [Fault(spoil=True)]
    assert "arrived twice with other content" in nodes.fault()
    assert not large.exists()
    hub.storage_faults = []
    assert nodes.fetch()["fetched"] == 1
    assert large.read_bytes() == WEIGHTS


def test_corrupt_file_on_a_node_is_fetched_from_a_peer(hub: HubServer, nodes: Nodes) -> None:
    nodes.fetch()
    nodes.bring()
    next(nodes.places[1].rglob("model.safetensors")).write_bytes(WEIGHTS[:-1] + b"?")
    hub.requests.clear()
    assert [answer["fetched"] for answer in nodes.bring()] == [0, 1, 0]
    assert nodes.offline(1, "model", "org/tiny") == WANTED
    assert hub.requests == []


def test_lack_of_disk_space_is_reported_before_anything_is_fetched(hub: HubServer, nodes: Nodes) -> None:
    assert nodes.step("ask")["sizes"] == {"models--org--tiny": len(WEIGHTS) + 8, "datasets--org--rows": 4000}
    assert re.search("free. Needed: 1.0 MB and a reserve of 1e.09 GiB", nodes.fault(reserve_gib=1e9))
    assert hub.storage_requests == []
    words = [sys.executable, str(nodes.root / "lib" / "room.py"), str(nodes.homes[1]), "1e9"]
    done = subprocess.run(words, input='{"models--org--tiny": 5}', capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "Needed: 5 B and a reserve of 1e+09 GiB" in done.stdout
    words[3] = "0"
    assert subprocess.run(words, input='{"x": 5}', capture_output=True, text=True, check=False).returncode == 0


def test_full_disk_is_reported_and_next_run_completes(hub: HubServer, nodes: Nodes) -> None:
    place = nodes.homes[0] / "hub"
    place.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(place)], check=False)
    if made.returncode:
        pytest.skip("a file system of its own cannot be mounted here")
    try:
        nodes.step("ask")
        (place / "filler").write_bytes(b"x" * 100000)
        assert re.search("has .* free. Needed: 1.0 MB|is full", nodes.step("fetch")["fault"])
        subprocess.run(["mount", "-o", "remount,size=64m", str(place)], check=True)
        assert "fault" not in nodes.step("fetch")
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def test_path_traversal_in_hub_file_names_is_refused(hub: HubServer, nodes: Nodes) -> None:
    hub.repositories["model", "org/tiny"].commit({"../../../evil": b"1"})
    assert "names '../../../evil' in org/tiny, which is invalid" in nodes.fault()
    assert not list(nodes.root.rglob("evil"))
