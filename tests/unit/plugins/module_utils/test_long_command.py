"""Commands that outlive who started them, with real processes."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils import _long_command as long_command
from tests.unit.supervised import eventually


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    return tmp_path


def ask(*argv: str, start: bool = True, patience: float = 120, **environment: str) -> dict[str, Any]:
    request = {"argv": list(argv), "environment": environment, "chdir": "", "start": start, "patience": patience}
    return long_command.main(request)


def test_output_and_exit_code_of_a_command(directory: Path) -> None:
    answer = ask("sh", "-c", "echo out $WORD; echo err >&2; exit 3", WORD="and")
    assert answer == {"ended": True, "rc": 3, "output": "out and\nerr\n", "lost": False}
    assert list(directory.iterdir()) == [], "nothing is left behind"


def test_a_command_that_is_not_there() -> None:
    answer = ask("/no/such/command")
    assert (answer["rc"], answer["output"]) == (127, "/no/such/command: No such file or directory\n")


def test_a_command_that_runs_is_followed_and_not_started_again(tmp_path: Path) -> None:
    fifo, count = tmp_path / "go", tmp_path / "count"
    os.mkfifo(fifo)
    argv = ("sh", "-c", f"echo x >> {count}; printf 'one\\ntwo\\r three \\n'; read line < {fifo}; echo $line")
    first = ask(*argv, patience=0.1)
    assert (first["ended"], first["followed"]) == (False, False)
    eventually(lambda: ask(*argv, patience=0.1) == {"ended": False, "followed": True, "last_line": "three"})
    fifo.write_text("end\n")
    assert ask(*argv)["output"].endswith("end\n")
    assert count.read_text() == "x\n"


def test_a_command_whose_keeper_is_killed_is_lost_and_can_be_started_anew(directory: Path) -> None:
    argv = ("sleep", "600")
    assert not ask(*argv, patience=0.1)["ended"]
    keeper = int(next(directory.glob("*/keeper")).read_text().split()[0])
    os.killpg(keeper, signal.SIGKILL)
    os.waitpid(keeper, 0)
    assert ask(*argv, start=False)["lost"]
    assert not ask(*argv, patience=0.1)["ended"]
    keeper = int(next(directory.glob("*/keeper")).read_text().split()[0])
    os.killpg(keeper, signal.SIGKILL)
    os.waitpid(keeper, 0)


def test_the_state_is_this_users_alone(directory: Path) -> None:
    request = {"argv": ["true"], "environment": {}, "chdir": ""}
    path = Path(long_command.directory_of(request))
    assert path.stat().st_mode & 0o777 == 0o700
    path.rmdir()
    path.symlink_to(directory)
    with pytest.raises(PermissionError, match="belongs to another user"):
        long_command.directory_of(request)
