"""Reports of how ranks ended, from logs and files that torchrun left (see tests/record_torchrun.py)."""

from __future__ import annotations

import json
import math
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._run.error_text import final_message
from ansible_collections.muster.training.plugins.module_utils._run.processes import (
    is_rank,
)
from ansible_collections.muster.training.plugins.module_utils._run.rank_logs import attempt_directory, rank_logs
from ansible_collections.muster.training.plugins.module_utils._run.watch import partial_line, read_new
from ansible_collections.muster.training.plugins.module_utils._supervisor.notices.ranks import read_members
from ansible_collections.muster.training.plugins.module_utils._supervisor.own_errors import RanksEnd
from ansible_collections.muster.training.plugins.module_utils._supervisor.programs import muster_rank
from ansible_collections.muster.training.plugins.module_utils._supervisor.rank_reports import (
    CLOSING,
    launcher_error,
    rank_end,
    rank_reports,
    torchrun_failures,
    torchrun_first,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.watchers import read_sample
from tests.unit.hostile import DIGITS
from tests.unit.supervised import end_rank, eventually

TORCHRUN = Path(__file__).resolve().parents[3] / "fixtures" / "torchrun"
CLOSED = "Connection closed by peer"
TERMINATED = -15


def recorded(case: str, slots: int = 2, first_rank: int = 0, launcher_code: int = 1) -> list[Any]:
    """Return the reports of a run whose files were recorded from torchrun itself."""
    plan = {"rank_logs": "torchrun", "node": {"slots": slots, "first_rank": first_rank}}
    reports = rank_reports(plan, str(TORCHRUN / case), launcher_code)
    for item in reports:
        assert Path(item["log"]).parent.name == str(item["local_rank"])
        assert item["log"].startswith(str(TORCHRUN / case))
    return reports


def codes_and_errors(reports: list[Any]) -> list[tuple[int, int | None, str]]:
    return [(item["rank"], item["exit_code"], item["error"]) for item in reports]


def test_exception_is_attributed_to_the_rank_that_raised() -> None:
    for case in ("raise", "raise_with_record"):
        first, second = codes_and_errors(recorded(case))
        assert first[:2] == (0, TERMINATED) and CLOSED in first[2]
        assert second == (1, 1, "ValueError: boom: all of it")


def test_exception_on_the_second_node_is_attributed_to_its_rank() -> None:
    third, fourth = codes_and_errors(recorded("raise_on_second_node", first_rank=2))
    assert third[:2] == (2, TERMINATED) and CLOSED in third[2]
    assert fourth == (3, 1, "ValueError: boom: all of it")


def test_exit_code_of_a_rank_that_exited_is_reported() -> None:
    first, second = codes_and_errors(recorded("exit_code"))
    assert first[:2] == (0, 3)
    assert second[:2] == (1, TERMINATED) and CLOSED in second[2]


@pytest.mark.parametrize(("case", "rank", "code"), [("kill", 1, -9), ("abort", 0, -6)])
def test_signal_that_killed_a_rank_is_reported(case: str, rank: int, code: int) -> None:
    reports = codes_and_errors(recorded(case))
    assert reports[rank] == (rank, code, "")
    assert reports[1 - rank][1] == TERMINATED


def test_numbers_of_any_length_in_torchrun_output_cause_no_harm() -> None:
    table = f"Root Cause (first observed failure):\nrank : {DIGITS} (local_rank: {DIGITS})\n"
    text = f"{table}  exitcode : {DIGITS} (pid: {DIGITS})\nSending process {DIGITS} closing signal\n"
    assert torchrun_failures(text) == {} and torchrun_first(text) is None
    assert CLOSING.findall(text) == []
    assert read_sample(f"2026/11/22 10:15:00.123, {DIGITS}, 1\n", 0, {"0"})[0] == set()


def test_only_the_last_attempt_is_reported() -> None:
    first, second = recorded("restarted_and_failed")
    assert (first["exit_code"], first["error"]) == (1, "ValueError: boom: attempt 1")
    assert second["exit_code"] == TERMINATED
    assert "/attempt_1/" in first["log"] and "/attempt_1/" in second["log"]


def test_restarted_run_that_succeeded_has_no_error() -> None:
    assert codes_and_errors(recorded("restarted_and_well", launcher_code=0)) == [(0, 0, ""), (1, 0, "")]


def test_ranks_whose_launcher_was_terminated_have_no_exit_code() -> None:
    assert codes_and_errors(recorded("terminated")) == [(0, None, ""), (1, None, "")]
    output = final_message((TORCHRUN / "terminated" / "launcher.log").read_text())
    assert output.startswith("torch.distributed.elastic.multiprocessing.api.SignalException: Process ")


def test_rank_whose_launcher_was_terminated_reports_only_uncaught_errors(tmp_path: Path) -> None:
    caught = "Traceback (most recent call last):\n  File x\nKeyError: 'caught'\n"
    raised = "[rank1]: Traceback (most recent call last):\n[rank1]:   File x\n[rank1]: ValueError: boom\n"
    for local_rank, output in enumerate((caught, caught + raised)):
        logs = tmp_path / "ranks" / "first" / "attempt_0" / str(local_rank)
        logs.mkdir(parents=True)
        (logs / "stderr.log").write_text(output)
    plan = {"rank_logs": "torchrun", "node": {"slots": 2, "first_rank": 0}}
    assert codes_and_errors(rank_reports(plan, str(tmp_path), -15)) == [(0, None, ""), (1, None, "ValueError: boom")]


def test_missing_script_is_reported_for_each_rank() -> None:
    output = "ended with exit code 2, its last output: /opt/venv/bin/python: can't open file '/job/train.py': [Errno 2]"
    for rank, item in enumerate(codes_and_errors(recorded("no_such_script"))):
        assert item[:2] == (rank, 2) and item[2].startswith(output)


def test_last_output_of_torchrun_is_its_child_failed_error() -> None:
    for case in ("raise", "kill", "exit_code"):
        output = final_message((TORCHRUN / case / "launcher.log").read_text())
        assert output == "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:"


def test_ranks_without_their_own_log_share_the_launchers_log(tmp_path: Path) -> None:
    (tmp_path / "launcher.log").write_text("Traceback (most recent call last):\n  File x\nKeyError: 'lr'\n")
    plan = {"rank_logs": "launcher", "node": {"slots": 2, "first_rank": 4}}
    log = str(tmp_path / "launcher.log")
    assert rank_reports(plan, str(tmp_path), 1) == [
        {"rank": 4 + n, "local_rank": n, "exit_code": 1, "error": "KeyError: 'lr'", "log": log} for n in (0, 1)
    ]
    assert rank_logs(plan, str(tmp_path), 1) == (log, log)


def test_exception_in_a_shared_log_is_attributed_by_rank_prefix(tmp_path: Path) -> None:
    """A node's first process, which started the others, reports its own end last."""
    log = (
        "[rank5]: Traceback (most recent call last):\n[rank5]:   File x\nstep 7\n[rank5]: ValueError: boom\n"
        "[rank50]: Traceback (most recent call last):\n[rank50]: KeyError: 1\n"
        "Traceback (most recent call last):\n  File x\nRuntimeError: Connection closed by peer\n"
    )
    (tmp_path / "launcher.log").write_text(log)
    plan = {"rank_logs": "launcher", "node": {"slots": 2, "first_rank": 4}}
    assert codes_and_errors(rank_reports(plan, str(tmp_path), 1)) == [(4, None, ""), (5, 1, "ValueError: boom")]
    assert codes_and_errors(rank_reports(plan, str(tmp_path), 0)) == [(4, 0, ""), (5, 0, "")]


def test_ranks_that_torchrun_ended_are_marked_closed() -> None:
    assert [item.get("closed") for item in recorded("raise")] == [True, None]
    assert [item.get("closed") for item in recorded("exit_code")] == [None, True]


def test_rank_that_torchrun_names_as_first_failure_is_marked() -> None:
    assert [item.get("first") for item in recorded("raise")] == [None, True]
    assert [item.get("first") for item in recorded("exit_code")] == [True, None]


def test_killed_rank_does_not_report_an_exception_it_caught(tmp_path: Path) -> None:
    (tmp_path / "launcher.log").write_text("Traceback (most recent call last):\n  File x\nKeyError: 'caught'\nstep 7\n")
    plan = {"rank_logs": "launcher", "node": {"slots": 1, "first_rank": 0}}
    assert codes_and_errors(rank_reports(plan, str(tmp_path), -9)) == [(0, -9, "")]
    assert codes_and_errors(rank_reports(plan, str(tmp_path), 137)) == [(0, 137, "")], "as a container engine says it"
    assert launcher_error(-9, (tmp_path / "launcher.log").read_text()) == ""
    assert codes_and_errors(rank_reports(plan, str(tmp_path), 1)) == [(0, 1, "KeyError: 'caught'")]


def test_ranks_that_ended_by_themselves_are_not_marked_as_ended_by_muster(tmp_path: Path) -> None:
    plan = {"rank_logs": "ranks", "node": {"slots": 5, "first_rank": 4}}
    for local_rank, code, ended in ((0, 1, 99.5), (1, -9, 99.25), (2, -15, 99.0), (3, 1, 100.5)):
        end_rank(tmp_path, local_rank, code, ended, "saving\n")
    marks = [
        (item.get("first"), item.get("ended_by_us"))
        for item in rank_reports(plan, str(tmp_path), 1, True, RanksEnd(100.0, ()))
    ]
    assert marks == [(None, None), (True, None), (None, None), (None, True), (None, True)]
    errors = [item["error"] for item in rank_reports(plan, str(tmp_path), 1, True, RanksEnd(100.0, ()))]
    assert errors == ["ended with exit code 1, its last output: saving", "", "", "", ""]


def test_clock_set_back_does_not_change_which_rank_failed_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = {"rank_logs": "ranks", "node": {"slots": 2, "first_rank": 0}}
    for local_rank, wall_clock in ((1, 2000.0), (0, 1000.0)):  # a time server has adjusted the clock between the two
        (tmp_path / "ranks" / str(local_rank)).mkdir(parents=True)
        monkeypatch.setattr(time, "time", lambda now=wall_clock: now)
        muster_rank.write_exit(str(tmp_path / "ranks" / str(local_rank) / "exit.json"), local_rank, 1)
    output = rank_reports(plan, str(tmp_path), 1, True, RanksEnd(time.monotonic(), ()))
    assert [(item.get("first"), item.get("ended_by_us")) for item in output] == [(None, None), (True, None)]


def test_output_of_a_stopped_rank_without_a_separate_launcher_is_not_an_error(tmp_path: Path) -> None:
    (tmp_path / "launcher.log").write_text("saving\n")
    plan = {"rank_logs": "launcher", "node": {"slots": 1, "first_rank": 0}}
    (output,) = rank_reports(plan, str(tmp_path), 1, True)
    assert (output["error"], output["ended_by_us"]) == ("", True)


def test_rank_is_recognized_by_its_environment(tmp_path: Path) -> None:
    rank_environment = {"MUSTER_RUN_DIRECTORY": str(tmp_path), "LOCAL_RANK": "0"}
    plan: Any = {"rank_logs": "launcher"}
    for environment, expected, local_ranks in (
        (rank_environment, True, [0]),
        ({**rank_environment, "MUSTER_RUN_DIRECTORY": str(tmp_path / "other")}, False, []),
        ({"MUSTER_RUN_DIRECTORY": str(tmp_path)}, False, [None]),
        ({**rank_environment, "LOCAL_RANK": DIGITS}, False, [None]),
    ):
        process = subprocess.Popen(["sleep", "60"], env=environment)
        try:
            environ = Path(f"/proc/{process.pid}/environ")
            eventually(lambda: environ.read_bytes().count(b"\0") == len(environment))  # noqa: B023 - ends in this turn
            assert is_rank(process.pid, str(tmp_path)) is expected
            assert [member.local_rank for member in read_members(plan, str(tmp_path), 0).values()] == local_ranks
        finally:
            process.kill()
            process.wait()
    assert not is_rank(process.pid, str(tmp_path)), "it is gone"


def test_last_output_is_reported_for_an_exit_without_traceback(tmp_path: Path) -> None:
    (tmp_path / "launcher.log").write_text("usage: train.py\ntrain.py: error: unrecognized arguments: --lrr\n")
    plan = {"rank_logs": "launcher", "node": {"slots": 1, "first_rank": 0}}
    output = "ended with exit code 2, its last output: train.py: error: unrecognized arguments: --lrr"
    assert codes_and_errors(rank_reports(plan, str(tmp_path), 2)) == [(0, 2, output)]
    assert codes_and_errors(rank_reports(plan, str(tmp_path), -9)) == [(0, -9, "")], "a killed one chose no last words"


def test_abort_at_interpreter_exit_is_reported_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "launcher.log").write_text("step 9\nterminate called without an active exception\n")
    plan = {"rank_logs": "launcher", "node": {"slots": 1, "first_rank": 0}}
    ((_rank, _code, error),) = codes_and_errors(rank_reports(plan, str(tmp_path), -6))
    assert error.startswith("was aborted while its interpreter was exiting") and "import torch.distributed.nn" in error
    assert codes_and_errors(rank_reports(plan, str(tmp_path), -9)) == [(0, -9, "")]


def test_rank_log_is_the_launchers_log_until_torchrun_starts_the_ranks(tmp_path: Path) -> None:
    plan = {"rank_logs": "torchrun", "node": {"slots": 1, "first_rank": 0}}
    log = str(tmp_path / "launcher.log")
    assert rank_logs(plan, str(tmp_path), 0) == (log, log)
    (tmp_path / "ranks").mkdir()
    assert rank_logs(plan, str(tmp_path), 0) == (log, log)


@pytest.mark.parametrize("attempts", [[0], [0, 1], [2, 9, 10], [10, 2]])
def test_the_newest_attempt_is_selected_by_number(tmp_path: Path, attempts: list[int]) -> None:
    for attempt in attempts:
        for local_rank in (0, 1, 10):
            (tmp_path / "first_x_y" / f"attempt_{attempt}" / str(local_rank)).mkdir(parents=True)
    newest = tmp_path / "first_x_y" / f"attempt_{max(attempts)}"
    assert attempt_directory(str(tmp_path), 1) == str(newest / "1")
    assert attempt_directory(str(tmp_path), 10) == str(newest / "10")
    assert attempt_directory(str(tmp_path), 5) is None
    assert attempt_directory(str(tmp_path / "nowhere"), 0) is None


def test_previous_attempt_is_used_until_the_new_one_has_the_rank(tmp_path: Path) -> None:
    (tmp_path / "first_a" / "attempt_0" / "1").mkdir(parents=True)
    (tmp_path / "first_a" / "attempt_1" / "0").mkdir(parents=True)
    assert attempt_directory(str(tmp_path), 1) == str(tmp_path / "first_a" / "attempt_0" / "1")


PLANTS = ("a pipe", "a directory", "a dead link", "no object", "an object of others", "bytes", "deep", "a huge file")


def plant(path: Path, what: str) -> None:
    """Create a defective object at the path of a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    contents = {
        "no object": b"[1, 2]",
        "an object of others": b'{"exit_code": "boom", "moment": NaN, "message": [{}]}',
        "bytes": bytes(range(256)),
        "deep": b"[" * 60000,
    }
    if what == "a pipe":
        os.mkfifo(path)
    elif what == "a directory":
        path.mkdir()
    elif what == "a dead link":
        path.symlink_to("nowhere")
    elif what == "a huge file":
        with path.open("wb") as stream:
            stream.truncate(2**40)
    else:
        path.write_bytes(contents[what])


@pytest.mark.parametrize("what", PLANTS)
@pytest.mark.parametrize("logs", ["torchrun", "ranks", "launcher"])
def test_files_planted_by_a_job_neither_crash_nor_block_their_readers(tmp_path: Path, what: str, logs: str) -> None:
    plan = {"rank_logs": logs, "node": {"slots": 1, "first_rank": 0}}
    for ranks in (tmp_path / "ranks" / "first" / "attempt_0" / "0", tmp_path / "ranks" / "0"):
        for name in ("exit.json", "error.json", "stderr.log", "stdout.log"):
            plant(ranks / name, what)
    plant(tmp_path / "launcher.log", what)
    (output,) = rank_reports(plan, str(tmp_path), 1)
    assert (output["rank"], output["exit_code"]) == (0, 1 if logs == "launcher" else None)
    json.dumps(output)
    assert rank_end(str(tmp_path), 0)[0] is None
    assert read_new(str(tmp_path / "launcher.log"), {}, True) is not None
    assert partial_line(str(tmp_path / "launcher.log"), {}) is not None


@pytest.mark.parametrize("name", ["attempt_best", "attempt_", "attempt_-1", "attempt_1x", "attempt_\u00b2"])
def test_directory_with_an_attempt_like_name_is_ignored(tmp_path: Path, name: str) -> None:
    (tmp_path / "ranks" / name / "0").mkdir(parents=True)
    (tmp_path / "ranks" / "first" / name / "0").mkdir(parents=True)
    assert attempt_directory(str(tmp_path / "ranks"), 0) is None
    (tmp_path / "ranks" / "first" / "attempt_0" / "0").mkdir(parents=True)
    assert attempt_directory(str(tmp_path / "ranks"), 0) == str(tmp_path / "ranks" / "first" / "attempt_0" / "0")


@pytest.mark.parametrize(
    ("code", "ended"), [(True, 1.0), ("1", 1.0), (10**30, 1.0), (1, "1"), (1, None), (1, math.nan), (1, 10**400)]
)
def test_impossible_exit_record_is_ignored(tmp_path: Path, code: object, ended: object) -> None:
    end_rank(tmp_path, 0, 1, 1.0)
    assert rank_end(str(tmp_path), 0) == (1, 1.0)
    (tmp_path / "ranks" / "0" / "exit.json").write_text(json.dumps({"exit_code": code, "moment": ended}))
    assert rank_end(str(tmp_path), 0) == (None, math.inf)
