# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What benchmark.yml takes besides measuring, and the judgment on many nodes. Exits 1 beyond a limit.

By hand: python -m tests.bench.bench_benchmark
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
SECONDS = 10  # seconds that the benchmark is given; repeated measurements may take an additional quarter of that
SIZES, ROUNDS = (2, 4), 3
MANY = 64
REST_LIMIT = (
    100.0  # seconds outside the measurements, which take up to 500 s of the ten minutes of the longest benchmark
)
VERDICT_LIMIT = 5.0
EXPLANATION = f"""\
Seconds, medians (fastest-slowest) of {ROUNDS} rounds of `ansible-playbook benchmark.yml -e benchmark_seconds={SECONDS}`
with nodes on this machine, without SSH. measuring: the phases of the job, as reported by the job, including repeated
measurements; the rest is Ansible, starting torch on each node once or twice, fetching, evaluation and the report."""


def take(directory: Path, nodes: int, number: int) -> tuple[float, float]:
    """Return the seconds taken by the whole command, and by its measurements."""
    from tests.unit.supervised import free_port
    from tests.unit.typed import typed

    settings = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "launch_python": sys.executable,
        "launch_node_directory": f"{directory}/nodes",
        "benchmark_directory": f"{directory}/program",
        "launch_master_port": free_port(),
        "launch_lifeline_port": free_port(),
        "launch_skip": ["busy"],
        "node_slots": 1,
    }
    hosts = {f"node{location}": {"node_address": f"127.0.22.{location + 1}"} for location in range(nodes)}
    (directory / "machines.yml").write_text(json.dumps({"training": {"hosts": hosts, "vars": settings}}))
    run_id = f"bench-{nodes}-{number}"
    options = ["-e", f"run_id={run_id}", "-e", f"benchmark_seconds={SECONDS}"]
    started = time.perf_counter()
    completed = typed(directory, ["ansible-playbook", "muster.training.benchmark", "-i", "machines.yml", *options])
    total = time.perf_counter() - started
    if completed.returncode:
        raise SystemExit(completed.stdout[-3000:])
    result = [directory / "runs" / name / "logs/node0/measured/benchmark.json" for name in (run_id, f"{run_id}-again")]
    phases = [json.loads(path.read_text())["seconds"] for path in result if path.exists()]
    return total, sum(spent for output in phases for spent in output.values())


def verdict_seconds() -> float:
    """Return the seconds from the measurements of MANY nodes with eight GPUs each to the verdict and its table."""
    from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.read import read_measurements
    from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.slow_parts import judge
    from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.table import render
    from tests.unit.plugins.plugin_utils.experiments.benchmark.measurements import document, names_of

    output: Any = document(MANY, gpus=8, rate=lambda item, peer: 3.0 if 5 in (item, peer) else 10.0)
    started = time.perf_counter()
    result = judge(read_measurements(output, names_of(MANY)), read_measurements(output, names_of(MANY)), "bench")
    render(result)
    seconds = time.perf_counter() - started
    if [item["about"] for item in result["findings"] if item["id"] == "benchmark-node-slow"] != [["gpu5"]]:
        raise SystemExit("The slow node is not named.")
    return seconds


def median_and_range(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} ({min(values):.1f}-{max(values):.1f})"


def main() -> int:
    """Print the results; the exit code tells whether they are within the limits."""
    print(EXPLANATION)
    print(f"\n{'nodes':<8}{'whole command':>20}{'measuring':>20}{'the rest':>20}{'limit':>8}", flush=True)
    slow = False
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as name:
        directory = Path(name)
        namespace = directory / "collections" / "ansible_collections" / "muster"
        namespace.mkdir(parents=True)
        (namespace / "training").symlink_to(CHECKOUT)
        sys.path.insert(0, str(directory / "collections"))
        for nodes in SIZES:
            measurements = [take(directory, nodes, number) for number in range(ROUNDS)]
            rests = [total - measuring for total, measuring in measurements]
            slow = slow or statistics.median(rests) > REST_LIMIT
            columns = [
                median_and_range([item for item, _measuring in measurements]),
                median_and_range([measuring for _total, measuring in measurements]),
                median_and_range(rests),
            ]
            print(f"{nodes:<8}" + "".join(f"{text:>20}" for text in columns) + f"{REST_LIMIT:>8.0f}", flush=True)
        verdict = statistics.median(verdict_seconds() for _round in range(ROUNDS))
    print(f"\nverdict on {MANY} nodes with 8 GPUs each: {verdict:.2f} s, limit {VERDICT_LIMIT:.0f}")
    return 1 if slow or verdict > VERDICT_LIMIT else 0


if __name__ == "__main__":
    sys.exit(main())
