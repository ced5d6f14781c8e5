"""Logs packed by a node are unpacked safely on the controller."""

from __future__ import annotations

import base64
import io
import json
import shutil
import stat
import tarfile
import types
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

from ansible_collections.muster.training.plugins.action import run_logs
from ansible_collections.muster.training.plugins.action.run_logs import ActionModule, describe_left_out, unpack
from ansible_collections.muster.training.plugins.plugin_utils._record import free_space


def pack(*members: tuple[str, bytes, str]) -> io.BytesIO:
    """Return an archive of entries, each specified as (name, type, text or target)."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for name, kind, text in members:
            member = tarfile.TarInfo(name)
            member.type, member.mode, member.uid = kind, 0o6777, 4711
            if kind == tarfile.REGTYPE:
                member.size = len(text)
                tar.addfile(member, io.BytesIO(text.encode()))
            else:
                member.linkname = text
                tar.addfile(member)
    archive.seek(0)
    return archive


def test_unpacked_logs_are_readable_by_owner_only(tmp_path: Path) -> None:
    unpack(
        pack(
            ("node0/ranks", tarfile.DIRTYPE, ""),
            ("node0/ranks/0.log", tarfile.REGTYPE, "new"),
            ("node0/supervisor.log", tarfile.REGTYPE, "x" * 200_000),
        ),
        tmp_path,
        "node0",
    )
    log = tmp_path / "node0" / "ranks" / "0.log"
    assert log.read_text() == "new"
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert stat.S_IMODE(log.parent.stat().st_mode) == 0o700
    assert (tmp_path / "node0" / "supervisor.log").stat().st_size == 200_000
    unpack(pack(("node0/ranks/0.log", tarfile.REGTYPE, "and")), tmp_path, "node0")
    assert log.read_text() == "and", "a second fetch takes the place of the first"


@pytest.mark.parametrize(
    "name",
    ["/etc/passwd", "../out.log", "node0/../../out.log", "out.log", "node1/job_results.jsonl", "node0/../node1/x"],
)
def test_path_outside_target_is_refused(tmp_path: Path, name: str) -> None:
    target = tmp_path / "logs"
    target.mkdir()
    with pytest.raises(AnsibleActionFail, match="would be written outside"):
        unpack(pack((name, tarfile.REGTYPE, "x")), target, "node0")
    assert list(tmp_path.rglob("*")) == [target]


def test_path_with_too_many_directories_is_refused(tmp_path: Path) -> None:
    name = "node0/" + "d/" * 80 + "x"
    with pytest.raises(AnsibleActionFail, match="has a file nested 82 directories deep: nothing more was unpacked"):
        unpack(pack((name, tarfile.REGTYPE, "x")), tmp_path, "node0")
    assert list(tmp_path.rglob("d")) == []


def test_links_and_devices_are_not_unpacked(tmp_path: Path) -> None:
    kinds = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE)
    unpack(pack(*((f"node0/{kind.decode()}", kind, "/etc/passwd") for kind in kinds)), tmp_path, "node0")
    assert list(tmp_path.rglob("*")) == []


def test_existing_symlink_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "node0").mkdir()
    (tmp_path / "node0" / "0.log").symlink_to(tmp_path / "mine")
    with pytest.raises(OSError, match="0.log"):
        unpack(pack(("node0/0.log", tarfile.REGTYPE, "theirs")), tmp_path, "node0")
    assert (tmp_path / "mine").read_text() == "mine"


def set_free_space(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Simulate a number of free bytes on all local disks."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: types.SimpleNamespace(free=size))


def test_decompression_bomb_does_not_fill_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = pack(("node0/1.log", tarfile.REGTYPE, "few"), ("node0/2.log", tarfile.REGTYPE, "\0" * 5_000_000))
    assert len(bomb.getvalue()) < 10_000
    set_free_space(monkeypatch, free_space.KEEP_FREE + 4_000_000)
    with pytest.raises(
        AnsibleActionFail, match=r"the logs up to node0/2.log take 0.0 GB, .* 1.1 GB are reserved: free up space"
    ):
        unpack(bomb, tmp_path, "node0")
    assert [path.name for path in tmp_path.rglob("*.log")] == ["1.log"]


def test_measurements_above_size_limit_are_not_unpacked(tmp_path: Path) -> None:
    members = [(f"node0/measured/{number}", tarfile.REGTYPE, "x" * 1000) for number in range(3)]
    unpack(pack(*members), tmp_path, "node0", limit=3000)
    with pytest.raises(AnsibleActionFail, match="more than any run's measurements take up"):
        unpack(pack(*members, ("node0/gpus.csv", tarfile.REGTYPE, "x")), tmp_path / "new", "node0", limit=3000)
    assert not (tmp_path / "new" / "node0" / "gpus.csv").exists()


def test_unpacking_stops_at_too_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_logs, "MAX_FILES", 3)
    with pytest.raises(AnsibleActionFail, match="more than 3 files"):
        unpack(pack(*((f"node0/{number}.log", tarfile.REGTYPE, "x") for number in range(9))), tmp_path, "node0")
    assert len(list(tmp_path.rglob("*.log"))) == 3


class Node:
    """A node that returns arbitrary archives and reports arbitrary sizes."""

    def __init__(self, size: int, last: bool) -> None:
        self.size, self.last, self.sent = size, last, 0

    def __call__(
        self, _action: object, _files: list[str], request: dict[str, Any], _variables: object, _timeout: float = 0
    ) -> dict[str, Any]:
        self.sent += 1
        piece = {"data": base64.b64encode(bytes(100)).decode("ascii"), "last": self.last}
        return {"size": self.size, "left_out": OMITTED, **piece} if request["operation"] == "pack" else piece


def fetch(monkeypatch: pytest.MonkeyPatch, node: Any, directory: Path, **options: Any) -> dict[str, Any]:
    """Fetch the logs of a run from a node."""
    (directory / "plan.json").write_text(json.dumps({"nodes": [{"name": "node0"}, {"name": "node1"}]}))
    monkeypatch.setattr(run_logs, "call_node", node)
    action = ActionModule.__new__(ActionModule)
    arguments = {"run_id": "first", "directory": str(directory / "logs"), **options}
    action._task = types.SimpleNamespace(check_mode=False, args=arguments)
    monkeypatch.setattr(ActionBase, "run", lambda *_arguments: {})
    return action.run(None, {"inventory_hostname": "node1"})


def test_fetch_stops_when_logs_exceed_free_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(size=2_000_000_000, last=False)
    set_free_space(monkeypatch, free_space.KEEP_FREE + 1_900_000_000)
    with pytest.raises(
        AnsibleActionFail, match=r"the packed logs of node1 take 2.0 GB, but the disk that holds /\S+ has 3.0 GB free"
    ):
        fetch(monkeypatch, node, tmp_path)
    assert node.sent == 1, "the first piece comes with the size"


@pytest.mark.parametrize(
    "reply",
    [{}, {"size": -1}, {"size": 1, "data": 1}, {"size": 1, "data": "", "last": True, "left_out": {"files": [1]}}],
    ids=str,
)
def test_reply_that_is_not_an_archive_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reply: dict[str, Any]
) -> None:
    with pytest.raises(AnsibleActionFail, match="node1 sent an invalid reply instead of its logs"):
        fetch(monkeypatch, lambda *_arguments: reply, tmp_path)


def test_piece_that_is_not_base64_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reply = {"size": 1, "data": "?", "last": True, "left_out": OMITTED}
    with pytest.raises(AnsibleActionFail, match="node1 sent an invalid reply instead of its logs"):
        fetch(monkeypatch, lambda *_arguments: reply, tmp_path)


def test_node_that_sends_endlessly_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(size=1000, last=False)
    with pytest.raises(AnsibleActionFail, match="node1 did not send a complete log archive"):
        fetch(monkeypatch, node, tmp_path)
    assert node.sent == 11


@pytest.mark.parametrize(
    "problem", [AnsibleConnectionFailure("no route"), AnsibleActionFail("no Python"), OSError(28, "No space left")]
)
def test_optional_measurements_that_cannot_be_fetched_give_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_arguments: object) -> None:
        raise problem

    result = fetch(monkeypatch, refuse, tmp_path, selection="measured", required=False)
    assert result["directory"] is None and not result.get("failed")
    warned = " ".join(capsys.readouterr().err.split())
    assert "the measurements of run first on node1 are not in its record" in warned
    assert "logs.yml -e run_id=first -e fetch=true" in warned
    with pytest.raises(type(problem)):
        fetch(monkeypatch, refuse, tmp_path)


def test_node_cannot_replace_the_files_of_another_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = pack(("node0/job_results.jsonl", tarfile.REGTYPE, "{}")).getvalue()

    def node(*_arguments: object) -> dict[str, Any]:
        return {"size": len(data), "data": base64.b64encode(data).decode("ascii"), "last": True, "left_out": OMITTED}

    with pytest.raises(AnsibleActionFail, match="would be written outside .*/logs/node1"):
        fetch(monkeypatch, node, tmp_path)
    assert list((tmp_path / "logs").rglob("*")) == []


def test_node_outside_the_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(json.dumps({"nodes": [{"name": "node0"}]}))
    assert run_logs.node_folder(tmp_path, "node0") == "node0"
    with pytest.raises(AnsibleActionFail, match="node9 is not a node of the run"):
        run_logs.node_folder(tmp_path, "node9")


# --- Archive contents -------------------------------------------------------------------------------------------------

OMITTED: dict[str, Any] = {"limit_count": 10_000, "limit": 64 << 20, "files": [], "count": 0, "size": 0}


def test_measurements_left_on_node_are_listed() -> None:
    omitted = {"file": "measured/\x1b[2Jbig.csv", "size": 70_000_000, "retained": 0}
    shortened = {"file": "launcher.log", "size": 90_000_000, "retained": 8_000_000}
    assert describe_left_out("gpu1", "first", OMITTED) == ""
    assert describe_left_out("gpu1", "first", {**OMITTED, "files": [shortened], "count": 1}) == ""
    assert describe_left_out("gpu1", "first", {**OMITTED, "files": [omitted], "count": 1}) == (
        "gpu1 did not send 70 MB of run first: measured/ [2Jbig.csv (at most 64 MiB in 10000 files are fetched "
        "per node, smallest first). To fetch all of them: ansible-playbook fetch.yml -e run_id=first"
    )
    message = describe_left_out("gpu1", "first", {**OMITTED, "files": [omitted, shortened, omitted], "count": 5})
    assert "140 MB" in message and "big.csv and 3 others (" in message


def test_logs_left_on_node_are_fetched_by_a_different_command_from_job_files() -> None:
    """fetch.yml copies no logs, and logs.yml copies no job outputs."""
    log = {"file": "launcher.log", "size": 100_000_000, "retained": 0}
    data = {"file": "measured/big.csv", "size": 70_000_000, "retained": 0}
    only_log = describe_left_out("gpu1", "first", {**OMITTED, "files": [log], "count": 1})
    assert only_log.endswith("To fetch all of them: ansible-playbook logs.yml -e run_id=first -e fetch=true")
    both = describe_left_out("gpu1", "first", {**OMITTED, "files": [log, data], "count": 2})
    assert both.endswith(
        "ansible-playbook fetch.yml -e run_id=first, and for the logs: "
        "ansible-playbook logs.yml -e run_id=first -e fetch=true"
    )
