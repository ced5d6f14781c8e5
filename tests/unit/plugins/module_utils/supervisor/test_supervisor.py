"""Parts of the supervisor without a run: how it reads logs, reports and messages."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._files.bounded import read_json
from ansible_collections.muster.training.plugins.module_utils._run import machine_shutdown
from ansible_collections.muster.training.plugins.module_utils._run.error_text import final_message, first_error
from ansible_collections.muster.training.plugins.module_utils._run.processes import (
    describe_exit,
    is_rank,
    limit_hits,
    process_table,
    reap,
    start_in_background,
)
from ansible_collections.muster.training.plugins.module_utils._run.rank_logs import attempt_directory, rank_logs
from ansible_collections.muster.training.plugins.module_utils._run.safe_files import (
    TAIL_BYTES,
    make_private_directory,
    read_tail,
    write_json,
)
from ansible_collections.muster.training.plugins.module_utils._run.start import write_supervisor
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import REPORT_FIELDS, checked_report
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import (
    AUTHENTICATION_TIMEOUT,
    RECONNECT_TIMEOUT,
)
from ansible_collections.muster.training.plugins.module_utils._run.watch import partial_line, read_new
from ansible_collections.muster.training.plugins.module_utils._supervisor import entry, journal, launcher, lifeline_end
from ansible_collections.muster.training.plugins.module_utils._supervisor.hub import Hub
from ansible_collections.muster.training.plugins.module_utils._supervisor.lifeline import (
    MAX_BACKLOG,
    MAX_LINE,
    LifelineConnection,
    handshake_mac,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.notices.ranks import read_members
from ansible_collections.muster.training.plugins.module_utils._supervisor.peer import Peer
from ansible_collections.muster.training.plugins.module_utils._supervisor.programs import muster_rank, ssh_shim
from ansible_collections.muster.training.plugins.module_utils._supervisor.rank_reports import (
    CLOSING,
    last_lines,
    last_output,
    launcher_error,
    log_of_failure,
    rank_end,
    rank_reports,
    recorded_error,
    torchrun_failures,
    torchrun_first,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.reports import shorten_report
from ansible_collections.muster.training.plugins.module_utils._supervisor.supervisor import Supervisor
from ansible_collections.muster.training.plugins.module_utils._supervisor.watchers import read_sample
from ansible_collections.muster.training.plugins.plugin_utils._failures.verdict import first_failure
from ansible_collections.muster.training.plugins.plugin_utils._node_call.run_programs import supervisor_files
from tests.sanity import real_interpreter
from tests.unit.hostile import DIGITS
from tests.unit.supervised import Run, eventually, make_run

TORCHRUN = Path(__file__).resolve().parents[3] / "fixtures" / "torchrun"
CLOSED = "Connection closed by peer"
TERMINATED = -15


def recorded(case: str, slots: int = 2, first_rank: int = 0, launcher_code: int = 1) -> list[Any]:
    """The reports of a run whose files were recorded from torchrun itself."""
    plan = {"rank_logs": "torchrun", "node": {"slots": slots, "first_rank": first_rank}}
    reports = rank_reports(plan, str(TORCHRUN / case), launcher_code)
    for one in reports:
        assert Path(one["log"]).parent.name == str(one["local_rank"])
        assert one["log"].startswith(str(TORCHRUN / case))
    return reports


def codes_and_errors(reports: list[Any]) -> list[tuple[int, int | None, str]]:
    return [(one["rank"], one["exit_code"], one["error"]) for one in reports]


# --- What torchrun leaves behind (recorded, see tests/record_torchrun.py) ---------------------------------------------


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


@pytest.mark.parametrize(("case", "who", "code"), [("kill", 1, -9), ("abort", 0, -6)])
def test_signal_that_killed_a_rank_is_reported(case: str, who: int, code: int) -> None:
    reports = codes_and_errors(recorded(case))
    assert reports[who] == (who, code, "")
    assert reports[1 - who][1] == TERMINATED


def test_numbers_of_any_length_in_torchruns_output_do_no_harm() -> None:
    table = f"Root Cause (first observed failure):\nrank : {DIGITS} (local_rank: {DIGITS})\n"
    text = f"{table}  exitcode : {DIGITS} (pid: {DIGITS})\nSending process {DIGITS} closing signal\n"
    assert torchrun_failures(text) == {} and torchrun_first(text) is None
    assert CLOSING.findall(text) == []
    assert read_sample(f"2026/11/22 10:15:00.123, {DIGITS}, 1\n", 0, {"0"})[0] == set()


def test_only_the_last_attempt_counts() -> None:
    first, second = recorded("restarted_and_failed")
    assert (first["exit_code"], first["error"]) == (1, "ValueError: boom: attempt 1")
    assert second["exit_code"] == TERMINATED
    assert "/attempt_1/" in first["log"] and "/attempt_1/" in second["log"]


def test_restarted_run_that_succeeded_has_no_error() -> None:
    assert codes_and_errors(recorded("restarted_and_well", launcher_code=0)) == [(0, 0, ""), (1, 0, "")]


def test_ranks_of_a_terminated_launcher_have_no_exit_code() -> None:
    assert codes_and_errors(recorded("terminated")) == [(0, None, ""), (1, None, "")]
    said = final_message((TORCHRUN / "terminated" / "launcher.log").read_text())
    assert said.startswith("torch.distributed.elastic.multiprocessing.api.SignalException: Process ")


def test_rank_of_a_terminated_launcher_reports_only_uncaught_errors(tmp_path: Path) -> None:
    caught = "Traceback (most recent call last):\n  File x\nKeyError: 'caught'\n"
    raised = "[rank1]: Traceback (most recent call last):\n[rank1]:   File x\n[rank1]: ValueError: boom\n"
    for local_rank, said in enumerate((caught, caught + raised)):
        logs = tmp_path / "ranks" / "first" / "attempt_0" / str(local_rank)
        logs.mkdir(parents=True)
        (logs / "stderr.log").write_text(said)
    plan = {"rank_logs": "torchrun", "node": {"slots": 2, "first_rank": 0}}
    assert codes_and_errors(rank_reports(plan, str(tmp_path), -15)) == [(0, None, ""), (1, None, "ValueError: boom")]


def test_missing_script_is_reported_for_each_rank() -> None:
    said = "ended with exit code 2, its last output: /opt/venv/bin/python: can't open file '/job/train.py': [Errno 2]"
    for rank, one in enumerate(codes_and_errors(recorded("no_such_script"))):
        assert one[:2] == (rank, 2) and one[2].startswith(said)


def test_last_words_of_torchrun_are_its_child_failed_error() -> None:
    for case in ("raise", "kill", "exit_code"):
        said = final_message((TORCHRUN / case / "launcher.log").read_text())
        assert said == "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:"


def test_ranks_without_their_own_log_share_the_launchers_log(tmp_path: Path) -> None:
    (tmp_path / "launcher.log").write_text("Traceback (most recent call last):\n  File x\nKeyError: 'lr'\n")
    plan = {"rank_logs": "launcher", "node": {"slots": 2, "first_rank": 4}}
    log = str(tmp_path / "launcher.log")
    assert rank_reports(plan, str(tmp_path), 1) == [
        {"rank": 4 + n, "local_rank": n, "exit_code": 1, "error": "KeyError: 'lr'", "log": log} for n in (0, 1)
    ]
    assert rank_logs(plan, str(tmp_path), 1) == (log, log)


def test_exception_in_a_shared_log_is_attributed_by_rank_prefix(tmp_path: Path) -> None:
    """The first process of a node, which has started the others, tells of its own end last."""
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
    assert [one.get("closed") for one in recorded("raise")] == [True, None]
    assert [one.get("closed") for one in recorded("exit_code")] == [None, True]


def test_rank_that_torchrun_names_as_first_failure_is_marked() -> None:
    assert [one.get("first") for one in recorded("raise")] == [None, True]
    assert [one.get("first") for one in recorded("exit_code")] == [True, None]


def test_killed_rank_does_not_report_an_exception_it_caught(tmp_path: Path) -> None:
    (tmp_path / "launcher.log").write_text("Traceback (most recent call last):\n  File x\nKeyError: 'caught'\nstep 7\n")
    plan = {"rank_logs": "launcher", "node": {"slots": 1, "first_rank": 0}}
    assert codes_and_errors(rank_reports(plan, str(tmp_path), -9)) == [(0, -9, "")]
    assert codes_and_errors(rank_reports(plan, str(tmp_path), 137)) == [(0, 137, "")], "as a container engine says it"
    assert launcher_error(-9, (tmp_path / "launcher.log").read_text()) == ""
    assert codes_and_errors(rank_reports(plan, str(tmp_path), 1)) == [(0, 1, "KeyError: 'caught'")]


def end_rank(directory: Path, local_rank: int, code: int, ended: float, said: str = "") -> None:
    """Leave what bin/muster-rank leaves."""
    (directory / "ranks" / str(local_rank)).mkdir(parents=True)
    (directory / "ranks" / str(local_rank) / "stderr.log").write_text(said)
    muster_rank.write_exit(str(directory / "ranks" / str(local_rank) / "exit.json"), 4 + local_rank, code)
    path = directory / "ranks" / str(local_rank) / "exit.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "moment": ended}))


def test_ranks_that_ended_by_themselves_are_not_marked_as_ended_by_us(tmp_path: Path) -> None:
    plan = {"rank_logs": "ranks", "node": {"slots": 5, "first_rank": 4}}
    for local_rank, code, ended in ((0, 1, 99.5), (1, -9, 99.25), (2, -15, 99.0), (3, 1, 100.5)):
        end_rank(tmp_path, local_rank, code, ended, "saving\n")
    marks = [(one.get("first"), one.get("ended_by_us")) for one in rank_reports(plan, str(tmp_path), 1, True, 100.0)]
    assert marks == [(None, None), (True, None), (None, None), (None, True), (None, True)]
    errors = [one["error"] for one in rank_reports(plan, str(tmp_path), 1, True, 100.0)]
    assert errors == ["ended with exit code 1, its last output: saving", "", "", "", ""]


def test_clock_set_back_does_not_change_which_rank_failed_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = {"rank_logs": "ranks", "node": {"slots": 2, "first_rank": 0}}
    for local_rank, wall_clock in ((1, 2000.0), (0, 1000.0)):  # a time server has set it between the two
        (tmp_path / "ranks" / str(local_rank)).mkdir(parents=True)
        monkeypatch.setattr(time, "time", lambda now=wall_clock: now)
        muster_rank.write_exit(str(tmp_path / "ranks" / str(local_rank) / "exit.json"), local_rank, 1)
    told = rank_reports(plan, str(tmp_path), 1, True, time.monotonic())
    assert [(one.get("first"), one.get("ended_by_us")) for one in told] == [(None, None), (True, None)]


def test_output_of_a_stopped_rank_that_is_its_own_launcher_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "launcher.log").write_text("saving\n")
    plan = {"rank_logs": "launcher", "node": {"slots": 1, "first_rank": 0}}
    (told,) = rank_reports(plan, str(tmp_path), 1, True)
    assert (told["error"], told["ended_by_us"]) == ("", True)


def test_rank_is_recognised_by_its_environment(tmp_path: Path) -> None:
    mine = {"MUSTER_RUN_DIRECTORY": str(tmp_path), "LOCAL_RANK": "0"}
    plan: Any = {"rank_logs": "launcher"}
    for environment, expected, local_ranks in (
        (mine, True, [0]),
        ({**mine, "MUSTER_RUN_DIRECTORY": str(tmp_path / "other")}, False, []),
        ({"MUSTER_RUN_DIRECTORY": str(tmp_path)}, False, [None]),
        ({**mine, "LOCAL_RANK": DIGITS}, False, [None]),
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
    said = "ended with exit code 2, its last output: train.py: error: unrecognized arguments: --lrr"
    assert codes_and_errors(rank_reports(plan, str(tmp_path), 2)) == [(0, 2, said)]
    assert codes_and_errors(rank_reports(plan, str(tmp_path), -9)) == [(0, -9, "")], "a killed one chose no last words"


def test_abort_at_interpreter_exit_is_reported_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "launcher.log").write_text("step 9\nterminate called without an active exception\n")
    plan = {"rank_logs": "launcher", "node": {"slots": 1, "first_rank": 0}}
    ((_rank, _code, error),) = codes_and_errors(rank_reports(plan, str(tmp_path), -6))
    assert error.startswith("was aborted while its interpreter ended") and "import torch.distributed.nn" in error
    assert codes_and_errors(rank_reports(plan, str(tmp_path), -9)) == [(0, -9, "")]


def test_rank_log_is_the_launchers_until_torchrun_starts_the_ranks(tmp_path: Path) -> None:
    plan = {"rank_logs": "torchrun", "node": {"slots": 1, "first_rank": 0}}
    log = str(tmp_path / "launcher.log")
    assert rank_logs(plan, str(tmp_path), 0) == (log, log)
    (tmp_path / "ranks").mkdir()
    assert rank_logs(plan, str(tmp_path), 0) == (log, log)


@pytest.mark.parametrize("attempts", [[0], [0, 1], [2, 9, 10], [10, 2]])
def test_the_newest_attempt_is_found_by_number(tmp_path: Path, attempts: list[int]) -> None:
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
    """Leave something in place of a file."""
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
    (told,) = rank_reports(plan, str(tmp_path), 1)
    assert (told["rank"], told["exit_code"]) == (0, 1 if logs == "launcher" else None)
    json.dumps(told)
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


# --- Errors in logs ---------------------------------------------------------------------------------------------------


def traceback_of(program: str) -> str:
    """What Python itself writes when the program fails."""
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert done.returncode != 0
    return done.stderr


@pytest.mark.parametrize(
    ("program", "error"),
    [
        ("raise ValueError('boom')", "ValueError: boom"),
        ("raise ValueError('one\\ntwo')", "ValueError: one"),
        ("raise ValueError", "ValueError"),
        ("assert 1 == 2, 'no'", "AssertionError: no"),
        ("import nowhere", "ModuleNotFoundError: No module named 'nowhere'"),
        ("from json import loads\nloads('{')", "json.decoder.JSONDecodeError: Expecting property name"),
        ("try:\n  1/0\nexcept Exception as e:\n  raise KeyError('k') from e", "KeyError: 'k'"),
        ("try:\n  1/0\nexcept Exception:\n  raise KeyError('k')", "KeyError: 'k'"),
        ("def f(): f()\nf()", "RecursionError: maximum recursion depth exceeded"),
        ("print('Traceback'); raise OSError(2, 'gone', '/x')", "FileNotFoundError: [Errno 2] gone: '/x'"),
    ],
)
def test_exception_that_ended_a_program_is_found(program: str, error: str) -> None:
    assert first_error("step 1\n" + traceback_of(program)).startswith(error)


def test_the_last_traceback_is_the_one_that_ended_the_program() -> None:
    caught = "Traceback (most recent call last):\n  File a\nOSError: try again\n"
    last = "Traceback (most recent call last):\n  File a\nValueError: boom\n"
    assert first_error(f"{caught}going on\n{last}") == "ValueError: boom"


def test_rank_prefix_of_torch_is_removed_from_the_error() -> None:
    text = "[rank12]: Traceback (most recent call last):\n[rank12]:   File x\n[rank12]: ValueError: boom\n"
    assert first_error(text) == "ValueError: boom"


def test_truncated_traceback_gives_no_error() -> None:
    assert first_error("Traceback (most recent call last):\n  File x, line 1\n    f()") == ""


@pytest.mark.parametrize("text", ["", "\n\n", "all is well\n", "Traceback of another kind\nValueError: no"])
def test_log_without_an_exception_gives_no_error(text: str) -> None:
    assert first_error(text) == ""


def test_last_words_are_the_last_nonempty_line() -> None:
    assert final_message("usage: train.py\ntrain.py: error: unrecognized arguments: --lrr\n\n") == (
        "train.py: error: unrecognized arguments: --lrr"
    )
    assert final_message("") == ""


def test_warning_is_not_the_reason_for_death_by_a_signal() -> None:
    warning = "[node1:866] plm:rsh: Warning: setpgid(872,872) failed\n"
    assert launcher_error(-9, warning) == ""
    assert launcher_error(1, warning) == warning.strip()
    assert launcher_error(0, warning) == launcher_error(None, warning) == ""


def test_killed_launcher_reports_only_the_message_of_its_shell() -> None:
    logged = "Traceback (most recent call last):\n  File x\nKeyError: 'caught'\n"
    assert launcher_error(137, logged) == launcher_error(-9, logged) == ""
    assert launcher_error(137, logged + "sh: line 1: 4711 Killed    orted\n\n") == "sh: line 1: 4711 Killed    orted"


@given(st.text())
def test_any_log_can_be_read(text: str) -> None:
    assert len(first_error(text)) <= 2000 and len(final_message(text)) <= 2000
    assert "\n" not in first_error(text)
    torchrun_failures(text)


def test_an_endless_line_is_cut() -> None:
    assert len(first_error("Traceback (most recent call last):\n  x\nValueError: " + "b" * 10000)) == 2000


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"message": {"message": "ValueError: boom", "extraInfo": {}}}', "ValueError: boom"),
        ('{"message": "Signal 9"}', "Signal 9"),
        ('{"message": {}}', ""),
        ('{"other": 1}', ""),
        ("[]", ""),
        ("{", ""),
        ("", ""),
    ],
)
def test_message_is_read_from_torch_error_files(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "error.json").write_text(content)
    assert recorded_error(str(tmp_path / "error.json")) == message


def test_missing_error_file_gives_no_message(tmp_path: Path) -> None:
    assert recorded_error(str(tmp_path / "error.json")) == ""


# --- Files ------------------------------------------------------------------------------------------------------------


def test_tail_of_a_log_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert read_tail(str(log)) == ""
    log.write_bytes(b"abc\xffdef")
    assert read_tail(str(log)) == "abc\ufffddef"
    assert read_tail(str(log), 3) == "def"
    log.write_bytes(b"x" * 100000 + b"end")
    assert len(read_tail(str(log))) == TAIL_BYTES and read_tail(str(log)).endswith("end")


def test_json_files_are_replaced_whole_and_readable_only_by_their_owner(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    write_json(str(path), {"a": 1})
    write_json(str(path), {"a": [2, None, "é"]})
    assert read_json(str(path)) == {"a": [2, None, "é"]}
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["status.json"]


# --- Reports ----------------------------------------------------------------------------------------------------------


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
def test_a_report_fits_into_one_line_of_the_lifeline(ranks: int, character: str, length: int) -> None:
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
    reports = [{"rank": n, "exit_code": one, "error": error, "log": f"/{n}", **more} for n, one, error, more in ranks]
    report: Any = {"ranks": reports, "exit_code": code, "ended_by_us": False, "launcher_log": "/launcher"}
    assert log_of_failure(report) == log


def test_last_output_of_a_node_that_was_ended_is_kept_in_short(tmp_path: Path) -> None:
    log = tmp_path / "stderr.log"
    log.write_text("".join(f"step {number}\n" for number in range(9)))
    ranks = [{"rank": 0, "exit_code": -15, "error": "", "log": str(log)}]
    report: Any = {"ranks": ranks, "exit_code": -15, "ended_by_us": True, "launcher_log": "/launcher"}
    assert last_output(report) == (str(log), "step 6\nstep 7\nstep 8")
    report["ended_by_us"] = False
    assert last_output(report) == ("", "")


def test_last_lines_are_few_and_as_a_terminal_shows_them(tmp_path: Path) -> None:
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
    ("code", "words"),
    [
        (0, "exit code 0"),
        (3, "exit code 3"),
        (-9, "signal SIGKILL"),
        (-250, "signal 250"),
        (139, "exit code 139 (SIGSEGV)"),
        (None, "no exit code"),
    ],
)
def test_exit_codes_are_described_in_words(code: int | None, words: str) -> None:
    assert describe_exit(code) == words


# --- Who is who -------------------------------------------------------------------------------------------------------

ARGUMENTS = ("token", "peer", "run", 1, "theirs", "mine")


@pytest.mark.parametrize("index", range(6))
def test_a_proof_depends_on_each_of_its_parts(index: int) -> None:
    changed: list[Any] = list(ARGUMENTS)
    changed[index] = 2 if index == 3 else changed[index] + "x"
    assert handshake_mac(*changed) != handshake_mac(*ARGUMENTS)
    assert handshake_mac(*ARGUMENTS) == handshake_mac(*ARGUMENTS)
    assert len(handshake_mac(*ARGUMENTS)) == 64


def test_proof_differs_between_peer_and_server() -> None:
    assert handshake_mac("t", "peer", "r", 1, "a", "b") != handshake_mac("t", "server", "r", 1, "a", "b")


@given(st.text(st.characters(exclude_categories=[])))
def test_proof_can_be_computed_from_any_nonce(nonce: str) -> None:
    assert len(handshake_mac("token", "peer", "run", 1, "theirs", nonce)) == 64


# --- Wires ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def ends() -> Iterator[tuple[LifelineConnection, socket.socket]]:
    """A wire and the socket at its other end."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.settimeout(60)
        yield LifelineConnection(ours, 0.0), theirs


def drain(wire: LifelineConnection, turns: int = 100) -> list[dict[str, Any]]:
    """All that a wire gives in some turns of the supervisor."""
    return [message for _turn in range(turns) for message in wire.receive()]


def test_split_messages_arrive_whole(ends: tuple[LifelineConnection, socket.socket]) -> None:
    wire, theirs = ends
    wire.node_rank = 1
    got = []
    for byte in b'{"type": "beat"}\n{"n": "\\u00e9"}\n{"n": 2':
        theirs.send(bytes([byte]))
        got += wire.receive()
    assert got == [{"type": "beat"}, {"n": "\u00e9"}]
    theirs.send(b"}\n")
    assert wire.receive() == [{"n": 2}]


@pytest.mark.parametrize("known", [False, True], ids=["stranger", "peer"])
@pytest.mark.parametrize(
    "data",
    [b"hello\n", b"[]\n", b"1\n", b"null\n", b"\n", b"\xff\n", b'{"a"\n', b"[" * 50000 + b"\n", b"x" * (MAX_LINE + 1)],
    ids=["word", "list", "number", "null", "empty", "bytes", "half", "deep", "long"],
)
def test_invalid_message_closes_the_connection(
    ends: tuple[LifelineConnection, socket.socket], data: bytes, known: bool
) -> None:
    wire, theirs = ends
    wire.node_rank = 1 if known else None
    theirs.setblocking(False)
    sent = 0
    for _turn in range(100):
        if sent < len(data):
            with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
                sent += theirs.send(data[sent:])
        assert wire.receive() == []
        assert len(wire.inbox) <= 2 * MAX_LINE
    assert wire.closed


def test_connection_closes_after_the_last_messages_of_the_other_side(
    ends: tuple[LifelineConnection, socket.socket],
) -> None:
    wire, theirs = ends
    wire.node_rank = 1
    theirs.sendall(b'{"n": 1}\n{"n": 2}\n{"n": ')
    theirs.close()
    assert wire.receive() == [{"n": 1}, {"n": 2}]
    assert wire.closed


def test_data_read_at_once_from_a_stranger_is_limited(ends: tuple[LifelineConnection, socket.socket]) -> None:
    wire, theirs = ends
    line = b'{"n": "' + b"x" * 1000 + b'"}\n'
    theirs.setblocking(False)
    sent = 0
    while sent < 3 * MAX_LINE:
        try:
            sent += theirs.send(line * 10)
        except BlockingIOError:
            break
    assert sum(len(json.dumps(message)) for message in wire.receive()) <= MAX_LINE


def test_connection_closes_at_the_backlog_limit_of_unread_output(
    ends: tuple[LifelineConnection, socket.socket],
) -> None:
    wire, _theirs = ends
    longest = 0
    for _number in range(100000):
        wire.send({"type": "beat", "filling": "x" * 1000})
        longest = max(longest, len(wire.outbox))
        if wire.closed:
            break
    assert wire.closed
    assert longest <= MAX_BACKLOG + 2000


def test_unsent_messages_are_sent_later_in_order(ends: tuple[LifelineConnection, socket.socket]) -> None:
    wire, theirs = ends
    wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    for number in range(200):
        wire.send({"n": number, "filling": "x" * 500})
    assert wire.outbox and not wire.closed
    received = b""
    while received.count(b"\n") < 200:
        received += theirs.recv(65536)
        wire.flush()
    assert [json.loads(line)["n"] for line in received.splitlines()] == list(range(200))
    assert not wire.outbox


def test_sending_to_an_end_that_is_gone_closes_the_wire(ends: tuple[LifelineConnection, socket.socket]) -> None:
    wire, theirs = ends
    theirs.close()
    wire.send({"type": "beat"})
    assert wire.closed
    wire.send({"type": "beat"})  # and is no error


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(st.lists(st.dictionaries(st.text(max_size=5), json_values, max_size=4), max_size=10), st.integers(1, 100))
def test_a_wire_carries_any_message(messages: list[dict[str, Any]], cut: int) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sender, receiver = LifelineConnection(ours, 0.0), LifelineConnection(theirs, 0.0)
        receiver.node_rank = 1
        got = []
        for message in messages:
            sender.send(message)
            got += receiver.receive()
        assert got == messages
        assert not sender.closed and not receiver.closed


@pytest.fixture
def known_ends() -> Iterator[tuple[LifelineConnection, LifelineConnection]]:
    """Both ends of a wire that has been opened: rank 0's and a peer's."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        server, peer = LifelineConnection(ours, 0.0), LifelineConnection(theirs, 0.0)
        server.open(1, "key")
        peer.open(0, "key")
        yield server, peer


@given(st.lists(st.dictionaries(st.text(max_size=5), json_values, max_size=4), max_size=10))
def test_an_opened_wire_carries_any_message_both_ways(messages: list[dict[str, Any]]) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        server, peer = LifelineConnection(ours, 0.0), LifelineConnection(theirs, 0.0)
        server.open(1, "key")
        peer.open(0, "key")
        for message in messages:
            server.send(message)
            assert peer.receive() == [message]
            peer.send(message)
            assert server.receive() == [message]


def exchanged(lines: list[bytes], how: str) -> list[bytes]:
    """What somebody on the way makes of three lines."""
    first, second, third = lines
    return {
        "nothing": lines,
        "added": [b'{"type": "stop"}\n', *lines],
        "left out": [second, third],
        "exchanged": [first, second.replace(b"2", b"3"), third],
        "reordered": [second, first, third],
        "repeated": [first, first, second],
        "cut": [first, second[65:], third],
    }[how]


@pytest.mark.parametrize(
    ("how", "heard"),
    [
        ("nothing", [1, 2, 3]),
        ("added", []),
        ("left out", []),
        ("exchanged", [1]),
        ("reordered", []),
        ("repeated", [1]),
        ("cut", [1]),
    ],
)
def test_tampered_messages_are_rejected_and_close_the_wire(
    known_ends: tuple[LifelineConnection, LifelineConnection], how: str, heard: list[int]
) -> None:
    server, peer = known_ends
    peer.sock.setblocking(True)
    said = []
    for number in (1, 2, 3):
        server.send({"n": number})
        said.append(peer.sock.recv(65536))
    peer.sock.setblocking(False)
    server.sock.sendall(b"".join(exchanged(said, how)))
    assert [message["n"] for message in peer.receive()] == heard
    assert peer.closed == (how != "nothing")


def test_reflected_message_is_rejected(known_ends: tuple[LifelineConnection, LifelineConnection]) -> None:
    server, peer = known_ends
    server.send({"type": "stop"})
    peer.sock.setblocking(True)
    peer.sock.sendall(peer.sock.recv(65536))
    assert server.receive() == [] and server.closed


def test_message_right_after_the_greeting_must_be_authenticated(ends: tuple[LifelineConnection, socket.socket]) -> None:
    """Both may come in one packet."""
    wire, theirs = ends
    theirs.sendall(b'{"mac": "theirs"}\n{"type": "go"}\n')
    assert wire.receive() == [{"mac": "theirs"}]
    wire.open(0, "key")
    assert wire.receive() == [] and wire.closed


@given(st.binary(max_size=300))
def test_wire_survives_arbitrary_bytes(data: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        wire = LifelineConnection(ours, 0.0)
        theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)
        for message in drain(wire, 5):
            assert isinstance(message, dict)
        assert wire.closed


# --- Samples of GPUs -------------------------------------------------------------------------------------------------

FIRST = "2026/11/22 10:15:00.123, 0, 97, 72914, 81559, 64, 641.27\n"
SECOND = "2026/11/22 10:15:00.125, 1, 0, 4, 81559, 31, 70.02\n"
GONE = "Unable to determine the device handle for GPU 0000:04:00.0: Unknown Error\n"


@pytest.mark.parametrize(
    ("text", "code", "found", "error"),
    [
        (FIRST + SECOND, 0, {"0", "1"}, ""),
        (FIRST, 0, {"0"}, "nvidia-smi no longer shows GPU 1"),
        (FIRST + GONE, 0, {"0"}, f"nvidia-smi no longer shows GPU 1 ({GONE.strip()})"),
        (GONE + FIRST, 15, {"0"}, GONE.strip()),
        ("", 9, set(), "nvidia-smi ended with exit code 9"),
        ("", 0, set(), ""),
        (FIRST + SECOND[:30], 0, set(), ""),
        (FIRST + SECOND.replace("0, 4", "[GPU is lost], 4"), 0, {"0", "1"}, "GPU 1: GPU is lost"),
        (
            FIRST + f"{SECOND[:28]} [Unknown Error], [Unknown Error], [N/A], [Unknown Error], [N/A]\n",
            0,
            {"0", "1"},
            "GPU 1: Unknown Error",
        ),
        (FIRST + SECOND.replace("70.02", "[Unknown Error]"), 0, {"0", "1"}, ""),
    ],
    ids=["well", "one missing", "and said so", "failed", "silent", "nothing", "half", "lost", "unknown", "a field"],
)
def test_failing_gpus_are_found_in_samples(text: str, code: int, found: set[str], error: str) -> None:
    assert read_sample(text, code, {"0", "1"}) == (found, error)


# --- One node's supervisor without its processes ---------------------------------------------------------------------


@dataclass
class Node:
    """A node's supervisor, with the other nodes' ends of its wires. Time is what the test says it is."""

    run: Run
    supervisor: Supervisor
    others: dict[int, socket.socket] = field(default_factory=dict)
    now: float = field(default_factory=time.monotonic)

    @property
    def hub(self) -> Hub:
        """Rank 0's end of the lifeline."""
        assert isinstance(self.supervisor.lifeline, Hub)
        return self.supervisor.lifeline

    @property
    def peer(self) -> Peer:
        """Another node's."""
        assert isinstance(self.supervisor.lifeline, Peer)
        return self.supervisor.lifeline

    def tend_lifeline(self, now: float) -> None:
        """What a turn makes of the lifeline."""
        self.supervisor.lifeline.step(now)
        self.supervisor.carry_out_orders()

    def judge(self, now: float) -> None:
        """What rank 0 makes of the run as a whole."""
        self.hub.judge(now)
        self.supervisor.carry_out_orders()

    def wire_to(self, rank: int) -> LifelineConnection:
        """A wire to another node, over which both have shown the token."""
        ours, self.others[rank] = socket.socketpair()
        self.others[rank].setblocking(False)
        wire = LifelineConnection(ours, self.now)
        wire.node_rank, wire.stage = rank, "open"
        return wire

    def told(self, rank: int) -> list[str]:
        """The kinds of messages that another node has got since it last looked."""
        got = b""
        with contextlib.suppress(BlockingIOError):
            while data := self.others[rank].recv(65536):
                got += data
        return [json.loads(line)["type"] for line in got.splitlines()]

    def fail(self, rank: int, how: str) -> None:
        """A node falls silent, or its launcher fails."""
        node = self.hub.nodes[rank]
        if how == "lost":
            self.hub.lose(node, "no sign of life")
        else:
            self.hub.take_report(node, checked_report({"exit_code": 1}))
        self.supervisor.carry_out_orders()

    def close(self) -> None:
        for connection in [*self.others.values(), *(wire.sock for wire in self.supervisor.lifeline.connections)]:
            connection.close()
        if isinstance(self.supervisor.lifeline, Hub) and self.supervisor.lifeline.listener is not None:
            self.supervisor.lifeline.listener.close()
        self.supervisor.selector.close()


NodeMaker = Callable[..., Node]


def run_job(supervisor: Supervisor, job: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
    """Take a process for the launcher that a node's supervisor has started."""
    supervisor.launcher.process, supervisor.launcher.phase = job, launcher.Running()
    return job


@pytest.fixture
def make_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NodeMaker]:
    """Makes the supervisor of one node of a run; it starts no launcher, and ends no process."""
    made: list[Node] = []
    monkeypatch.setattr(launcher, "descendants", lambda _root: [])  # else all that the tests have started
    monkeypatch.setattr(launcher.LauncherProcess, "start", lambda job, _command: not job.journal.set_state("running"))

    def maker(rank: int, nnodes: int, **given: Any) -> Node:
        run = make_run(tmp_path, [["/bin/true"]] * nnodes, **given)
        run.node(rank).mkdir(parents=True)
        write_json(str(run.node(rank) / "plan.json"), run.plans[rank])
        (run.node(rank) / "token").write_text(run.token)
        node = Node(run, Supervisor(str(run.node(rank))))
        made.append(node)
        return node

    yield maker
    for node in made:
        node.close()


@pytest.fixture
def make_rank_0(make_node: NodeMaker) -> NodeMaker:
    """Makes rank 0's supervisor, with a wire to each of the others and all nodes in one state."""

    def maker(nnodes: int, state: str = "running", **given: Any) -> Node:
        node = make_node(0, nnodes, **given)
        node.hub.go = state == "running"
        node.hub.connections = [node.wire_to(rank) for rank in range(1, nnodes)]
        for other in node.hub.nodes:
            node.hub.set_node(other, state)
        return node

    return maker


@pytest.mark.parametrize("noticed", [False, True])
def test_node_is_not_marked_ended_by_us_if_torchrun_noticed_a_failure(make_node: NodeMaker, noticed: bool) -> None:
    supervisor = make_node(1, 2).supervisor
    job = run_job(supervisor, subprocess.Popen(["/bin/true"]))
    supervisor.launcher.code = job.wait()
    supervisor.launcher.noticed = noticed
    supervisor.stop("why")
    supervisor.make_report([])
    assert supervisor.report is not None and supervisor.report["ended_by_us"] is not noticed


@pytest.mark.parametrize(("max_restarts", "well"), [(0, False), (1, True)])
def test_torchrun_closing_ranks_is_a_failure_only_without_restarts(
    make_node: NodeMaker, max_restarts: int, well: bool
) -> None:
    supervisor = make_node(1, 2).supervisor
    supervisor.plan["max_restarts"] = max_restarts
    job = run_job(supervisor, subprocess.Popen(["/bin/sleep", "60"]))
    Path(supervisor.journal.path("launcher.log")).write_text("W1122 Sending process 4711 closing signal SIGTERM\n")
    supervisor.launcher.kill_late_ranks(time.monotonic())
    supervisor.stop("why")
    job.kill()
    job.wait()
    assert supervisor.launcher.ended_by_us is well


def test_launcher_that_had_already_ended_is_not_marked_ended_by_us(make_node: NodeMaker) -> None:
    """Its end and rank 0's stop may be seen in the same turn."""
    supervisor = make_node(1, 2).supervisor
    job = run_job(supervisor, subprocess.Popen(["/bin/sh", "-c", "kill -9 $$"]))
    os.waitid(os.P_PID, job.pid, os.WEXITED | os.WNOWAIT)
    supervisor.stop("why")
    assert not supervisor.launcher.ended_by_us
    supervisor.launcher.code = job.wait()
    supervisor.make_report([])
    assert supervisor.report is not None and not supervisor.report["ranks"][0].get("ended_by_us")


def test_rank_killed_just_before_the_stop_is_reported_as_first_failure(make_node: NodeMaker) -> None:
    """Its peers may tell rank 0 first, whose stop then arrives before this node has looked."""
    node = make_node(1, 2)
    supervisor = node.supervisor
    supervisor.plan["rank_logs"] = "ranks"
    job = run_job(supervisor, subprocess.Popen(["/bin/sleep", "60"]))
    end_rank(node.run.node(1), 0, -9, time.monotonic() - 0.01)
    supervisor.stop("why")
    job.kill()
    supervisor.launcher.code = job.wait()
    supervisor.make_report([])
    assert supervisor.report is not None
    (told,) = supervisor.report["ranks"]
    assert (told["exit_code"], told.get("first"), told.get("ended_by_us")) == (-9, True, None)


@pytest.mark.parametrize("how", ["lost", "failed"])
def test_elastic_run_below_its_minimum_ends_on_every_node(make_rank_0: NodeMaker, how: str) -> None:
    node = make_rank_0(3, min_nnodes=3)
    node.fail(2, how)
    assert node.supervisor.lifeline.stop_reason and "node2" in node.supervisor.lifeline.stop_reason
    assert node.hub.first_node == "node2"
    assert node.supervisor.launcher.ending() is not None, "rank 0's own part goes on"
    assert node.told(1) == node.told(2) == ["stop"]
    assert node.run.events() == [node.supervisor.lifeline.stop_reason]


anything = json_values | st.integers() | st.floats()


@given(st.dictionaries(st.sampled_from([name for name, _kind, _other in REPORT_FIELDS]), anything))
def test_arbitrary_report_does_not_crash_rank_0_or_readers_of_the_result(told: dict[str, Any]) -> None:
    report = checked_report(told)
    describe_exit(report["exit_code"])
    shorten_report(report)
    node = {"name": "node1", "node_rank": 1, "state": "ended", "since": 1.0, "why": "", "report": report}
    result = {"reason": "", "first_node": "node1", "ended": 2.0, "nodes": [node]}
    first_failure(json.loads(json.dumps(result)))


def test_valid_report_passes_the_check_unchanged(make_node: NodeMaker) -> None:
    supervisor = make_node(1, 2).supervisor
    supervisor.launcher.code = 1
    supervisor.make_report([4711])
    assert supervisor.report is not None and supervisor.report["ranks"]
    rank: Any = supervisor.report["ranks"][0]
    rank.update(closed=True, first=True, ended_by_us=True)
    supervisor.report["mounts"] = {"/data": "it has died"}
    assert checked_report(supervisor.report) == supervisor.report


def test_report_with_an_invalid_exit_code_fails_the_run(make_rank_0: NodeMaker) -> None:
    node = make_rank_0(2)
    message = {"type": "report", "report": {"exit_code": "boom", "ranks": 7}}
    node.hub.peer_message(node.hub.connections[0], message, node.now)
    assert node.supervisor.lifeline.stop_reason == "the launcher on node1 ended with no exit code"


def test_elastic_run_survives_losing_nodes_only_down_to_its_minimum(make_rank_0: NodeMaker) -> None:
    node = make_rank_0(5, min_nnodes=2)
    for rank, how, left in ((4, "lost", 4), (1, "failed", 3), (3, "lost", 2)):
        node.fail(rank, how)
        assert node.supervisor.lifeline.stop_reason is None, f"without node{rank}"
        assert f"the run continues with {left} of 5 nodes (at least 2 are needed)" in node.run.events()[-1]
    assert [node.told(rank) for rank in range(1, 5)] == [[], [], [], []]
    node.fail(2, "failed")
    assert node.supervisor.lifeline.stop_reason == "the launcher on node2 ended with exit code 1"
    assert [node.told(rank) for rank in range(1, 5)] == [["stop"]] * 4


def test_memory_limit_hits_are_summed_over_top_level_cgroups(tmp_path: Path) -> None:
    """A top-level group counts for all below it; a group without the controller has no count."""
    assert limit_hits(str(tmp_path / "nowhere")) is None is limit_hits(str(tmp_path))
    for name, hits in (("system.slice", 2), ("machine.slice", 1)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "memory.events").write_text(f"low 0\nhigh 0\nmax 73\noom {hits}\noom_kill 9\n")
    (tmp_path / "init.scope").mkdir()
    assert limit_hits(str(tmp_path)) == 3


def test_container_mounts_the_secrets_kept_in_memory(make_rank_0: NodeMaker, tmp_path: Path) -> None:
    node = make_rank_0(1)
    assert node.supervisor.launcher.container_prefix() == []
    words = ["podman", "run", "--volume=/runs/x:/runs/x", "image"]
    node.supervisor.plan["wrap"] = words
    secrets = Path(node.supervisor.journal.path("environment.json"))
    assert node.supervisor.launcher.container_prefix() == words, "they lie in the run directory"
    secrets.unlink(missing_ok=True)
    secrets.symlink_to(tmp_path / "memory/run-1/environment.json")
    mount = f"--volume={tmp_path}/memory/run-1:{tmp_path}/memory/run-1:ro"
    assert node.supervisor.launcher.container_prefix() == ["podman", "run", mount, *words[2:]]


@pytest.mark.parametrize("in_container", [False, True])
def test_ranks_of_node_0_are_killed_to_restart_when_a_node_is_lost(make_rank_0: NodeMaker, in_container: bool) -> None:
    """Ranks in a container are not children of the launcher, which is only the engine's client."""
    node = make_rank_0(3, min_nnodes=2)
    supervisor = node.supervisor
    supervisor.plan["wrap"] = ["docker", "run"] if in_container else []
    attempt = node.run.node(0) / "ranks" / "first" / "attempt_0" / "0"
    attempt.mkdir(parents=True)
    future = time.time() + 3600.0  # the clock was set back since
    os.utime(attempt, (future, future))
    supervisor.plan["rank_logs"] = "torchrun"
    supervisor.launcher.note_attempt(time.monotonic())
    node.hub.nodes[2]["heard"] = time.monotonic() + 1.0
    sleep = "exec sleep 60 <&- >&- 2>&-"
    client = subprocess.Popen(["/bin/sh", "-c", f"({sleep}) & echo $!; {sleep}"], stdout=subprocess.PIPE)
    environment = {"MUSTER_RUN_DIRECTORY": str(node.run.node(0)), "LOCAL_RANK": "0"}
    contained = subprocess.Popen(["/bin/sleep", "60"], env=environment)
    assert client.stdout is not None
    child = int(client.stdout.readline())
    try:
        run_job(supervisor, client)
        eventually(lambda: is_rank(contained.pid, str(node.run.node(0))))
        node.hub.lose(node.hub.nodes[2], "no sign of life")
        supervisor.carry_out_orders()
        if in_container:
            assert contained.wait(60) == -signal.SIGKILL
        else:
            eventually(lambda: process_table().get(child, (0, "Z"))[1] == "Z")
            assert contained.poll() is None
        assert client.poll() is None, "it is to start them again"
    finally:
        for pid in (child, client.pid, contained.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        client.stdout.close()
        client.wait()
        contained.wait()


def test_elastic_run_ends_when_the_launcher_of_rank_0_fails(make_rank_0: NodeMaker) -> None:
    """The ranks' store is in that launcher: without it the others could not find each other."""
    node = make_rank_0(3, min_nnodes=1)
    node.fail(0, "failed")
    assert node.supervisor.lifeline.stop_reason == "the launcher on node0 ended with exit code 1"
    assert node.hub.first_node == "node0"
    assert node.told(1) == node.told(2) == ["stop"]


def test_an_elastic_run_ends_on_each_node_when_rank_0_is_killed(make_node: NodeMaker) -> None:
    node = make_node(1, 3, min_nnodes=1)
    node.peer.connections = [node.wire_to(0)]
    node.others[0].close()
    assert node.peer.connections[0].receive() == []
    node.tend_lifeline(node.now)
    node.tend_lifeline(node.now + RECONNECT_TIMEOUT - 0.1)
    assert node.supervisor.lifeline.stop_reason is None, "it may come back"
    node.tend_lifeline(node.now + RECONNECT_TIMEOUT + 0.1)
    assert str(node.supervisor.lifeline.stop_reason).startswith("node0 is lost: its supervisor closed the lifeline")
    assert node.supervisor.launcher.ending() is not None and node.supervisor.lifeline.result_state == "failed"


def test_elastic_run_starts_without_late_nodes_after_the_start_timeout(make_rank_0: NodeMaker) -> None:
    node = make_rank_0(4, "ready", min_nnodes=2)
    for wire, late in zip(node.hub.connections[1:], node.hub.nodes[2:], strict=True):
        node.hub.drop(wire)
        node.hub.set_node(late, "waiting")
    in_time = node.hub.started + node.hub.timeouts["start"]
    node.judge(in_time - 0.1)
    assert not node.hub.go, "those that are late have their time"
    node.judge(in_time + 0.1)
    assert node.hub.go and node.supervisor.lifeline.stop_reason is None
    assert node.run.events() == ["2 of 4 nodes have checked in, starting without node2, node3"]
    assert node.supervisor.journal.state == "running", "rank 0's own launcher does not start"
    assert node.told(1) == ["go"]
    assert [other["state"] for other in node.hub.nodes[2:]] == ["lost", "lost"]


@pytest.mark.parametrize("min_nnodes", [3, None], ids=["below its minimum", "not elastic"])
def test_a_run_that_lacks_a_node_it_needs_does_not_start(make_rank_0: NodeMaker, min_nnodes: int | None) -> None:
    node = make_rank_0(4, "ready", min_nnodes=min_nnodes)
    for rank in (2, 3) if min_nnodes else (3,):
        node.hub.set_node(node.hub.nodes[rank], "waiting")
    node.judge(node.hub.started + node.hub.timeouts["start"] + 0.1)
    assert not node.hub.go and node.supervisor.journal.state == "stopping"
    assert "node3 did not check in within 60 s" in str(node.supervisor.lifeline.stop_reason)
    assert node.told(1) == ["stop"]


@pytest.mark.parametrize("said", [b"", b'{"node_rank": 1, '], ids=["nothing", "half a line"])
def test_stranger_without_the_token_is_disconnected(make_rank_0: NodeMaker, said: bytes) -> None:
    node = make_rank_0(3)
    hub = node.hub
    hub.listen()
    assert hub.listener is not None
    with socket.create_connection(node.run.lifeline, timeout=60.0) as stranger:
        assert hub.selector.select(60.0)
        hub.accept(hub.listener, node.now)
        assert b"nonce" in stranger.recv(1000)
        stranger.sendall(said)
        assert hub.selector.select(60.0 if said else 0.0) or not said
        *nodes, wire = hub.connections
        assert wire.receive() == []
        for known in nodes:
            known.last_heard = node.now + AUTHENTICATION_TIMEOUT
        hub.check_connections(node.now + AUTHENTICATION_TIMEOUT - 0.1)
        assert len(hub.connections) == 3, "it has not had its time"
        hub.check_connections(node.now + AUTHENTICATION_TIMEOUT + 0.1)
        assert stranger.recv(1000) == b""
    assert hub.connections == nodes, "a node was shown out with it"
    assert hub.stop_reason is None


def test_node_reconnects_when_rank_0_says_nothing(make_node: NodeMaker) -> None:
    """Its connection is half open, or somebody else has its port: closed, and tried again."""
    node = make_node(1, 2)
    with socket.create_server(node.run.lifeline) as listener:
        listener.settimeout(60.0)
        node.tend_lifeline(node.now)
        silent, _address = listener.accept()
        with silent:
            silent.settimeout(60.0)
            first = node.peer.connection
            node.tend_lifeline(node.now + AUTHENTICATION_TIMEOUT - 0.1)
            assert node.peer.connection is first is not None
            node.tend_lifeline(node.now + AUTHENTICATION_TIMEOUT + 0.1)
            assert silent.recv(1000) == b""
        again, _address = listener.accept()
        again.close()
    assert node.supervisor.lifeline.stop_reason is None


def test_start_timeout_does_not_apply_while_connected_to_rank_0(make_node: NodeMaker) -> None:
    node = make_node(1, 3)
    late = node.peer.started + node.peer.timeouts["start"] + 5.1
    node.peer.connections = [node.wire_to(0)]
    node.peer.last_heard = late
    node.tend_lifeline(late)
    assert node.supervisor.lifeline.stop_reason is None
    node.peer.drop(node.peer.connections[0])
    node.peer.retry = late + 1.0
    node.tend_lifeline(late)
    assert str(node.supervisor.lifeline.stop_reason).startswith("node1 could not check in with node0 within 60 s")


def full(*_anything: Any) -> None:
    """What writing to a full disk comes to."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_run_continues_when_its_directory_cannot_be_written(
    make_rank_0: NodeMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = make_rank_0(2)

    with monkeypatch.context() as patch:
        patch.setattr(journal, "write_json", full)
        patch.setattr(journal, "open_private", full)  # of the events
        node.supervisor.write_status(node.now)
        node.supervisor.journal.event("mount", "what nobody reads")
        assert node.supervisor.journal.status_due > node.now, "it would try again at once"
    assert node.supervisor.lifeline.stop_reason is None
    node.supervisor.launcher.code = 0
    node.supervisor.make_report([])
    node.hub.take_report(node.hub.nodes[1], checked_report({"exit_code": 0}))
    node.judge(node.now)
    verdict = node.run.result()
    assert verdict["state"] == "succeeded"
    assert verdict["nodes"][0]["report"]["unwritten"] == "No space left on device"


def test_exit_code_for_the_launcher_is_written_once_the_disk_has_room(
    make_rank_0: NodeMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = make_rank_0(2)
    (node.run.node(0) / "asked").mkdir()
    for other in node.hub.nodes:
        other["remote_started"] = True
    other = node.hub.nodes[1]
    other["state"], other["report"] = "ended", checked_report({"exit_code": 3})

    with monkeypatch.context() as patch:
        patch.setattr(journal, "write_json", full)
        node.hub.forward_commands(node.now)
    node.hub.forward_commands(node.now)
    assert json.loads((node.run.node(0) / "asked" / "1.exit").read_text()) == 3


def test_partial_file_is_removed_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def half(descriptor: int, mode: str, **_more: Any) -> Any:
        os.write(descriptor, b"{")
        os.close(descriptor)
        full()

    monkeypatch.setattr(os, "fdopen", half)
    with pytest.raises(OSError, match="No space left"):
        write_json(str(tmp_path / "status.json"), {})
    assert list(tmp_path.iterdir()) == []


def test_reserve_is_freed_for_the_final_status(make_node: NodeMaker) -> None:
    node = make_node(1, 2)
    reserve = node.run.node(1) / "reserve"
    reserve.touch()
    node.supervisor.lifeline.result_state = "failed"
    node.supervisor.clean_up()
    assert not reserve.exists() and node.run.state(1) == "failed"


@pytest.mark.parametrize("there", ["open to all", "a link"])
def test_temporary_directory_that_others_can_access_is_refused(tmp_path: Path, there: str) -> None:
    path = tmp_path / "muster-0123"
    if there == "a link":
        (tmp_path / "theirs").mkdir(mode=0o700)
        path.symlink_to(tmp_path / "theirs")
    else:
        path.mkdir()
        path.chmod(0o777)
    with pytest.raises(FileExistsError, match="not a directory that only this user can access; remove it"):
        make_private_directory(str(path))
    make_private_directory(str(tmp_path / "mine"))
    make_private_directory(str(tmp_path / "mine"))
    assert (tmp_path / "mine").stat().st_mode & 0o777 == 0o700


def test_slow_container_removal_is_not_reported_as_a_stuck_process(
    make_rank_0: NodeMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = make_rank_0(2)
    removing, stubborn = 4711, 4712
    killed: list[tuple[list[int], int]] = []
    monkeypatch.setattr(launcher, "descendants", lambda _root: [removing, stubborn])
    monkeypatch.setattr(launcher, "signal_all", lambda pids, number: killed.append((list(pids), number)))
    node.supervisor.plan["remove"] = ["docker", "rm", "--force", "muster-first-node0"]
    node.supervisor.launcher.remover, node.supervisor.launcher.code = removing, 0
    node.supervisor.launcher.phase = launcher.Ending(node.now)
    for seconds in (0.1, 1.0, 30.0):
        node.supervisor.tend_processes(node.now + seconds)
    assert killed[-1] == ([stubborn], signal.SIGKILL)
    assert node.supervisor.report is not None and node.supervisor.report["stuck"] == [stubborn]
    assert node.supervisor.report["container"] == (
        "the container engine is taking a long time to remove it; "
        "remove it there with: docker rm --force muster-first-node0"
    )


@pytest.mark.parametrize(
    ("remove", "told"),
    [
        (["/bin/true"], ""),
        (["/bin/sh", "-c", "echo Error: No such container: muster-first-node0 >&2; exit 1"], ""),
        (["/bin/sh", "-c", "echo removal of container muster-first-node0 is already in progress; exit 1"], ""),
        (["/bin/sh", "-c", "echo Cannot connect to the Docker daemon >&2; exit 1"], "Cannot connect to the Docker"),
        (["/bin/false"], "the container engine ended with exit code 1; remove it there with: /bin/false"),
        (
            ["/nowhere/docker", "rm"],
            "the container engine ended with exit code 127; remove it there with: /nowhere/docker rm",
        ),
    ],
)
def test_failed_container_removal_is_reported(make_rank_0: NodeMaker, remove: list[str], told: str) -> None:
    supervisor = make_rank_0(1).supervisor
    supervisor.plan["remove"] = remove
    supervisor.launcher.code, supervisor.launcher.phase = 0, launcher.Ending(time.monotonic())

    def is_over() -> bool:
        supervisor.tend_processes(time.monotonic())
        return supervisor.report is not None

    eventually(is_over)
    assert supervisor.report is not None
    said = supervisor.report["container"]
    assert said.startswith(told) and bool(said) == bool(told)


def test_stopped_node_does_not_wait_forever_for_rank_0(make_node: NodeMaker) -> None:
    node = make_node(1, 2)
    node.peer.connections = [node.wire_to(0)]  # open, and silent
    (wire,) = node.peer.connections
    node.supervisor.selector.register(wire.sock, selectors.EVENT_READ, wire)
    node.supervisor.lifeline.on_stop_signal("SIGTERM")
    node.supervisor.carry_out_orders()
    assert node.told(0) == ["stop"]
    node.supervisor.make_report([])
    node.supervisor.step(0.0)
    assert not node.supervisor.is_done, "its last word is worth some seconds"
    node.peer.deadline = 0.0
    node.supervisor.step(0.0)
    assert node.supervisor.is_done and node.supervisor.lifeline.result_state == "stopped"


@pytest.mark.parametrize("elastic", [False, True])
def test_shutdown_of_a_machine_is_no_request_to_stop(
    make_node: NodeMaker, monkeypatch: pytest.MonkeyPatch, elastic: bool
) -> None:
    node = make_node(1, 2, **({"min_nnodes": 1} if elastic else {}))
    node.peer.connections = [node.wire_to(0)]
    node.peer.connections[0].stage = "open"
    monkeypatch.setattr(lifeline_end, "is_shutting_down", lambda: True)
    node.supervisor.lifeline.on_stop_signal("SIGTERM")
    node.supervisor.carry_out_orders()
    assert node.told(0) == ["failing"]
    node.supervisor.make_report([])
    assert node.supervisor.report is not None
    report = node.supervisor.report
    assert (report["shutdown"], report["reason"]) == (True, "node1 was rebooted or shut down")
    result = {"first_node": "node1", "ended": 2.0, "reason": report["reason"], "nodes": []}
    result["nodes"] = [{"name": "node1", "node_rank": 1, "state": "ended", "since": 1.0, "report": report}]
    failure = first_failure(result)
    assert failure is not None and (failure["node"], failure["error"]) == ("node1", report["reason"])


def test_shutdown_of_the_first_machine_fails_the_run(make_rank_0: NodeMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    node = make_rank_0(2)
    monkeypatch.setattr(lifeline_end, "is_shutting_down", lambda: True)
    node.supervisor.lifeline.on_stop_signal("SIGTERM")
    node.supervisor.carry_out_orders()
    assert node.told(1) == ["stop"]
    assert (node.hub.first_node, node.hub.stop_requested) == ("node0", False)
    assert node.hub.stop_reason == "node0 was rebooted or shut down"
    assert node.supervisor.launcher.shutdown


@pytest.mark.parametrize("rank", [0, 1])
def test_requested_stop_wins_over_a_shutdown(make_node: NodeMaker, monkeypatch: pytest.MonkeyPatch, rank: int) -> None:
    node = make_node(rank, 2)
    (node.run.node(rank) / "stop").touch()
    monkeypatch.setattr(lifeline_end, "is_shutting_down", lambda: True)
    node.supervisor.lifeline.on_stop_signal("SIGTERM")
    assert node.supervisor.lifeline.stop_requested


def test_signs_of_a_shutdown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_shutdown, "SIGNS", (str(tmp_path / "nologin"),))
    assert not machine_shutdown.is_shutting_down()
    (tmp_path / "nologin").touch()
    assert machine_shutdown.is_shutting_down()


def test_reap_returns_every_process_started_in_the_background() -> None:
    """subprocess would collect it at the start of the next process, and its number may be another's by then."""
    first = start_in_background(["/bin/true"], os.devnull)
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
    second = start_in_background(["/bin/true"], os.devnull)
    os.waitid(os.P_PID, second, os.WEXITED | os.WNOWAIT)
    assert {first, second} <= set(reap())


# --- Alone on a node --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", [entry, muster_rank, ssh_shim])
@pytest.mark.parametrize("version", ["3.8", "3.9", "3.13"])
def test_standalone_programs_run_with_only_the_standard_library(version: str, module: Any) -> None:
    interpreter = real_interpreter(version)
    if interpreter is None:
        pytest.skip(f"no Python {version} here")
    source = Path(module.__file__).resolve()
    with tempfile.TemporaryDirectory() as directory:
        program = f"import runpy; runpy.run_path({str(source)!r})"
        command = [str(interpreter), "-I", "-S", "-c", program]
        done = subprocess.run(command, check=False, cwd=directory, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.13"])
def test_supervisor_and_guard_need_only_the_files_beside_them(version: str, tmp_path: Path) -> None:
    interpreter = real_interpreter(version)
    if interpreter is None:
        pytest.skip(f"no Python {version} here")
    write_supervisor(str(tmp_path), supervisor_files())
    command = [str(interpreter), "-I", "-S", str(tmp_path / "supervisor.py")]
    for words, told in (([], "plan.json"), (["--guard"], "")):
        run = tmp_path / "run"
        run.mkdir()
        done = subprocess.run([*command, *words, str(run)], check=False, capture_output=True, text=True, timeout=300)
        said = (run / "supervisor.log").read_text()
        assert done.returncode == 1 and said.splitlines()[-1].startswith("FileNotFoundError") and told in said
        shutil.rmtree(run)
    assert not list(tmp_path.rglob("__pycache__"))
