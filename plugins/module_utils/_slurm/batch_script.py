# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The batch script of a run, and the options with which it is submitted. Pure functions."""

from __future__ import annotations

import re
import shlex

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, Mapping, Sequence

    Data = Dict[str, Any]

OPTIONS = ("partition", "account", "qos", "time", "gres", "exclude", "reservation", "dependency")
"""Options of sbatch that a user may set."""


class UnknownNodeError(Exception):
    """A node of the run that is not in the cluster; the message names it."""


def parse_nodes(text: str) -> list[dict[str, str]]:
    """Return NodeName, NodeAddr and NodeHostName of each node, from `scontrol show node --oneliner`."""
    names = ("NodeName", "NodeAddr", "NodeHostName", "Gres")
    return [
        dict(re.findall(rf"\b({'|'.join(names)})=(\S+)", line)) for line in text.splitlines() if "NodeName=" in line
    ]


def match_nodes(nodes: Iterable[Mapping[str, str]], cluster: Sequence[Mapping[str, str]]) -> list[Mapping[str, str]]:
    """Return the cluster's node for each node of a run: the one with its address, else the one with its name."""
    by_address = {node.get("NodeAddr", ""): node for node in cluster}
    by_name = {node.get(field, "").lower(): node for field in ("NodeHostName", "NodeName") for node in cluster}
    result = []
    for node in nodes:
        match = by_address.get(node["address"]) or by_name.get(node["name"].lower())
        if match is None:
            known = ", ".join(f"{other.get('NodeName')} at {other.get('NodeAddr')}" for other in cluster)
            raise UnknownNodeError(
                f"{node['name']} at {node['address']} is not in the Slurm cluster, which has {known or 'no nodes'}. "
                "Add it: ansible-playbook site.yml --tags slurm -e slurm_enabled=true"
            )
        result.append(match)
    return result


def gpu_count(resources: str) -> int:
    """Return the number of GPUs in a node's Gres, such as "gpu:h100:8(S:0-1)"."""
    return sum(int(count) for count in re.findall(r"\bgpu(?::[^:,()]+)?:(\d+)", resources))


def submit_arguments(
    run_id: str, log: str, nodes: Sequence[Mapping[str, str]], options: Mapping[str, str]
) -> list[str]:
    """Return the arguments of sbatch. The job gets its nodes whole, with all their GPUs and memory."""
    gpus = min(gpu_count(node.get("Gres", "")) for node in nodes)
    defaults = {"gres": f"gpu:{gpus}"} if gpus else {}
    chosen = {**defaults, **{name: value for name, value in options.items() if value and name in OPTIONS}}
    return [
        "--parsable",
        f"--job-name={run_id}",
        "--comment=muster",
        f"--nodes={len(nodes)}",
        f"--ntasks={len(nodes)}",
        "--ntasks-per-node=1",
        f"--nodelist={','.join(node['NodeName'] for node in nodes)}",
        "--exclusive",
        "--mem=0",
        "--no-requeue",
        "--no-kill",
        "--chdir=/",
        f"--output={log.replace('%', '%%')}",
        "--open-mode=append",
        *(f"--{name}={value}" for name, value in chosen.items()),
    ]


def batch_script(run_id: str, nodes: Iterable[Mapping[str, str]], names: Sequence[str]) -> str:
    """Return the script that starts each node's supervisor as a task of one step.

    The supervisors end the run: a task that fails must not end the others, and a lost node must not end the job.

    Args:
        nodes: address and run directory of each node, in rank order.
        names: their names in Slurm.
    """
    cases = "".join(
        f"{shlex.quote(name)}) set -- {shlex.quote(node['directory'])} {shlex.quote(node['address'])};;\n"
        for node, name in zip(nodes, names)
    )
    task = (
        f'case "$SLURMD_NODENAME" in\n{cases}'
        '*) echo "$SLURMD_NODENAME is not a node of this run" >&2; exit 1;;\nesac\n'
        f'exec python3 -I -S "$1/supervisor.py" "$1" {shlex.quote(run_id)} "$2"'
    )
    step = [
        "srun",
        f"--nodes={len(names)}",
        f"--ntasks={len(names)}",
        "--ntasks-per-node=1",
        "--cpu-bind=none",
        "--mpi=none",
        "--kill-on-bad-exit=0",
        "--no-kill",
        "--wait=0",  # a supervisor that hands the run over ends before the others
        *("/bin/sh", "-c", task),
    ]
    return f"#!/bin/sh\nexec {' '.join(map(shlex.quote, step))}\n"
