# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure how long healthy nodes on a busy machine are silent, as the intervals between lifeline messages.

    python -m tests.bench.bench_silence [MINUTES] [NODES] [LOAD]
    python -m tests.bench.bench_silence outages

Real supervisors exchange their heartbeats of 2 s, while processes that compute, and that write and sync files, keep
the load of the machine at LOAD (15). The run has the timeout of a real one (10 s), so a false loss would end it: exit
code 1.

outages: how long a node is silent whose network drops all packets for a few seconds, as when a switch or a virtual
machine moves: TCP repeats lost data at growing intervals. Needs root and nft.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
HEARTBEAT = 2.0
SILENCE = 10.0
SAMPLE = 15.0  # seconds between two samples of the node, which are also sent
START = 900.0  # seconds for the supervisors to start on a busy machine
LOAD_INTERVAL = 10.0  # seconds between two readings of the load
MAX_STRESSORS = 30
COMPUTE = "while True: sum(range(10**5))"
WRITE = """
import os, sys
stream = open(sys.argv[1], "wb", buffering=0)
while True:
    os.pwrite(stream.fileno(), os.urandom(2**20), 0)
    os.fsync(stream.fileno())
"""
# Records the interval between two messages in the supervisors' code: the hub for each node, and each node for the hub.
NOTE = """
def note_distance(journal: Journal, who: str, seconds: float) -> None:
    with open(journal.path("distances"), "a", encoding="ascii") as stream:
        stream.write(f"{who} {seconds:.3f}\\n")
"""
HUB = (
    "        connection.last_heard = now\n        node = ",
    'note_distance(self.journal, "node", now - connection.last_heard)',
)
PEER = (
    "            self.last_heard = now\n            self.obey",
    'note_distance(self.journal, "hub", now - self.last_heard)',
)
BEYOND = (2.5, 3.0, 4.0, 6.0, 8.0)
OUTAGES = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
ROUNDS = 3
TABLE = "table inet muster_bench_silence"


def instrument(sources: dict[str, str]) -> None:
    """Make the supervisors of a run record the intervals."""
    for name, (code, call) in (("hub.py", HUB), ("peer.py", PEER)):
        (path,) = [path for path in sources if path.endswith(f"_supervisor/{name}")]
        assert sources[path].count(code) == 1, name
        indent = code[: len(code) - len(code.lstrip())]
        sources[path] = sources[path].replace(code, f"{indent}{call}\n{code}") + NOTE


class Stressors:
    """Processes that keep this machine's load at a given level, including the load from other programs."""

    def __init__(self, directory: Path, load: float) -> None:
        self.directory, self.load = directory, load
        self.processes: list[subprocess.Popen[bytes]] = []
        self.loads: list[float] = []

    def step(self) -> None:
        """Start or end one of the processes, depending on the load."""
        self.loads.append(os.getloadavg()[0])
        if self.loads[-1] < self.load and len(self.processes) < MAX_STRESSORS:
            number = len(self.processes)
            program = [WRITE, str(self.directory / f"stress{number}")] if number % 4 == 3 else [COMPUTE]
            self.processes.append(subprocess.Popen([sys.executable, "-c", *program], stderr=subprocess.DEVNULL))
        elif self.loads[-1] > self.load + 1 and self.processes:
            self.end(self.processes.pop())

    def end(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()

    def close(self) -> None:
        while self.processes:
            self.end(self.processes.pop())


@contextlib.contextmanager
def stressed(directory: Path, load: float) -> Iterator[Stressors]:
    """Keep the machine busy."""
    stressors = Stressors(directory, load)
    try:
        yield stressors
    finally:
        stressors.close()


def measure(
    directory: Path, nodes: int, seconds: float, load: float
) -> tuple[dict[str, list[float]], list[float], bool]:
    """Return the intervals by silent node, the loads, and whether the run was still alive at the end."""
    from tests.unit.supervised import end_by_force, free_port, make_run

    ports = {"lifeline_port": free_port(), "master_port": free_port()}
    timeouts = {"start": START, "heartbeat": HEARTBEAT, "sample": SAMPLE, "silence": SILENCE}
    run = make_run(directory, [["/bin/sleep", "86400"]] * nodes, timeouts, first_address=200, **ports)
    instrument(run.sources)
    try:
        with stressed(directory, load) as stressors:
            run.start()
            run.wait_for("running", seconds=START)
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline and run.state(0) == "running":
                stressors.step()
                time.sleep(LOAD_INTERVAL)
            is_alive = all(run.state(rank) == "running" for rank in range(nodes))
        distances: dict[str, list[float]] = {"node": [], "hub": []}
        for rank in range(nodes):
            for line in (run.node(rank) / "distances").read_text().splitlines():
                who, _blank, distance = line.partition(" ")
                distances[who].append(float(distance))
        return distances, stressors.loads, is_alive
    finally:
        end_by_force(run)


def drop_packets(address: str) -> None:
    """Drop all packets to and from an address on this machine; "" stops dropping them."""
    chain = f"chain input {{ type filter hook input priority raw; ip saddr {address} drop; ip daddr {address} drop; }}"
    rules = [TABLE, f"delete {TABLE}", f"{TABLE} {{\n{chain}\n}}" if address else ""]
    subprocess.run(["nft", "-f", "-"], input="\n".join([*rules, ""]), text=True, check=True)


def measure_outages(directory: Path) -> dict[float, list[float]]:
    """Return the longest silence of the second node in each round, by the duration of its network outage."""
    from tests.unit.supervised import end_by_force, free_port, make_run

    ports = {"lifeline_port": free_port(), "master_port": free_port()}
    run = make_run(
        directory,
        [["/bin/sleep", "86400"]] * 2,
        {"start": START, "heartbeat": HEARTBEAT, "sample": SAMPLE, "silence": 60.0},
        first_address=200,
        **ports,
    )
    instrument(run.sources)
    path = run.node(0) / "distances"
    result: dict[float, list[float]] = {seconds: [] for seconds in OUTAGES}
    try:
        run.start()
        run.wait_for("running", seconds=START)
        for number in range(ROUNDS):
            for seconds in OUTAGES:
                time.sleep(HEARTBEAT * (1 + number / ROUNDS))  # starts at a varying time after a heartbeat
                before = len(path.read_text().splitlines())
                drop_packets(run.plans[1]["node"]["address"])
                time.sleep(seconds)
                drop_packets("")
                time.sleep(2 * seconds + 2 * HEARTBEAT)
                lines = path.read_text().splitlines()[before:]
                result[seconds].append(max(float(line.split()[1]) for line in lines))
        return result
    finally:
        drop_packets("")
        end_by_force(run)


def percentile(values: list[float], share: float) -> float:
    """Return the value below which the given share of sorted values lies."""
    return values[min(len(values) - 1, int(share * len(values)))]


def print_outages(silences: dict[float, list[float]]) -> None:
    """Print the silence that each outage caused."""
    print(f"{'network down':<16}{'silent, median':>16}{'longest':>10}")
    for seconds, values in silences.items():
        print(f"{f'{seconds:g} s':<16}{statistics.median(values):>14.1f} s{max(values):>8.1f} s")


def main(arguments: list[str]) -> int:
    """Print the distribution; the exit code tells whether a node was given up."""
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as scratch:
        namespace = Path(scratch, "tree", "ansible_collections", "muster")
        namespace.mkdir(parents=True)
        (namespace / "training").symlink_to(CHECKOUT)
        sys.path[:0] = [str(namespace.parents[1]), str(CHECKOUT)]
        if arguments == ["outages"]:
            print_outages(measure_outages(Path(scratch)))
            return 0
        minutes, nodes, load = [float(argument) for argument in arguments] + [20.0, 4.0, 15.0][len(arguments) :]
        distances, loads, is_alive = measure(Path(scratch), int(nodes), 60 * minutes, load)
    print(f"{nodes:.0f} nodes, {minutes:g} min, load {min(loads):.1f} to {max(loads):.1f}, nice {os.nice(0)}")
    head = "".join(f"{f'> {limit:g} s':>8}" for limit in BEYOND)
    print(f"{'silent':<8}{'messages':>9}{'median':>8}{'99 %':>8}{'99.9 %':>8}{'longest':>9}{head}")
    for who, values in distances.items():
        values.sort()
        shares = "".join(f"{percentile(values, share):>8.2f}" for share in (0.5, 0.99, 0.999))
        beyond = "".join(f"{sum(value > limit for value in values):>8}" for limit in BEYOND)
        print(f"{who:<8}{len(values):>9}{shares}{values[-1]:>9.2f}{beyond}")
    print("no node was given up" if is_alive else "A NODE WAS GIVEN UP")
    return 0 if is_alive else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
