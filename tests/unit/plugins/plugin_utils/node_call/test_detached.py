"""The result of a task that runs a long command."""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible import constants as C

from ansible_collections.muster.training.plugins.module_utils._detached.result_line import (
    ProgramError,
    StepError,
    report_result,
)
from ansible_collections.muster.training.plugins.module_utils._torch import torch_proof
from ansible_collections.muster.training.plugins.plugin_utils._node_call import detached
from ansible_collections.muster.training.plugins.plugin_utils._node_call.detached import (
    acquire_progress_lock,
    progress_lock,
    run_code,
    run_command,
    task_result,
)
from tests.unit.hostile import BRACKETS


def test_command_without_a_reply_counts_as_changed() -> None:
    assert task_result(0, "one\ntwo\n", False) == {
        "changed": True,
        "rc": 0,
        "stdout_lines": ["one", "two"],
        "result": {},
    }


def test_reply_is_read_from_its_own_line_of_output() -> None:
    result = task_result(0, 'one\nMUSTER-RESULT {"changed": false, "lock": {"key": 1}}\n', False)
    assert result == {"changed": False, "rc": 0, "stdout_lines": ["one"], "result": {"lock": {"key": 1}}}


def test_reply_cannot_control_ansible() -> None:
    reply = '{"lock": 1, "add_host": {"host_name": "node1"}, "ansible_facts": {"a": 1}}'
    assert task_result(0, f"MUSTER-RESULT {reply}\n", False)["result"] == {"lock": 1}


@pytest.mark.parametrize("reply", [BRACKETS, "[1]", "{"])
def test_invalid_reply_is_ignored(reply: str) -> None:
    assert task_result(0, f"MUSTER-RESULT {reply}\n", False)["result"] == {}


def test_error_is_reported_verbatim() -> None:
    result = task_result(1, 'Getting\nMUSTER-RESULT {"step_error": "there is no file a. Needed: it"}\n', False)
    assert (result["failed"], result["msg"]) == (True, "there is no file a. Needed: it")


def test_failed_program_shows_last_output_lines_and_log_path() -> None:
    output = "".join(f"line {number}\n" for number in range(100))
    result = 'MUSTER-RESULT {"step_error": "`pip install ...` failed (exit code 1)", "show_output": true}\n'
    matches = task_result(
        1, f"{output}ERROR: No matching distribution found for zzz==9\n{result}", False, "/logs/a.log"
    )
    lines = matches["msg"].split("\n")
    assert lines[0] == "`pip install ...` failed (exit code 1). The last lines of its output:"
    assert lines[1] == "  line 61" and lines[40] == "  ERROR: No matching distribution found for zzz==9"
    assert lines[41:] == ["All of its output is on that node, in /logs/a.log"]


def test_without_an_error_exit_code_and_last_lines_are_reported() -> None:
    result = task_result(2, "x" * 5000 + "\nE: broken\n", False)
    assert result["msg"] == f"exit code 2. The last lines of its output:\n  {'x' * 1000}\n  E: broken"
    assert task_result(3, "", False)["msg"] == "exit code 3"
    assert task_result(1, "", True)["msg"] == "it was killed by a signal, or the machine restarted"


def test_terminal_control_sequences_are_removed() -> None:
    result = task_result(1, "10%\r 20%\r done \n\x1b[31mred\x1b[0m\x07\r\n\n", False)
    assert result["msg"].split("\n")[1:] == ["   done", "  red"]


def test_credentials_in_an_error_are_masked() -> None:
    result = task_result(1, 'MUSTER-RESULT {"step_error": "https://user:TOKEN@host/simple cannot be read"}\n', False)
    assert result["msg"] == "https://****@host/simple cannot be read"


def test_error_in_the_reply_is_a_failure_despite_exit_code_0() -> None:
    result = task_result(0, 'MUSTER-RESULT {"error": "Python 3.6 is too old"}\n', False)
    assert (result["failed"], result["msg"]) == (True, "Python 3.6 is too old")


def here(**more: Any) -> Any:
    """Return an action whose node is this machine."""

    def execute(command: str, in_data: bytes = b"", **_more: Any) -> dict[str, Any]:
        completed = subprocess.run(["sh", "-c", command], input=in_data, capture_output=True, check=False)
        return {"rc": completed.returncode, "stdout": completed.stdout.decode(), "stderr": completed.stderr.decode()}

    return SimpleNamespace(
        _task=SimpleNamespace(delegate_to=None, environment=[], **more),
        _connection=SimpleNamespace(transport="local"),
        _templar=SimpleNamespace(template=lambda value: value),
        _low_level_execute_command=execute,
    )


@pytest.mark.one_core  # needs torch
def test_run_code_uses_the_requested_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    request = {
        "key": "k",
        "version": "2.8.0",
        "build": "cpu",
        "cuda": "",
        "gpus": 0,
        "marker": str(tmp_path / "proved"),
    }
    (tmp_path / "proved").write_text(torch_proof.fingerprint(request))

    def verify(**overrides: Any) -> dict[str, Any]:
        names = {"inventory_hostname": "node0"}
        return run_code(here(), names, "proving", sys.executable, "_torch.torch_proof", {**request, **overrides})

    assert verify() == {"changed": False, "summary": "verified before"}
    failed = verify(marker=str(tmp_path / "other"), version="0.1")
    assert failed["failed"] and failed["msg"].startswith("node0: proving: torch is ")
    assert failed["msg"].endswith("which names the packages that require a different version of torch"), (
        "the fault alone, without its output"
    )


def test_only_one_node_shows_progress_at_growing_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """With sixty nodes, progress of all nodes would be sixty lines."""
    messages: list[str] = []
    clock = iter(range(0, 100_000, 10))
    monkeypatch.setattr(detached, "Display", lambda: SimpleNamespace(display=messages.append))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))

    def progress_of(name: str, calls: int) -> list[str]:
        """Return the progress messages of a command that ends after this number of calls."""
        remaining = iter(range(calls - 1, -1, -1))

        def call(*_args: Any) -> dict[str, Any]:
            return {"ended": not next(remaining), "last_line": "one", "rc": 0, "output": "", "lost": False, "log": ""}

        monkeypatch.setattr(detached, "call_node", call)
        before = len(messages)
        assert run_command(here(), {"inventory_hostname": name}, "working", ["true"], show_every=10)["rc"] == 0
        return messages[before:]

    with progress_lock() as opened:
        assert acquire_progress_lock(opened) and acquire_progress_lock(opened)
        assert progress_of("node2", 20) == [], "another one tells already"
    lines = progress_of("node2", 100)
    assert lines[0] == "node2: working (0:00:10): one"
    assert [re.sub(r".*\((.*)\).*", r"\1", line) for line in lines] == [
        *("0:00:10", "0:00:20", "0:00:40", "0:01:20", "0:02:40", "0:05:20", "0:10:20", "0:15:20")
    ]


def test_progress_shows_no_result_line() -> None:
    assert detached.describe_last_line("Collecting torch") == ": Collecting torch"
    assert detached.describe_last_line('MUSTER-RESULT {"changed": true}') == ""


def test_without_file_locks_each_node_shows_progress(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Some cluster file systems have no locks, or the directory may have been removed in the meantime."""
    with progress_lock() as opened:
        monkeypatch.setattr(fcntl, "flock", lambda *_args: os.stat(tmp_path / "nothing"))
        assert acquire_progress_lock(opened)
    monkeypatch.setattr(C, "DEFAULT_LOCAL_TMP", str(tmp_path / "nothing"))
    with progress_lock() as opened:
        assert opened is None and acquire_progress_lock(opened)


@pytest.mark.parametrize(("error_class", "show_output"), [(StepError, False), (ProgramError, True)])
def test_error_is_printed_as_the_result_and_exits_with_code_1(
    error_class: type[StepError], show_output: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(_request: dict[str, Any]) -> dict[str, Any]:
        raise error_class("there is no file a. Needed: it")

    with pytest.raises(SystemExit) as ended:
        report_result(work, {})
    assert ended.value.code == 1
    output = json.loads(capsys.readouterr().out.removeprefix("MUSTER-RESULT "))
    assert output == {"step_error": "there is no file a. Needed: it", "show_output": show_output}
    assert report_result(lambda request: request, {"a": 1}) == {"a": 1}
