"""Real runs on this machine: supervisors started as on any node, each on its own loopback address."""

from __future__ import annotations

import compileall
import contextlib
import functools
import itertools
import json
import os
import random
import re
import secrets
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._files import bounded
from ansible_collections.muster.training.plugins.module_utils._run import running_supervisors as run_alive
from ansible_collections.muster.training.plugins.module_utils._run import start as run_start
from ansible_collections.muster.training.plugins.module_utils._run import stop as run_stop
from ansible_collections.muster.training.plugins.module_utils._run.processes import signal_all
from ansible_collections.muster.training.plugins.module_utils._supervisor.lifeline import handshake_mac, line_mac
from ansible_collections.muster.training.plugins.module_utils._supervisor.programs import muster_rank
from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import HostSpec, build_rank_table
from ansible_collections.muster.training.plugins.plugin_utils._node_call.call import module_source
from ansible_collections.muster.training.plugins.plugin_utils._node_call.run_programs import PROGRAMS, supervisor_files
from ansible_collections.muster.training.plugins.plugin_utils._plan.job import Job
from ansible_collections.muster.training.plugins.plugin_utils._plan.plan import build_node_plan, get_launcher

# Seconds. A tenth of a real cluster's timeouts, and longer if only a busy machine would exceed them.
TIMEOUTS = {"start": 60.0, "heartbeat": 0.2, "sample": 0.2, "silence": 15.0, "grace": 0.5}


def eventually(condition: Callable[[], Any], seconds: float = 120.0) -> Any:
    """Wait until the condition returns a true value, and return that value; fail if it takes too long."""
    deadline = time.monotonic() + seconds
    while True:
        got = condition()
        if got:
            return got
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {condition.__doc__ or condition}"
        time.sleep(0.02)


def make_job(**options: Any) -> Job:
    """Return a job with one process per node, with the given changes."""
    usual = {
        "run_id": f"unit-{secrets.token_hex(4)}",
        "launcher": "env",
        "rdzv_backend": "static",
        "script": "job.py",
        "module": "",
        "args": (),
        "interpreter": "python3",
        "working_directory": "",
        "variables": (),
        "master_port": 29500,
        "lifeline_port": 29499,
        "min_nnodes": None,
        "max_restarts": 0,
        "start_timeout": 120,
        "silence_timeout": 10,
        "stop_grace": 5,
    }
    return Job(**{**usual, **options})


# number of this process among those that run tests concurrently
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])


def own_network(number: int) -> str:
    """Return the first three parts of addresses of this machine that no other test process uses.

    number: 1 to 255, one for each file with runs of nodes, for a node on which another test has a run would be busy.
    """
    return f"127.{WORKER + 1}.{number}"


NETWORK = own_network(0)


def own_ports() -> Iterator[int]:
    """Ports of this process, in an order of its own: of those below 32768, from where the system gives them out.

    Tests that run beside each other have none in common, and one test none twice.
    """
    ports = list(range(20000 + WORKER, 29000, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))))
    random.shuffle(ports)
    return itertools.cycle(ports)


PORTS = own_ports()


def free_port() -> int:
    """Return a TCP port on which nothing is listening, a different one on each call."""
    for port in itertools.islice(PORTS, 100):
        with contextlib.suppress(OSError), socket.create_server(("", port)):
            return port
    raise OSError("no port is free")


@functools.cache
def compiled_folder() -> tempfile.TemporaryDirectory[str]:
    """Write the supervisor's modules and their bytecode into a folder that every user can read.

    A supervisor compiles its modules at each start, which takes as long as importing them.
    """
    folder = tempfile.TemporaryDirectory(prefix="muster-supervisor-")
    os.chmod(folder.name, 0o755)
    for path, source in supervisor_files().items():
        file = Path(folder.name, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source, encoding="utf-8")
    assert compileall.compile_dir(folder.name, quiet=1)
    return folder


def compiled(sources: dict[str, str]) -> dict[str, str]:
    """Return a script that runs compiled modules, or the sources themselves if a test has changed them."""
    original = supervisor_files()
    if sources != original:
        return sources
    script, *_modules = original
    own_folder, shared = '\nFOLDER = "program"\n', f"\nFOLDER = {compiled_folder().name + '/program'!r}\n"
    assert own_folder in original[script]
    return {script: original[script].replace(own_folder, shared)}


@dataclass
class Run:
    """A run of several nodes on this machine."""

    directory: Path
    plans: list[dict[str, Any]]
    token: str = field(default_factory=lambda: secrets.token_hex(32))
    sources: dict[str, str] = field(default_factory=supervisor_files)

    @property
    def run_id(self) -> str:
        run_id: str = self.plans[0]["run_id"]
        return run_id

    @property
    def lifeline(self) -> tuple[str, int]:
        """The address on which rank 0 listens."""
        lifeline = self.plans[0]["lifeline"]
        return lifeline["address"], lifeline["port"]

    def node(self, rank: int) -> Path:
        """Return a node's run directory."""
        return self.directory / self.run_id / f"node{rank}"

    def request(self, rank: int, **more: Any) -> dict[str, Any]:
        """Send a request to the node, as the controller does."""
        name = self.plans[rank]["node"]["name"]
        return {
            "run_id": self.run_id,
            "runs_directory": str(self.directory),
            "node": name,
            "user": "",
            "check": False,
            "replace": False,
            **more,
        }

    def start(
        self, *ranks: int, environment: dict[str, str] | None = None, replace: bool = False
    ) -> list[dict[str, Any]]:
        """Start the supervisors of these nodes, by default all; return each node's reply."""
        arguments = {"token": self.token, "environment": environment or {}, "replace": replace}
        supervisor = compiled(self.sources)
        return [
            run_start.start(
                self.request(
                    rank,
                    plan=self.plans[rank],
                    supervisor=supervisor,
                    programs={name: module_source(PROGRAMS[name]) for name in self.plans[rank].get("programs", [])},
                    **arguments,
                )
            )
            for rank in ranks or range(len(self.plans))
        ]

    def set_constant(self, name: str, seconds: float) -> None:
        """Set one of the constants to another value in supervisors that are started from now on."""
        result = 0
        for path, source in self.sources.items():
            self.sources[path], here = re.subn(rf"^{name} = [0-9.]+", f"{name} = {seconds}", source, flags=re.MULTILINE)
            result += here
        assert result == 1, name

    def stop(self, rank: int = 0) -> dict[str, Any]:
        reply: dict[str, Any] = run_stop.stop(self.request(rank))
        return reply

    def read(self, rank: int, name: str) -> Any:
        """Read a JSON file in a node's run directory; return None if it does not exist."""
        return bounded.read_json(str(self.node(rank) / name))

    def supervisor(self, rank: int) -> int:
        """Return the PID of a node's supervisor once it is running."""
        pid: int = eventually(lambda: self.read(rank, "supervisor.json"))["pid"]
        return pid

    def state(self, rank: int) -> str:
        return str((self.read(rank, "status.json") or {"state": "none"})["state"])

    def wait_for(self, state: str, *ranks: int, seconds: float = 120.0) -> None:
        for rank in ranks or range(len(self.plans)):
            self._wait_for_node(rank, state, seconds)

    def _wait_for_node(self, rank: int, state: str, seconds: float) -> None:
        try:
            eventually(lambda: self.state(rank) == state, seconds)
        except AssertionError:
            raise AssertionError(f"not within {seconds:g} s: node {rank} {state}, is {self.state(rank)}") from None

    def result(self) -> dict[str, Any]:
        """Return the result of the run according to rank 0."""
        result: dict[str, Any] = eventually(lambda: self.read(0, "result.json"))
        return result

    def events(self) -> list[str]:
        """Return the events that rank 0 has written so far, except for an incomplete last line."""
        lines = (self.node(0) / "events.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
        return [json.loads(line)["text"] for line in lines if line.endswith("\n")]

    def processes(self) -> dict[int, str]:
        """Return the supervisors, guards and job processes of this run, with their command lines."""
        result = {item["pid"] for item in run_alive.find_supervisors() if item["run_id"] == self.run_id}
        for rank in range(len(self.plans)):
            result.update(run_alive.marked_processes(str(self.node(rank))))
        return {pid: command_line(pid) for pid in result}

    def wait_until_gone(self, seconds: float = 60.0) -> None:
        """Wait until no process of the run remains."""
        eventually(lambda: not self.processes(), seconds)


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""


def make_run(
    directory: Path,
    commands: list[list[str]],
    timeouts: dict[str, float] | None = None,
    first_address: int = 1,
    **options: Any,
) -> Run:
    """Make a run with one node per command, planned like every run; only commands, addresses and timeouts differ."""
    addresses = [f"{NETWORK}.{n + first_address}" for n in range(len(commands))]
    return run_at(addresses, directory, commands, timeouts, **options)


def run_at(
    addresses: list[str],
    directory: Path,
    commands: list[list[str]],
    timeouts: dict[str, float] | None = None,
    **options: Any,
) -> Run:
    """Return a run as make_run(), on nodes with these addresses."""
    job = make_job(**options)
    hosts = [HostSpec(f"node{n}", address, 1) for n, address in enumerate(addresses)]
    table = get_launcher(job).order(build_rank_table(hosts))
    facts = {
        "interpreter": sys.executable,
        "interface": "lo",
        "runs_directory": str(directory),
        "working_directory": {"path": str(directory)},
    }
    plans: list[Any] = [build_node_plan(job, table, node, facts) for node in table.nodes]
    for plan, command in zip(plans, commands, strict=True):
        plan["command"] = command
        plan["timeouts"] = {**TIMEOUTS, **(timeouts or {})}
    return Run(directory, plans)


def end_by_force(run: Run) -> None:
    """Remove everything of a run, regardless of its state."""
    deadline = time.monotonic() + 120.0
    while True:
        remaining = run.processes()
        if not remaining:
            break
        assert time.monotonic() < deadline, remaining
        signal_all(remaining, signal.SIGKILL)
        time.sleep(0.02)
    for plan in run.plans:
        with contextlib.suppress(FileNotFoundError):  # a supervisor's rm may outlive the supervisor by a moment
            os.rmdir(plan["temporary_directory"])


@contextlib.contextmanager
def started_runs() -> Iterator[Callable[[Run], Run]]:
    """Yield a function that starts a run and returns it, and end all these runs by force afterwards."""
    runs: list[Run] = []

    def start(run: Run) -> Run:
        runs.append(run)
        run.start()
        return run

    yield start
    for run in runs:
        end_by_force(run)


@dataclass
class Voice:
    """The lines that one side of a lifeline sends and receives; until it has a key, they have no MAC."""

    side: str
    key: str = ""
    lines: int = 0
    received_lines: int = 0

    def sign(self, message: Any) -> bytes:
        """Return the next line from this side."""
        line = json.dumps(message).encode()
        if self.key:
            line = line_mac(self.key.encode(), self.side, self.lines, line) + b" " + line
            self.lines += 1
        return line + b"\n"

    def verify(self, line: bytes) -> dict[str, Any]:
        """Return the next line from the other side."""
        output = line.rstrip(b"\n")
        if self.key:
            mac, _blank, output = output.partition(b" ")
            peer = "server" if self.side == "peer" else "peer"
            assert mac == line_mac(self.key.encode(), peer, self.received_lines, output)
            self.received_lines += 1
        message: dict[str, Any] = json.loads(output)
        return message


class Stranger:
    """An unauthenticated client of rank 0's lifeline."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=120.0)
        self.lines = self._read()
        self.voice = Voice("peer")

    def _read(self) -> Iterator[dict[str, Any]]:
        with self.socket.makefile("rb") as stream:
            for line in stream:
                yield self.voice.verify(line)

    def say(self, message: Any) -> None:
        self.socket.sendall(self.voice.sign(message))

    def send(self, data: bytes) -> None:
        """Send data that the other side may refuse."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.socket.sendall(data)

    def is_refused(self) -> bool:
        """Wait until the other side has closed the connection; return False if it sends anything other than its
        nonce.
        """
        try:
            return all(set(line) == {"nonce"} for line in self.lines)
        except ConnectionResetError:
            return True

    def check_in(self, run: Run, rank: int) -> None:
        """Connect with the token, as a node's supervisor does."""
        nonce = next(self.lines)["nonce"]
        mac = handshake_mac(run.token, "peer", run.run_id, rank, nonce, "mine")
        self.say({"node_rank": rank, "nonce": "mine", "mac": mac})
        reply = next(self.lines)
        assert reply["mac"] == handshake_mac(run.token, "server", run.run_id, rank, nonce, "mine")
        self.voice.key = handshake_mac(run.token, "key", run.run_id, rank, nonce, "mine")

    def close(self) -> None:
        self.socket.close()


def end_rank(directory: Path, local_rank: int, code: int, ended: float, stderr: str = "") -> None:
    """Write the files that bin/muster-rank writes when it ends."""
    (directory / "ranks" / str(local_rank)).mkdir(parents=True)
    (directory / "ranks" / str(local_rank) / "stderr.log").write_text(stderr)
    muster_rank.write_exit(str(directory / "ranks" / str(local_rank) / "exit.json"), 4 + local_rank, code)
    path = directory / "ranks" / str(local_rank) / "exit.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "moment": ended}))
