"""Errors in logs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._run.error_text import final_message, first_error
from ansible_collections.muster.training.plugins.module_utils._supervisor.own_errors import recorded_error
from ansible_collections.muster.training.plugins.module_utils._supervisor.rank_reports import (
    launcher_error,
    torchrun_failures,
)


def traceback_of(program: str) -> str:
    """Return the traceback that Python prints for a failing program."""
    completed = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert completed.returncode != 0
    return completed.stderr


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
def test_exception_that_ended_a_program_is_identified(program: str, error: str) -> None:
    assert first_error("step 1\n" + traceback_of(program)).startswith(error)


def test_the_last_traceback_is_the_one_that_ended_the_program() -> None:
    caught = "Traceback (most recent call last):\n  File a\nOSError: try again\n"
    last = "Traceback (most recent call last):\n  File a\nValueError: boom\n"
    assert first_error(f"{caught}going on\n{last}") == "ValueError: boom"


def test_torch_rank_prefix_is_removed_from_the_error() -> None:
    text = "[rank12]: Traceback (most recent call last):\n[rank12]:   File x\n[rank12]: ValueError: boom\n"
    assert first_error(text) == "ValueError: boom"


def test_truncated_traceback_gives_no_error() -> None:
    assert first_error("Traceback (most recent call last):\n  File x, line 1\n    f()") == ""


@pytest.mark.parametrize("text", ["", "\n\n", "all is well\n", "Traceback of another kind\nValueError: no"])
def test_log_without_an_exception_gives_no_error(text: str) -> None:
    assert first_error(text) == ""


def test_last_output_is_the_last_nonempty_line() -> None:
    assert final_message("usage: train.py\ntrain.py: error: unrecognized arguments: --lrr\n\n") == (
        "train.py: error: unrecognized arguments: --lrr"
    )
    assert final_message("") == ""


def test_warning_is_not_reported_as_the_reason_for_death_by_a_signal() -> None:
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
