# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""./muster after Ctrl-C or SIGTERM: what it says about a run that may have started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from ansible_collections.muster.training.plugins.callback import roll
from tests.support import drive
from tests.unit.test_short_words import PROGRAM, muster
from tests.unit.two_nodes import stop_run, two_nodes
from tests.unit.typed import give_collection, own_environment

pytestmark = pytest.mark.one_core
RUNNING = "run first keeps running on its nodes.\n  status:  ./muster status first\n  stop:    ./muster stop first\n"
UNKNOWN = "interrupted: ./muster status shows whether a run has started\n"
NOTHING = "interrupted: nothing was started\n"
# Ends as Ansible does: at a second SIGINT immediately, and with a traceback if nobody reads its output anymore.
STAND_IN = f"""#!{sys.executable}
import os, signal, sys, time
def interrupt(number, frame):
    signal.signal(number, signal.SIG_DFL)
    raise KeyboardInterrupt
signal.signal(signal.SIGINT, interrupt)
state = os.environ.get("STATE")
if state:
    with open(os.environ.get("MUSTER_STATE_FILE", os.devnull), "w") as stream:
        stream.write(state)
try:
    print("started", flush=True)
    while True:
        time.sleep(0.05)  # short: a signal just before a sleep does not end it
except KeyboardInterrupt:
    print("[ERROR]: User interrupted execution", file=sys.stderr, flush=True)
    if os.environ.get("AGAIN"):
        os.kill(os.getpid(), signal.SIGINT)
    try:
        while os.environ.get("BROKEN"):
            print("more", flush=True)
    except BrokenPipeError:
        print("Traceback (most recent call last):\\nBrokenPipeError", file=sys.stderr)
    sys.exit(99)
"""
# A reader of the output that Ctrl-C ends, and that says when it has received the first line.
READER = f"""{sys.executable} -c '
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
for line in sys.stdin:
    os.write(os.open("/dev/tty", os.O_WRONLY), line.encode())
'"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A project with ./muster, and a stand-in for ansible-playbook in the PATH."""
    # the stand-in starts faster than Ansible
    (tmp_path / "muster").write_text(PROGRAM.read_text().replace("STARTUP_SECONDS = 0.05", "STARTUP_SECONDS = 0.0"))
    program = tmp_path / "bin/ansible-playbook"
    program.parent.mkdir()
    program.write_text(STAND_IN)
    program.chmod(0o755)
    return {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}


def read_until(master: int, text: str = "") -> str:
    """Return a terminal's output up to a text, or up to its end."""
    received = b""
    with contextlib.suppress(OSError):  # no process has the terminal open
        while (not text or text.encode() not in received) and (chunk := os.read(master, 65536)):
            received += chunk
    return received.decode().replace("\r", "")


@pytest.mark.parametrize("pipe", ["|", "2>&1 |"])
@pytest.mark.parametrize(("state", "message"), [(RUNNING, RUNNING), ("", UNKNOWN)])
def test_ctrl_c_that_ends_the_reader_of_the_output_is_explained(
    pipe: str, state: str, message: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    """As in `./muster launch ... | tee log`: the terminal interrupts tee, too."""
    command = f"{sys.executable} {tmp_path}/muster launch train.py {pipe} {READER}"
    process, master = drive.terminal(
        ["bash", "-c", f"trap : INT; {command}"], {**environment, "STATE": state, "BROKEN": "yes"}
    )
    read_until(master, "started")
    os.write(master, b"\x03")
    output = read_until(master)
    process.wait()
    os.close(master)
    assert output.removeprefix("^C").endswith(message), output
    assert "nothing was started" not in output and "Traceback" not in output, output


@pytest.mark.parametrize(
    "signals", [(signal.SIGINT, "", (99, 130)), (signal.SIGINT, "yes", (130,)), (signal.SIGTERM, "", (143,))]
)
@pytest.mark.parametrize(("state", "message"), [(RUNNING, RUNNING), ("", UNKNOWN)])
def test_signal_to_the_process_group_is_explained_on_stderr(
    signals: tuple[int, str, tuple[int, ...]], state: str, message: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    """Without a terminal, ./muster forwards the signal, which the command has received already."""
    number, again, statuses = signals
    with subprocess.Popen(
        [sys.executable, tmp_path / "muster", "status"],
        env={**environment, "STATE": state, "AGAIN": again},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        os.killpg(process.pid, number)
        _output, errors = process.communicate()
    assert errors == "+ ansible-playbook status.yml\n" + message
    assert process.returncode in statuses


@pytest.mark.parametrize("name", ["HUP", "INT"])
def test_ignored_signal_does_not_hide_how_a_command_ends(
    name: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    """As with nohup, or with & in a script: ansible-playbook ignores the signal, too."""
    (tmp_path / "bin/ansible-playbook").write_text(f"#!/bin/sh\nkill -{name} $PPID\necho the run failed >&2\nexit 2\n")
    command = f"trap '' {name}; {sys.executable} {tmp_path}/muster status"
    completed = subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True, check=False)
    assert completed.stderr == "+ ansible-playbook status.yml\nthe run failed\n"
    assert completed.returncode == 2


IMPORTING = 'Traceback (most recent call last):\n  File "ansible-playbook", line 3, in <module>\nKeyboardInterrupt\n'
HANDLED = "[ERROR]: User interrupted execution\n"


@pytest.mark.parametrize(
    ("text", "state", "seconds", "message"),
    [
        (IMPORTING, "", 0.4, NOTHING),
        ("", "", 0.01, NOTHING),  # it ended before Python could show a traceback
        ("", "", 5.0, UNKNOWN),
        (HANDLED, "", 5.0, UNKNOWN),
        (HANDLED + "Traceback (most recent call last):\nBrokenPipeError\n", "", 5.0, UNKNOWN),
        (IMPORTING.replace("\nK", "\n  in cli_executor\nK"), "", 5.0, UNKNOWN),  # Ctrl-C twice
        ('Traceback (most recent call last):\n  File "executor/process/worker.py", line 1\n', "", 5.0, UNKNOWN),
        (IMPORTING, RUNNING, 5.0, RUNNING),
        (f"{HANDLED}muster: interrupted\n", RUNNING, 5.0, ""),
    ],
)
def test_nothing_was_started_is_said_only_with_evidence(text: str, state: str, seconds: float, message: str) -> None:
    assert muster.interruption_text(text, state, seconds) == message


def test_callback_writes_the_state_before_a_signal_can_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "state"
    monkeypatch.setenv("MUSTER_STATE_FILE", str(path))
    monkeypatch.setenv("MUSTER_COMMAND", "./muster")
    callback = roll.CallbackModule()
    assert "MUSTER_STATE_FILE" not in os.environ, "playbooks that this playbook runs would write to it"
    monkeypatch.setattr(callback._display, "verbosity", 0)
    assert path.read_text() == NOTHING
    callback.v2_playbook_on_start(SimpleNamespace(_file_name="/project/launch.yml"))
    assert path.read_text() == "launch was interrupted: nothing was started\n"
    record = {"run_id": "first", "run_commands": "  stop:    ./muster stop first"}
    callback.remember_run(SimpleNamespace(task=SimpleNamespace(action="run_record"), result=record))
    assert path.read_text() == "run first was starting and may be running.\n  stop:    ./muster stop first\n"
    watch = SimpleNamespace(action=roll.WATCH, _role=None)
    callback.v2_playbook_on_task_start(watch, is_conditional=False)
    assert path.read_text() == "run first keeps running on its nodes.\n  stop:    ./muster stop first\n"
    callback.interrupted = True
    callback.show_remaining()
    assert capsys.readouterr() == ("", ""), "./muster shows it on stderr"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    callback.show_remaining()
    assert capsys.readouterr() == (path.read_text(), "muster: interrupted\n")
    callback.remember_run(SimpleNamespace(task=watch, result={"lost": False}))
    assert path.read_text() == "launch was interrupted: its run had ended: ./muster status shows the result\n"


def test_launch_with_piped_output_says_that_the_run_continues(tmp_path: Path) -> None:
    two_nodes(tmp_path, 78, launch_launcher="env", launch_report=False)
    (tmp_path / "muster").write_text(PROGRAM.read_text())
    (tmp_path / "launch.yml").write_text("- ansible.builtin.import_playbook: muster.training.launch\n")
    (tmp_path / "ansible.cfg").write_text("[defaults]\nstdout_callback = muster.training.roll\n")
    (tmp_path / "wait.py").write_text("import time\nprint('training', flush=True)\ntime.sleep(600)\n")
    options = f"-i machines.yml --directory {tmp_path} --run-id first"
    command = f"cd {tmp_path}; {sys.executable} ./muster launch {options} wait.py | {READER}"
    process, master = drive.terminal(["bash", "-c", f"trap : INT; {command}"], own_environment(tmp_path))
    try:
        before = read_until(master, "\ntraining")
        os.write(master, b"\x03")
        after = read_until(master)
        process.wait()
    finally:
        os.close(master)
        stop_run(tmp_path, "first")
    assert "run first keeps running on its nodes.\n  status: " in after, before + after
    assert "muster stop first\n" in after and "nothing was started" not in after, after


# As Ansible does if Ctrl-C ended a worker that held the lock of the queue of results.
STUCK = """
import multiprocessing, subprocess, sys, time
from ansible_collections.muster.training.plugins.callback import roll
from ansible_collections.muster.training.plugins.plugin_utils._command_line import interruption
interruption.STUCK_SECONDS = 0.5
callback = roll.CallbackModule()
lock = multiprocessing.Lock()
lock.acquire()
worker = subprocess.Popen(["cat"], stdin=subprocess.PIPE, start_new_session=True)
try:
    print("ready", flush=True)
    time.sleep(600)
except KeyboardInterrupt:
    time.sleep(2)  # longer than STUCK_SECONDS: a worker still cleans up
    worker.communicate()
    print("waits", flush=True)
    lock.acquire()
"""


def test_ansible_that_waits_for_a_worker_that_has_ended_is_interrupted_again(tmp_path: Path) -> None:
    give_collection(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", STUCK],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "collections")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate()
    assert output.startswith("waits\n") and process.returncode == -signal.SIGINT, output + errors
