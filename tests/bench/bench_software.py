# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure how long the python_env and pytorch roles take on one node and on four, with uv and with pip. Exits with 1 if
a limit is exceeded.

By hand: python -m tests.bench.bench_software --rounds 1 --managers uv
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import redirect_stdout
from pathlib import Path

from tests.lab import Lab, LabError
from tests.lab.hosts import down

CHECKOUT = Path(__file__).resolve().parents[2]
PLAYBOOK = str(CHECKOUT / ".venv" / "bin" / "ansible-playbook")
LAB = "bench-software"
NODES = 4
REQUIREMENTS = ["scikit-learn", "lightning"]
MOST_RATIO = 1.5
"""Of the time of four nodes to that of one."""
MOST_SECONDS_A_NODE = 10.0
"""Limit for a second run, in seconds per node."""
CORES = 0.8 * len(os.sched_getaffinity(0)) / NODES
"""Cores of each node; the rest are for the controller."""
EXPLANATION = """\
Seconds of a play with python_env and pytorch (torch for the CPU, {requirements}; without the verification), medians of
{rounds} rounds. The first node has pip's cache, and nothing else is installed. again: a second run on four nodes.
Each node is limited to {cores:.1f} of a core, even if it runs alone, since four real machines do not share cores."""
PLAY = """
- hosts: training
  gather_facts: false
  any_errors_fatal: true
  vars:
    python_env_manager: {manager}
    python_env_requirements: [{requirements}]
    pytorch_index_url: ""
    pytorch_verify: false
  roles:
    - {{role: muster.training.python_env, python_env_parts: [environment]}}
    - role: muster.training.pytorch
    - {{role: muster.training.python_env, python_env_parts: [requirements]}}
"""


def timed(lab: Lab, playbook: Path, limit: str) -> float:
    """Run the play, which must succeed, and return the seconds it took."""
    start = time.monotonic()
    arguments = [PLAYBOOK, str(playbook), "-i", str(lab.inventory), "--limit", limit]
    completed = subprocess.run(arguments, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    if completed.returncode:
        raise LabError(f"the play failed: {completed.stdout[-2000:]}{completed.stderr[-500:]}")
    return time.monotonic() - start


def forget(lab: Lab) -> None:
    """Remove the environment from nodes."""
    for node in lab.nodes:
        completed = lab.exec(node.name, ["rm", "-rf", "/opt/muster"])
        if completed.returncode:
            raise LabError(f"{node.name}: {completed.stderr.strip()}")


def measure(lab: Lab, manager: str, rounds: int) -> tuple[float, float, float]:
    """Return the medians for one node, for four nodes, and for a second run."""
    result = []
    with tempfile.TemporaryDirectory() as directory:
        playbook = Path(directory, "play.yml")
        playbook.write_text(PLAY.format(manager=manager, requirements=", ".join(REQUIREMENTS)))
        forget(lab)
        timed(lab, playbook, "node1")  # fills pip's cache
        for _round in range(rounds):
            forget(lab)
            item = timed(lab, playbook, "node1")
            forget(lab)
            result.append((item, timed(lab, playbook, "all"), timed(lab, playbook, "all")))
    item, four, again = (statistics.median(values) for values in zip(*result, strict=True))
    return item, four, again


def main() -> int:
    """Measure and print; the exit code tells whether the limits are met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--managers", nargs="+", default=["uv", "venv"])
    options = parser.parse_args()
    within_limits = True
    with redirect_stdout(sys.stderr):
        lab = Lab.up(nodes=NODES, name=LAB)
    try:
        for node in lab.nodes:
            lab.limit_cpu(node.name, CORES)
        print(EXPLANATION.format(requirements=", ".join(REQUIREMENTS), rounds=options.rounds, cores=CORES))
        print(f"\n{'':8}{'1 node':>8}{'4 nodes':>9}{'ratio':>7}{'again':>7}")
        for manager in options.managers:
            item, four, again = measure(lab, manager, options.rounds)
            name = "pip" if manager == "venv" else manager
            print(f"{name:8}{item:8.1f}{four:9.1f}{four / item:7.2f}{again:7.1f}", flush=True)
            if manager == "uv":
                within_limits = four / item < MOST_RATIO and again / NODES < MOST_SECONDS_A_NODE
        print(f"\nLimits, for uv: ratio under {MOST_RATIO}, again under {MOST_SECONDS_A_NODE:.0f} s a node.")
    finally:
        with redirect_stdout(sys.stderr):
            down(LAB)
    return 0 if within_limits else 1


if __name__ == "__main__":
    sys.exit(main())
