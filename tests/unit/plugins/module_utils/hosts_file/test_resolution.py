"""The cluster's block in a hosts file, and differences from the resolver's results."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.module_utils._hosts_file import resolution
from ansible_collections.muster.training.plugins.plugin_utils._cluster.etc_hosts import merge_etc_hosts
from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import build_rank_table

TABLE = build_rank_table([{"name": f"node{n}", "address": f"10.0.0.{n}", "slots": 1} for n in (1, 2)])


def test_block_of_returns_exactly_the_merged_lines() -> None:
    text = merge_etc_hosts("127.0.0.1 localhost\n", TABLE, "node1", "machine")
    assert resolution.block_of(text) == "10.0.0.1 node1\n10.0.0.2 node2\n10.0.0.1 machine\n"
    assert resolution.block_of("127.0.0.1 localhost\n") == ""


def test_resolver_replies_that_differ_from_the_hosts_block_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    document = {
        "node1": [("gethostbyname", ["10.0.0.1"]), ("getaddrinfo", ["10.0.0.1"]), ("getfqdn", ["node1"])],
        "node2": [("gethostbyname", ["127.0.1.1"]), ("getaddrinfo", ["10.0.0.2"]), ("getfqdn", ["localhost"])],
        "machine": [("gethostbyname", ["10.0.0.1"]), ("getaddrinfo", ["10.0.0.1"]), ("getfqdn", ["node1"])],
    }
    monkeypatch.setattr(resolution, "query_resolver", document.__getitem__)
    assert resolution.differences("# a comment\n10.0.0.1 node1\n10.0.0.2 node2\n10.0.0.1 machine\n") == [
        "gethostbyname(node2) returns 127.0.1.1, expected 10.0.0.2",
        "getfqdn(node2) returns localhost, expected node2",
    ]


def test_unresolvable_name_is_reported_as_a_reply() -> None:
    (question, result), *_others = resolution.query_resolver("no-such-name.invalid")
    assert question == "gethostbyname"
    assert result[0].startswith("nothing (")


def test_file_writable_by_others_is_unsafe(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    assert not resolution.is_sound(str(path))
    path.write_text("")
    path.chmod(0o644)
    assert resolution.is_sound(str(path)) == (os.geteuid() == 0)
    path.chmod(0o666)
    assert not resolution.is_sound(str(path))


def test_cloud_init_that_manages_hosts_is_detected_and_unreadable_data_raise_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory is temporary during a boot; an unreadable file may have any content."""
    monkeypatch.setattr(resolution, "CLOUD_USER_DATA", f"{tmp_path}/instance")
    monkeypatch.setattr(resolution, "CLOUD_CONFIG", f"{tmp_path}/cloud.cfg")
    assert (resolution.cloud_init()["present"], resolution.cloud_init()["manages_hosts"]) == (False, False)
    (tmp_path / "instance").symlink_to("instances/gone")
    assert not resolution.cloud_init()["manages_hosts"]
    (tmp_path / "instances" / "gone" / "scripts").mkdir(parents=True)
    (tmp_path / "cloud.cfg").write_text("cloud_init_modules: [update_etc_hosts]\n")
    data = tmp_path / "instances" / "gone" / "scripts" / "cloud-config.txt"
    data.write_text("manage_etc_hosts: false\n")
    assert (resolution.cloud_init()["manages_hosts"], resolution.cloud_init()["config"]) == (False, "")
    data.write_text('#cloud-config\nmanage_etc_hosts: "localhost"\n')
    result = resolution.cloud_init()
    assert (result["manages_hosts"], result["config"]) == (
        True,
        resolution.encode("cloud_init_modules: [update_etc_hosts]\n"),
    )
    data.unlink()
    data.mkdir()
    with pytest.raises(IsADirectoryError):
        resolution.cloud_init()


def test_comment_in_another_encoding_survives_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"127.0.0.1 localhost\r\n# B\xfcro\n"
    (tmp_path / "hosts").write_bytes(content)
    monkeypatch.setattr(resolution, "HOSTS", str(tmp_path / "hosts"))
    assert base64.b64decode(json.loads(json.dumps(resolution.read_state()))["hosts"]) == content
