"""bin/muster-rank checks its rank, passes on every argument, and records how the rank ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._supervisor.programs import muster_rank
from ansible_collections.muster.training.plugins.module_utils._supervisor.programs.muster_rank import (
    MisplacedError,
    assigned_ranks,
    job_command,
)
from tests.unit.supervised import eventually

PROGRAM = Path(muster_rank.__file__)
PLAN: dict[str, Any] = {
    "launcher": "mpirun",
    "world_size": 5,
    "node": {"name": "b", "slots": 2, "first_rank": 3, "node_rank": 1},
    "environment": {"MASTER_ADDR": "10.0.0.9", "NCCL_SOCKET_IFNAME": "=ens5"},
}
RULES: dict[str, Any] = {"rank": ["MY_RANK"], "world": ["MY_WORLD"], "command": [], "arguments": []}


class RunDirectory:
    """A run directory that contains bin/muster-rank."""

    def __init__(self, path: Path, command: list[str], arguments: list[str], secrets: dict[str, str]) -> None:
        self.path = path
        for name, content in (
            ("plan.json", PLAN),
            ("rank.json", {**RULES, "command": command, "arguments": arguments}),
            ("environment.json", secrets),
        ):
            (path / name).write_text(json.dumps(content))
        (path / "bin").mkdir()
        (path / "bin" / "muster-rank").write_text(PROGRAM.read_text())

    def start(self, *added: str, rank: int = 4, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-IS", str(self.path / "bin" / "muster-rank"), *added],
            env={"PATH": os.environ["PATH"], "MY_RANK": str(rank), "MY_WORLD": "5", **environment},
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *added: str, **more: Any) -> tuple[int, str]:
        with self.start(*added, **more) as process:
            _out, err = process.communicate(timeout=300)
            return process.returncode, err

    def log_text(self, local_rank: int = 1, name: str = "stdout.log") -> str:
        return (self.path / "ranks" / str(local_rank) / name).read_text()

    def exit(self, local_rank: int = 1) -> dict[str, Any]:
        result: dict[str, Any] = json.loads((self.path / "ranks" / str(local_rank) / "exit.json").read_text())
        del result["ended"], result["moment"]
        return result


def python(path: Path, program: str, arguments: list[str] | None = None, **secrets: str) -> RunDirectory:
    return RunDirectory(path, [sys.executable, "-c", program], arguments or [], secrets)


@pytest.mark.parametrize(("rank", "local_rank"), [(3, 0), (4, 1)])
def test_rank_and_local_rank_follow_the_rank_table(rank: int, local_rank: int) -> None:
    assert assigned_ranks(PLAN, RULES, {"MY_RANK": str(rank), "MY_WORLD": "5"}) == (rank, local_rank)


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"MY_RANK": "2", "MY_WORLD": "5"}, "mpirun started rank 2 on b, where ranks 3 to 4 were planned"),
        ({"MY_RANK": "5", "MY_WORLD": "5"}, "mpirun started rank 5 on b"),
        ({"MY_RANK": "3", "MY_WORLD": "2"}, "mpirun started with world size 2 on b, but 5 was planned"),
        ({"MY_WORLD": "5"}, "mpirun does not set MY_RANK for a process on b"),
        ({"MY_RANK": "", "MY_WORLD": "5"}, "mpirun does not set MY_RANK"),
    ],
)
def test_rank_that_does_not_match_the_plan_is_refused(environment: dict[str, str], message: str) -> None:
    with pytest.raises(MisplacedError, match=message):
        assigned_ranks(PLAN, RULES, environment)


def test_single_rank_needs_no_number_from_the_launcher() -> None:
    alone = {**PLAN, "world_size": 1, "node": {"name": "a", "slots": 1, "first_rank": 0, "node_rank": 0}}
    assert assigned_ranks(alone, RULES, {}) == (0, 0)


def test_a_misplaced_rank_starts_nothing(tmp_path: Path) -> None:
    directory = python(tmp_path, "print('started')")
    code, output = directory.run(rank=0)
    assert code == 70 and "started rank 0 on b" in output
    assert not (tmp_path / "ranks").exists()


def test_rank_environment_combines_plan_secrets_and_launcher_variables(tmp_path: Path) -> None:
    directory = python(
        tmp_path, "import json, os; print(json.dumps(dict(os.environ)))", API_KEY="s3cr3t", NCCL_DEBUG="INFO"
    )
    assert directory.run(NCCL_DEBUG="WARN", NCCL_SOCKET_IFNAME="^docker0", KEPT="yes") == (0, "")
    result = json.loads(directory.log_text())
    expected = {
        **{"RANK": "4", "LOCAL_RANK": "1", "WORLD_SIZE": "5", "LOCAL_WORLD_SIZE": "2", "NODE_RANK": "1"},
        **{"MASTER_ADDR": "10.0.0.9", "NCCL_SOCKET_IFNAME": "=ens5", "NCCL_DEBUG": "INFO", "API_KEY": "s3cr3t"},
        **{"OMP_NUM_THREADS": "1", "KEPT": "yes", "MUSTER_RUN_DIRECTORY": str(tmp_path)},
        "TORCHELASTIC_ERROR_FILE": f"{tmp_path}/ranks/1/error.json",
    }
    assert {name: result.get(name) for name in expected} == expected


argument_lists = st.lists(st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=12), max_size=6)


@settings(max_examples=25, deadline=None)
@given(arguments=argument_lists, value=st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=20))
def test_arguments_and_variables_are_passed_to_the_program_unchanged(
    tmp_path_factory: pytest.TempPathFactory, arguments: list[str], value: str
) -> None:
    program = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['VALUE']]))"
    directory = python(tmp_path_factory.mktemp("run"), program, arguments, VALUE=value)
    assert directory.run() == (0, "")
    assert json.loads(directory.log_text()) == [arguments, value]


def test_deepspeed_local_rank_argument_is_taken_from_the_rank_table() -> None:
    rules = {**RULES, "command": ["python", "train.py"], "arguments": ["--lr", "1"]}
    assert job_command(rules, ["--local_rank=0"], 1) == ["python", "train.py", "--local_rank=1", "--lr", "1"]
    assert job_command(rules, [], 1) == ["python", "train.py", "--lr", "1"]


@pytest.mark.parametrize(
    ("program", "code", "recorded"),
    [
        ("pass", 0, 0),
        ("raise SystemExit(3)", 3, 3),
        ("import os; os.kill(os.getpid(), 9)", 137, -9),
        ("raise ValueError('boom')", 1, 1),
    ],
)
def test_exit_code_of_a_rank_is_recorded(tmp_path: Path, program: str, code: int, recorded: int) -> None:
    directory = python(tmp_path, program)
    assert directory.run()[0] == code
    assert directory.exit() == {"rank": 4, "exit_code": recorded}
    assert (tmp_path / "ranks/1/exit.json").stat().st_mode & 0o777 == 0o600
    assert directory.log_text(name="stderr.log").endswith("ValueError: boom\n") is ("boom" in program)


def test_missing_program_is_reported_in_the_rank_log(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path, ["/no/such/program"], [], {})
    assert directory.run()[0] == 127
    assert "muster: cannot start /no/such/program: " in directory.log_text(name="stderr.log")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_reach_the_job(tmp_path: Path, number: signal.Signals) -> None:
    program = "import time; print('up', flush=True); time.sleep(600)"
    directory = python(tmp_path, program)
    before = signal.signal(number, signal.SIG_IGN)  # like SIGINT in processes that a shell starts with `&`
    try:
        started = directory.start()
    finally:
        signal.signal(number, before)
    with started as process:
        eventually(lambda: (tmp_path / "ranks/1/stdout.log").exists() and directory.log_text() == "up\n")
        process.send_signal(number)
        assert process.wait(120) == 128 + number if number == signal.SIGTERM else process.wait(120) in (1, 130)
    assert directory.exit()["exit_code"] in (-number, 1)


def test_attempt_adds_its_variables_and_arguments(tmp_path: Path) -> None:
    """Some launchers pass no variables on, so the supervisor leaves them in a file."""
    script = (
        "import os, sys; print(sys.argv[1:], os.environ.get('MUSTER_ATTEMPT'), os.environ.get('MUSTER_CHECKPOINT'))"
    )
    directory = RunDirectory(tmp_path, [sys.executable, "-c", script], ["--lr", "1"], {})
    attempt = {"environment": {"MUSTER_ATTEMPT": "1", "MUSTER_CHECKPOINT": "/c/step-2"}, "arguments": ["--resume"]}
    (tmp_path / "attempt.json").write_text(json.dumps(attempt))
    assert directory.run()[0] == 0
    output = tmp_path / "ranks" / "1" / "stdout.log"
    assert output.read_text() == "['--lr', '1', '--resume'] 1 /c/step-2\n"


@pytest.mark.parametrize("text", ["", "[]", "7", "{", "{}"])
def test_attempt_that_cannot_be_read_adds_nothing(tmp_path: Path, text: str) -> None:
    directory = RunDirectory(tmp_path, [sys.executable, "-c", "import sys; print(sys.argv[1:])"], ["--lr"], {})
    (tmp_path / "attempt.json").write_text(text)
    assert directory.run()[0] == 0
    assert (tmp_path / "ranks" / "1" / "stdout.log").read_text() == "['--lr']\n"
