# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure the cost of stacks: at a rank's start, when they are read, and on the lifeline. Exits with 1 if a limit is
exceeded.

    python -m tests.bench.bench_stacks [--rounds 40]

Each round starts an interpreter with and without the hook, in turn; the cost is the difference of the medians of their
CPU times. The ranks whose stacks are read are blocked, each 50 calls deep; how long that takes is by the clock.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
RANKS = 8
START_LIMIT = 5.0  # ms
CODE = "print('ready', flush=True)\ndef step(n):\n    step(n - 1) if n else input()\nstep(50)"


def start_seconds(environment: dict[str, str]) -> float:
    """Return the CPU time of an interpreter that does nothing; unlike wall-clock time, it is not affected by other
    processes.
    """
    with subprocess.Popen([sys.executable, "-c", ""], env=environment) as process:
        _pid, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_utime + usage.ru_stime


def measure_start(directory: Path, rounds: int) -> float:
    """Return the cost of the hook at a rank's start, in milliseconds."""
    plain = {"PATH": "/usr/bin:/bin", "LOCAL_RANK": "0"}
    hooked = {**plain, "PYTHONPATH": str(directory / "hooks")}
    start_seconds(hooked)  # compiles the hook, which the ranks on a node do once
    without, with_hook = zip(*((start_seconds(plain), start_seconds(hooked)) for _round in range(rounds)), strict=True)
    return 1000 * (statistics.median(with_hook) - statistics.median(without))


def measure_reading(directory: Path, rounds: int) -> float:
    """Return how long it takes to read the stacks of RANKS blocked ranks, in milliseconds."""
    from ansible_collections.muster.training.plugins.module_utils._supervisor.stack_signals import (
        StackFiles,
        request_stacks,
    )

    processes = []
    for rank in range(RANKS):
        environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(directory / "hooks"), "LOCAL_RANK": str(rank)}
        processes.append(
            subprocess.Popen(
                [sys.executable, "-c", CODE], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        )
    try:
        paths = {}
        for rank, process in enumerate(processes):
            assert process.stdout is not None
            process.stdout.readline()
            paths[process.pid] = str(directory / "stacks" / f"rank-{rank}-{process.pid}.txt")
        times = []
        for _round in range(rounds):
            began = time.perf_counter()
            assert not request_stacks(StackFiles(paths), 60.0)
            times.append(time.perf_counter() - began)
        return 1000 * statistics.median(times)
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def message_bytes(ranks: int) -> int:
    """Return the size of the message from a node whose ranks are all waiting in the same line, 12 frames deep."""
    from ansible_collections.muster.training.plugins.module_utils._run.hang_analysis import merge_groups
    from ansible_collections.muster.training.plugins.module_utils._run.stack_dump import Frame, classify
    from ansible_collections.muster.training.plugins.module_utils._supervisor.reports import shorten_groups
    from ansible_collections.muster.training.plugins.module_utils._supervisor.stack_collector import empty_group

    library = "/opt/env/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
    frames = [Frame(library, 3000, "all_reduce"), *[Frame("/home/me/project/train.py", 88, "train")] * 50]
    groups: list[dict[str, Any]] = [
        {**empty_group("S", "still"), **classify(frames, "dist.all_reduce(gradients)"), "ranks": [rank]}
        for rank in range(ranks)
    ]
    return len(json.dumps(shorten_groups(merge_groups(groups))))


def main(arguments: list[str]) -> int:
    """Print the results; the exit code tells whether those with a limit are within it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=40)
    rounds = parser.parse_args(arguments).rounds
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as scratch:
        namespace = Path(scratch, "tree", "ansible_collections", "muster")
        namespace.mkdir(parents=True)
        (namespace / "training").symlink_to(CHECKOUT)
        sys.path[:0] = [str(namespace.parents[1]), str(CHECKOUT)]
        from ansible_collections.muster.training.plugins.module_utils._supervisor.stack_collector import write_hook

        write_hook(scratch)
        start = measure_start(Path(scratch), rounds)
        reading = measure_reading(Path(scratch), rounds)
    print(f"{'the hook at the start of a rank':<50}{start:>10.2f} ms, limit {START_LIMIT:.0f} ms")
    print(f"{f'reading the stacks of {RANKS} blocked ranks':<50}{reading:>10.2f} ms")
    for ranks in (1, 8, 64):
        print(f"{f'message of a node whose {ranks} ranks do the same':<50}{message_bytes(ranks):>10} bytes")
    return 1 if start > START_LIMIT else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
