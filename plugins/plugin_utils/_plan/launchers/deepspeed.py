# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""DeepSpeed's launcher: one supervised `deepspeed --no_ssh` per node, or pdsh or Open MPI from rank 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._run.documents import AttemptFields
from ansible_collections.muster.training.plugins.plugin_utils._cluster.hostfile_formats import render_deepspeed
from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import Node, RankTable
from ansible_collections.muster.training.plugins.plugin_utils._plan.job import Job
from ansible_collections.muster.training.plugins.plugin_utils._plan.launchers.base import RANK_PROGRAM, RankLauncher
from ansible_collections.muster.training.plugins.plugin_utils._plan.launchers.mpirun import (
    find_ipv6_problems,
    mca_settings,
    open_mpi_environment,
)

MODULE = "deepspeed.launcher.runner"
NO_LOCAL_RANK = "--no_local_rank"
NO_ENVIRONMENT_FILE = "muster-sets-the-environment"  # no file has this name


def decide_local_rank(job: Job, facts: Mapping[str, Any]) -> Job:
    """Return the job after deciding whether DeepSpeed passes --local_rank, which many parsers reject.

    "auto": if the job's sources have such an option, or could not be read.
    """
    source = facts.get("imports") or {}
    if job.deepspeed_local_rank != "auto" or not source.get("files"):
        return job
    return replace(job, deepspeed_local_rank="true" if "local-rank" in source["features"] else "false")


def local_rank_options(job: Job) -> list[str]:
    """Return the launcher option that omits --local_rank, if the job does not accept it."""
    return [NO_LOCAL_RANK] if job.deepspeed_local_rank == "false" else []


class DeepSpeed(RankLauncher):
    """One `deepspeed` per node, with its rank and the address of the master as arguments.

    By default, DeepSpeed uses the first address of `hostname -I`, on whatever network.
    """

    name = "deepspeed"
    modules: tuple[str, ...] = ("deepspeed",)

    def command(self, job: Job, table: RankTable, node: Node, interpreter: str, run_directory: str) -> list[str]:
        """Return the node's command: absolute interpreter path first, no shell."""
        return [
            interpreter,
            "-m",
            MODULE,
            f"--hostfile={run_directory}/hostfile",
            "--no_ssh",
            f"--node_rank={node.node_rank}",
            f"--master_addr={table.master.address}",
            f"--master_port={job.master_port}",
            *local_rank_options(job),
            "--no_python",
            RANK_PROGRAM,
        ]

    def launcher_environment(self, job: Job, table: RankTable, node: Node) -> dict[str, str]:
        """Prevent DeepSpeed from reading a .deepspeed_env file in the home directory, which may exist on some nodes
        only.
        """
        return {"DS_ENV_FILE": NO_ENVIRONMENT_FILE}

    def files(self, job: Job, table: RankTable, node: Node, interpreter: str) -> dict[str, str]:
        """Add the hostfile: without it, DeepSpeed trains on this node alone and exits with 0."""
        return {**super().files(job, table, node, interpreter), "hostfile": render_deepspeed(table)}

    def attempt_fields(self, job: Job) -> AttemptFields:
        """Add the arguments and the hostfile, which change in each attempt."""
        arguments = {
            "--node_rank=": "{node_rank}",
            "--master_addr=": "{master_address}",
            "--master_port=": "{master_port}",
        }
        return {**super().attempt_fields(job), "arguments": arguments, "hostfiles": ["hostfile"]}


class DeepSpeedRemote(DeepSpeed):
    """`deepspeed` on rank 0's node, which starts the other nodes with pdsh or Open MPI's mpirun.

    MPICH is not supported: its helper in DeepSpeed only starts Python scripts (launcher_helper.py, 0.19.8).
    """

    remote_start = True
    bare_launcher = True  # it exports NCCL_*, PYTHON*, MLFLOW*, UCX* and MV2* on command lines

    def __init__(self, launcher: str) -> None:
        self.launcher = launcher
        self.name = f"deepspeed with {launcher}"
        if launcher == "openmpi":
            self.rank, self.world = ("OMPI_COMM_WORLD_RANK",), ("OMPI_COMM_WORLD_SIZE",)

    def problems(self, job: Job, table: RankTable) -> list[str]:
        """Also report IPv6 addresses: MPI needs addresses, and its hostfiles accept only IPv4."""
        return super().problems(job, table) + ([] if self.launcher == "pdsh" else find_ipv6_problems(self.name, table))

    def needed_programs(self, job: Job, node_rank: int) -> tuple[str, ...]:
        """Return the programs that must be installed on the node."""
        if self.launcher == "openmpi":
            return ("mpirun", "ompi_info") if node_rank == 0 else ("orted",)
        return ("pdsh",) if node_rank == 0 else ()

    def command(self, job: Job, table: RankTable, node: Node, interpreter: str, run_directory: str) -> list[str]:
        """Return rank 0's command, which starts the other nodes' commands."""
        if node.node_rank != 0:
            return []
        launcher_args = []
        if self.launcher == "openmpi":
            launcher_args = [f"--launcher_args={' '.join(mca_settings(table))}"]
        return [
            interpreter,
            "-m",
            MODULE,
            f"--hostfile={run_directory}/hostfile",
            f"--launcher={self.launcher}",
            "--force_multi",
            "--no_ssh_check",
            *launcher_args,
            f"--master_addr={table.master.address}",
            f"--master_port={job.master_port}",
            *local_rank_options(job),
            "--no_python",
            RANK_PROGRAM,
        ]

    def launcher_environment(self, job: Job, table: RankTable, node: Node) -> dict[str, str]:
        """Add the settings specific to MPI."""
        mpi = open_mpi_environment(table) if self.launcher == "openmpi" else {}
        return {**super().launcher_environment(job, table, node), **mpi}

    def files(self, job: Job, table: RankTable, node: Node, interpreter: str) -> dict[str, str]:
        """Return the files. The hostfile for MPI contains addresses; pdsh accepts any name."""
        files = super().files(job, table, node, interpreter)
        if self.launcher != "pdsh":
            files["hostfile"] = render_deepspeed(table, use="address")
        return files
