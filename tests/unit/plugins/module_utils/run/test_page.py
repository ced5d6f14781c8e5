# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The updates that a node sends to the live page of a run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._run import page

NODE = {"name": "gpu1", "node_rank": 1, "first_rank": 2, "slots": 2}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory of a run with two ranks on its second node."""
    plan = {"rank_logs": "ranks", "node": NODE}
    for rank in ("0", "1"):
        (tmp_path / "ranks" / rank).mkdir(parents=True)
        for name in ("stdout.log", "stderr.log"):
            (tmp_path / "ranks" / rank / name).write_text("")
    monkeypatch.setattr(page, "node_directories", lambda _request: [(str(tmp_path), plan)])
    return tmp_path


def search(text: str) -> list[dict[str, Any]]:
    matches: list[dict[str, Any]] = page.search({"run_id": "r", "text": text})["matches"]
    return matches


def test_search_names_the_rank_and_log_of_each_match(run: Path) -> None:
    (run / "ranks" / "0" / "stdout.log").write_text("step 1\nLOSS is nan\n")
    (run / "ranks" / "1" / "stderr.log").write_text("loss=3\nunfinished loss")
    assert search("loss") == [
        {"rank": 2, "log": "ranks/0/stdout.log", "line": "LOSS is nan"},
        {"rank": 3, "log": "ranks/1/stderr.log", "line": "loss=3"},
        {"rank": 3, "log": "ranks/1/stderr.log", "line": "unfinished loss"},
    ]
    assert search("(loss|step)") == []


def test_search_is_bounded(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "SEARCHED_BYTES", 3000)
    monkeypatch.setattr(page, "BLOCK", 64)
    log = run / "ranks" / "0" / "stdout.log"
    log.write_text("early match\n" + "".join(f"match {number}\n" for number in range(1000)) + "x" * 500 + "\n")
    lines = [match["line"] for match in search("match")]
    assert lines == [f"match {number}" for number in range(950, 1000)]
    log.write_text("a" * 700 + "needle" + "b" * 700)
    (match,) = search("needle")
    assert "needle" in match["line"] and len(match["line"]) <= page.MAX_LINE


def test_search_does_not_open_files_that_a_job_substituted_for_a_log(run: Path) -> None:
    log = run / "ranks" / "0" / "stdout.log"
    log.unlink()
    os.mkfifo(log)
    (run / "ranks" / "1" / "stdout.log").unlink()
    (run / "ranks" / "1" / "stdout.log").symlink_to("/etc/passwd")
    assert search("root") == []


def test_a_progress_bar_is_shown_as_in_a_terminal(run: Path) -> None:
    (run / "ranks" / "0" / "stdout.log").write_text("10% loss 3\r20% loss 2\n")
    assert [match["line"] for match in search("loss")] == ["20% loss 2"]


def test_a_reply_has_the_new_events_and_samples_of_the_run(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[dict[str, Any]] = []

    def watch(request: dict[str, Any]) -> dict[str, Any]:
        requests.append(request)
        return {"directory": str(run), "events": []}

    monkeypatch.setattr(page, "watch", watch)
    (run / "samples.jsonl").write_text(
        '{"node": "gpu0", "number": 7, "time": 1.0, "gpus": [], "memory_used": null, "disk_free": 5}\n'
    )
    reply = page.page({"run_id": "r", "sample_cursor": [0, 0, 0]})
    assert reply["events"] == [] and [sample["number"] for sample in reply["samples"]] == [7]
    assert reply["sample_cursor"][2] == 7 and requests[0]["wait"] == 0
