"""Run the playbooks from tests and benchmarks, and inspect their traces on the test hosts."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ansible_runner

from tests.lab import Lab, Process
from tests.lab.hosts import down

CHECKOUT = Path(__file__).resolve().parents[2]
JOBS = CHECKOUT / "tests" / "jobs"
PORTS = (29500, 29499)
"""Defaults of launch_master_port and launch_lifeline_port."""


@dataclass
class Play:
    """A playbook that is running or has ended. `output` grows while it runs."""

    directory: Path
    started: float
    thread: threading.Thread | None = None
    rc: int | None = None
    ended: float = 0.0
    stop: threading.Event = field(default_factory=threading.Event)

    @property
    def printed(self) -> Path:
        """The file with all its output."""
        return self.directory / "artifacts" / "play" / "stdout"

    @property
    def output(self) -> str:
        """Its output so far, without colors, which Ansible puts between the words of a long line."""
        return re.sub(r"\x1b\[[0-9;]*m", "", self.printed.read_text(errors="replace")) if self.printed.exists() else ""

    def wait_for(self, text: str, timeout: float = 180) -> None:
        """Wait until its output matches, and fail if it ends before that."""

        def matches() -> bool:
            if re.search(text, self.output):
                return True
            assert self.rc is None, f"ended with {self.rc} without {text!r}:\n{self.output[-3000:]}"
            return False

        eventually(f"output matches {text!r}", matches, timeout, lambda: self.output[-3000:])

    def wait(self, timeout: float = 300) -> Play:
        """Wait until it ends."""
        assert self.thread is not None
        self.thread.join(timeout)
        assert not self.thread.is_alive(), f"still running after {timeout} s:\n{self.output[-3000:]}"
        return self

    def last_lines(self, number: int = 30) -> str:
        """Return the last lines of its output, as a user sees them."""
        return "\n".join(self.output.rstrip().splitlines()[-number:])


def eventually(
    what: str, condition: Callable[[], bool], timeout: float, more: Callable[[], str] = lambda: "", pause: float = 0.1
) -> float:
    """Wait until a condition holds, with a pause in seconds between checks; return the seconds it took."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < timeout, f"not within {timeout} s: {what}\n{more()}"
        time.sleep(pause)
    return time.monotonic() - started


def slower_polling(directory: Path) -> Path:
    """Write and return the checkout's settings, except that Ansible looks for results of its processes less often.

    With its default of a millisecond, a playbook that waits takes a twentieth of a core.
    """
    path = directory / "ansible.cfg"
    text = (CHECKOUT / "ansible.cfg").read_text()
    path.write_text(text.replace("[defaults]\n", "[defaults]\ninternal_poll_interval = 0.01\n", 1))
    return path


def start(
    playbook: str,
    inventory: Path | str,
    *,
    options: tuple[str, ...] = (),
    env: dict[str, str] | None = None,
    roll: bool = False,
    **extra: Any,
) -> Play:
    """Start a playbook of this checkout with extra variables; `options` go to ansible-playbook.

    roll: print the collection's output, into a pipe, as if a user had typed `| tee`; otherwise Ansible's own.
    A run's measurements are fetched only if requested: they cost a call per node.
    """
    play = Play(Path(tempfile.mkdtemp(prefix="muster-play-")), time.monotonic())
    path = playbook if "/" in playbook else f"{CHECKOUT}/playbooks/{playbook}"
    variables = play.directory / "variables.json"
    defaults: dict[str, Any] = {}
    if playbook in ("launch.yml", "status.yml", "stop.yml", "logs.yml"):
        defaults["launch_fetch_record"] = False
    if playbook in ("launch.yml", "status.yml", "stop.yml"):
        defaults["launch_report"] = False  # a report would take a third of a second or more; tests/unit covers reports
    variables.write_text(json.dumps({**defaults, **extra}))

    program = str(CHECKOUT / ".venv" / "bin" / "ansible-playbook")
    arguments = [path, "-i", str(inventory), "-e", f"@{variables}", *options]
    environment = {"ANSIBLE_CONFIG": str(slower_polling(play.directory)), **(env or {})}

    def run() -> None:
        if roll:
            overrides = {
                "ANSIBLE_STDOUT_CALLBACK": "muster.training.roll"
            }  # Molecule's configuration sets a different one
            play.rc = piped([program, *arguments], {**environment, **overrides}, play.printed)
        else:
            _out, _err, play.rc = ansible_runner.interface.run_command(
                executable_cmd=program,
                cmdline_args=arguments,
                private_data_dir=str(play.directory),
                ident="play",
                host_cwd=str(CHECKOUT),
                envvars={"ANSIBLE_NOCOLOR": "1", **environment},
                quiet=True,
                cancel_callback=play.stop.is_set,
            )
        play.ended = time.monotonic()

    play.thread = threading.Thread(target=run, daemon=True)
    play.thread.start()
    return play


FORCED = ("ANSIBLE_FORCE_COLOR", "PY_COLORS")
"""Variables that Molecule sets, but that are not set for a user who pipes the output."""


def piped(command: list[str], env: dict[str, str], printed: Path) -> int:
    """Run a command in the checkout and write its output to a file as it arrives; return its exit status."""
    printed.parent.mkdir(parents=True)
    with (
        printed.open("wb") as file,
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={name: value for name, value in os.environ.items() if name not in FORCED} | env,
            cwd=CHECKOUT,
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            file.write(line)
            file.flush()
    return process.returncode


def plain_lines(play: Play) -> list[str]:
    """Return the lines that a play has printed into a pipe, which must not contain terminal control codes."""
    text = play.printed.read_text(encoding="utf-8")
    steering = re.findall(r"[^\n\t\x20-\x7e\u00a0-\U0010ffff]", text)
    assert not steering, f"{steering}\n{text}"
    return text.splitlines()


def run(playbook: str, inventory: Path | str, *, timeout: float = 400, **more: Any) -> Play:
    """Run a playbook to its end."""
    play = start(playbook, inventory, **more).wait(timeout)
    shutil.rmtree(play.directory / "env", ignore_errors=True)
    return play


def launch(lab: Lab, job: str, *args: str, **extra: Any) -> Play:
    """Start launch.yml with one of the scripts in tests/jobs."""
    return start("launch.yml", lab.inventory, launch_script=str(JOBS / job), launch_args=list(args), **extra)


def record(lab: Lab, run_id: str) -> dict[str, Any]:
    """Return the verdict in the record next to the inventory."""
    return record_of(lab.inventory, run_id)


def record_of(inventory: Path, run_id: str) -> dict[str, Any]:
    """Return the verdict in the record next to an inventory."""
    result: dict[str, Any] = json.loads((inventory.parent / "runs" / run_id / "result.json").read_text())
    return result


OWN = re.compile(
    r"^(sshd(-session)?: |\[sshd\] <defunct>|(/usr)?/lib/systemd/systemd --user|\(sd-pam\)|"
    r"/usr/lib/openssh/sftp-server|-bash|"
    r"(ba|da|fi|tc|z)sh -c|/bin/sh -c|"
    r"podman$)"  # it keeps a user's namespaces from its first command until the next reboot
)


TEMPORARY = re.compile(r"muster-|torchelastic_")
# All processes with a run's environment, including shells. grep exits with 2 if a process exits in the meantime.
MARKED = "grep -lsz ^MUSTER_RUN_DIRECTORY= /proc/[0-9]*/environ || test $? -le 2"


def of_run(lab: Lab, node: str) -> list[Process]:
    """Return the processes of a node's user, except for those that belong to a login."""
    return [item for item in lab.processes(node) if item.user == "muster" and not OWN.search(item.command)]


def traces(lab: Lab, node: str) -> str:
    """Return what remains of a run on a node: processes, listening ports, units, temporary directories; "" if nothing.

    While processes remain, nothing else is checked: it disappears with them, and checking takes half a core.
    """
    leftovers = [f"process {item.pid} {item.command}" for item in of_run(lab, node)]
    if leftovers:
        return "\n".join(leftovers)
    marked = re.findall(r"\d+", output_of(lab, node, "sh", "-c", MARKED))
    leftovers += [f"process {pid}, started by a run" for pid in marked]
    listening = output_of(lab, node, "ss", "-Hltn")
    leftovers += [f"port {port} listens" for port in PORTS if re.search(rf":{port}\s", listening)]
    units = output_of(lab, node, "systemctl", "list-units", "--no-legend", "--plain", "--all", "muster-*")
    leftovers += [f"unit {line}" for line in units.splitlines()]
    leftovers += [f"/tmp/{name}" for name in output_of(lab, node, "ls", "/tmp").split() if TEMPORARY.match(name)]
    return "\n".join(leftovers)


def output_of(lab: Lab, node: str, *argv: str) -> str:
    """Return the output of a command on a node. Fail if the command fails, since empty output would be misleading."""
    completed = lab.exec(node, argv)
    assert completed.returncode == 0, f"{node}: {' '.join(argv)}: {completed.stdout}{completed.stderr}"
    return completed.stdout


def root_shell(lab: Lab, node: str, command: str) -> str:
    """Return the stripped output of a shell command that root runs on a node. It must succeed."""
    completed = lab.exec(node, ["bash", "-c", command], timeout=600)
    assert completed.returncode == 0, f"{node}: {command}: {completed.stdout}{completed.stderr}"
    return completed.stdout.strip()


def user_shell(lab: Lab, node: str, command: str) -> str:
    """Return the stripped output of a shell command that the user runs over a new SSH connection. It must succeed."""
    completed = subprocess.run(lab.ssh(node, command), capture_output=True, text=True, timeout=600, check=False)
    assert completed.returncode == 0, f"{node}: {command}: {completed.stdout}{completed.stderr}"
    return completed.stdout.strip()


def nothing_left(lab: Lab, nodes: list[str], within: float) -> None:
    """Wait until nothing of a run remains on any node; after `within` seconds, fail and report what remains."""
    leftovers = dict.fromkeys(nodes, "?")

    def clean() -> bool:
        for node in nodes:
            if leftovers[node]:
                leftovers[node] = traces(lab, node)
        return not any(leftovers.values())

    # checking four nodes takes an eighth of a core-second
    eventually(f"no trace of the run on {', '.join(nodes)}", clean, within, lambda: str(leftovers), pause=0.5)


@contextlib.contextmanager
def own_lab(name: str, nodes: int, slots: Sequence[int] = (), shells: Sequence[str] = ()) -> Iterator[Lab]:
    """Provide a scenario's own test hosts, without local files of an earlier scenario; remove them after the scenario.

    shells: login shells of the first nodes' user; bash on all others. MUSTER_NAME_LAB (the name in upper case) names a
    running lab to use and keep.
    """
    lab_name = os.environ.get(f"MUSTER_{name.upper()}_LAB")
    lab = Lab.load(lab_name) if lab_name else Lab.up(nodes=nodes, name=name, slots=slots)
    for folder in ("runs", "ssh_mesh"):
        shutil.rmtree(lab.inventory.parent / folder, ignore_errors=True)  # usually there are none
    for node, shell in zip(lab.nodes, shells, strict=False):
        output_of(lab, node.name, "usermod", "--shell", shell, "muster")
    try:
        yield lab
    finally:
        if not lab_name:
            down(lab.name)


@contextlib.contextmanager
def clean_nodes(lab: Lab, count: int) -> Iterator[list[str]]:
    """Yield the names of the first nodes; afterwards, ensure that they are on, reachable and free of runs."""
    names = [node.name for node in lab.nodes[:count]]
    try:
        yield names
    finally:
        for name in names:
            if not lab.is_on(name):
                lab.power_on(name)
            lab.restore(name)
            lab.exec(name, ["systemctl", "stop", "muster-*"])
        nothing_left(lab, names, within=90)


def rank_pid(lab: Lab, node: str, script: str = "loop.py") -> int:
    """Return the PID of a rank's process on a node."""
    for item in of_run(lab, node):
        if (
            script in item.command
            and "torch.distributed.run" not in item.command
            and "supervisor.py" not in item.command
        ):
            return item.pid
    raise AssertionError(f"no rank on {node}: {of_run(lab, node)}")


def pid_of(lab: Lab, node: str, word: str) -> int:
    """Return the PID of a run's process whose command contains a given word."""
    for item in of_run(lab, node):
        if word in item.command:
            return item.pid
    raise AssertionError(f"no {word} on {node}: {of_run(lab, node)}")


def end(pid: int) -> None:
    """End a process that a test has started."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 15)


def terminal(command: list[str], env: dict[str, str]) -> tuple[subprocess.Popen[bytes], int]:
    """Start a command in a new terminal; closing the returned file descriptor closes the terminal."""
    master, slave = pty.openpty()

    def as_a_shell_does() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the signal may be ignored, as under nohup
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    process = subprocess.Popen(
        command,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**os.environ, **env},
        cwd=CHECKOUT,
        start_new_session=True,
        preexec_fn=as_a_shell_does,
    )
    os.close(slave)
    return process, master
