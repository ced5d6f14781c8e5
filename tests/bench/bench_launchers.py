# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long each launcher takes used bare, and under launch.yml: the same job on the same test hosts in one run.

By hand: python -m tests.bench.bench_launchers --nodes 2 4 8 --rounds 3
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from contextlib import redirect_stdout

from tests.bench.bench_launch import (
    BIN,
    PYTHON,
    SCRIPT,
    Bench,
    BenchError,
    Seconds,
    Way,
    deepspeed,
    fresh,
    measure,
    middle,
    mpirun,
    prepare,
    test_hosts,
    torchrun,
    versions,
    workplace,
)
from tests.lab import LabError

EXPLANATION = """\
Seconds from the start of the command, medians of {rounds} rounds in which each way had its turn. The ratio is that of
launch.yml to the tool used bare, as a person types it. The job of mpirun is a bare Python script; that of the others
imports torch after its first line, does one all_reduce and ends. mpirun and pdsh used bare need ssh between the nodes.
{versions}
"""


def accelerate(bench: Bench, mark: str) -> list[list[str]]:
    """One ssh a node, at once, each with its `accelerate launch`."""
    own = [
        *("--multi_gpu", "--same_network", f"--num_machines={bench.count}", f"--num_processes={bench.count}"),
        *(f"--main_process_ip={bench.nodes[0].address}", "--main_process_port=29500", "--mixed_precision=no"),
        *("--dynamo_backend=no", "--rdzv_backend=static"),
    ]
    words = ["env", "GLOO_SOCKET_IFNAME=eth0", PYTHON, "-m", "accelerate.commands.launch", *own]
    return bench.on_each(lambda rank: [*words, f"--machine_rank={rank}", SCRIPT, mark, "torch"])


def ours(torch: bool = True, **settings: object) -> Callable[[Bench, str], list[list[str]]]:
    """launch.yml as a person would type it."""

    def commands(bench: Bench, mark: str) -> list[list[str]]:
        variables = {
            "nnodes": bench.count,
            "launch_script": SCRIPT,
            "launch_args": [mark, *(["torch"] if torch else [])],
            "launch_runs_directory": str(bench.directory / "runs"),
            "launch_environment": {"DS_ACCELERATOR": "cpu"},
            "ansible_control_path": f"{fresh(bench.directory)}/%%h",
            **settings,
        }
        playbook = [str(BIN / "ansible-playbook"), "playbooks/launch.yml", "-i", str(bench.lab.inventory)]
        return [[*playbook, "-e", json.dumps(variables)]]

    return commands


def pair(key: str, title: str, bare: Callable[[Bench, str], list[list[str]]], mine: Way) -> tuple[Way, Way]:
    """A tool used bare, and ours."""
    return Way(key, title, key, bare), mine


def own(title: str, **settings: object) -> Way:
    """One of our ways; `floor` is not used here."""
    return Way(title, title, title, ours(**settings))  # type: ignore[arg-type]  # torch is a bool


PAIRS = (
    pair("torchrun", "parallel ssh, torchrun", torchrun, own("launch.yml, torchrun")),
    pair("mpirun", "mpirun", mpirun, own("launch.yml, mpirun", torch=False, launch_launcher="mpirun")),
    pair("pdsh", "deepspeed --hostfile (pdsh)", deepspeed, own("launch.yml, deepspeed", launch_launcher="deepspeed")),
    pair(
        "pdsh",
        "deepspeed --hostfile (pdsh)",
        deepspeed,
        own("launch.yml, deepspeed with pdsh", launch_launcher="deepspeed", launch_deepspeed_launcher="pdsh"),
    ),
    pair(
        "accelerate",
        "parallel ssh, accelerate",
        accelerate,
        own("launch.yml, accelerate", launch_launcher="accelerate"),
    ),
)


def row(title: str, own_seconds: Seconds, bare: Seconds | None) -> str:
    """One way; bare: what it is compared with."""
    ratios = (
        ("", "")
        if bare is None
        else (f"{own_seconds.first_line / bare.first_line:.2f}", f"{own_seconds.whole / bare.whole:.2f}")
    )
    return f"{title:<34}{own_seconds.first_line:>8.2f} s {ratios[0]:>5}{own_seconds.whole:>12.2f} s {ratios[1]:>5}"


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[2, 4, 8], help="default: 2 4 8")
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--keep", action="store_true", help="leave the test hosts up")
    arguments = parser.parse_args()
    counts = sorted(arguments.nodes)
    ways = list({way.title: way for both in PAIRS for way in both}.values())
    figures: dict[tuple[int, str], list[Seconds]] = {}
    try:
        with redirect_stdout(sys.stderr), test_hosts(counts[-1], arguments.keep) as lab, workplace() as directory:
            prepare(lab, counts)
            serial = 0
            for turn in range(arguments.rounds + 1):  # the first fills caches and is not counted
                for count in counts if turn else counts[:1]:
                    for way in ways:
                        serial += 1
                        seconds = measure(Bench(lab, count, directory), way, serial)
                        print(f"{turn} of {arguments.rounds}, {count} nodes: {way.title:<34}{seconds}", flush=True)
                        if turn:
                            figures.setdefault((count, way.title), []).append(seconds)
            said = versions(lab)
    except (BenchError, LabError) as error:
        print(error, file=sys.stderr)
        return 2

    print(EXPLANATION.format(rounds=arguments.rounds, versions=said))
    for count in counts:
        print(f"{f'{count} nodes, one rank each':<34}{'last rank runs':>16}{'whole command':>20}")
        told = set()
        for bare, mine in PAIRS:
            if bare.title not in told:
                print(row(bare.title, middle(figures[count, bare.title]), None))
                told.add(bare.title)
            print(row(mine.title, middle(figures[count, mine.title]), middle(figures[count, bare.title])))
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
