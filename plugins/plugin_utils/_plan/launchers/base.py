# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The base classes of all launchers, and of launchers that start bin/muster-rank instead of the job."""

from __future__ import annotations

import json

from ansible_collections.muster.training.plugins.module_utils._run.documents import AttemptFields
from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import Node, RankTable
from ansible_collections.muster.training.plugins.plugin_utils._plan.job import Job

RANK_PROGRAM = "muster-rank"
SHELL_PROGRAM = "ssh"  # all launchers look for this name


class BaseLauncher:
    """A launcher that needs no files or programs in the run directory, and numbers the nodes like the rank table."""

    uses_names = False
    # whether its command on rank 0's node starts the processes on the other nodes with SHELL_PROGRAM
    remote_start = False
    bare_launcher = False  # whether it would copy its environment into command lines
    modules: tuple[str, ...] = ()  # the Python packages that it needs

    def order(self, table: RankTable) -> RankTable:
        """Return the table in the order in which this launcher numbers the nodes."""
        return table

    def needed_programs(self, job: Job, node_rank: int) -> tuple[str, ...]:
        """Return the programs that must be on a node's PATH."""
        return ()

    def launcher_environment(self, job: Job, table: RankTable, node: Node) -> dict[str, str]:
        """Return the variables that are needed only by the launcher itself."""
        return {}

    def files(self, job: Job, table: RankTable, node: Node, interpreter: str) -> dict[str, str]:
        """Return the files that the launcher reads in a node's run directory. They contain no secrets."""
        return {}

    def programs(self, node: Node) -> list[str]:
        """Return this collection's programs in the bin directory of a node's run directory."""
        return []


class RankLauncher(BaseLauncher):
    """One process per slot, each started by bin/muster-rank, which reads its rank from the launcher's variables.

    `rank` and `world` are names of variables; the first that is set is used.
    """

    rank_logs = "ranks"
    master_port_everywhere = True  # torch's store listens on all of node 0's addresses
    rank: tuple[str, ...] = ("RANK",)
    world: tuple[str, ...] = ("WORLD_SIZE",)
    name = ""

    def problems(self, job: Job, table: RankTable) -> list[str]:
        """Return the requested features that this launcher does not support."""
        problems = []
        if job.elastic:
            problems.append(
                "an elastic run (nnodes=MIN:MAX) needs launch_launcher: torchrun with launch_rdzv_backend: c10d"
            )
        if job.max_restarts:
            problems.append(
                f"launch_max_restarts needs launch_launcher: torchrun; {self.name} starts each process once"
            )
        return problems

    def environment(self, job: Job, table: RankTable, node: Node) -> dict[str, str]:
        """Return the ranks' variables, except for the rank numbers, which bin/muster-rank adds."""
        return {"MASTER_ADDR": table.master.address, "MASTER_PORT": str(job.master_port)}

    def files(self, job: Job, table: RankTable, node: Node, interpreter: str) -> dict[str, str]:
        """Return the files in a node's run directory that configure bin/muster-rank. They contain no secrets."""
        rules = {
            "rank": list(self.rank),
            "world": list(self.world),
            "command": job.program_argv(interpreter),
            "arguments": list(job.args),
        }
        return {"rank.json": json.dumps(rules, indent=1) + "\n"}

    def programs(self, node: Node) -> list[str]:
        """Return our programs in bin of a node's run directory."""
        return [RANK_PROGRAM, *([SHELL_PROGRAM] if self.remote_start and node.node_rank == 0 else [])]

    def attempt_fields(self, job: Job) -> AttemptFields:
        """Return the variables that change in each attempt; bin/muster-rank reads the others from the plan."""
        return {"environment": {"MASTER_ADDR": "{master_address}", "MASTER_PORT": "{master_port}"}}


def common_network(addresses: list[str]) -> str:
    """Return the smallest IPv4 network, in CIDR notation, that contains these addresses: Open MPI uses it to choose
    interfaces.

    Interface names differ from node to node; the network does not.
    """
    numbers = [int.from_bytes(bytes(map(int, address.split("."))), "big") for address in addresses]
    length = 32
    while len({number >> (32 - length) for number in numbers}) > 1:
        length -= 1
    first = numbers[0] >> (32 - length) << (32 - length)
    return f"{'.'.join(map(str, first.to_bytes(4, 'big')))}/{length}"
