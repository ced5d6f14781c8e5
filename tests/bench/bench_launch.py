# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure how long a launch takes compared with common launch methods, using the same job on the same test hosts in one
run.

Prints a table for each number of nodes and whether the goals for the largest are met; exits 1 where one is not.
By hand: python -m tests.bench.bench_launch --nodes 8 --rounds 3
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from operator import sub, truediv
from pathlib import Path

from tests.lab import Lab, LabError, Node
from tests.lab.hosts import down

CHECKOUT = Path(__file__).resolve().parents[2]
BIN = CHECKOUT / ".venv" / "bin"
PYTHON = str(BIN / "python")
SCRIPT = str(CHECKOUT / "tests" / "jobs" / "first_line.py")
LAB = "bench"
HOME = "/home/muster"
HOSTFILE = f"{HOME}/hostfile"
TIMEOUT = 120.0
"""Seconds until a launch is considered hung; the longest observed launch took 20."""
NAMES_GLOO = "GLOO_SOCKET_IFNAME=eth0"
"""A node's own name resolves to 127.0.1.1, so gloo must be told which interface to use; launch.yml finds it
automatically.
"""


EXPLANATION = """\
Seconds from the start of the command; medians (fastest-slowest) of {rounds} rounds in which each method ran once.
The ratio to the method whose letter follows it is the median of the ratios of all rounds. The job of a, b and c is a
bare Python script; that of d, e and f imports torch after its first line, performs one all_reduce and exits. c and f
open new connections to the nodes, as all others do; c2 and f2 reuse those of an earlier launch.
{versions}
"""


class BenchError(Exception):
    """A failed measurement; the message is for the user."""


@dataclass(frozen=True)
class Bench:
    """The test hosts for one table, and the directory for this run's files."""

    lab: Lab
    count: int
    directory: Path

    @property
    def nodes(self) -> Sequence[Node]:
        """The participating nodes, rank 0's node first."""
        return self.lab.nodes[: self.count]

    def ssh(self, node: Node, *expected_text: str) -> list[str]:
        """Return a plain ssh command to a node, as a user would type it."""
        return self.lab.ssh(node.name, shlex.join(expected_text), options=["-o", "BatchMode=yes"])

    def on_each(self, arguments: Callable[[int], Sequence[str]]) -> list[list[str]]:
        """Run one plain ssh per node."""
        return [self.ssh(node, *arguments(rank)) for rank, node in enumerate(self.nodes)]


def plain(bench: Bench, mark: str) -> list[list[str]]:
    """Use one ssh per node, all at the same time."""
    return bench.on_each(lambda rank: [PYTHON, SCRIPT, mark])


def mpirun(bench: Bench, mark: str) -> list[list[str]]:
    """Use Open MPI from rank 0's node, with one process per node."""
    return [bench.ssh(bench.nodes[0], "mpirun", "--hostfile", f"{HOSTFILE}{bench.count}", PYTHON, SCRIPT, mark)]


def torchrun(bench: Bench, mark: str) -> list[list[str]]:
    """Use one ssh per node, all at the same time, each starting torchrun."""
    master = bench.nodes[0].address
    options = [f"--nnodes={bench.count}", "--nproc-per-node=1", f"--master-addr={master}", "--master-port=29500"]
    arguments = ["env", NAMES_GLOO, PYTHON, "-m", "torch.distributed.run", *options]
    return bench.on_each(lambda rank: [*arguments, f"--node-rank={rank}", SCRIPT, mark, "torch"])


def deepspeed(bench: Bench, mark: str) -> list[list[str]]:
    """Use DeepSpeed's own launcher from rank 0's node, with pdsh; pass it the values that it would
    otherwise determine through another ssh.
    """
    hosts = ["--hostfile", f"{HOSTFILE}{bench.count}", "--master_addr", bench.nodes[0].address, "--no_ssh_check"]
    arguments = ["env", "DS_ACCELERATOR=cpu", str(BIN / "deepspeed"), *hosts, "--no_local_rank", SCRIPT, mark, "torch"]
    return [bench.ssh(bench.nodes[0], *arguments)]


def launch_command(launcher: str, masters: Callable[[Path], Path]) -> Callable[[Bench, str], list[list[str]]]:
    """Run launch.yml as a user would type it."""

    def commands(bench: Bench, mark: str) -> list[list[str]]:
        variables = {
            "nnodes": bench.count,
            "launch_launcher": launcher,
            "launch_script": SCRIPT,
            "launch_args": [mark, *(["torch"] if launcher == "torchrun" else [])],
            "launch_runs_directory": str(bench.directory / "runs"),
            "ansible_control_path": f"{masters(bench.directory)}/%%h",
        }
        playbook = [str(BIN / "ansible-playbook"), "playbooks/launch.yml", "-i", str(bench.lab.inventory)]
        return [[*playbook, "-e", json.dumps(variables)]]

    return commands


def reused(directory: Path) -> Path:
    """Return the location of connections that an earlier launch opened."""
    path = directory / "kept"
    path.mkdir(exist_ok=True)
    return path


def fresh(directory: Path) -> Path:
    """Return a location without connections, so that the launch opens new ones, as plain ssh does each time."""
    return Path(tempfile.mkdtemp(prefix="fresh-", dir=directory))


@dataclass(frozen=True)
class Method:
    """A launch method. `floor` is the method in which there is only ssh between the user and the same job."""

    key: str
    title: str
    floor: str
    commands: Callable[[Bench, str], list[list[str]]]


METHODS = (
    Method("a", "parallel ssh, bare script", "a", plain),
    Method("b", "mpirun, bare script", "a", mpirun),
    Method("c", "launch.yml, env, bare script", "a", launch_command("env", fresh)),
    Method("c2", "  again, within half an hour", "a", launch_command("env", reused)),
    Method("d", "parallel ssh, torchrun", "d", torchrun),
    Method("e", "deepspeed --hostfile", "d", deepspeed),
    Method("f", "launch.yml, torchrun", "d", launch_command("torchrun", fresh)),
    Method("f2", "  again, within half an hour", "d", launch_command("torchrun", reused)),
)


@dataclass(frozen=True)
class Seconds:
    """Seconds from the start of the command until the last rank ran its first line, and until the command ended."""

    first_line: float
    whole: float


def measure(bench: Bench, method: Method, number: int) -> Seconds:
    """Launch once. Raises BenchError if a command fails, or if any node did not run the job exactly once."""
    mark = f"{HOME}/{bench.directory.name}-{number}"  # no other run of this program has written to it
    commands = method.commands(bench, mark)
    logs = [bench.directory / f"{number}-{method.key}-{index}.log" for index in range(len(commands))]
    began = time.time()
    running = []
    for command, log in zip(commands, logs, strict=True):
        with log.open("wb") as stream:
            running.append(
                subprocess.Popen(
                    command, cwd=CHECKOUT, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT
                )
            )
    try:
        codes = [process.wait(max(0.0, began + TIMEOUT - time.time())) for process in running]
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"{method.title}: not ended after {TIMEOUT:.0f} s.\n{_tails(logs)}") from error
    finally:
        for process in running:
            process.kill()
    total = time.time() - began
    if any(codes):
        raise BenchError(f"{method.title}: exit codes {codes}.\n{_tails(logs)}")
    end_connections(bench.directory.glob("fresh-*"))
    with ThreadPoolExecutor(4) as pool:
        marks = list(pool.map(lambda node: bench.lab.exec(node.name, ["cat", mark]).stdout.split(), bench.nodes))
    if any(len(lines) != 1 for lines in marks):
        raise BenchError(f"{method.title}: the job was to run once on each node, it noted {marks}.\n{_tails(logs)}")
    return Seconds(max(float(line) for (line,) in marks) - began, total)


def _tails(logs: Sequence[Path]) -> str:
    return "\n".join(text for log in logs if (text := log.read_text(errors="replace")[-2000:].strip()))


def end_connections(directories: Iterator[Path]) -> None:
    """End the connections that ssh keeps for the next command."""
    for directory in directories:
        for socket in directory.iterdir():
            arguments = ["ssh", "-O", "exit", "-o", f"ControlPath={socket}", "node"]
            subprocess.run(arguments, capture_output=True, check=False, timeout=10)
        shutil.rmtree(directory, ignore_errors=True)


def prepare(lab: Lab, counts: Sequence[int]) -> None:
    """Set up the requirements of the other methods: packages, ssh from each node to every other, hostfiles, and
    DeepSpeed's environment.
    """
    private = lab.inventory.with_name("id_ed25519").read_text()
    known_hosts = lab.inventory.with_name("known_hosts").read_text()
    files = {".ssh/id_ed25519": private, ".ssh/known_hosts": known_hosts}
    files[".deepspeed_env"] = f"DS_ACCELERATOR=cpu\n{NAMES_GLOO}\n"
    for count in counts:
        files[f"hostfile{count}"] = "".join(f"{node.address} slots=1\n" for node in lab.nodes[:count])
    install = "apt-get -qq update && apt-get -qq install --yes --no-install-recommends openmpi-bin pdsh openssh-client"
    script = f"command -v mpirun pdsh ssh || (export DEBIAN_FRONTEND=noninteractive; {install})"

    def install_on(node: Node) -> None:
        completed = lab.exec(node.name, ["sh", "-c", script], timeout=600)
        if completed.returncode:
            raise BenchError(
                f"{node.name}: openmpi-bin and pdsh cannot be installed: {completed.stderr.strip()[-1000:]}"
            )
        for name, text in files.items():
            arguments = lab.ssh(node.name, f"umask 077 && cat > {name}")
            subprocess.run(arguments, input=text, text=True, check=True, timeout=30)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(install_on, lab.nodes))


@contextmanager
def test_hosts(count: int, keep: bool) -> Iterator[Lab]:
    """Provide a lab for the duration of the measurement."""
    try:
        yield Lab.up(count, LAB)
    finally:
        if not keep:
            down(LAB)


@contextmanager
def workplace() -> Iterator[Path]:
    """Provide a directory for the duration of the measurement, with a path short enough for ssh's sockets."""
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as name:
        try:
            yield Path(name)
        finally:
            end_connections(Path(name).glob("kept"))


def rounds(benches: Sequence[Bench], methods: Sequence[Method], number: int) -> Iterator[tuple[Bench, Method, Seconds]]:
    """Run all methods in turn, and then in reverse order, so that other load on the machine affects all of them.

    The first turn opens the connections that are kept and fills caches; it is not counted.
    """
    serial = 0
    for turn in range(number + 1):
        for bench in benches[-1:] if turn == 0 else benches:
            for method in methods if turn % 2 else methods[::-1]:
                serial += 1
                seconds = measure(bench, method, serial)
                what = f"round {turn} of {number}" if turn else "warming up"
                figures = f"{seconds.first_line:6.2f} s {seconds.whole:6.2f} s"
                print(f"{what}, {bench.count} nodes: {method.title:<32}{figures}", file=sys.stderr, flush=True)
                if turn:
                    yield bench, method, seconds


Figures = dict[str, list[Seconds]]


def middle(result: Sequence[Seconds]) -> Seconds:
    """Return the medians of the measurements for a method."""
    return Seconds(
        statistics.median(item.first_line for item in result), statistics.median(item.whole for item in result)
    )


def compared(figures: Figures, key: str, floor: str, what: Callable[[float, float], float], name: str) -> float:
    """Return the median of the per-round comparisons of two methods, since a temporary slowdown of the machine affects
    both.
    """
    pairs = zip(figures[key], figures[floor], strict=True)
    return statistics.median(what(getattr(item, name), getattr(reference, name)) for item, reference in pairs)


def table(count: int, figures: Figures) -> str:
    """Return the results for one number of nodes, each compared with its floor."""
    lines = [f"{f'{count} nodes, one rank each':<34}{'last rank runs':>31}{'whole command':>18}"]
    for method in METHODS:
        medians = middle(figures[method.key])
        first_line, total = (
            compared(figures, method.key, method.floor, truediv, name) for name in ("first_line", "whole")
        )
        first_lines = [item.first_line for item in figures[method.key]]
        lines.append(
            f"{method.key:<4}{method.title:<30}{medians.first_line:>8.2f} s "
            f"{f'({min(first_lines):.2f}-{max(first_lines):.2f})':<15}"
            f"{first_line:>5.2f} {method.floor}{medians.whole:>8.2f} s {total:>5.2f} {method.floor}"
        )
    return "\n".join(lines)


def goals(count: int, figures: Figures) -> list[tuple[bool, str]]:
    """Return each goal, and whether it is met."""
    after_mpirun = compared(figures, "c", "b", sub, "first_line")
    ratio = compared(figures, "f", "d", truediv, "first_line")
    after_deepspeed = compared(figures, "f", "e", sub, "first_line")
    return [
        (met, f"{'met' if met else 'NOT MET':<9}{text}")
        for met, text in (
            (after_mpirun <= 2.5, f"c - b: {after_mpirun:.2f} s with {count} nodes, at most 2.5 s after mpirun"),
            (ratio <= 1.3, f"f / d: {ratio:.2f} with {count} nodes, at most 1.3 times parallel ssh and torchrun"),
            (after_deepspeed < 0, f"f - e: {after_deepspeed:.2f} s with {count} nodes, before deepspeed --hostfile"),
        )
    ]


def versions(lab: Lab) -> str:
    """Return the measured versions, on one line."""
    result = [f"{name} {importlib.metadata.version(name)}" for name in ("ansible-core", "torch", "deepspeed")]
    node = lab.nodes[0].name
    mpi = lab.exec(node, ["mpirun", "--version"]).stdout.splitlines()[0].removeprefix("mpirun ")
    pdsh = lab.exec(node, ["pdsh", "-V"]).stdout.split()[0]
    ssh = lab.exec(node, ["ssh", "-V"]).stderr.split()[0].rstrip(",")
    python = ".".join(str(part) for part in sys.version_info[:3])
    return ", ".join([*result, mpi.replace("(Open MPI)", "Open MPI"), pdsh, ssh.replace("_", " "), f"Python {python}"])


def collect(
    methods: Sequence[Method], counts: Sequence[int], number: int, keep: bool
) -> tuple[dict[int, Figures], str]:
    """Return the results for each number of nodes, and the measured versions. Raises BenchError and LabError."""
    figures: dict[int, Figures] = {count: {method.key: [] for method in methods} for count in counts}
    # The lab's own messages are not part of the result.
    with redirect_stdout(sys.stderr), test_hosts(counts[-1], keep) as lab, workplace() as directory:
        prepare(lab, counts)
        output = versions(lab)
        benches = [Bench(lab, count, directory) for count in counts]
        for bench, method, seconds in rounds(benches, methods, number):
            figures[bench.count][method.key].append(seconds)
    return figures, output


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[2, 4, 8], help="default: 2 4 8")
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--keep", action="store_true", help="leave the test hosts up")
    arguments = parser.parse_args()
    counts = sorted(arguments.nodes)
    try:
        figures, output = collect(METHODS, counts, arguments.rounds, arguments.keep)
    except (BenchError, LabError) as error:
        print(error, file=sys.stderr)
        return 2
    print(EXPLANATION.format(rounds=arguments.rounds, versions=output))
    print("\n\n".join(table(count, figures[count]) for count in counts))
    judged = goals(counts[-1], figures[counts[-1]])
    print("", *(text for _met, text in judged), sep="\n")
    return 0 if all(met for met, _text in judged) else 1


if __name__ == "__main__":
    sys.exit(main())
