# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One `accelerate launch` per node, with its own configuration file."""

from __future__ import annotations

import json
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._run.documents import AttemptFields
from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import Node, RankTable
from ansible_collections.muster.training.plugins.plugin_utils._plan.job import Job
from ansible_collections.muster.training.plugins.plugin_utils._plan.launchers.base import RANK_PROGRAM, RankLauncher
from ansible_collections.muster.training.plugins.plugin_utils._plan.launchers.torchrun_static import endpoint_host

# Keys that are set from the rank table; the user's configuration must not set them.
RESERVED_KEYS = (
    "compute_environment",
    "num_machines",
    "num_processes",
    "machine_rank",
    "main_process_ip",
    "main_process_port",
    "rdzv_backend",
    "same_network",
)


class Accelerate(RankLauncher):
    """Accelerate divides the total number of processes by the number of machines, so all nodes need the same number of
    slots.
    """

    name = "accelerate"
    modules: tuple[str, ...] = ("accelerate",)

    def problems(self, job: Job, table: RankTable) -> list[str]:
        """Report unequal slots, and keys set by the user that are determined by the rank table."""
        problems = super().problems(job, table)
        if not table.equal_slots:
            slots = ", ".join(f"{node.name} {node.slots}" for node in table.nodes)
            problems.append(
                f"launch_launcher: accelerate needs the same number of slots on each node, but they are {slots}: it "
                f"starts {table.world_size} // {table.nnodes} processes on each; set nproc_per_node, or use torchrun"
            )
        reserved = [key for key in job.accelerate_config if key in RESERVED_KEYS]
        if reserved:
            problems.append(
                f"launch_accelerate_config has {', '.join(reserved)}, which come from the rank table: remove them"
            )
        return problems

    def configuration(self, job: Job, table: RankTable, node: Node) -> dict[str, Any]:
        """Return Accelerate's configuration for a node, with the user's keys added."""
        user_config = dict(job.accelerate_config)
        if (
            user_config.get("distributed_type") == "DEEPSPEED"
        ):  # with the default launcher, pdsh, every node would start all nodes
            user_config["deepspeed_config"] = {
                "deepspeed_multinode_launcher": "standard",
                **user_config.get("deepspeed_config", {}),
            }
        return {
            "distributed_type": "MULTI_GPU" if table.world_size > 1 else "NO",
            **user_config,
            "compute_environment": "LOCAL_MACHINE",
            "machine_rank": node.node_rank,
            "num_machines": table.nnodes,
            "num_processes": table.world_size,
            "main_process_ip": endpoint_host(table.master.address),
            "main_process_port": job.master_port,
            "rdzv_backend": "static",
            "same_network": True,
        }

    def command(self, job: Job, table: RankTable, node: Node, interpreter: str, run_directory: str) -> list[str]:
        """Return the node's command: it starts with the absolute path of the interpreter, and uses no shell."""
        return [
            interpreter,
            "-m",
            "accelerate.commands.launch",
            f"--config_file={run_directory}/accelerate.json",
            "--no_python",
            RANK_PROGRAM,
        ]

    def files(self, job: Job, table: RankTable, node: Node, interpreter: str) -> dict[str, str]:
        """Add the configuration file."""
        text = json.dumps(self.configuration(job, table, node), indent=1, sort_keys=True) + "\n"
        return {**super().files(job, table, node, interpreter), "accelerate.json": text}

    def attempt_fields(self, job: Job) -> AttemptFields:
        """Add the configuration keys that change in each attempt."""
        settings = {
            "machine_rank": "node_rank",
            "num_machines": "nnodes",
            "num_processes": "world_size",
            "main_process_ip": "master",
            "main_process_port": "master_port",
        }
        return {**super().attempt_fields(job), "settings": {"accelerate.json": settings}}
