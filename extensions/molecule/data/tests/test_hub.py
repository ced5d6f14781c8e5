"""A model from a hub and a directory are copied to all nodes: downloaded once, and available to offline jobs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import drive
from tests.support.data_hosts import Data
from tests.support.hub_server.faults import HubFault
from tests.support.hub_server.server import HubServer
from tests.support.recap import unchanged

NODES = ["node1", "node2"]
TOKEN = "hf_" + "k" * 20
WEIGHTS = bytes(range(256)) * 100000
FILES = {"config.json": b"{}", "sub/model.safetensors": WEIGHTS, "model.bin": b"old"}
OFFLINE = (
    "import os, huggingface_hub as h; p = h.snapshot_download('org/tiny'); "
    "print(sorted(os.listdir(p)), os.path.getsize(p + '/sub/model.safetensors'))"
)


@pytest.fixture(scope="module")
def hub(gateway: str) -> Iterator[HubServer]:
    with HubServer(gateway) as server:
        server.add("model", "org/tiny", FILES, gated=True)
        server.tokens[TOKEN] = set()
        yield server


def site(data: Data, hub: HubServer) -> drive.Play:
    """Run the parts of site.yml that concern the hub."""
    arguments: dict[str, Any] = {
        "hugging_face_models": [{"name": "org/tiny", "ignore": ["*.bin"]}],
        "hugging_face_endpoint": hub.url,
        "hugging_face_reserve_gib": 0,
    }
    options = ("--tags", "hugging_face", "-vvv", "--diff")
    env = {"HF_TOKEN": TOKEN}
    return drive.run("site.yml", data.lab.inventory, options=options, env=env, timeout=600, **arguments)


@pytest.mark.thorough  # tests/unit/roles/test_hugging_face.py tests the errors of a hub
def test_gated_model_without_access_is_reported(data: Data, hub: HubServer) -> None:
    hub.tokens[TOKEN].discard("org/tiny")
    play = site(data, hub)
    assert play.rc == 2
    assert "model org/tiny is gated, and the token's account has not been granted access" in data.words(play)


@pytest.mark.thorough  # tests/unit/roles/test_hugging_face.py
def test_gated_model_is_downloaded_once_for_all_nodes(data: Data, hub: HubServer) -> None:
    hub.tokens[TOKEN].add("org/tiny")
    hub.storage_faults = [HubFault(cut=20000000, times=1)]
    play = site(data, hub)
    assert play.rc == 0, play.output[-6000:]
    assert TOKEN not in play.output
    assert len(hub.storage_requests) == 2, "once, and once more for the rest"
    for name in NODES:
        python = "HF_HUB_OFFLINE=1 /usr/local/lib/muster/hub/env/bin/python"
        output = data.sh(name, f'runuser -u muster -- env {python} -c "{OFFLINE}"')
        assert output.strip() == f"['config.json', 'sub'] {len(WEIGHTS)}"
        assert data.sh(name, "stat -c '%U %a' ~muster/.cache/huggingface/token").strip() == "muster 600"


@pytest.mark.thorough  # tests/unit/roles/test_hugging_face.py
def test_second_run_queries_the_hub_once(data: Data, hub: HubServer) -> None:
    hub.tokens[TOKEN].add("org/tiny")
    hub.requests.clear()
    rerun = site(data, hub)
    assert unchanged(rerun), rerun.output[-4000:]
    assert len(hub.requests) == 1


def test_directory_of_first_node_is_copied_to_all_nodes(data: Data, tmp_path: Path) -> None:
    destination = {"stage_data_destination": "/srv/weights"}
    data.sh("node1", "mkdir -p /srv/first/sub && head -c 20000000 /dev/urandom > '/srv/first/sub/a b'")
    data.sh("node1", "ln -s 'sub/a b' /srv/first/link && chown -R muster /srv/first")
    play = drive.run("stage_data.yml", data.lab.inventory, timeout=600, stage_data_path="/srv/first", **destination)
    assert play.rc == 0, play.output[-6000:]
    assert len({data.sh(name, "sha256sum < '/srv/weights/sub/a b'") for name in NODES}) == 1
    for name in NODES:
        assert data.sh(name, "stat -c '%U %s' '/srv/weights/sub/a b'").strip() == "muster 20000000"
        assert data.sh(name, "readlink /srv/weights/link").strip() == "sub/a b"
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "file").touch()
    here = str(tmp_path / "weights")
    play = drive.run("stage_data.yml", data.lab.inventory, timeout=600, stage_data_here=here, **destination)
    assert play.rc == 2
    assert "node1: rsync is missing" in data.words(play)
    assert "node1 is not taking part, or has failed" in data.words(play), "no other node takes its place"
