# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure the cost of the lifeline on rank 0's node during a run. Exits with 1 if the limit is exceeded.

    python -m tests.bench.bench_lifeline [PEERS ...]

A real supervisor of rank 0 holds its lifeline to this many peers, each of which responds to its heartbeat like a node.
"With everything enabled": each node has 8 GPUs and sends their samples and clocks, rank 0's node reads the health of
its own, writes metrics and sends notifications, and a live page watches the run.
The limit is for the largest number (by default 64): 1 % of a core.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.unit.supervised import Run

CHECKOUT = Path(__file__).resolve().parents[2]
SECONDS = 30.0
HEARTBEAT = 2.0
LIMIT = 1.0
GPUS = 8
SAMPLE_BEATS = 8  # number of heartbeats between two samples of a node, which takes one every 15 s
PACE_BEATS = 30
SMI = """#!/bin/sh
case "$*" in
*remapped*) echo "gpu_uuid, rows"; row="GPU-%d, 0, 0, No, No" ;;
*pci.bus_id*) echo "index, uuid"; row="%d, GPU-%d, 165, 00000000:1%d:00.0, 5, 5, 16, 16, 0" ;;
*clocks.current.sm*) echo "index, uuid"; row="%d, GPU-%d, 1980, 1980, 612.41, 700.00, 98, 0x4" ;;
*--query-gpu=timestamp*) row="$(date '+%Y/%m/%d %H:%M:%S.123'), %d, 97, 72914, 81559, 64, 641.27, 700.00" ;;
*) exit 0 ;;
esac
for gpu in 0 1 2 3 4 5 6 7; do echo "$row" | sed "s/%d/$gpu/g"; done
"""


def processor_seconds(pid: int) -> float:
    """Return the CPU time that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def proofs(peers: int) -> float:
    """Return the cost of authenticating all messages on rank 0, in percent of a core: one proof per peer and direction
    for each heartbeat.
    """
    from ansible_collections.muster.training.plugins.module_utils._supervisor.lifeline import line_mac

    count, line = 20000, b'{"type": "beat"}'
    began = time.process_time()
    for number in range(count):
        line_mac(b"0" * 64, "peer", number, line)
    return 100.0 * (time.process_time() - began) / count * 2 * peers / HEARTBEAT


def enable_everything(run: Run) -> None:
    """Make rank 0's node read GPUs and their health, write metrics, and notify a server that does not exist."""
    from ansible_collections.muster.training.plugins.module_utils._run.gpu_samples import HEADER
    from tests.unit.plugins.module_utils.supervisor.test_notifications import EVENTS

    smi = run.directory / "nvidia-smi"
    smi.write_text(SMI)
    smi.chmod(0o755)
    metrics = run.directory / "metrics"
    metrics.mkdir()
    run.plans[0].update(
        gpu_samples=[str(smi), "--query-gpu=timestamp"],
        files={"gpus.csv": HEADER},
        node_exporter_directory=str(metrics),
    )
    run.notify = [{"url": "http://127.0.0.1:9/secret", "kind": "json", "events": EVENTS}]  # type: ignore[attr-defined]


def start_node_0(run: Run) -> None:
    """Start the supervisor of rank 0."""
    from ansible_collections.muster.training.plugins.module_utils._run import start as run_start

    parameters: dict[str, Any] = {
        "token": run.token,
        "environment": {},
        "replace": False,
        "notify": getattr(run, "notify", []),
    }
    run_start.start(run.request(0, plan=run.plans[0], supervisor=run.sources, programs={}, **parameters))


@contextlib.contextmanager
def watched(run: Run) -> Iterator[int]:
    """Watch a run like a live page; yield the process on node 0, or 0 unless everything is enabled."""
    from ansible_collections.muster.training.plugins.plugin_utils._node_call.call import (
        REPLY_MARK,
        shell_command,
        standard_input,
    )

    if not hasattr(run, "notify"):
        yield 0
        return
    cursors = {"local_rank": 0, "attempt": 0, "cursors": {}, "sample_cursor": [0, 0, 0], "wait": 0}
    request = run.request(0, operation="page", mark=REPLY_MARK, seconds=600, **cursors)
    command = ["/bin/sh", "-c", shell_command(f"P={shlex.quote(sys.executable)}")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        process.stdin.write(standard_input("_run.page_stream", request))
        process.stdin.close()
        yield process.pid
        process.kill()


def figures_of_node(number: int, beat: int) -> list[dict[str, Any]]:
    """Return the messages that a node sends in addition to a heartbeat: a sample, its clocks, or nothing."""
    messages = []
    if number % SAMPLE_BEATS == beat % SAMPLE_BEATS:
        gpu = {"utilization_percent": 97.0, "memory_used_mib": 72914.0, "memory_total_mib": 81559.0}
        gpus = [{"index": index, **gpu, "temperature_celsius": 64.0, "power_watts": 641.27} for index in range(GPUS)]
        sizes = {"memory_used": 1e11, "memory_total": 2e12, "disk_free": 1e12, "disk_total": 2e12}
        messages.append({"type": "sample", "text": json.dumps({"gpus": gpus, "job_cores": 9.5, **sizes})})
    if number % PACE_BEATS == beat % PACE_BEATS:
        pace = {"clock": 1980.0, "power": 612.4, "power_limit": 700.0, "utilization": 98.0, "throttling": 4}
        text = {"gpus": [{"index": index, **pace} for index in range(GPUS)], "steps": {str(number): 0.53}}
        messages.append({"type": "pace", "text": json.dumps(text)})
    return messages


def measure(directory: Path, peers: int, everything: bool = False) -> tuple[float, int, float]:
    """Return the CPU usage of rank 0's supervisor, in percent of a core, and how many messages it has sent to its
    peers.

    The last figure is what the process that sends the news to a live page uses of a core, in per cent.
    """
    from tests.unit.supervised import Stranger, end_by_force, eventually, make_run

    timeouts = {"heartbeat": HEARTBEAT, "silence": 10.0, "sample": 15.0}
    directory.mkdir(parents=True, exist_ok=True)
    run = make_run(directory, [["/bin/sleep", "600"]] * (peers + 1), timeouts)
    try:
        if everything:
            enable_everything(run)
        start_node_0(run)
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
        with watched(run) as page:
            beats = beat = 0
            began, before = time.monotonic(), processor_seconds(supervisor)
            page_before = processor_seconds(page) if page else 0.0
            while time.monotonic() < began + SECONDS:
                beat += 1
                for number, node in enumerate(nodes, start=1):
                    while next(node.lines)["type"] != "beat":
                        pass
                    for message in figures_of_node(number, beat) if everything else []:
                        node.say(message)
                    node.say({"type": "beat"})
                    beats += 1
            seconds = time.monotonic() - began
            used = processor_seconds(supervisor) - before
            page_used = processor_seconds(page) - page_before if page else 0.0
        return 100.0 * used / seconds, beats, 100.0 * page_used / seconds
    finally:
        end_by_force(run)


def main(arguments: list[str]) -> int:
    """Print the results; the exit code tells whether the one for the largest number of nodes is within the limit."""
    sizes = sorted(int(argument) for argument in arguments) or [1, 8, 64]
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as scratch:
        namespace = Path(scratch, "tree", "ansible_collections", "muster")
        namespace.mkdir(parents=True)
        (namespace / "training").symlink_to(CHECKOUT)
        sys.path[:0] = [str(namespace.parents[1]), str(CHECKOUT)]
        figures = [measure(Path(scratch, str(peers)), peers) for peers in sizes]
        full = [measure(Path(scratch, f"{peers}-everything"), peers, everything=True) for peers in sizes]
        alone = [proofs(peers) for peers in sizes]
    used = [figure[0] for figure in figures]
    used_by_all, by_page = [figure[0] for figure in full], [figure[2] for figure in full]
    rows = [
        ("supervisor, % of a core", ".2f", used, LIMIT),
        ("of it the proofs of each line", ".3f", alone, None),
        ("with everything enabled", ".2f", used_by_all, LIMIT),
        ("beside it the process for a live page", ".2f", by_page, None),
    ]
    print("".join([f"{'peers of rank 0':<40}", *(f"{peers:>10}" for peers in sizes), f"{'limit':>10}"]))
    for title, form, values, limit in rows:
        cells = [f"{format(value, form):>10}" for value in values] + ([f"{limit:>10.2f}"] if limit else [])
        print("".join([f"{title:<40}", *cells]))
    print("".join([f"{f'lines to peers in {SECONDS:.0f} s':<40}", *(f"{figure[1]:>10}" for figure in figures)]))
    return 1 if max(used[-1], used_by_all[-1]) > LIMIT else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
