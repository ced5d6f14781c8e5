# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One process per node, with its rank in the environment: Lightning, plain scripts."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.module_utils._rank_table import Node, RankTable
from ansible_collections.muster.training.plugins.module_utils._run.documents import AttemptFields
from ansible_collections.muster.training.plugins.plugin_utils._plan.job import Job


class EnvLauncher:
    """MASTER_ADDR, MASTER_PORT, NODE_RANK and WORLD_SIZE (processes, not nodes) for one process per node.

    The script itself starts one process per GPU.
    RANK and LOCAL_RANK stay unset: Lightning would infer that a launcher starts every process.
    """

    rank_logs = "launcher"
    master_port_everywhere = False
    uses_names = False
    remote_start = False
    bare_launcher = False
    modules: tuple[str, ...] = ()

    def problems(self, job: Job, table: RankTable) -> list[str]:
        """Report unequal slots, elastic runs and restarts, which are not supported."""
        problems = []
        if not table.equal_slots:
            slots = ", ".join(f"{node.name} {node.slots}" for node in table.nodes)
            problems.append(
                f"launch_launcher: env needs the same number of slots on each node, but they are {slots}: the script "
                "counts its ranks as NODE_RANK times its own processes; set nproc_per_node, or use torchrun"
            )
        if job.elastic:
            problems.append(
                "an elastic run (nnodes=MIN:MAX) needs launch_launcher: torchrun with launch_rdzv_backend: c10d"
            )
        if job.max_restarts:
            problems.append("launch_max_restarts needs launch_launcher: torchrun; env starts each process once")
        return problems

    def order(self, table: RankTable) -> RankTable:
        """Return the table in the order in which this launcher numbers the nodes."""
        return table

    def needed_programs(self, job: Job, node_rank: int) -> tuple[str, ...]:
        """Return no programs: the job's own suffices."""
        return ()

    def command(self, job: Job, table: RankTable, node: Node, interpreter: str, run_directory: str) -> list[str]:
        """Return the node's command: absolute interpreter path first, no shell."""
        return [*job.program_argv(interpreter), *job.args]

    def environment(self, job: Job, table: RankTable, node: Node) -> dict[str, str]:
        """Return the variables that tell the process its rank."""
        return {
            "MASTER_ADDR": table.master.address,
            "MASTER_PORT": str(job.master_port),
            "NODE_RANK": str(node.node_rank),
            "WORLD_SIZE": str(table.world_size),
        }

    def launcher_environment(self, job: Job, table: RankTable, node: Node) -> dict[str, str]:
        """Return no variables: the job is its own launcher."""
        return {}

    def files(self, job: Job, table: RankTable, node: Node, interpreter: str) -> dict[str, str]:
        """Return no files."""
        return {}

    def programs(self, node: Node) -> list[str]:
        """Return no programs."""
        return []

    def attempt_fields(self, job: Job) -> AttemptFields:
        """Return the variables that change in each attempt."""
        return {
            "environment": {
                "MASTER_ADDR": "{master_address}",
                "MASTER_PORT": "{master_port}",
                "NODE_RANK": "{node_rank}",
                "WORLD_SIZE": "{world_size}",
            }
        }
