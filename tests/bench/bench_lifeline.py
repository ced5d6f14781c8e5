# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure what the lifeline costs rank 0's node while a run goes on. Exit code 1 beyond the limit.

    python -m tests.bench.bench_lifeline [PEERS ...]

A real supervisor of rank 0 holds its lifeline with so many peers, of which each answers its heartbeat as a node does.
The limit is for the largest number (64 unless told): 1 % of a core.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
SECONDS = 30.0
HEARTBEAT = 2.0
LIMIT = 1.0


def processor_seconds(pid: int) -> float:
    """What a process has used of the cores so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def proofs(peers: int) -> float:
    """Return what the proofs of all lines cost rank 0, in per cent of a core: one a peer each way a heartbeat."""
    from ansible_collections.muster.training.plugins.module_utils._supervisor.lifeline import line_mac

    count, line = 20000, b'{"type": "beat"}'
    began = time.process_time()
    for number in range(count):
        line_mac(b"0" * 64, "peer", number, line)
    return 100.0 * (time.process_time() - began) / count * 2 * peers / HEARTBEAT


def measure(directory: Path, peers: int) -> tuple[float, int]:
    """Return what rank 0's supervisor uses of a core, in per cent, and how many lines it has said to its peers."""
    from tests.unit.supervised import Stranger, end_by_force, eventually, make_run

    timeouts = {"heartbeat": HEARTBEAT, "silence": 10.0}
    run = make_run(directory, [["/bin/sleep", "600"]] * (peers + 1), timeouts)
    try:
        run.start(0)
        supervisor = run.supervisor(0)
        eventually(lambda: b":%04X " % run.lifeline[1] in Path(f"/proc/{supervisor}/net/tcp").read_bytes())
        nodes = [Stranger(run.lifeline) for _number in range(peers)]
        for rank, node in enumerate(nodes, start=1):
            node.check_in(run, rank)
            node.say({"type": "ready", "launcher_log": ""})
        for node in nodes:
            while next(node.lines)["type"] != "go":
                pass
            node.say({"type": "running"})
        run.wait_for("running", 0)
        heard = 0
        began, before = time.monotonic(), processor_seconds(supervisor)
        while time.monotonic() < began + SECONDS:
            for node in nodes:
                while next(node.lines)["type"] != "beat":
                    pass
                node.say({"type": "beat"})
                heard += 1
        used = processor_seconds(supervisor) - before
        return 100.0 * used / (time.monotonic() - began), heard
    finally:
        end_by_force(run)


def main(arguments: list[str]) -> int:
    """Print the figures; the exit code says whether that of the largest number is within the limit."""
    sizes = sorted(int(argument) for argument in arguments) or [1, 8, 64]
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as made:
        namespace = Path(made, "tree", "ansible_collections", "muster")
        namespace.mkdir(parents=True)
        (namespace / "training").symlink_to(CHECKOUT)
        sys.path[:0] = [str(namespace.parents[1]), str(CHECKOUT)]
        figures = [measure(Path(made, str(peers)), peers) for peers in sizes]
        alone = [proofs(peers) for peers in sizes]
    print("".join([f"{'peers of rank 0':<40}", *(f"{peers:>10}" for peers in sizes), f"{'limit':>10}"]))
    print(
        "".join(
            [f"{'supervisor, % of a core':<40}", *(f"{used:>10.2f}" for used, _heard in figures), f"{LIMIT:>10.2f}"]
        )
    )
    print("".join([f"{'of it the proofs of each line':<40}", *(f"{used:>10.3f}" for used in alone)]))
    print("".join([f"{f'lines to peers in {SECONDS:.0f} s':<40}", *(f"{heard:>10}" for _used, heard in figures)]))
    return 1 if figures[-1][0] > LIMIT else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
