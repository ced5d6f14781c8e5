"""A node that loses its connection, its permissions or its temporary directory."""

from __future__ import annotations

import json
import os
import selectors
import stat
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._files import bounded
from ansible_collections.muster.training.plugins.module_utils._supervisor import guard
from ansible_collections.muster.training.plugins.module_utils._supervisor.journal import Journal
from ansible_collections.muster.training.plugins.module_utils._supervisor.peer import MAX_UNSENT_NOTICES, Peer
from tests.unit.supervised import make_run


class Connection:
    """An open connection to rank 0 that records what was sent."""

    def __init__(self, stage: str = "open") -> None:
        self.stage, self.closed, self.expected, self.lines_key = stage, False, "mac", "key"
        self.sent: list[dict[str, Any]] = []

    def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)

    def open(self, _rank: int, _key: str) -> None:
        return None


@pytest.fixture
def peer(tmp_path: Path) -> Peer:
    plan: Any = make_run(tmp_path, [["/bin/true"]] * 2).plans[1]
    (tmp_path / "node1").mkdir()
    return Peer(plan, "token", Journal(str(tmp_path / "node1"), plan), selectors.DefaultSelector())


@pytest.mark.parametrize("is_known_closed", [False, True])
def test_notices_reach_rank_0_after_a_reconnection(peer: Peer, is_known_closed: bool) -> None:
    if is_known_closed:  # the next step removes it
        peer.connections.append(Connection())  # type: ignore[arg-type]
        peer.connections[0].closed = True
    peer.say("mount", "/data died")
    peer.say("gpus", "GPU 1 is lost")
    connection = Connection("mac")
    peer.connections[:] = [connection]  # type: ignore[list-item]
    peer.check_in(connection, {"mac": "mac"}, 1.0)  # type: ignore[arg-type]
    notices = [{"type": "mount", "text": "/data died"}, {"type": "gpus", "text": "GPU 1 is lost"}]
    assert [message for message in connection.sent if "text" in message] == notices
    peer.say("mount", "/data is responding again")
    peer.check_in(connection, {"mac": "mac"}, 2.0)  # type: ignore[arg-type]
    assert [message["text"] for message in connection.sent if "text" in message][2:] == ["/data is responding again"]


def test_notices_without_a_connection_are_bounded(peer: Peer) -> None:
    for number in range(2 * MAX_UNSENT_NOTICES):
        peer.say("logs", str(number))
    assert len(peer.unsent) == MAX_UNSENT_NOTICES


def test_temporary_directory_is_removed_as_far_as_possible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    (tmp_path / "socket").touch()
    remove = bounded.remove_tree

    def refuse(path: str) -> None:
        if path.endswith("/a"):
            raise PermissionError(1, "it is a mount", path)
        remove(path)

    monkeypatch.setattr(guard, "remove_tree", refuse)
    guard.remove_temporary(str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    monkeypatch.undo()
    guard.remove_temporary(str(tmp_path))
    assert not tmp_path.exists()
    guard.remove_temporary(str(tmp_path))


@pytest.mark.parametrize("mode", [0o755, 0o777])
def test_file_system_without_permissions_is_not_reported_as_damage_by_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    run = make_run(tmp_path, [["/bin/true"]])
    directory = tmp_path / run.run_id / "node0"
    directory.mkdir(parents=True)
    (directory / "plan.json").write_text(json.dumps(run.plans[0]))
    for path in (directory, directory.parent):
        path.chmod(mode)
    monkeypatch.setattr(os, "chmod", lambda *_arguments: None)  # as CIFS and FUSE do
    plan: Any = run.plans[0]
    journal = Journal(str(directory), plan)
    journal.identify()
    journal.restore()
    assert journal.damage == ""
    (directory / "plan.json").unlink()
    journal.restore()
    assert "removed, replaced or locked files" in journal.damage


def test_permissions_that_a_job_changes_are_restored(tmp_path: Path) -> None:
    run = make_run(tmp_path, [["/bin/true"]])
    directory = tmp_path / run.run_id / "node0"
    directory.mkdir(parents=True)
    for path in (directory, directory.parent):
        path.chmod(0o700)
    (directory / "plan.json").write_text(json.dumps(run.plans[0]))
    plan: Any = run.plans[0]
    journal = Journal(str(directory), plan)
    journal.identify()
    directory.chmod(0o777)
    journal.restore()
    assert journal.damage and stat.S_IMODE(directory.stat().st_mode) == 0o700
