# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure how soon the last rank prints its first line in a run's next attempt. Exits with 1 if the limit is exceeded.

    python -m tests.bench.bench_restart [NODES ...]

First from the moment at which an attempt has ended on all nodes, compared with starting the same commands at the same
time by hand: each rank imports torch and prints the time. Then from a failure on, with its phases, for ranks that only
print the time. All nodes are on this machine, with the heartbeat and the timeouts of a real run.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

CHECKOUT = Path(__file__).resolve().parents[2]
ROUNDS = 3
LIMIT = 1.5  # factor by which this takes longer than the commands alone
PROGRAM = "import time, torch; print('at', time.time(), flush=True); time.sleep(600)"
JOB = "import os, signal, sys; exec(sys.argv[1]) if os.environ['MUSTER_ATTEMPT'] == '1' else None; " + (
    "os.kill(os.getpid(), signal.SIGKILL) if sys.argv[2] == '1' else signal.pause()"
)
TICK = "import time; print('at', time.time(), flush=True); time.sleep(600)"
TIMEOUTS = {"start": 120.0, "heartbeat": 2.0, "silence": 10.0, "grace": 5.0}


def by_hand(nodes: int) -> float:
    """Return how long the commands take to print their line when they are started at the same time."""
    began = time.time()
    command = [sys.executable, "-c", PROGRAM]
    ranks = [  # each in a session of its own, as a launcher does: the kernel divides the cores among sessions
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) for _rank in range(nodes)
    ]
    try:
        return max(float(rank.stdout.readline().split()[1]) for rank in ranks if rank.stdout) - began
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()


def restart(directory: Path, nodes: int) -> float:
    """Return how long after the end of an attempt the last rank of the next one prints its line."""
    from tests.unit.supervised import end_by_force, eventually, free_port, make_run

    commands = [[sys.executable, "-c", JOB, PROGRAM, str(number)] for number in range(nodes)]
    ports: dict[str, Any] = {"lifeline_port": free_port(), "master_port": free_port()}
    policy: dict[str, Any] = {"restarts": 1, "restart_when": ("rank_failed",)}
    run = make_run(directory, commands, {"heartbeat": 2.0}, first_address=230, **policy, **ports)
    try:
        run.start()

        def lines() -> list[float]:
            logs = [run.node(rank) / "attempt-1" / "launcher.log" for rank in range(nodes)]
            texts = [log.read_text() for log in logs if log.exists()]
            return [float(text.split()[1]) for text in texts if text.endswith("\n")]

        eventually(lambda: len(lines()) == nodes)
        run.stop()
        ended: float = run.result()["attempts"][0]["ended"]
        return max(lines()) - ended
    finally:
        end_by_force(run)


class Loss(NamedTuple):
    """The seconds in each phase between a failure and the last rank's first line in the next attempt."""

    noticed: float
    ended: float
    restarted: float

    @property
    def total(self) -> float:
        """Return the seconds of all phases."""
        return sum(self)


def lose(directory: Path, nodes: int, failure: str) -> Loss:
    """Return the phases after a fault on the second node: its rank or supervisor is killed, or the node falls
    silent.
    """
    from tests.unit.restarting import processes_of, signal_nodes
    from tests.unit.supervised import end_by_force, eventually, free_port, make_run

    commands = [[sys.executable, "-c", TICK]] * nodes
    ports: dict[str, Any] = {"lifeline_port": free_port(), "master_port": free_port()}
    policy: dict[str, Any] = {"restarts": 1, "restart_when": ("rank_failed", "node_lost")}
    fewer = {} if failure == "rank killed" else {"restart_min_nodes": nodes - 1}
    run = make_run(directory, commands, TIMEOUTS, first_address=230, **policy, **fewer, **ports)

    def lines(attempt: str) -> list[float]:
        logs = [run.node(rank) / attempt / "launcher.log" for rank in range(nodes)]
        texts = [log.read_text() for log in logs if log.exists()]
        return [float(text.split()[1]) for text in texts if text.endswith("\n")]

    try:
        run.start()
        eventually(lambda: len(lines("")) == nodes)
        began = time.time()
        if failure == "node silent":
            signal_nodes(run, signal.SIGSTOP, 1)
        elif failure == "supervisor killed":
            os.kill(run.supervisor(1), signal.SIGKILL)
        else:
            ranks = [pid for pid in processes_of(run, 1) if TICK in run.processes()[pid]]
            os.kill(ranks[0], signal.SIGKILL)
        remaining = nodes if failure == "rank killed" else nodes - 1
        eventually(lambda: len(lines("attempt-1")) >= remaining)
        run.stop()
        noticed, ended = (float(run.result()["attempts"][0][name]) for name in ("noticed", "ended"))
        return Loss(noticed - began, ended - noticed, max(lines("attempt-1")) - ended)
    finally:
        end_by_force(run)


def print_losses(directory: Path, sizes: list[int]) -> None:
    """Print the phases after each fault, using the round with the median total."""
    print(f"\n{'fault':<20}{'nodes':>5}{'noticed, s':>12}{'ended, s':>10}{'first line, s':>15}{'sum, s':>8}")
    for failure in ("rank killed", "supervisor killed", "node silent"):
        for nodes in sizes:
            losses = [lose(directory / f"{failure}-{nodes}-{number}", nodes, failure) for number in range(ROUNDS)]
            median = sorted(losses, key=lambda loss: loss.total)[ROUNDS // 2]
            phases = f"{median.noticed:>12.2f}{median.ended:>10.2f}{median.restarted:>15.2f}{median.total:>8.2f}"
            print(f"{failure:<20}{nodes:>5}{phases}", flush=True)


def main(arguments: list[str]) -> int:
    """Print the medians; the exit code tells whether the largest ratio is within the limit."""
    sizes = sorted(int(argument) for argument in arguments) or [2, 4, 8]
    worst = 0.0
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as scratch:
        namespace = Path(scratch, "tree", "ansible_collections", "muster")
        namespace.mkdir(parents=True)
        (namespace / "training").symlink_to(CHECKOUT)
        sys.path[:0] = [str(namespace.parents[1]), str(CHECKOUT)]
        print(f"{'nodes':>5}{'by hand, s':>12}{'restart, s':>12}{'ratio':>8}{'limit':>8}")
        for nodes in sizes:
            pairs = [
                (by_hand(nodes), restart(Path(scratch, f"{nodes}-{number}"), nodes)) for number in range(ROUNDS)
            ]  # alternating, because this machine may be busy at one time and idle at another
            alone, again = (statistics.median(pair[index] for pair in pairs) for index in (0, 1))
            worst = max(worst, again / alone)
            print(f"{nodes:>5}{alone:>12.2f}{again:>12.2f}{again / alone:>8.2f}{LIMIT:>8.2f}", flush=True)
        print_losses(Path(scratch), sizes)
    return 0 if worst <= LIMIT else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
