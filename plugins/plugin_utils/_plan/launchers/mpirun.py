# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Open MPI's mpirun on rank 0's node, with its daemons under the other nodes' supervisors."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.module_utils._run.documents import AttemptFields
from ansible_collections.muster.training.plugins.plugin_utils._cluster.hostfile_formats import render_openmpi
from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import Node, RankTable
from ansible_collections.muster.training.plugins.plugin_utils._plan.job import Job
from ansible_collections.muster.training.plugins.plugin_utils._plan.launchers.base import (
    RANK_PROGRAM,
    SHELL_PROGRAM,
    RankLauncher,
    common_network,
)


def find_ipv6_problems(name: str, table: RankTable) -> list[str]:
    """Return a message if the addresses are IPv6, which the launcher cannot use."""
    if ":" not in table.master.address:
        return []
    return [
        f"{name} needs IPv4 addresses, but {table.master.name} has {table.master.address}, which hostfile parsers "
        "truncate at the first colon; set node_address to IPv4 addresses, or use launch_launcher: torchrun, or "
        "deepspeed without launch_deepspeed_launcher"
    ]


def mca_settings(table: RankTable) -> list[str]:
    """Return mpirun's options that fix the network for all nodes, and keep its daemons under this collection's
    supervisors.
    """
    network = common_network([node.address for node in table.nodes])
    settings = {
        "btl_tcp_if_include": network,
        "oob_tcp_if_include": network,
        "plm": "rsh",  # do not use a batch system, even if one is installed
        # Our ssh comes first on the PATH. The daemons also look for an agent, although they start nothing: "sh" exists
        # even in an image without ssh.
        "plm_rsh_agent": f"{SHELL_PROGRAM}:sh",
        "plm_rsh_assume_same_shell": "0",  # query our ssh, which answers sh; the login shell may be csh
        "plm_rsh_no_tree_spawn": "1",  # rank 0's node starts all daemons
        "plm_rsh_num_concurrent": str(max(128, table.nnodes)),  # a start counts as running as long as its daemon runs
    }
    arguments = [argument for name, value in settings.items() for argument in ("--mca", name, value)]
    return [*arguments, "--leave-session-attached", "--bind-to", "none"]


def open_mpi_environment(table: RankTable) -> dict[str, str]:
    """Return the two variables that Open MPI requires for running as root, which is common in containers."""
    return {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


class Mpirun(RankLauncher):
    """One mpirun, on rank 0's node: Open MPI 4 gives the first ranks to the host it runs on.

    Ranks get the variables that torch reads (RANK, WORLD_SIZE, MASTER_ADDR ...) in addition to MPI's own, so that
    torch, mpi4py and C programs all run. Nothing is passed with -x: each node's supervisor gives the daemon its
    environment.
    """

    name = "mpirun"
    remote_start = True
    rank = ("OMPI_COMM_WORLD_RANK",)
    world = ("OMPI_COMM_WORLD_SIZE",)

    def problems(self, job: Job, table: RankTable) -> list[str]:
        """Report IPv6 addresses in addition to the common problems."""
        return [*super().problems(job, table), *find_ipv6_problems("launch_launcher: mpirun", table)]

    def needed_programs(self, job: Job, node_rank: int) -> tuple[str, ...]:
        """Return the programs that must be installed."""
        return ("mpirun",) if node_rank == 0 else ("orted",)

    def command(self, job: Job, table: RankTable, node: Node, interpreter: str, run_directory: str) -> list[str]:
        """Return rank 0's command, which starts the other nodes' commands."""
        if node.node_rank != 0:
            return []
        hostfile = f"{run_directory}/hostfile"
        return ["mpirun", "--hostfile", hostfile, "-np", str(table.world_size), *mca_settings(table), RANK_PROGRAM]

    def launcher_environment(self, job: Job, table: RankTable, node: Node) -> dict[str, str]:
        """Return mpirun's variables for all nodes, since its daemons need them too."""
        return open_mpi_environment(table)

    def files(self, job: Job, table: RankTable, node: Node, interpreter: str) -> dict[str, str]:
        """Add the hostfile, which contains addresses so that no name has to be resolved."""
        files = super().files(job, table, node, interpreter)
        if node.node_rank == 0:
            files["hostfile"] = render_openmpi(table, use="address")
        return files

    def attempt_fields(self, job: Job) -> AttemptFields:
        """Add the number of processes and the hostfile, which change in each attempt."""
        return {**super().attempt_fields(job), "arguments": {"-np": "{world_size}"}, "hostfiles": ["hostfile"]}
