"""Selection of the job outputs to fetch, their size, and requests for confirmation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible.plugins.action import ActionBase

from ansible_collections.muster.training.plugins.action.choose_outputs import CONFIRM_SIZE, ActionModule


def file(name: str, size: int) -> dict[str, Any]:
    return {"name": name, "size": size, "mtime": 1}


def choose(monkeypatch: pytest.MonkeyPatch, directory: Path, listed: dict[str, Any], **options: Any) -> dict[str, Any]:
    action = ActionModule.__new__(ActionModule)
    arguments = {"nodes": ["a", "b"], "listed": listed, "directory": str(directory), **options}
    action._task = type("Task", (), {"check_mode": False, "args": arguments})()
    monkeypatch.setattr(ActionBase, "run", lambda *_arguments: {})
    return action.run(None, {})


def test_identical_files_on_several_nodes_are_fetched_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    same = file("run/last.pt", 3_000_000)
    document = {"a": {"files": [same]}, "b": {"files": [same, file("run/rank1.pt", 1_000_000)]}}
    assert choose(monkeypatch, tmp_path, document)["compare"] == {"a": ["run/last.pt"], "b": ["run/last.pt"]}
    assert capsys.readouterr().out == ""
    hashes = {name: {"hashes": {"run/last.pt": "x"}} for name in document}
    result = choose(monkeypatch, tmp_path, document, compared=hashes)
    assert result["selected"] == {
        "a": {"directory": f"{tmp_path}/node0", "files": [same]},
        "b": {"directory": f"{tmp_path}/node1", "files": [file("run/rank1.pt", 1_000_000)]},
    }
    assert (result["count"], result["size"], result["needs_confirmation"]) == (2, 4_000_000, False)
    assert capsys.readouterr().out == (
        "the run's outputs: 2 files, 4 MB\n  identical on several nodes, fetched once: 1 file\n"
        f"  to fetch: 2 files, 4 MB, into {tmp_path}\n"
    )


def test_files_that_are_not_outputs_are_named_with_the_setting_that_fetches_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = {"logs\x1b[31m\n": 1, "{{ x }}": 1, 7: 1, "many": -1, "text": "1", "yes": True}
    document = {"a": {"files": [], "unlisted": {"logs": 4, "w": 1}}, "b": {"files": [], "unlisted": {"logs": 1}}}
    choose(monkeypatch, tmp_path, document, compared={})
    assert capsys.readouterr().out == (
        f"the run's outputs: 0 files, 0 MB\n  to fetch: 0 files, 0 MB, into {tmp_path}\n"
        "  not fetched (files in the working directory that the job may have written): logs (5 files), w (1 file)\n"
        """  to fetch them, add -e '{"launch_outputs": ["logs", "w"]}'; for later runs, set outputs in the job file\n"""
    )
    choose(monkeypatch, tmp_path, {"a": {"files": [], "unlisted": hostile}, "b": {"unlisted": 7}}, compared={})
    output = capsys.readouterr().out
    assert '["logs [31m"]' in output and "\x1b" not in output and "{{" not in output


def test_large_fetch_asks_for_confirmation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = {"a": {"files": [file("run/1", CONFIRM_SIZE)]}, "b": {"files": []}}
    assert not choose(monkeypatch, tmp_path, document, compared={})["needs_confirmation"]
    document["b"] = {"files": [file("run/2", 1)]}
    assert choose(monkeypatch, tmp_path, document, compared={})["needs_confirmation"]
    assert not choose(monkeypatch, tmp_path, document, compared={}, confirm=True)["needs_confirmation"]


@pytest.mark.parametrize(
    ("listed", "expected_text"),
    [
        ({"a": {"files": [file("../x", 1)]}, "b": {"files": []}}, "a has files that are not fetched"),
        ({"a": {"files": [], "incomplete": True}, "b": {"files": []}}, "a has files that cannot be listed"),
        ({"a": {"files": []}}, "b: not in this inventory"),
    ],
)
def test_files_that_are_not_fetched_are_reported(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    listed: dict[str, Any],
    expected_text: str,
) -> None:
    result = choose(monkeypatch, tmp_path, listed, compared={})
    assert (result["count"], result["size"]) == (0, 0)
    assert expected_text in " ".join(capsys.readouterr().err.split())


def test_malformed_replies_are_tolerated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = {"a": None, "b": {"files": "x", "hashes": 1}}
    result = choose(monkeypatch, tmp_path, document, compared={"a": None, "b": {"hashes": []}})
    assert result["count"] == 0
