# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Render a rank table as a hostfile of DeepSpeed, Open MPI or MPICH."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import (
    RankTable,
    RankTableError,
    RankTableProblem,
    format_value,
)


def render_deepspeed(table: RankTable, use: str = "name") -> str:
    """Render a hostfile for DeepSpeed, with one line `host slots=N` per node, in rank order.

    `use` is "name" or "address": how the launcher reaches the hosts. Raise RankTableError for IPv6 addresses, which no
    hostfile parser accepts.
    """
    return "".join(f"{host} slots={slots}\n" for host, slots in _hosts_and_slots(table, use))


def render_openmpi(table: RankTable, use: str = "name") -> str:
    """Render a hostfile for Open MPI (`mpirun --hostfile`): the same lines as for DeepSpeed.

    Start mpirun on the first node: Open MPI 4 gives the first ranks to the host it runs on, if the file lists it.
    """
    return render_deepspeed(table, use)


def render_mpich(table: RankTable, use: str = "name") -> str:
    """Render a hostfile for MPICH and Intel MPI (`mpiexec -f`): lines `host:N`. `use`: see render_deepspeed()."""
    return "".join(f"{host}:{slots}\n" for host, slots in _hosts_and_slots(table, use))


def _hosts_and_slots(table: RankTable, use: str) -> list[tuple[str, int]]:
    if use == "name":
        return [(node.name, node.slots) for node in table.nodes]
    if use != "address":
        raise RankTableError(
            [RankTableProblem(None, f"use is {format_value(use)}", "'name' or 'address'", "Correct use")]
        )
    if ":" in table.master.address:
        problem = (
            f"the addresses are IPv6 ({table.master.address} ...), which hostfile parsers truncate at the first colon"
        )
        remedy = "List the hosts by name, and make sure that all nodes can resolve the names"
        raise RankTableError([RankTableProblem(None, problem, "IPv4 addresses or names", remedy)])
    return [(node.address, node.slots) for node in table.nodes]
