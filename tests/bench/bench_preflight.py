# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure how long preflight takes by number of nodes, and the share of the checks themselves. Exits with 1 if a limit
is exceeded.

By hand: python -m tests.bench.bench_preflight --nodes 4 8 --rounds 3
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import redirect_stdout
from pathlib import Path

import yaml

from tests.bench import by_nodes
from tests.lab import Lab, LabError, machine
from tests.lab.hosts import down

CHECKOUT = Path(__file__).resolve().parents[2]
PLAYBOOK = str(CHECKOUT / ".venv" / "bin" / "ansible-playbook")
LAB = "bench"
LIMITS = {4: 15.0}
"""Seconds."""
MOST_HOSTS = 16
MOST_NODES = 64
EXPLANATION = """\
Seconds from the start of `ansible-playbook preflight.yml` to its end, medians (fastest-slowest) of {rounds} rounds over
existing connections. In the call that reads its facts, each node connects to every other node in both directions.
More than {hosts} nodes share {hosts} test hosts, on which each node has its own address.
checks: seconds of this time that all checks take on the controller."""


def inventory(lab: Lab, count: int, directory: Path) -> Path:
    """Write an inventory of the given number of nodes; hosts that hold several nodes get an address for each."""
    hosts = yaml.safe_load(lab.inventory.read_text())["training"]
    each = -(-count // len(lab.nodes))
    most = -(-MOST_NODES // len(lab.nodes))
    nodes = {}
    for number in range(count):
        host = lab.nodes[number // each]
        variables = dict(hosts["hosts"][host.name])
        if each > 1:
            # the same addresses for any count: those from an earlier count remain on their host
            variables["node_address"] = by_nodes.extra_address(lab, host, number // each * most + number % each)
        nodes[f"n{number}" if each > 1 else host.name] = variables
    path = directory / f"{count}.yml"
    path.write_text(yaml.safe_dump({"training": {"hosts": nodes, "vars": hosts["vars"]}}))
    return path


def name_each_other(lab: Lab, path: Path) -> None:
    """Make the names of hosts and nodes resolve correctly on all hosts; otherwise, a name server would be asked."""
    nodes = yaml.safe_load(path.read_text())["training"]["hosts"]
    addresses = {node.name: node.address for node in lab.nodes} | {
        name: variables["node_address"] for name, variables in nodes.items()
    }
    lines = "\n".join(["127.0.0.1 localhost", *(f"{address} {name}" for name, address in addresses.items()), ""])
    for node in lab.nodes:
        if lab.exec(node.name, ["sh", "-c", f"cat > /etc/hosts <<'END'\n{lines}END"]).returncode:
            raise LabError(f"{node.name}: /etc/hosts cannot be written")


def seconds(path: Path) -> float:
    """Return how long one preflight takes. Findings are acceptable: nodes that share a host also share its name."""
    start = time.monotonic()
    completed = subprocess.run(
        [PLAYBOOK, "playbooks/preflight.yml", "-i", str(path)],
        cwd=CHECKOUT,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    duration = time.monotonic() - start
    if completed.returncode not in (0, 2) or "preflight on" not in completed.stdout:
        raise LabError(
            f"preflight failed ({completed.returncode}): {completed.stdout[-1500:]}{completed.stderr[-1500:]}"
        )
    return duration


def check_seconds(count: int) -> float:
    """Return how long all checks take on the facts of the given number of healthy nodes."""
    script = (
        "import time; from ansible.plugins.loader import init_plugin_loader; init_plugin_loader();"
        " from tests.unit.healthy import cluster, findings;"
        f" facts = cluster({count}, 8); start = time.perf_counter(); found = findings(facts);"
        " print(time.perf_counter() - start); assert not found"
    )
    completed = subprocess.run([sys.executable, "-c", script], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    return float(completed.stdout)


def measure(counts: list[int], rounds: int) -> int:
    """Print the table; return 1 if a limit is exceeded."""
    over = []
    print(EXPLANATION.format(rounds=rounds, hosts=MOST_HOSTS))
    print(f"\n{'nodes':>5}  {'seconds':>8}  {'(fastest-slowest)':<18}  {'checks':>7}  limit")
    with redirect_stdout(sys.stderr):
        lab = Lab.up(nodes=min(MOST_HOSTS, max(counts)), name=LAB)
    machine.ensure_limits(max(counts))  # each host knows the addresses of all nodes
    directory = Path(tempfile.mkdtemp(prefix="muster-bench-"))
    try:
        for count in counts:
            path = inventory(lab, count, directory)
            name_each_other(lab, path)
            seconds(path)  # opens the connections
            durations = [seconds(path) for _round in range(rounds)]
            median, limit = statistics.median(durations), LIMITS.get(count)
            span = f"({min(durations):.1f}-{max(durations):.1f})"
            verdict = "" if limit is None else f"{limit:g}" if median < limit else f"{limit:g}: not kept"
            print(
                f"{count:>5}  {median:>8.1f}  {span:<18}  {check_seconds(count):>7.3f}  {verdict}".rstrip(), flush=True
            )
            if limit is not None and median >= limit:
                over.append(count)
    finally:
        shutil.rmtree(directory)
        with redirect_stdout(sys.stderr):
            down(LAB)
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(by_nodes.main(__doc__, [1, 4, 8, 16, 32, MOST_NODES], measure))
