# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""torchrun with static rendezvous: ranks follow the order of the rank table."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.module_utils._run.documents import AttemptFields
from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import Node, RankTable
from ansible_collections.muster.training.plugins.plugin_utils._plan.job import Job
from ansible_collections.muster.training.plugins.plugin_utils._plan.launchers.base import BaseLauncher

# Does what torchrun's own script does, but without garbage collection: importing torch accounts for most of the startup
# time, a tenth of which is spent on passes over objects that stay alive. The ranks are separate processes with their
# own collector.
TORCHRUN = (
    "import gc, sys; gc.disable(); from torch.distributed.run import main; gc.freeze(); gc.enable(); "
    "sys.argv[0] = 'torchrun'; main()"
)


def endpoint_host(address: str) -> str:
    """Return an address in the form required before ":port"."""
    return f"[{address}]" if ":" in address else address


class TorchrunStatic(BaseLauncher):
    """One torchrun per node.

    Unequal slots are fine: the agents add them up (torch elastic/agent/server/api.py).
    """

    rank_logs = "torchrun"
    master_port_everywhere = True  # torch's store listens on all addresses of node 0
    modules: tuple[str, ...] = ("torch",)

    def problems(self, job: Job, table: RankTable) -> list[str]:
        """Return the requested features that this launcher does not support."""
        if job.elastic:
            return [
                "an elastic run (nnodes=MIN:MAX) needs launch_rdzv_backend: c10d; "
                "static rendezvous has a fixed number of nodes"
            ]
        return []

    def rendezvous(self, job: Job, table: RankTable, node: Node) -> list[str]:
        """Return the options by which the agents find each other."""
        return [
            f"--nnodes={table.nnodes}",
            f"--node-rank={node.node_rank}",
            "--rdzv-backend=static",
            f"--master-addr={endpoint_host(table.master.address)}",
            f"--master-port={job.master_port}",
            f"--rdzv-conf=timeout={job.start_timeout}",
        ]

    def command(self, job: Job, table: RankTable, node: Node, interpreter: str, run_directory: str) -> list[str]:
        """Return the node's command: absolute interpreter path first, no shell."""
        return [
            interpreter,
            "-c",
            TORCHRUN,
            *self.rendezvous(job, table, node),
            f"--nproc-per-node={node.slots}",
            f"--rdzv-id={job.run_id}",
            f"--max-restarts={job.max_restarts}",
            # seconds between checks for ranks that have ended; the default was 5 in older versions
            "--monitor-interval=0.1",
            f"--log-dir={run_directory}/ranks",
            "--redirects=3",
            *(["-m"] if job.module else ["--no-python"] if job.no_python else []),
            "--",  # argparse consumes the first "--", which might be the job's own
            job.module or job.script,
            *job.args,
        ]

    def environment(self, job: Job, table: RankTable, node: Node) -> dict[str, str]:
        """Return the launcher's environment."""
        # Not --shutdown-timeout, which older torch versions reject; they ignore an unknown variable.
        return {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(job.stop_grace)}

    def attempt_fields(self, job: Job) -> AttemptFields:
        """Return the arguments that change in each attempt."""
        return {
            "arguments": {
                "--nnodes=": "{nnodes}",
                "--node-rank=": "{node_rank}",
                "--master-addr=": "{master}",
                "--master-port=": "{master_port}",
                "--rdzv-id=": "{rdzv_id}",
                "--log-dir=": "{logs}/ranks",
            }
        }
