"""The section of a report on the ranks' activity, from the stacks in a record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._report.writer import write_report
from tests.unit.plugins.plugin_utils.report.records import HOSTILE, START, Page, write_record
from tests.unit.plugins.plugin_utils.report.test_writer import check_page

WAITS: dict[str, Any] = {"kind": "collective", "call": "all_reduce", "function": "train", "file": "/c/t.py", "line": 8}
LOADS: dict[str, Any] = {"kind": "code", "call": "", "function": "load", "file": "/c/data.py", "line": 41}


def group(*ranks: int, **what: Any) -> dict[str, Any]:
    common = {"text": "", "state": "S", "cpu": "still", "frames": [], "workers": []}
    return {"ranks": list(ranks), **common, **what}


GROUPS = [
    group(0, 1, 2, **WAITS, frames=["all_reduce (distributed_c10d.py:3252)", "train (t.py:8)"]),
    group(3, **LOADS, frames=["load (data.py:41)"], text="time.sleep(1)", workers=["__getitem__ (data.py:9)"]),
]
TITLE = "What the ranks did"


def page_of(directory: Path, result: dict[str, Any]) -> Page:
    record = write_record(directory / "runs", nodes=2, gpus=2, result=result)
    return check_page(write_report(record, directory / "logbook", START).page.read_text())


def test_groups_of_a_hang_are_shown_with_the_awaited_rank_first(tmp_path: Path) -> None:
    hang = {"text": "", "since": 1.0, "awaited_ranks": [3], "groups": GROUPS}
    text = page_of(tmp_path, {"state": "failed", "hang": hang}).text
    assert text.index("rank 3 on gpu1 is in load (data.py:41)") < text.index("ranks 0-2 on gpu0, gpu1 wait in")
    assert "When the run hung" in text and "data.py:41: time.sleep(1)" in text
    assert "Its worker process: __getitem__ (data.py:9)" in text and "train (t.py:8)" in text


def test_stacks_of_a_failed_run_are_shown_without_blame(tmp_path: Path) -> None:
    text = page_of(tmp_path, {"state": "failed", "stacks": GROUPS}).text
    assert TITLE in text and "Before they were ended" in text and "wait for this" not in text


@pytest.mark.parametrize("stacks", [[], None, "x", [{"ranks": [0]}], {"hang": 7}])
def test_section_is_hidden_without_stacks(tmp_path: Path, stacks: Any) -> None:
    assert TITLE not in page_of(tmp_path, {"stacks": stacks, "hang": stacks}).text


def test_hostile_stacks_are_shown_as_text(tmp_path: Path) -> None:
    what = {**LOADS, "function": HOSTILE, "file": f"/{HOSTILE}", "text": HOSTILE, "call": HOSTILE}
    groups = [group(0, **what, frames=[HOSTILE] * 99, workers=[HOSTILE] * 99)] * 999
    page = page_of(tmp_path, {"state": "failed", "hang": {"text": HOSTILE, "awaited_ranks": [0], "groups": groups}})
    assert not page.elements("b") and not page.elements("a") and not page.elements("script")
    assert "<script>alert(1)</script>" in page.text and TITLE in page.text
