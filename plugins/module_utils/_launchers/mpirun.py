# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Open MPI's mpirun on rank 0's node, its daemons under the other nodes' supervisors. Private to this collection."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.module_utils._hostfile import render_openmpi
from ansible_collections.muster.training.plugins.module_utils._job import Job
from ansible_collections.muster.training.plugins.module_utils._launchers.ranks import (
    RANK_PROGRAM,
    SHELL_PROGRAM,
    RankLauncher,
    common_network,
)
from ansible_collections.muster.training.plugins.module_utils._rank_table import Node, RankTable


def without_ipv6(name: str, table: RankTable) -> list[str]:
    """What keeps a launcher from addresses with colons."""
    if ":" not in table.master.address:
        return []
    return [
        f"{name} needs IPv4 addresses, found {table.master.address} of {table.master.name}: readers of a hostfile cut "
        "it at its colons; set node_address to IPv4 addresses, or use launch_launcher: torchrun or deepspeed"
    ]


def mca_settings(table: RankTable) -> list[str]:
    """mpirun's words for one network decision on all nodes, and for daemons that stay where they are watched."""
    network = common_network([node.address for node in table.nodes])
    settings = {
        "btl_tcp_if_include": network,
        "oob_tcp_if_include": network,
        "plm": "rsh",  # no batch system is asked, although one may be installed
        # Ours, which is first on the path. Its daemons look for one, too, although they start nothing: an image without
        # ssh has sh.
        "plm_rsh_agent": f"{SHELL_PROGRAM}:sh",
        "plm_rsh_assume_same_shell": "0",  # it asks ours, which says sh's, and not the user's login shell, perhaps csh
        "plm_rsh_no_tree_spawn": "1",  # all daemons are started by rank 0's node
        "plm_rsh_num_concurrent": str(max(128, table.nnodes)),  # each start lasts as long as its daemon
    }
    words = [word for name, value in settings.items() for word in ("--mca", name, value)]
    return [*words, "--leave-session-attached", "--bind-to", "none"]


def open_mpi_environment(table: RankTable) -> dict[str, str]:
    """Open MPI refuses root unless it is told twice; in containers root is usual."""
    return {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


class Mpirun(RankLauncher):
    """One mpirun, on the node of rank 0: Open MPI 4 gives the first ranks to the host that it runs on.

    Ranks find what torch reads (RANK, WORLD_SIZE, MASTER_ADDR ...) besides MPI's own variables, so that programs of
    torch, of mpi4py and in C run alike. Nothing is handed on by -x: each node's daemon gets its node's environment from
    its supervisor.
    """

    name = "mpirun"
    remote_start = True
    rank = ("OMPI_COMM_WORLD_RANK",)
    world = ("OMPI_COMM_WORLD_SIZE",)

    def problems(self, job: Job, table: RankTable) -> list[str]:
        """Addresses must be IPv4."""
        return [*super().problems(job, table), *without_ipv6("launch_launcher: mpirun", table)]

    def needed_programs(self, job: Job, node_rank: int) -> tuple[str, ...]:
        """What must be installed."""
        return ("mpirun",) if node_rank == 0 else ("orted",)

    def command(self, job: Job, table: RankTable, node: Node, interpreter: str, run_directory: str) -> list[str]:
        """Rank 0's command; the others' comes from it."""
        if node.node_rank != 0:
            return []
        hostfile = f"{run_directory}/hostfile"
        return ["mpirun", "--hostfile", hostfile, "-np", str(table.world_size), *mca_settings(table), RANK_PROGRAM]

    def launcher_environment(self, job: Job, table: RankTable, node: Node) -> dict[str, str]:
        """On all nodes: what is for mpirun is for its daemons."""
        return open_mpi_environment(table)

    def files(self, job: Job, table: RankTable, node: Node, interpreter: str) -> dict[str, str]:
        """Also the hostfile, by addresses: nothing has to be resolved."""
        files = super().files(job, table, node, interpreter)
        if node.node_rank == 0:
            files["hostfile"] = render_openmpi(table, use="address")
        return files
