"""Runs that restart automatically, with timeouts suitable for tests, and functions that damage them."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit import supervised
from tests.unit.supervised import Run, end_by_force, eventually, own_network

Maker = Callable[..., Run]

# Each node writes its member number, its rank and the world size in each attempt, and keeps running.
WAIT = 'echo "member $1 rank $NODE_RANK of $WORLD_SIZE"; exec sleep 600'
# Seconds, by the name of the constant. With the test timeouts, a run gets a new leader after 8 s.
WAITING_TIMES = {"RETURN_TIMEOUT": 1.0, "CANDIDATE_TIMEOUT": 3.0}


def make_restarting(directory: Path, script: str, nodes: int = 3, **options: Any) -> Run:
    """Make a run of nodes that all execute a shell script; $1 is the node's number, $NODE_RANK its rank."""
    commands = [["/bin/sh", "-c", script, "sh", str(number)] for number in range(nodes)]
    timeouts = options.pop("timeouts", None)
    usual = {"restarts": 3, "restart_when": ("node_lost", "hang", "hardware", "interrupted"), "restart_min_nodes": 2}
    ports = {"lifeline_port": supervised.free_port(), "master_port": supervised.free_port()}
    run = supervised.make_run(directory, commands, timeouts, **ports, **{**usual, **options})
    for name, seconds in WAITING_TIMES.items():
        run.set_constant(name, seconds)
    return run


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Maker]:
    """Start runs of nodes that all execute a shell script, and clean up after them."""
    monkeypatch.setattr(supervised, "NETWORK", own_network(31))
    runs: list[Run] = []

    def maker(script: str = WAIT, nodes: int = 3, **options: Any) -> Run:
        prepare = options.pop("prepare", None)
        run = make_restarting(tmp_path, script, nodes, **options)
        runs.append(run)
        if prepare is not None:
            prepare(run)
        run.start()
        return run

    yield maker
    for run in runs:
        end_by_force(run)


def result_of(run: Run, rank: int) -> Any:
    """Return the result that a node has written, once it has."""
    return eventually(lambda: run.read(rank, "result.json"))


def log(run: Run, member: int, attempt: int) -> str:
    """Return the output of a node's job in an attempt."""
    path = run.node(member) / (f"attempt-{attempt}" if attempt else "") / "launcher.log"
    return path.read_text() if path.exists() else ""


def wait_for_ranks(run: Run, attempt: int, members: Iterable[int]) -> None:
    """Wait until these nodes run an attempt with the ranks 0, 1 and so on."""
    order = list(members)
    lines = {member: f"member {member} rank {rank} of {len(order)}" for rank, member in enumerate(order)}
    eventually(lambda: all(line in log(run, member, attempt).splitlines() for member, line in lines.items()))


def processes_of(run: Run, member: int) -> list[int]:
    """Return the pids of a node's supervisor, guard and job."""
    directory, pids = str(run.node(member)).encode(), []
    for pid in run.processes():
        try:
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        if directory + b"\0" in arguments or b"MUSTER_RUN_DIRECTORY=" + directory + b"\0" in arguments:
            pids.append(pid)
    return pids


def signal_nodes(run: Run, number: signal.Signals, *members: int) -> list[int]:
    """Send a signal to all processes of some nodes; return the pids of those that have not ended meanwhile."""
    pids = []
    for pid in (pid for member in members for pid in processes_of(run, member)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            pids.append(pid)
    return pids


def power_off(run: Run, *members: int) -> None:
    """End nodes as in a power failure: nothing of them remains, and no process observes the end of another."""
    stopped: set[int] = set()
    while True:  # a process may start another one while the processes are being stopped
        pids = set(signal_nodes(run, signal.SIGSTOP, *members))
        if pids <= stopped:
            break
        stopped |= pids
    for pid in stopped:
        os.kill(pid, signal.SIGKILL)


def verdicts(run: Run) -> list[int]:
    """Return the nodes that have written a valid result."""
    results = {rank: run.read(rank, "result.json") for rank in range(len(run.plans))}
    return [rank for rank, result in results.items() if result and not result["cut_off"]]


def check_end(run: Run, *leaders: int) -> None:
    """Check that nothing of an ended run remains on any node, and that only these nodes have written a verdict."""
    run.wait_until_gone()
    assert verdicts(run) == list(leaders)
