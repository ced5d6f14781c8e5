# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure how long each launcher takes on its own and under launch.yml, using the same job on the same test hosts in
one run.

By hand: python -m tests.bench.bench_launchers --nodes 2 4 8 --rounds 3
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from operator import truediv

from tests.bench.bench_launch import (
    BIN,
    PYTHON,
    SCRIPT,
    Bench,
    BenchError,
    Figures,
    Method,
    collect,
    compared,
    deepspeed,
    fresh,
    middle,
    mpirun,
    torchrun,
)
from tests.lab import LabError

EXPLANATION = """\
Seconds from the start of the command, medians of {rounds} rounds in which each method ran once. The ratio is that of
launch.yml to the tool on its own, as typed by hand: the median of the ratios of all rounds. The job of mpirun is a bare
Python script; that of the others imports torch after its first line, performs one all_reduce and exits. On their own,
mpirun and pdsh need ssh between the nodes.
{versions}
"""


def accelerate(bench: Bench, mark: str) -> list[list[str]]:
    """Use one ssh per node, all at the same time, each starting `accelerate launch`."""
    options = [
        *("--multi_gpu", "--same_network", f"--num_machines={bench.count}", f"--num_processes={bench.count}"),
        *(f"--main_process_ip={bench.nodes[0].address}", "--main_process_port=29500", "--mixed_precision=no"),
        *("--dynamo_backend=no", "--rdzv_backend=static"),
    ]
    arguments = ["env", "GLOO_SOCKET_IFNAME=eth0", PYTHON, "-m", "accelerate.commands.launch", *options]
    return bench.on_each(lambda rank: [*arguments, f"--machine_rank={rank}", SCRIPT, mark, "torch"])


def launch_command(torch: bool = True, **settings: object) -> Callable[[Bench, str], list[list[str]]]:
    """Run launch.yml as a user would type it."""

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


METHODS = (
    Method("torchrun", "parallel ssh, torchrun", "torchrun", torchrun),
    Method("our-torchrun", "launch.yml, torchrun", "torchrun", launch_command()),
    Method("mpirun", "mpirun", "mpirun", mpirun),
    Method("our-mpirun", "launch.yml, mpirun", "mpirun", launch_command(torch=False, launch_launcher="mpirun")),
    Method("pdsh", "deepspeed --hostfile (pdsh)", "pdsh", deepspeed),
    Method("our-deepspeed", "launch.yml, deepspeed", "pdsh", launch_command(launch_launcher="deepspeed")),
    Method(
        "our-pdsh",
        "launch.yml, deepspeed with pdsh",
        "pdsh",
        launch_command(launch_launcher="deepspeed", launch_deepspeed_launcher="pdsh"),
    ),
    Method("accelerate", "parallel ssh, accelerate", "accelerate", accelerate),
    Method("our-accelerate", "launch.yml, accelerate", "accelerate", launch_command(launch_launcher="accelerate")),
)


def table(count: int, figures: Figures) -> str:
    """Return the results for one number of nodes, comparing launch.yml with the launcher on its own."""
    lines = [f"{f'{count} nodes, one rank each':<34}{'last rank runs':>16}{'whole command':>20}"]
    for method in METHODS:
        medians, ratios = middle(figures[method.key]), ["", ""]
        if method.key != method.floor:
            names = ("first_line", "whole")
            ratios = [f"{compared(figures, method.key, method.floor, truediv, name):.2f}" for name in names]
        lines.append(
            (
                f"{method.title:<34}{medians.first_line:>8.2f} s {ratios[0]:>5}{medians.whole:>12.2f} s {ratios[1]:>5}"
            ).rstrip()
        )
    return "\n".join(lines)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[2, 4, 8], help="default: 2 4 8")
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
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
    return 0


if __name__ == "__main__":
    sys.exit(main())
