# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""torchrun with static rendezvous: ranks follow the order of the rank table. Private to this collection."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.module_utils._job import Job
from ansible_collections.muster.training.plugins.module_utils._rank_table import Node, RankTable

# What torchrun's own script does. Most of its start is the import of torch, and a tenth of that are the garbage
# collector's passes over what is never garbage. Its ranks are processes of their own, with a collector of their own.
TORCHRUN = (
    "import gc, sys; gc.disable(); from torch.distributed.run import main; gc.freeze(); gc.enable(); "
    "sys.argv[0] = 'torchrun'; main()"
)


def endpoint_host(address: str) -> str:
    """An address as it stands before ":port"."""
    return f"[{address}]" if ":" in address else address


class TorchrunStatic:
    """One torchrun a node.

    Unequal slots are fine: the agents add up their numbers (torch elastic/agent/server/api.py).
    """

    rank_logs = "torchrun"
    master_port_everywhere = True  # torch's store listens on all addresses of node 0
    uses_names = False
    remote_start = False
    bare_launcher = False
    modules: tuple[str, ...] = ("torch",)

    def problems(self, job: Job, table: RankTable) -> list[str]:
        """What this launcher cannot do of what is requested."""
        if job.elastic:
            return [
                "an elastic run (nnodes=least:most) needs launch_rdzv_backend: c10d; "
                "static rendezvous has a fixed number of nodes"
            ]
        return []

    def order(self, table: RankTable) -> RankTable:
        """The table in the order in which this launcher numbers the nodes."""
        return table

    def needed_programs(self, job: Job, node_rank: int) -> tuple[str, ...]:
        """Nothing but torch, which brings it."""
        return ()

    def rendezvous(self, job: Job, table: RankTable, node: Node) -> list[str]:
        """How the agents find each other."""
        return [
            f"--nnodes={table.nnodes}",
            f"--node-rank={node.node_rank}",
            "--rdzv-backend=static",
            f"--master-addr={endpoint_host(table.master.address)}",
            f"--master-port={job.master_port}",
            f"--rdzv-conf=timeout={job.start_timeout}",
        ]

    def command(self, job: Job, table: RankTable, node: Node, interpreter: str, run_directory: str) -> list[str]:
        """The node's command: absolute interpreter first, no shell."""
        return [
            interpreter,
            "-c",
            TORCHRUN,
            *self.rendezvous(job, table, node),
            f"--nproc-per-node={node.slots}",
            f"--rdzv-id={job.run_id}",
            f"--max-restarts={job.max_restarts}",
            "--monitor-interval=0.1",  # seconds until a rank's end is noticed; the default now, older ones took 5
            f"--log-dir={run_directory}/ranks",
            "--redirects=3",
            *(["-m"] if job.module else ["--no-python"] if job.no_python else []),
            "--",  # argparse takes the first one for itself, and it may be the job's own
            job.module or job.script,
            *job.args,
        ]

    def environment(self, job: Job, table: RankTable, node: Node) -> dict[str, str]:
        """What the launcher reads from the environment."""
        # An option for it (--shutdown-timeout) is young; the variable is ignored by a torch that does not know it.
        return {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(job.stop_grace)}

    def launcher_environment(self, job: Job, table: RankTable, node: Node) -> dict[str, str]:
        """torchrun gives its ranks what it has itself."""
        return {}

    def files(self, job: Job, table: RankTable, node: Node, interpreter: str) -> dict[str, str]:
        """All is told by arguments."""
        return {}

    def programs(self, node: Node) -> list[str]:
        """torchrun keeps logs and exit codes of its ranks itself."""
        return []
