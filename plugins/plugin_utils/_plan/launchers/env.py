# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One process per node, with its rank in the environment, for Lightning and plain scripts."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.module_utils._run.documents import AttemptFields
from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import Node, RankTable
from ansible_collections.muster.training.plugins.plugin_utils._plan.job import Job
from ansible_collections.muster.training.plugins.plugin_utils._plan.launchers.base import BaseLauncher


class EnvLauncher(BaseLauncher):
    """MASTER_ADDR, MASTER_PORT, NODE_RANK and WORLD_SIZE (processes, not nodes) for one process per node.

    The script itself starts one process per GPU.
    RANK and LOCAL_RANK stay unset: Lightning would infer that a launcher starts every process.
    """

    rank_logs = "launcher"
    master_port_everywhere = False

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

    def command(self, job: Job, table: RankTable, node: Node, interpreter: str, run_directory: str) -> list[str]:
        """Return the node's command: first the interpreter's absolute path, or with launch_no_python the program."""
        return [*job.program_argv(interpreter), *job.args]

    def environment(self, job: Job, table: RankTable, node: Node) -> dict[str, str]:
        """Return the variables that tell the process its rank."""
        return {
            "MASTER_ADDR": table.master.address,
            "MASTER_PORT": str(job.master_port),
            "NODE_RANK": str(node.node_rank),
            "WORLD_SIZE": str(table.world_size),
        }

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
