# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""torchrun with c10d rendezvous: supports restarts, and elastic runs that shrink and grow."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.module_utils._run.documents import AttemptFields
from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import (
    Node,
    RankTable,
    build_rank_table,
)
from ansible_collections.muster.training.plugins.plugin_utils._plan.job import Job
from ansible_collections.muster.training.plugins.plugin_utils._plan.launchers.torchrun_static import (
    TorchrunStatic,
    endpoint_host,
)


class TorchrunC10d(TorchrunStatic):
    """Like TorchrunStatic, but the agents assign the ranks among themselves, sorting their addresses as strings."""

    def problems(self, job: Job, table: RankTable) -> list[str]:
        """Return no problems: c10d accepts everything torchrun accepts."""
        return []

    def order(self, table: RankTable) -> RankTable:
        """Return the table sorted by address as a string: 10.0.0.10 comes before 10.0.0.9.

        c10d ignores --node-rank and sorts by --local-addr (torch elastic/rendezvous/dynamic_rendezvous.py,
        sorted(participants)).
        """
        nodes = sorted(table.nodes, key=lambda node: node.address)
        return build_rank_table([{"name": node.name, "address": node.address, "slots": node.slots} for node in nodes])

    def rendezvous(self, job: Job, table: RankTable, node: Node) -> list[str]:
        """Return the rendezvous options; without is_host, a node whose name maps to 127.0.1.1 never hosts the store."""
        is_host = str(int(node.node_rank == 0))
        min_nodes = job.min_nnodes if job.min_nnodes is not None else table.nnodes
        return [
            f"--nnodes={min_nodes}:{table.nnodes}",
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint={endpoint_host(table.master.address)}:{job.master_port}",
            f"--rdzv-conf={rendezvous_configuration(job, is_host)}",
            f"--local-addr={node.address}",
        ]

    def environment(self, job: Job, table: RankTable, node: Node) -> dict[str, str]:
        """Return the launcher's environment.

        The ranks get a new store at each start. If they shared the agents' store, they could find keys of an earlier
        start: each agent counts its own restarts, and that count is the keys' only prefix (torch
        distributed/rendezvous.py, "/worker/attempt_"). A run that lost a node would then connect to dead addresses.
        """
        return {**super().environment(job, table, node), "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}

    def attempt_fields(self, job: Job) -> AttemptFields:
        """Return the arguments that change in each attempt.

        Each attempt needs a new endpoint, because the agents' store keeps the state of the previous rendezvous.
        """
        arguments = dict(super().attempt_fields(job)["arguments"])
        del arguments["--node-rank="], arguments["--master-addr="], arguments["--master-port="]
        changed = {
            "--nnodes=": "{nnodes}:{nnodes}",
            "--rdzv-endpoint=": "{master}:{master_port}",
            "--rdzv-conf=": rendezvous_configuration(job, "{is_host}"),
            "--local-addr=": "{address}",
        }
        return {"arguments": {**arguments, **changed}}


def rendezvous_configuration(job: Job, is_host: str) -> str:
    """Return the value of --rdzv-conf; is_host: 1 on the node that hosts the agents' store, 0 on the others."""
    return f"is_host={is_host},join_timeout={job.start_timeout},read_timeout={job.start_timeout}"


def joining_command(command: list[str], address: str) -> list[str]:
    """Return the command for a node that joins an elastic run. command: that of the node that hosts the store."""
    end = command.index("--") if "--" in command else len(command)
    options = [
        f"--local-addr={address}"
        if option.startswith("--local-addr=")
        else option.replace("is_host=1", "is_host=0")
        if option.startswith("--rdzv-conf=")
        else option
        for option in command[:end]
    ]
    return [*options, *command[end:]]
