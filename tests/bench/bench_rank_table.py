"""Measure the rank table and each of its renderings: time and memory by number of nodes. Exits with 1 if a limit is
exceeded.

    python tests/bench/bench_rank_table.py [NODES ...]

The limits are for the largest number (by default 10,000): 1 s for each line of the table, 200 MB for the process.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
SECONDS = 1.0
MEGABYTES = 200.0


def measure(nodes: int) -> list[tuple[str, float]]:
    """Return the seconds for each operation on the given number of nodes and, last, the peak memory of this process in
    MB.
    """
    from ansible_collections.muster.training.plugins.plugin_utils._cluster.hostfile_formats import (
        render_deepspeed,
        render_mpich,
        render_openmpi,
    )
    from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import build_rank_table

    hosts = [
        {
            "name": f"node{number}.cluster.example.com",
            "address": f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}",
            "slots": 1 + number % 8,
        }
        for number in range(1, nodes + 1)
    ]
    figures: list[tuple[str, float]] = []

    def timed(what: str, work: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        result = work()
        figures.append((what, time.perf_counter() - start))
        return result

    table = timed("table, in the order of the inventory", lambda: build_rank_table(hosts))
    timed("table, by name", lambda: build_rank_table(hosts, order="name"))
    timed("table, from its own data", lambda: build_rank_table(table.as_dicts()))
    timed("place of each rank", lambda: [table.locate(rank) for rank in range(table.world_size)])
    timed("hostfile of DeepSpeed", lambda: render_deepspeed(table))
    timed("hostfile of Open MPI", lambda: render_openmpi(table))
    timed("hostfile of MPICH", lambda: render_mpich(table))
    figures.append(("peak memory", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))
    return figures


def measure_apart(nodes: int) -> list[tuple[str, float]]:
    """Run measure() in a separate process, so that its peak memory is measured separately."""
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as tree:
        namespace = Path(tree, "ansible_collections", "muster")
        namespace.mkdir(parents=True)
        (namespace / "training").symlink_to(CHECKOUT)
        command = [sys.executable, str(Path(__file__).resolve()), "--measure", tree, str(nodes)]
        return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def main(arguments: list[str]) -> int:
    """Print the results; the exit code tells whether those for the largest number of nodes are within the limits."""
    if arguments[:1] == ["--measure"]:
        sys.path.insert(0, arguments[1])
        print(json.dumps(measure(int(arguments[2]))))
        return 0
    sizes = sorted(int(argument) for argument in arguments) or [100, 1000, 10000]
    columns = [measure_apart(nodes) for nodes in sizes]
    print("".join([f"{'nodes':<40}", *(f"{nodes:>12,}" for nodes in sizes), f"{'limit':>12}"]))
    late = []
    for row in zip(*columns, strict=True):
        what, last = row[-1]
        unit, limit = ("MB", MEGABYTES) if what == "peak memory" else ("s", SECONDS)
        digits = 0 if unit == "MB" else 3
        print(
            "".join(
                [f"{what:<40}", *(f"{figure:>9.{digits}f} {unit:<2}" for what, figure in row), f"{limit:>9.0f} {unit}"]
            )
        )
        if last > limit:
            late.append(f"{what}: {last:.{digits}f} {unit} for {sizes[-1]:,} nodes, the limit is {limit:.0f} {unit}")
    print(*late, sep="\n", file=sys.stderr, end="\n" if late else "")
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
