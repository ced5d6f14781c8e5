"""Nodes of one machine bring a directory of the first of them: all of it, right or not at all, and with its links."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.roles.test_stage_data import ROLES, Cluster

BODY = bytes(range(251)) * 40000
WANTED = {"blobs/large": BODY, "blobs/ü 1": b"1", "empty": b"", "snapshots/1/config.json": b"1"}


@pytest.fixture(scope="module")
def wanted() -> Iterator[ModuleType]:
    """The program's list of what is wanted."""
    sys.path[:0] = [str(ROLES / role / "files") for role in ("s3_client", "stage_data")]
    import wanted  # type: ignore[import-not-found,unused-ignore]

    yield wanted
    del sys.path[:2]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Two files and an empty one, and a link."""
    root = tmp_path / "source"
    (root / "blobs").mkdir(parents=True)
    (root / "snapshots" / "1").mkdir(parents=True)
    (root / "blobs" / "large").write_bytes(BODY)
    (root / "blobs" / "ü 1").write_bytes(b"1")
    (root / "empty").touch()
    (root / "snapshots" / "1" / "config.json").symlink_to("../../blobs/ü 1")
    return root


@pytest.fixture
def cluster(tmp_path: Path, source: Path) -> Cluster:
    made = Cluster(None, tmp_path)
    made.given.update(bucket="", path=str(source))
    return made


@pytest.fixture
def impatient(cluster: Cluster) -> Cluster:
    """Its nodes wait ten seconds for one that has not begun: as long as a busy machine takes to start three."""
    cluster.hurry()
    return cluster


def test_all_nodes_get_the_directory_and_its_links(cluster: Cluster, source: Path) -> None:
    answers = cluster.bring()
    assert [cluster.files(number) for number in range(3)] == [WANTED] * 3
    assert all(answer["from_source"] + answer["from_peers"] == len(BODY) + 1 for answer in answers)
    for place in cluster.places:
        assert os.readlink(place / "snapshots" / "1" / "config.json") == "../../blobs/ü 1"
    assert [answer["changed"] for answer in cluster.bring()] == [False] * 3


def test_first_node_copies_nothing_if_source_is_the_destination(cluster: Cluster) -> None:
    first = Path(cluster.given["path"])
    (first / "a b").mkdir()
    (first / "a b" / "c").write_bytes(b"2")
    cluster.places[0] = first
    answers = cluster.bring()
    assert answers[0]["changed"] is False and answers[0]["from_source"] == 0
    assert cluster.files(2) == cluster.files(0) == {**WANTED, "a b/c": b"2"}


def test_list_selects_the_files_to_copy(cluster: Cluster, tmp_path: Path) -> None:
    named = tmp_path / "names.json"
    named.write_text(json.dumps(["blobs/ü 1", "snapshots/1/config.json"]))
    cluster.bring(list=str(named))
    assert sorted(cluster.files(1)) == ["blobs/ü 1", "snapshots/1/config.json"]


def test_link_out_of_the_directory_is_copied_as_a_file(cluster: Cluster, source: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "x").write_bytes(b"x")
    (source / "out").symlink_to(tmp_path / "elsewhere" / "x")
    (source / "dir").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(source / "pipe")
    cluster.bring(include=["out", "dir/*", "pipe"])
    assert cluster.files(1) == {"out": b"x", "dir/x": b"x"}
    assert not (cluster.places[1] / "out").is_symlink()


def test_file_changed_on_a_node_is_fetched_again(cluster: Cluster) -> None:
    cluster.bring()
    (cluster.places[2] / "blobs" / "large").write_bytes(BODY[:-1] + b"?")
    (cluster.places[1] / "snapshots" / "1" / "config.json").unlink()
    assert [answer["fetched"] for answer in cluster.bring()] == [0, 1, 1]
    assert cluster.files(2) == cluster.files(1) == WANTED


def test_missing_first_node_is_reported_and_next_run_completes(impatient: Cluster) -> None:
    places, impatient.places = impatient.places, impatient.places[1:2]
    impatient.start(me=1)
    assert "the first node, which has the files, has failed or does not answer" in impatient.call("follow", 0)["fault"]
    impatient.places = places
    assert [answer["files"] for answer in impatient.bring()] == [4] * 3
    assert impatient.files(1) == WANTED


def test_lost_peer_does_not_block_the_others(impatient: Cluster) -> None:
    impatient.given["addresses"].append("127.0.0.99")
    answers = impatient.bring()
    assert [answer["files"] for answer in answers] == [4] * 3, answers
    assert impatient.files(2) == WANTED


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"path": "/nowhere"}, "there is no /nowhere. Correct stage_data_path"),
        ({"include": ["*.bin"]}, "holds no file that is wanted"),
        ({"reserve_gib": 1e9}, "[GT]B free. Needed: "),
    ],
)
def test_impossible_request_is_reported_in_one_line(cluster: Cluster, more: dict[str, Any], said: str) -> None:
    cluster.places = cluster.places[:1]
    cluster.given["addresses"] = cluster.given["addresses"][:1]
    fault = cluster.bring(**more)[0]["fault"]
    assert re.search(said, fault)
    assert "\n" not in fault


def test_failure_of_the_first_node_is_reported_by_the_others(cluster: Cluster) -> None:
    faults = [answer["fault"] for answer in cluster.bring(path="/nowhere")]
    assert "there is no /nowhere" in faults[0]
    assert all("the first node, which has the files, has failed or does not answer" in fault for fault in faults[1:])


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
def test_link_must_lead_to_a_listed_file(wanted: ModuleType, entry: list[Any]) -> None:
    assert wanted.read_plan(json.dumps([FILE, ["b/l", "", 0, "", "", "../a/file"]]).encode())[1].linked == "a/file"
    with pytest.raises(wanted.Fault, match="no path below the directory"):
        wanted.read_plan(json.dumps([FILE, entry]).encode())


def test_path_through_a_link_is_refused(wanted: ModuleType) -> None:
    told = [FILE, ["d", "", 0, "", "", "a/file"], ["d/x", "key", 1, "", ""]]
    with pytest.raises(wanted.Fault, match="'d/x', which is no path below the directory"):
        wanted.read_plan(json.dumps(told).encode())


PARTS = st.lists(st.sampled_from(["a", "b", ".", "..", "", ".muster-stage"]), min_size=1, max_size=5).map("/".join)


@given(st.lists(st.tuples(PARTS, PARTS | st.just("")), max_size=5))
def test_accepted_paths_and_links_stay_below_the_directory(wanted: ModuleType, given: list[tuple[str, str]]) -> None:
    entries = [wanted.Entry(path, "", 0, "", "", link) for path, link in given]
    if not wanted.leads_elsewhere(entries):
        files = {path for path, link in given if not link}
        for path, link in given:
            assert os.path.normpath(path) == path and not path.startswith(("/", ".."))
            assert not link or os.path.normpath(os.path.join("/root", os.path.dirname(path), link))[6:] in files
