"""Fetching of job outputs, including interruptions and invalid replies."""

from __future__ import annotations

import base64
import itertools
import shutil
import types
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

from ansible_collections.muster.training.plugins.action import run_outputs
from ansible_collections.muster.training.plugins.action.run_outputs import ActionModule
from ansible_collections.muster.training.plugins.plugin_utils._record import free_space
from ansible_collections.muster.training.plugins.plugin_utils._record.output_choice import PARTIAL

CONTENT = {"run/deep/last.pt": b"0123456789", "work/empty": b"", "root/scratch/log": b"abcdef"}
FILES = [{"name": name, "size": len(text), "mtime": 1_700_000_000_000_000_000} for name, text in CONTENT.items()]


class Node:
    """A node with these files, whose connection fails after a number of calls."""

    def __init__(self, calls: int = 1000, problems: dict[str, str] | None = None) -> None:
        self.calls, self.problems, self.requested = calls, problems or {}, list[tuple[str, int, int]]()

    def __call__(self, _action: object, _modules: object, request: dict[str, Any], _variables: object) -> Any:
        if self.calls == 0:
            raise AnsibleConnectionFailure("the network is gone")
        self.calls -= 1
        self.requested += [(part["name"], part["offset"], part["length"]) for part in request["parts"]]
        return {"parts": [self.make_reply(part) for part in request["parts"]]}

    def make_reply(self, part: dict[str, Any]) -> Any:
        if part["name"] in self.problems:
            return {"problem": self.problems[part["name"]]}
        data = CONTENT[part["name"]][part["offset"] : part["offset"] + part["length"]]
        return {"data": base64.b64encode(data).decode("ascii")}


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit each call to four bytes."""
    monkeypatch.setattr(run_outputs, "PIECE_BYTES", 4)
    monkeypatch.setattr(ActionBase, "run", lambda *_arguments: {})


def fetch(monkeypatch: pytest.MonkeyPatch, node: Any, target: Path, files: Any = None, **task: Any) -> dict[str, Any]:
    monkeypatch.setattr(run_outputs, "call_node", node)
    action = ActionModule.__new__(ActionModule)
    args = {"state": "fetched", "run_id": "first", "files": files or FILES, "directory": str(target)}
    action._task = types.SimpleNamespace(**{"check_mode": False, "ignore_unreachable": False, "args": args, **task})
    return action.run(None, {"inventory_hostname": "gpu1"})


def read_files(target: Path) -> dict[str, bytes]:
    return {str(path.relative_to(target)): path.read_bytes() for path in target.rglob("*") if path.is_file()}


def test_outputs_keep_their_mtime_and_are_fetched_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fetch(monkeypatch, Node(), tmp_path)["failures"] == {}
    assert read_files(tmp_path) == CONTENT
    last = (tmp_path / "run/deep/last.pt").stat()
    assert last.st_mtime_ns == FILES[0]["mtime"] and last.st_mode & 0o777 == 0o600
    assert "[muster] gpu1: 0 MB after 0:00:00, in " in capsys.readouterr().out
    node = Node()
    assert not fetch(monkeypatch, node, tmp_path)["changed"] and node.requested == []


def test_progress_shows_amount_and_remaining_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each call fetches 4 of 16 bytes, in 30 seconds."""
    clock = itertools.count(step=30)
    monkeypatch.setattr(run_outputs, "time", types.SimpleNamespace(monotonic=lambda: next(clock)))
    fetch(monkeypatch, Node(), tmp_path)
    messages = [line for line in capsys.readouterr().out.splitlines() if line.endswith(" to go")]
    remaining_times = [line.rpartition(", ")[2] for line in messages]
    assert (
        remaining_times == sorted(remaining_times, reverse=True)
        and remaining_times[0] == "0:01:30 to go"
        and remaining_times[-1] == "0:00:00 to go"
    )
    assert messages[0].startswith("[muster] gpu1: 0.0 of 0.0 GB, 0 MB/s, ")


def test_interrupted_fetch_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AnsibleConnectionFailure):
        fetch(monkeypatch, Node(calls=2), tmp_path)
    assert list(read_files(tmp_path).values()) == [b"01234567"], "nothing has its final name yet"
    old = tmp_path / "run" / f"{PARTIAL}of-another-version"
    old.write_text("x")
    node = Node()
    fetch(monkeypatch, node, tmp_path)
    assert node.requested[0] == ("run/deep/last.pt", 8, 2)
    assert read_files(tmp_path) == CONTENT


def test_file_that_cannot_be_read_is_reported_and_others_are_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = fetch(monkeypatch, Node(problems={"run/deep/last.pt": "it has changed\x1b[2J since"}), tmp_path)
    assert result["failures"] == {"run/deep/last.pt": "it has changed [2J since"} and result["changed"]
    assert set(read_files(tmp_path)) == {"work/empty", "root/scratch/log"}
    assert "gpu1 did not send run/deep/last.pt: it has changed" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    "reply",
    [
        {"parts": None},
        {"parts": []},
        {"parts": ["x"] * 9},
        {"parts": [{}] * 9},
        {"parts": [{"data": "!"}] * 9},
        {"parts": [{"data": base64.b64encode(bytes(99)).decode()}] * 9},
        {},
    ],
)
def test_malformed_reply_creates_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reply: Any) -> None:
    failures = fetch(monkeypatch, lambda *_arguments: reply, tmp_path, FILES[:1])["failures"]
    assert set(failures) == {"run/deep/last.pt"} and read_files(tmp_path) == {}


def test_existing_symlink_is_replaced_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "out" / "run" / "deep").mkdir(parents=True)
    (tmp_path / "out" / "run" / "deep" / "last.pt").symlink_to(tmp_path / "mine")
    assert fetch(monkeypatch, Node(), tmp_path / "out")["failures"] == {}
    assert (tmp_path / "mine").read_text() == "mine"
    assert not (tmp_path / "out" / "run" / "deep" / "last.pt").is_symlink()


def test_path_outside_target_is_refused_before_any_transfer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node()
    with pytest.raises(AnsibleActionFail, match="gpu1 has files that cannot be fetched: 'run/../../x'"):
        fetch(monkeypatch, node, tmp_path, [*FILES, {"name": "run/../../x", "size": 1, "mtime": 1}])
    assert node.requested == [] and read_files(tmp_path) == {}


def test_outputs_larger_than_free_space_are_not_requested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = types.SimpleNamespace(free=free_space.KEEP_FREE + 10)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: free)
    node = Node()
    with pytest.raises(
        AnsibleActionFail,
        match=r"the outputs of gpu1 take 0.0 GB, .* free up space on this machine, or fetch "
        r"fewer",
    ):
        fetch(monkeypatch, node, tmp_path)
    assert node.requested == []


def test_check_mode_fetches_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fetch(monkeypatch, Node(calls=0), tmp_path / "new", check_mode=True)["changed"]
    assert not (tmp_path / "new").exists()
