# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Start processes on other nodes, using bin/ssh, for a launcher on rank 0's node such as mpirun."""

from __future__ import annotations

import os

from ansible_collections.muster.training.plugins.module_utils._run.safe_files import read_job_object

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from ansible_collections.muster.training.plugins.module_utils._run.documents import NodeView
    from ansible_collections.muster.training.plugins.module_utils._supervisor.journal import Journal
    from ansible_collections.muster.training.plugins.module_utils._supervisor.lifeline import LifelineConnection


class RemoteStart:
    """Passes bin/ssh's commands to their nodes, and exit codes back to bin/ssh; each node starts one command once."""

    def __init__(self, journal: Journal, nodes: list[NodeView]) -> None:
        self.journal = journal
        self.nodes = nodes

    def command_path(self, node_rank: int) -> str:
        return self.journal.log_path(os.path.join("asked", f"{node_rank}.json"))

    def send_command(self, connection: LifelineConnection) -> None:
        command = read_job_object(self.command_path(connection.node_rank or 0)).get("command", "")
        connection.send({"type": "start", "command": str(command)})

    def forward(self, connections: list[LifelineConnection]) -> list[str]:
        """Pass on new commands and exit codes; return the names of the nodes that have no command yet."""
        for node in self.nodes:
            rank = node["node_rank"]
            if not node["remote_started"]:
                connection = next((connection for connection in connections if connection.node_rank == rank), None)
                if connection is not None and os.path.exists(self.command_path(rank)):
                    node["remote_started"] = True
                    self.send_command(connection)
            elif not node["answered"] and node["state"] in ("ended", "lost"):
                code = node["report"]["exit_code"] if node["report"] else None
                node["answered"] = self.journal.write(
                    self.journal.log_path(os.path.join("asked", f"{rank}.exit")), code
                )
        return [node["name"] for node in self.nodes if not node["remote_started"]]
