"""Notices of Slurm: how long a job has left, and why it was stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.module_utils._supervisor.notices.slurm import (
    REQUEST,
    describe_stop,
    parse_duration,
    take_notice,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90", 5400),
        ("1:59", 119),
        ("0:30\n", 30),
        ("1:00:05", 3605),
        ("2-0", 172800),
        ("1-01:30", 91800),
        ("1-01:00:01", 90001),
        ("INVALID", None),
        ("UNLIMITED", None),
        ("", None),
        ("1-1:1:1:1", None),
    ],
)
def test_durations(text: str, expected: int | None) -> None:
    assert parse_duration(text) == expected


def test_request_becomes_a_notice_once(tmp_path: Path) -> None:
    assert take_notice(str(tmp_path)) == []
    (tmp_path / REQUEST).write_text("2:30\n")
    (notice,) = take_notice(str(tmp_path))
    assert (notice["source"], notice["ends"], notice["seconds"]) == ("slurm", True, 150.0)
    assert notice["text"].startswith("Slurm ends the job in 150 s")
    assert take_notice(str(tmp_path)) == []


def test_damaged_request_is_a_notice_without_a_time(tmp_path: Path) -> None:
    (tmp_path / REQUEST).write_text("slurm_load_jobs error")
    assert take_notice(str(tmp_path))[0]["seconds"] == 0.0
    (tmp_path / REQUEST).mkdir()
    assert take_notice(str(tmp_path)) == []


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "SIGTERM"),
        ({"SLURM_JOB_ID": "12"}, "job 12 of Slurm was cancelled, was preempted or reached its time limit"),
        ({"SLURM_JOB_ID": "12", "SLURM_JOB_END_TIME": "1050"}, "job 12 of Slurm reached its time limit"),
        ({"SLURM_JOB_ID": "12", "SLURM_JOB_END_TIME": "9000"}, "job 12 of Slurm was cancelled or preempted"),
        ({"SLURM_JOB_ID": "x"}, "SIGTERM"),
    ],
)
def test_reason_of_a_stop(tmp_path: Path, environment: dict[str, str], expected: str) -> None:
    assert describe_stop("SIGTERM", str(tmp_path), environment, 1000.0) == expected
    (tmp_path / "stop").touch()
    assert describe_stop("SIGTERM", str(tmp_path), environment, 1000.0) == "SIGTERM", "stop.yml has stopped it"
