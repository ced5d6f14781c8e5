# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Simulate a large run: all nodes on loopback addresses of this machine, each with a supervisor and a job that sleeps.

Measure how long after a failure the last node ends, and what the run costs node 0. All nodes share this machine's
cores, so the seconds are upper bounds. Exit code 1 beyond a limit.

Real on every node: its process, the supervisor's complete code with its watchers, samples and files, the lifeline's
connection with its handshake, heartbeats and reports at the intervals of a launch, and the process of its job.
Nodes 0, 1, 2 and the last are started as a launch starts them. Shared by all others: their supervisors are forked from
one process that has imported the code (see forked_nodes.py), so they share memory, and have no start of Python, no
guard, and no copy of their program in the run directory.

By hand, as root, so that each of them sees only its own processes: python -m tests.bench.bench_scale [NODES ...]
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.bench_lifeline import CHECKOUT, HEARTBEAT, processor_seconds
from tests.bench.forked_nodes import forked_nodes

if TYPE_CHECKING:
    from tests.bench.forked_nodes import ForkedNodes
    from tests.unit.supervised import Run

NODES = (64, 256, 512)
NETWORK = "127.77"
QUIET_SECONDS = 20.0
SAMPLE_INTERVAL = 15.0
TIMEOUTS = {"start": 600.0, "heartbeat": HEARTBEAT, "sample": SAMPLE_INTERVAL, "silence": 300.0, "grace": 5.0}
"""As in a launch, except for start and silence: all nodes share the same cores."""
JOB = ["/bin/sleep", "7200"]
END_TIMEOUT = 600.0
"""Seconds until the end of a run is considered hung."""
LIMITS = {"last_job": 20.0, "quiet_cpu": 10.0, "memory": 200.0}
"""Limits for Figures with the largest number of nodes."""
ROWS = {
    "last_job": ("seconds from the failure to the end of the last job", ".2f"),
    "last_supervisor": ("seconds from the failure to the end of the last supervisor", ".2f"),
    "quiet_cpu": ("node 0: % of a core while the run continues", ".2f"),
    "end_cpu": ("node 0: CPU seconds from the failure to its end", ".2f"),
    "memory": ("node 0: most memory, MB", ".1f"),
    "peer_memory": ("node 1: most memory, MB", ".1f"),
    "status": ("node 0: seconds to read its status", ".3f"),
    "verdict": ("controller: seconds to reach the verdict", ".3f"),
}
EXPLANATION = f"""\
Simulated on loopback addresses of this machine: each node has its own supervisor and a job that only sleeps, and the
job of the last node is killed. The supervisors of nodes 0, 1, 2 and the last are started as a launch starts them, those
of all others are forked from one process and share its memory. Status and verdict: without SSH and Ansible.
All nodes share this machine's cores, so the seconds are upper bounds. Heartbeat: {HEARTBEAT:g} s."""


@dataclass(frozen=True)
class Figures:
    """Measurements of a simulated run of one size; the units are in ROWS."""

    last_job: float
    last_supervisor: float
    quiet_cpu: float
    end_cpu: float
    memory: float
    peer_memory: float
    status: float
    verdict: float


def peak_memory(pid: int) -> float:
    """Return the peak memory usage of a process, in MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024 / 1e6


def addresses(count: int, network: str = NETWORK) -> list[str]:
    """Return loopback addresses for the given number of nodes."""
    return [f"{network}.{number // 250}.{number % 250 + 1}" for number in range(count)]


def ends(processes: Sequence[int], clock: float) -> list[float]:
    """Return the seconds from a given time until each of these processes ended, in the order in which they ended."""
    seconds: list[float] = []
    poll = select.poll()
    descriptors = []
    try:
        for pid in processes:
            try:
                descriptors.append(os.pidfd_open(pid))
            except ProcessLookupError:  # the process has already ended
                seconds.append(time.monotonic() - clock)
            else:
                poll.register(descriptors[-1], select.POLLIN)
        while len(seconds) < len(processes):
            events = poll.poll(END_TIMEOUT * 1000)
            if not events:
                raise SystemExit(f"{len(processes) - len(seconds)} of {len(processes)} processes did not end")
            for descriptor, _event in events:
                poll.unregister(descriptor)
                seconds.append(time.monotonic() - clock)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    return seconds


def started_as_usual(nodes: int) -> list[int]:
    """Return the nodes whose supervisors are started as a launch starts them."""
    return sorted({0, 1, 2, nodes - 1})


def start(run: Run, forked: ForkedNodes) -> list[int]:
    """Start the supervisors of all nodes; return their pids."""
    usual = started_as_usual(len(run.plans))
    run.start(0)
    pids = {rank: fork_node(run, rank, forked) for rank in range(len(run.plans)) if rank not in usual}
    run.start(*usual[1:])
    pids.update({rank: run.supervisor(rank) for rank in usual})
    return [pids[rank] for rank in range(len(run.plans))]


def fork_node(run: Run, rank: int, forked: ForkedNodes) -> int:
    """Write the run directory of a node without the supervisor's program, and fork its supervisor."""
    from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import plan_text

    directory, plan = run.node(rank), run.plans[rank]
    (directory / "ranks").mkdir(parents=True)
    for part in (directory / "ranks", directory, directory.parent):
        part.chmod(0o700)
    environment = {"MUSTER_RUN_DIRECTORY": str(directory)}
    for name, text in (
        ("plan.json", plan_text(plan)),
        ("environment.json", json.dumps(environment)),
        ("token", run.token),
    ):
        (directory / name).write_text(text)
    return forked.start(str(directory), run.run_id, plan["node"]["address"])


def job_processes(supervisors: Collection[int], table: Mapping[int, tuple[int, str]]) -> dict[int, int]:
    """Return the pids of the jobs that run, by the pid of their supervisor; table: as of process_table()."""
    return {parent: pid for pid, (parent, _state) in table.items() if parent in supervisors and is_job(pid)}


def is_job(pid: int) -> bool:
    """Return whether a process executes the program of a job, and not that of a watcher."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == Path(JOB[0]).name
    except OSError:  # the process has ended
        return False


def all_jobs(supervisors: Sequence[int]) -> list[int]:
    """Return the processes of the jobs, in the order of their supervisors, once all run."""
    from ansible_collections.muster.training.plugins.module_utils._run.processes import process_table
    from tests.unit.supervised import eventually

    def jobs_of_all() -> dict[int, int] | None:
        """Return whether each supervisor has started its job."""
        jobs = job_processes(set(supervisors), process_table())
        return jobs if len(jobs) == len(supervisors) else None

    jobs = eventually(jobs_of_all, END_TIMEOUT)
    return [jobs[supervisor] for supervisor in supervisors]


def simulate(run: Run, forked: ForkedNodes, quiet: float) -> Figures:
    """Start a run, let it continue for a while, kill the job of its last node, and wait for the end of all nodes."""
    from ansible_collections.muster.training.plugins.module_utils._run.status import read
    from ansible_collections.muster.training.plugins.plugin_utils._failures.verdict import add_replies, verdict_from_hub

    supervisors = start(run, forked)
    run.wait_for("running", 0, seconds=END_TIMEOUT)
    jobs = all_jobs(supervisors)
    began, before = time.monotonic(), processor_seconds(supervisors[0])
    time.sleep(quiet)
    quiet_cpu = 100.0 * (processor_seconds(supervisors[0]) - before) / (time.monotonic() - began)
    began = time.perf_counter()
    status = read(run.request(0, wait=0))
    status_seconds = time.perf_counter() - began
    assert status["run"]["state"] == "running", status["run"]
    peer_memory = peak_memory(supervisors[1])
    before = processor_seconds(supervisors[0])
    clock = time.monotonic()
    os.kill(jobs[-1], signal.SIGKILL)
    job_ends = ends(jobs, clock)
    result = run.result()  # written by node 0, which ends once it has reports from all nodes
    end_cpu, memory = processor_seconds(supervisors[0]) - before, peak_memory(supervisors[0])
    supervisor_ends = ends(supervisors, clock)
    began = time.perf_counter()
    verdict = verdict_from_hub(run.plans[0], add_replies(result, {}))
    seconds = time.perf_counter() - began
    assert verdict["first_failure"]["node"] == run.plans[-1]["node"]["name"], verdict["first_failure"]
    return Figures(job_ends[-1], supervisor_ends[-1], quiet_cpu, end_cpu, memory, peer_memory, status_seconds, seconds)


def measure(directory: Path, nodes: int, quiet: float = QUIET_SECONDS, network: str = NETWORK) -> Figures:
    """Simulate a run with the given number of nodes in a directory."""
    from tests.unit.supervised import compiled_folder, end_by_force, run_at

    directory.mkdir(parents=True, exist_ok=True)
    run = run_at(addresses(nodes, network), directory, [JOB] * nodes, TIMEOUTS)
    try:
        with forked_nodes(f"{compiled_folder().name}/program") as forked:
            return simulate(run, forked, quiet)
    finally:
        end_by_force(run)


def table(sizes: Sequence[int], figures: Sequence[Figures]) -> str:
    """Return the figures of each size as text."""
    lines = ["".join([f"{'nodes':<62}", *(f"{size:>9}" for size in sizes), f"{'limit':>9}"])]
    for name, (title, form) in ROWS.items():
        values = "".join(f"{format(getattr(row, name), form):>9}" for row in figures)
        limit = f"{LIMITS[name]:>9g}" if name in LIMITS else ""
        lines.append(f"{title:<62}{values}{limit}")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Print the table; the exit code tells whether the largest run is within the limits."""
    sizes = sorted(int(argument) for argument in arguments) or list(NODES)
    if os.geteuid():
        sys.exit("Run this benchmark as root: as another user, every node searches the processes of all nodes.")
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # one descriptor for each process
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as scratch:
        namespace = Path(scratch, "tree", "ansible_collections", "muster")
        namespace.mkdir(parents=True)
        (namespace / "training").symlink_to(CHECKOUT)
        sys.path[:0] = [str(namespace.parents[1]), str(CHECKOUT)]
        figures = []
        for size in sizes:
            figures.append(measure(Path(scratch, str(size)), size))
            print(table([size], figures[-1:]), file=sys.stderr, flush=True)  # a larger size takes minutes
    print(f"{EXPLANATION}\n\n{table(sizes, figures)}")
    return 1 if any(getattr(figures[-1], name) > limit for name, limit in LIMITS.items()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
