# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure how long a job takes from the Slurm queue to its first line, compared with srun and sbatch without muster.

By hand: python -m tests.bench.bench_slurm --nodes 2 --rounds 5
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
from collections.abc import Sequence
from contextlib import contextmanager, redirect_stdout
from operator import truediv
from typing import TYPE_CHECKING

from tests.bench.bench_launch import (
    BIN,
    HOME,
    PYTHON,
    SCRIPT,
    Bench,
    BenchError,
    Figures,
    Method,
    Seconds,
    compared,
    fresh,
    measure,
    middle,
    workplace,
)
from tests.lab import Lab, LabError
from tests.lab.hosts import down
from tests.support import drive

if TYPE_CHECKING:
    from collections.abc import Iterator

LAB = "bench-slurm"
SCRIPTS = "/var/lib/slurm/slurmctld/hash.*/job.*/script"
"""Batch scripts of jobs, which slurmctld writes when it accepts them and removes five minutes after their end."""
QUEUED = ("b", "c")
GOAL = 1.0
"""Limit in seconds for how much later a run prints its first line, counted from the queue, than srun, counted from its
command.
"""
EXPLANATION = """\
Seconds from the start of the command until the last rank ran its first line, and until the command had ended; medians
(fastest-slowest) of {rounds} rounds. All nodes are idle. Ratios are relative to a. sbatch waits for its job (--wait).
From the queue: from the time at which slurmctld accepted the job until the last rank ran its first line.
"""


def step(bench: Bench, mark: str) -> list[str]:
    """Return the arguments that make srun start one rank per node."""
    return [f"--nodes={bench.count}", "--ntasks-per-node=1", "--exclusive", "--chdir=/", PYTHON, SCRIPT, mark]


def srun(bench: Bench, mark: str) -> list[list[str]]:
    """Run one job, whose first line is printed as soon as the nodes are allocated."""
    return [bench.ssh(bench.nodes[0], "srun", *step(bench, mark))]


def sbatch(bench: Bench, mark: str) -> list[list[str]]:
    """Run a batch script with one step."""
    wrapped = shlex.join(["srun", "--ntasks-per-node=1", "--chdir=/", PYTHON, SCRIPT, mark])
    options = [f"--nodes={bench.count}", "--exclusive", "--chdir=/", "--output=/dev/null", "--wait"]
    return [bench.ssh(bench.nodes[0], "sbatch", *options, f"--wrap={wrapped}")]


def queued(bench: Bench, mark: str) -> list[list[str]]:
    """Run launch.yml through the queue, with its checks, supervisors and record."""
    variables = {
        "nnodes": bench.count,
        "launch_scheduler": "slurm",
        "launch_launcher": "env",
        "launch_script": SCRIPT,
        "launch_args": [mark],
        "launch_runs_directory": str(bench.directory / "runs"),
        "ansible_control_path": f"{fresh(bench.directory)}/%%h",
    }
    playbook = [str(BIN / "ansible-playbook"), "playbooks/launch.yml", "-i", str(bench.lab.inventory)]
    return [[*playbook, "-e", json.dumps(variables)]]


METHODS = (
    Method("a", "srun, bare script", "a", srun),
    Method("b", "sbatch, bare script", "a", sbatch),
    Method("c", "launch.yml --scheduler slurm", "a", queued),
)


@contextmanager
def cluster(count: int, keep: bool) -> Iterator[Lab]:
    """Provide a Slurm cluster for the duration of the measurement."""
    try:
        lab = Lab.up(count, LAB)
        options = ("--tags", "slurm")
        play = drive.run("site.yml", lab.inventory, options=options, timeout=540, slurm_enabled=True)
        if play.rc:
            raise BenchError(f"Slurm could not be set up:\n{play.output[-2000:]}")
        yield lab
    finally:
        if not keep:
            down(LAB)


def row(method: Method, figures: Figures) -> str:
    """Return the table row for a launch method."""
    result, first_lines = middle(figures[method.key]), [seconds.first_line for seconds in figures[method.key]]
    ratio = compared(figures, method.key, method.floor, truediv, "first_line")
    spread = f"({min(first_lines):.2f}-{max(first_lines):.2f})"
    return (
        f"{method.key:<4}{method.title:<32}{result.first_line:>7.2f} s "
        f"{spread:<15}{ratio:>6.2f} a{result.whole:>8.2f} s"
    )


def from_the_queue(bench: Bench, number: int) -> float:
    """Return the seconds from the submission of the newest job until the last rank of a measurement was running."""
    newest = f"stat --format=%.9Y {SCRIPTS} | sort -n | tail -n 1"
    accepted = bench.lab.exec(bench.nodes[0].name, ["bash", "-c", newest])
    mark = f"{HOME}/{bench.directory.name}-{number}"
    marks = [float(bench.lab.exec(node.name, ["cat", mark]).stdout) for node in bench.nodes]
    return max(marks) - float(accepted.stdout)


def collect(count: int, rounds: int, keep: bool) -> tuple[Figures, dict[str, list[float]]]:
    """Return the results for each launch method, and those from the queue. The first round fills caches and is not
    counted.
    """
    figures: Figures = {method.key: [] for method in METHODS}
    queue: dict[str, list[float]] = {key: [] for key in QUEUED}
    with redirect_stdout(sys.stderr), cluster(count, keep) as lab, workplace() as directory:
        bench = Bench(lab, count, directory)
        for turn in range(rounds + 1):
            for number, method in enumerate(METHODS if turn % 2 else METHODS[::-1]):
                serial = turn * len(METHODS) + number
                seconds: Seconds = measure(bench, method, serial)
                if turn:
                    figures[method.key].append(seconds)
                if turn and method.key in queue:
                    queue[method.key].append(from_the_queue(bench, serial))
    return figures, queue


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; return 1 if the goal is not met, 2 if something could not be measured."""
    parser = argparse.ArgumentParser(description="Time from the Slurm queue to a job's first line.")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--keep", action="store_true", help="keep the test hosts")
    options = parser.parse_args(arguments)
    try:
        figures, queue = collect(options.nodes, options.rounds, options.keep)
    except (BenchError, LabError) as error:
        print(error, file=sys.stderr)
        return 2
    print(EXPLANATION.format(rounds=options.rounds))
    print(f"{f'{options.nodes} nodes, one rank each':<36}{'last rank runs':>30}{'whole command':>18}")
    print("\n".join(row(method, figures) for method in METHODS))
    overhead = statistics.median(
        first.first_line - second.first_line for first, second in zip(figures["c"], figures["b"], strict=True)
    )
    print(f"\nc - b: {overhead:.2f} s for the checks, the supervisors and the record")
    for key, seconds in queue.items():
        print(f"{key}, from the queue: {statistics.median(seconds):.2f} s ({min(seconds):.2f}-{max(seconds):.2f})")
    more = statistics.median(first - second.first_line for first, second in zip(queue["c"], figures["a"], strict=True))
    print(f"{'met' if more <= GOAL else 'NOT MET':<9}c from the queue - a: {more:.2f} s, at most {GOAL:.0f} s")
    return 0 if more <= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
