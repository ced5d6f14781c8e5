"""Local nodes copy a directory of the first node: completely, verified, and with links."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._detached.result_line import StepError
from ansible_collections.muster.training.plugins.module_utils._stage_data import pieces
from tests.unit.roles.test_stage_data import StageCluster

BODY = bytes(range(251)) * 40000
EXPECTED_FILES = {"blobs/large": BODY, "blobs/ü 1": b"1", "empty": b"", "snapshots/1/config.json": b"1"}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Create a directory with two files, an empty file and a link."""
    root = tmp_path / "source"
    (root / "blobs").mkdir(parents=True)
    (root / "snapshots" / "1").mkdir(parents=True)
    (root / "blobs" / "large").write_bytes(BODY)
    (root / "blobs" / "ü 1").write_bytes(b"1")
    (root / "empty").touch()
    (root / "snapshots" / "1" / "config.json").symlink_to("../../blobs/ü 1")
    return root


@pytest.fixture
def cluster(tmp_path: Path, source: Path) -> StageCluster:
    stage_cluster = StageCluster(None, tmp_path)
    stage_cluster.base_request.update(bucket="", path=str(source))
    return stage_cluster


@pytest.fixture
def short_timeout_cluster(cluster: StageCluster) -> StageCluster:
    """Return a cluster whose nodes wait only ten seconds for missing peers, enough for a busy machine."""
    cluster.shorten_start_timeout()
    return cluster


def test_all_nodes_get_the_directory_and_its_links(cluster: StageCluster, source: Path) -> None:
    results = cluster.distribute()
    assert [cluster.read_files(number) for number in range(3)] == [EXPECTED_FILES] * 3
    assert all(result["from_source"] + result["from_peers"] == len(BODY) + 1 for result in results)
    for directory in cluster.directories:
        assert os.readlink(directory / "snapshots" / "1" / "config.json") == "../../blobs/ü 1"
    assert [result["changed"] for result in cluster.distribute()] == [False] * 3


def test_first_node_copies_nothing_if_source_is_the_destination(cluster: StageCluster) -> None:
    first = Path(cluster.base_request["path"])
    (first / "a b").mkdir()
    (first / "a b" / "c").write_bytes(b"2")
    cluster.directories[0] = first
    results = cluster.distribute()
    assert results[0]["changed"] is False and results[0]["from_source"] == 0
    assert cluster.read_files(2) == cluster.read_files(0) == {**EXPECTED_FILES, "a b/c": b"2"}


def test_list_selects_the_files_to_copy(cluster: StageCluster, tmp_path: Path) -> None:
    list_path = tmp_path / "names.json"
    list_path.write_text(json.dumps(["blobs/ü 1", "snapshots/1/config.json"]))
    cluster.distribute(list=str(list_path))
    assert sorted(cluster.read_files(1)) == ["blobs/ü 1", "snapshots/1/config.json"]


def test_link_pointing_outside_the_directory_is_copied_as_a_file(
    cluster: StageCluster, source: Path, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "x").write_bytes(b"x")
    (source / "out").symlink_to(tmp_path / "elsewhere" / "x")
    (source / "dir").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(source / "pipe")
    cluster.distribute(include=["out", "dir/*", "pipe"])
    assert cluster.read_files(1) == {"out": b"x", "dir/x": b"x"}
    assert not (cluster.directories[1] / "out").is_symlink()


def test_file_changed_on_a_node_is_fetched_again(cluster: StageCluster) -> None:
    cluster.distribute()
    (cluster.directories[2] / "blobs" / "large").write_bytes(BODY[:-1] + b"?")
    (cluster.directories[1] / "snapshots" / "1" / "config.json").unlink()
    assert [result["fetched"] for result in cluster.distribute()] == [0, 1, 1]
    assert cluster.read_files(2) == cluster.read_files(1) == EXPECTED_FILES


def test_missing_first_node_is_reported_and_next_run_completes(short_timeout_cluster: StageCluster) -> None:
    directories, short_timeout_cluster.directories = (
        short_timeout_cluster.directories,
        short_timeout_cluster.directories[1:2],
    )
    short_timeout_cluster.start(me=1)
    assert (
        "the first node, which has the files, has failed or is not responding"
        in short_timeout_cluster.call("follow", 0)["step_error"]
    )
    short_timeout_cluster.directories = directories
    assert [result["files"] for result in short_timeout_cluster.distribute()] == [4] * 3
    assert short_timeout_cluster.read_files(1) == EXPECTED_FILES


def test_lost_peer_does_not_block_the_others(short_timeout_cluster: StageCluster) -> None:
    short_timeout_cluster.base_request["addresses"].append("127.0.0.99")
    results = short_timeout_cluster.distribute()
    assert [result["files"] for result in results] == [4] * 3, results
    assert short_timeout_cluster.read_files(2) == EXPECTED_FILES


@pytest.mark.parametrize(
    ("overrides", "pattern"),
    [
        ({"path": "/nowhere"}, "/nowhere does not exist. Correct stage_data_path"),
        ({"include": ["*.bin"]}, "contains no matching file"),
        ({"reserve_gib": 1e9}, "[GT]B free, but needs "),
    ],
)
def test_impossible_request_is_reported_in_one_line(
    cluster: StageCluster, overrides: dict[str, Any], pattern: str
) -> None:
    cluster.directories = cluster.directories[:1]
    cluster.base_request["addresses"] = cluster.base_request["addresses"][:1]
    message = cluster.distribute(**overrides)[0]["step_error"]
    assert re.search(pattern, message)
    assert "\n" not in message


def test_failure_of_the_first_node_is_reported_by_the_others(cluster: StageCluster) -> None:
    messages = [result["step_error"] for result in cluster.distribute(path="/nowhere")]
    assert "/nowhere does not exist" in messages[0]
    assert all(
        "the first node, which has the files, has failed or is not responding" in message for message in messages[1:]
    )


FILE = ["a/file", "key", 1, "", "0" * 64]


@pytest.mark.parametrize(
    "entry",
    [
        ["l", "", 0, "", "", "/etc/passwd"],
        ["l", "", 0, "", "", "../etc/passwd"],
        ["l", "", 0, "", "", "a"],
        ["l", "", 0, "", "", "nothing"],
        ["l", "", 1, "", "", "a/file"],
        ["../l", "", 0, "", "", "a/file"],
    ],
)
def test_link_must_point_to_a_listed_file(entry: list[Any]) -> None:
    assert (
        pieces.parse_plan(json.dumps([FILE, ["b/l", "", 0, "", "", "../a/file"]]).encode())[1].link_target == "a/file"
    )
    with pytest.raises(StepError, match="not a path inside the directory"):
        pieces.parse_plan(json.dumps([FILE, entry]).encode())


def test_path_through_a_link_is_refused() -> None:
    plan = [FILE, ["d", "", 0, "", "", "a/file"], ["d/x", "key", 1, "", ""]]
    with pytest.raises(StepError, match="'d/x', which is not a path inside the directory"):
        pieces.parse_plan(json.dumps(plan).encode())


PARTS = st.lists(st.sampled_from(["a", "b", ".", "..", "", ".muster-stage"]), min_size=1, max_size=5).map("/".join)


@given(st.lists(st.tuples(PARTS, PARTS | st.just("")), max_size=5))
def test_accepted_paths_and_links_stay_below_the_directory(links: list[tuple[str, str]]) -> None:
    entries = [pieces.FileEntry(path, "", 0, "", "", link) for path, link in links]
    if not pieces.find_unsafe_paths(entries):
        files = {path for path, link in links if not link}
        for path, link in links:
            assert os.path.normpath(path) == path and not path.startswith(("/", ".."))
            assert not link or os.path.normpath(os.path.join("/root", os.path.dirname(path), link))[6:] in files
