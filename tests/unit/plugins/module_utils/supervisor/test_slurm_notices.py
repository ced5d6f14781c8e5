"""Slurm's notices: how much time a job has left, and why it was stopped."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.module_utils._supervisor.notices import slurm
from ansible_collections.muster.training.plugins.module_utils._supervisor.notices.slurm import (
    REQUEST,
    announces_preemption,
    describe_stop,
    parse_duration,
    take_notice,
    time_until_preemption,
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
def test_durations_are_formatted(text: str, expected: int | None) -> None:
    assert parse_duration(text) == expected


def test_request_becomes_a_notice_once(tmp_path: Path) -> None:
    assert take_notice(str(tmp_path)) == []
    (tmp_path / REQUEST).write_text("2:30\n")
    (notice,) = take_notice(str(tmp_path))
    assert (notice["source"], notice["ends"], notice["seconds"]) == ("slurm", True, 150.0)
    assert notice["text"].startswith("Slurm will end the job in 150 s")
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
        ({"SLURM_JOB_ID": "12"}, "Slurm job 12 was cancelled or preempted, or reached its time limit"),
        ({"SLURM_JOB_ID": "12", "SLURM_JOB_END_TIME": "1050"}, "Slurm job 12 reached its time limit"),
        ({"SLURM_JOB_ID": "12", "SLURM_JOB_END_TIME": "9000"}, "Slurm job 12 was cancelled or preempted"),
        ({"SLURM_JOB_ID": "x"}, "SIGTERM"),
    ],
)
def test_reason_for_a_stop_is_determined(tmp_path: Path, environment: dict[str, str], expected: str) -> None:
    assert describe_stop("SIGTERM", str(tmp_path), environment, 1000.0) == expected
    (tmp_path / "stop").touch()
    assert describe_stop("SIGTERM", str(tmp_path), environment, 1000.0) == "SIGTERM", "stop.yml has stopped it"


NOW = time.mktime((2026, 11, 27, 14, 0, 0, 0, 0, -1))
PREEMPTED = (
    "JobId=12 JobName=bert JobState=RUNNING PreemptTime=2026-11-27T13:59:59 EndTime=2026-11-27T14:01:30 Licenses="
)


@pytest.mark.parametrize(
    ("job_output", "expected"),
    [
        (PREEMPTED, "0:90"),
        (PREEMPTED.replace("RUNNING", "PREEMPTED"), None),
        (PREEMPTED.replace("2026-11-27T13:59:59", "None"), None),
        (PREEMPTED.replace("14:01:30", "13:59:30"), None),
        (PREEMPTED.replace("EndTime=2026-11-27T14:01:30", "EndTime=Unknown"), ""),  # a job without a time limit
        ("", None),
    ],
)
def test_time_until_a_preemption_is_determined(job_output: str, expected: str | None) -> None:
    assert time_until_preemption(job_output, NOW) == expected


def test_signal_ahead_of_a_preemption_becomes_a_notice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "scontrol"
    program.write_text(f'#!/bin/sh\n[ "$*" = "show job 12 --oneliner" ] && echo "{PREEMPTED}"\n')
    program.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "12"}
    monkeypatch.setenv("PATH", environment["PATH"])
    directory = tmp_path / "node0"
    directory.mkdir()
    assert announces_preemption(str(directory), environment, NOW)
    assert take_notice(str(directory))[0]["seconds"] == 90.0
    assert not announces_preemption(str(directory), {**environment, "SLURM_JOB_ID": "13"}, NOW), "it was cancelled"
    assert not announces_preemption(str(directory), {}, NOW)
    (directory / "stop").touch()
    assert not announces_preemption(str(directory), environment, NOW), "stop.yml has stopped it"


def test_signal_stops_the_run_if_slurm_does_not_reply(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "PREEMPTION_QUERY_TIMEOUT", 0.1)
    program = tmp_path / "scontrol"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "12"}
    assert not announces_preemption(str(tmp_path), environment, NOW)
