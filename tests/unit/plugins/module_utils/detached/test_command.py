"""Commands that outlive the process that started them, with real processes."""

from __future__ import annotations

import json
import os
import pwd
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._detached import command as long_command
from tests.unit.supervised import eventually


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    state, logs = tmp_path / "state", tmp_path / "logs"
    state.mkdir()
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(state))
    monkeypatch.setattr(long_command, "log_directory", lambda: str(logs))
    return state


@pytest.fixture
def logs(directory: Path) -> Path:
    return directory.parent / "logs"


def request_for(
    *argv: str, stdin: str = "", description: str = "a test", run: str = "", **environment: str
) -> dict[str, Any]:
    return {
        "argv": list(argv),
        "environment": environment,
        "chdir": "",
        "stdin": stdin,
        "description": description,
        "run": run,
    }


def run_command(*argv: str, start: bool = True, wait_seconds: float = 120, **more: str) -> dict[str, Any]:
    return long_command.main({**request_for(*argv, **more), "start": start, "wait_seconds": wait_seconds})


def test_command_returns_output_and_exit_code_and_keeps_no_files(directory: Path, logs: Path) -> None:
    reply = run_command("sh", "-c", "echo out $WORD; echo err >&2", WORD="and")
    assert reply == {"ended": True, "rc": 0, "output": "out and\nerr\n", "lost": False, "log": ""}
    assert list(directory.iterdir()) == [] and not logs.exists(), "nothing is left behind"


def test_full_output_of_a_failed_command_stays_on_the_node(directory: Path, logs: Path) -> None:
    text = "x" * 2 * long_command.MAX_OUTPUT
    reply = run_command(
        "sh", "-c", "cat; echo https://me:se%21cret@host/simple; exit 3", stdin=text, description="job: building it"
    )
    assert (reply["rc"], list(directory.iterdir())) == (3, [])
    (log,) = logs.iterdir()
    assert reply["log"] == str(log) and f"-{os.uname().nodename}-job-building-it-" in log.name
    assert log.read_text() == f"{text}https://****@host/simple\n"
    assert (log.stat().st_mode & 0o777, logs.stat().st_mode & 0o777) == (0o600, 0o700)


def test_credentials_appear_neither_in_reply_nor_in_log(logs: Path) -> None:
    print_and_fail = "echo https://me:SECRET@host/simple; echo 'MUSTER-RESULT {}'; exit 1"
    reply = run_command("sh", "-c", print_and_fail)
    assert reply["output"] == "https://****@host/simple\nMUSTER-RESULT {}\n"
    assert Path(reply["log"]).read_text() == "https://****@host/simple\n"


def test_a_failed_command_without_output_has_no_log(logs: Path) -> None:
    assert run_command("false")["log"] == ""
    assert not logs.exists()


def test_only_the_newest_logs_are_kept(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs.mkdir()
    for number in range(30):
        old = logs / f"20200101T0000{number:02}-node-old.log"
        old.write_text("12345")
        os.utime(old, (number, number))
    (logs / "notes.txt").write_text("the user's own")
    newest = Path(run_command("sh", "-c", "echo x; exit 1")["log"])
    names = sorted(path.name for path in logs.glob("*.log"))
    assert len(names) == long_command.MAX_LOGS
    assert names[-1] == newest.name and names[0].startswith("20200101T000011")
    monkeypatch.setattr(long_command, "MAX_LOG_BYTES", 11)
    last = Path(run_command("sh", "-c", "echo 123456789012345; exit 2")["log"])
    assert [*logs.glob("*.log")] == [last], "the newest stays, however large it is"
    assert (logs / "notes.txt").exists()


def test_reply_is_the_same_if_no_log_can_be_written(logs: Path) -> None:
    logs.write_text("a file in its place")
    reply = run_command("sh", "-c", "echo x; exit 1")
    assert (reply["rc"], reply["output"], reply["log"]) == (1, "x\n", "")


def test_log_directory_belongs_to_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert long_command.log_directory() == "/var/log/muster"
    monkeypatch.setattr("os.geteuid", lambda: pwd.getpwnam("nobody").pw_uid)
    assert long_command.log_directory() == f"{pwd.getpwnam('nobody').pw_dir}/.muster/logs"


def test_large_stdin_is_not_passed_as_an_argument() -> None:
    secret = json.dumps({"wheels": ["w" * 1000] * 500, "token": "s3cr3t"})  # a single argument is limited to 128 KiB
    argv = (sys.executable, "-c", "import sys; print(len(sys.stdin.read()), open('/proc/self/cmdline').read())")
    reply = run_command(*argv, stdin=secret)
    assert reply["output"].startswith(f"{len(secret)} ") and "s3cr3t" not in reply["output"], reply
    with_input, without_input = (long_command.state_directory(request_for(*argv, stdin=text)) for text in (secret, ""))
    assert with_input != without_input, "what is given is part of what is asked"


def test_result_line_is_complete_despite_large_output() -> None:
    most = long_command.MAX_OUTPUT
    text = f"print('x' * {3 * most}); print('MUSTER-RESULT ' + '[' + '1,' * {most} + '1]'); print('done')"
    lines = run_command(sys.executable, "-c", text)["output"].splitlines()
    assert [len(line) for line in lines] == [most - len("done\n") - 1, 4, len("MUSTER-RESULT [1]") + 2 * most]
    assert lines[1] == "done" and len(json.loads(lines[2].partition(" ")[2])) == most + 1


def test_each_run_of_a_command_has_its_own_directory() -> None:
    paths = {long_command.state_directory(request_for("true", run=run)) for run in ("", "1", "2")}
    assert len(paths) == 3


@pytest.mark.parametrize(
    "text, masked",
    [
        ("--index-url https://user:TOKEN@host/simple x", "--index-url https://****@host/simple x"),
        ("'https://TOKEN@host:8080/simple'", "'https://****@host:8080/simple'"),
        ("git+https://user:TOKEN@host/a.git@v1", "git+https://****@host/a.git@v1"),
        ("MUSTER-RESULT https://user:TOKEN@host/simple", "MUSTER-RESULT https://user:TOKEN@host/simple"),
        ("see https://host/a@b and me@host", "see https://host/a@b and me@host"),
    ],
)
def test_credentials_in_urls_are_masked(text: str, masked: str) -> None:
    assert long_command.strip_credentials(text) == masked


def test_missing_command_gives_exit_code_127() -> None:
    reply = run_command("/no/such/command")
    assert (reply["rc"], reply["output"]) == (127, "/no/such/command: No such file or directory\n")


def test_running_command_is_followed_and_not_started_again(tmp_path: Path) -> None:
    fifo, count = tmp_path / "go", tmp_path / "count"
    os.mkfifo(fifo)
    argv = ("sh", "-c", f"echo x >> {count}; printf 'one\\ntwo\\r three \\n'; read line < {fifo}; echo $line")
    first = run_command(*argv, wait_seconds=0.1)
    assert (first["ended"], first["followed"]) == (False, False)
    eventually(lambda: run_command(*argv, wait_seconds=0.1) == {"ended": False, "followed": True, "last_line": "three"})
    fifo.write_text("end\n")
    assert run_command(*argv)["output"].endswith("end\n")
    assert count.read_text() == "x\n"


def test_command_with_a_killed_keeper_is_lost_and_can_be_restarted(directory: Path) -> None:
    argv = ("sleep", "600")
    assert not run_command(*argv, wait_seconds=0.1)["ended"]
    keeper = int(next(directory.glob("*/keeper")).read_text().split()[0])
    os.killpg(keeper, signal.SIGKILL)
    os.waitpid(keeper, 0)
    assert run_command(*argv, start=False)["lost"]
    assert not run_command(*argv, wait_seconds=0.1)["ended"]
    keeper = int(next(directory.glob("*/keeper")).read_text().split()[0])
    os.killpg(keeper, signal.SIGKILL)
    os.waitpid(keeper, 0)


def test_state_directory_belongs_to_this_user_only(directory: Path) -> None:
    request = request_for("true")
    path = Path(long_command.state_directory(request))
    assert path.stat().st_mode & 0o777 == 0o700
    path.rmdir()
    path.symlink_to(directory)
    with pytest.raises(PermissionError, match="belongs to another user"):
        long_command.state_directory(request)
