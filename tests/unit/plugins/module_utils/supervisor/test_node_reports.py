"""Reports of a node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._run.processes import (
    describe_exit,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.lifeline import (
    MAX_LINE,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.rank_reports import (
    last_lines,
    last_output,
    log_of_failure,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.reports import shorten_report

TERMINATED = -15


LONG = f"/home/user/.muster/runs/{'r' * 63}/node1000/ranks/{'r' * 63}_abcdefgh/attempt_0"


def report_of(errors: list[str]) -> Any:
    return {
        "exit_code": 1,
        "launcher_error": "e" * 2000,
        "ranks": [
            {"rank": n, "local_rank": n, "exit_code": 1, "error": error, "log": f"{LONG}/{n}/stderr.log"}
            for n, error in enumerate(errors)
        ],
        "last_log": f"{LONG}/0/stderr.log",
        "last_lines": "\U0001f4a5" * 4096,
    }


def test_short_report_is_not_changed() -> None:
    report = report_of(["ValueError: boom"] * 8)
    before = json.dumps(report)
    shorten_report(report)
    assert json.dumps(report) == before


@given(st.integers(1, 2000), st.sampled_from(["e", "é", "\U0001f4a5", "\0", '"']), st.integers(0, 2000))
def test_a_report_fits_into_one_lifeline_message(ranks: int, character: str, length: int) -> None:
    report = report_of([character * length] * ranks)
    shorten_report(report)
    assert len(json.dumps({"type": "report", "report": report}).encode()) < MAX_LINE
    assert len(report["ranks"]) >= min(ranks, 100)


@pytest.mark.parametrize(
    ("ranks", "code", "log"),
    [
        ([(1, 1, "ValueError: boom", {}), (0, None, "", {})], 1, "/1"),
        ([(0, 1, "Connection closed by peer", {}), (1, 1, "ValueError: boom", {"first": True})], 1, "/1"),
        ([(0, -15, "SignalException", {"closed": True}), (1, -9, "", {})], 1, "/1"),
        ([(0, None, "", {}), (1, None, "", {})], 127, "/launcher"),
        ([(0, -15, "", {}), (1, None, "", {})], -15, ""),
        ([(0, 0, "", {}), (1, 0, "", {})], 0, ""),
    ],
)
def test_last_lines_come_from_the_rank_that_failed_first(
    ranks: list[tuple[int, int | None, str, dict[str, bool]]], code: int, log: str
) -> None:
    reports = [{"rank": n, "exit_code": item, "error": error, "log": f"/{n}", **more} for n, item, error, more in ranks]
    report: Any = {"ranks": reports, "exit_code": code, "ended_by_us": False, "launcher_log": "/launcher"}
    assert log_of_failure(report) == log


def test_last_output_of_a_stopped_node_is_kept_in_shortened_form(tmp_path: Path) -> None:
    log = tmp_path / "stderr.log"
    log.write_text("".join(f"step {number}\n" for number in range(19)))
    ranks = [{"rank": 0, "exit_code": -15, "error": "", "log": str(log)}]
    report: Any = {"ranks": ranks, "exit_code": -15, "ended_by_us": True, "launcher_log": "/launcher"}
    assert last_output(report) == (str(log), "\n".join(f"step {number}" for number in range(9, 19)))
    report["ended_by_us"] = False
    assert last_output(report) == ("", "")
    ranks[0]["exit_code"] = report["exit_code"] = 0
    assert last_output(report)[1].endswith("step 18")  # why it may have ended before the other ranks


def test_last_lines_are_few_and_rendered_as_in_a_terminal(tmp_path: Path) -> None:
    log = tmp_path / "stderr.log"
    log.write_text("".join(f"line {n}\n" for n in range(290)) + " 1%\r 2%\r 3%\nValueError: boom\r\n\n")
    lines = last_lines(str(log)).split("\n")
    assert lines == [*(f"line {n}" for n in range(172, 290)), " 3%", "ValueError: boom"]
    log.write_text("x" * 20_000 + "\nend")
    assert last_lines(str(log)).endswith("x\nend") and len(last_lines(str(log))) == 12288
    assert last_lines("") == last_lines(str(tmp_path / "none")) == ""


def test_failed_rank_stays_in_a_shortened_report_of_1000_ranks() -> None:
    report = report_of(["Connection closed by peer"] * 1000)
    for rank in report["ranks"]:
        rank["exit_code"] = TERMINATED
    report["ranks"][777]["exit_code"] = -9
    shorten_report(report)
    assert report["ranks"][0]["rank"] == 777


@pytest.mark.parametrize(
    ("code", "expected_text"),
    [
        (0, "exit code 0"),
        (3, "exit code 3"),
        (-9, "signal SIGKILL"),
        (-250, "signal 250"),
        (139, "exit code 139 (SIGSEGV)"),
        (None, "no exit code"),
    ],
)
def test_exit_codes_are_described_as_text(code: int | None, expected_text: str) -> None:
    assert describe_exit(code) == expected_text
