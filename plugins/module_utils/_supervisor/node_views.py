# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rank 0's view of the nodes of a run."""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from ansible_collections.muster.training.plugins.module_utils._run.documents import (
        NodeResult,
        NodeStatus,
        NodeView,
        Plan,
    )


def initial_views(names: list[str], launcher_log: str) -> list[NodeView]:
    """Return the view of each node, by node_rank, before any has checked in; launcher_log: rank 0's."""
    return [
        {
            "name": name,
            "node_rank": rank,
            "state": "waiting",
            "since": time.time(),
            "report": None,
            "broken": None,
            "last_message": 0.0,
            "lost_reason": "",
            "survived": False,
            "launcher_log": launcher_log if rank == 0 else "",  # other nodes send their own: home directories differ
            "remote_started": rank == 0,
            "answered": rank == 0,
            "return_by": 0.0,
            "excluded": False,
        }
        for rank, name in enumerate(names)
    ]


def reset_views(nodes: list[NodeView], members: list[int], launcher_log: str) -> None:
    """Prepare the views for a new attempt, in which these members take part; launcher_log: that of the first."""
    for node in nodes:
        takes_part, rank = node["node_rank"] in members, node["node_rank"]
        if takes_part:
            node["state"] = "waiting"
        elif node["state"] != "spare":
            node["state"] = "spare" if node["state"] == "ended" and not has_shut_down(node) else "lost"
        node["report"] = None
        node["survived"] = not takes_part
        node["launcher_log"] = launcher_log if rank == members[0] else ""
        node["remote_started"] = node["answered"] = rank == members[0] or not takes_part


def has_shut_down(node: NodeView) -> bool:
    """Return whether a node's machine is shutting down."""
    return node["report"] is not None and node["report"]["shutdown"]


def has_failed(node: NodeView) -> bool:
    """Return whether a node's part has failed."""
    return node["report"] is not None and node["report"].get("exit_code") != 0


def have_succeeded(plan: Plan, nodes: list[NodeView]) -> bool:
    """Return whether as many nodes have succeeded as the run needs."""
    succeeded = [node for node in nodes if node["state"] == "ended" and not has_failed(node)]
    return len(succeeded) >= (plan["min_nnodes"] if plan["elastic"] else len(nodes))


def status_of(nodes: list[NodeView]) -> list[NodeStatus]:
    """Return the nodes' entries for status.json."""
    return [
        {"name": node["name"], "node_rank": node["node_rank"], "state": node["state"], "since": node["since"]}
        for node in nodes
    ]


def results_of(nodes: list[NodeView]) -> list[NodeResult]:
    """Return the nodes' fields of result.json."""
    return [
        {
            "name": node["name"],
            "node_rank": node["node_rank"],
            "state": node["state"],
            "since": node["since"],
            "report": node["report"],
            "lost_reason": node["lost_reason"],
            "survived": node["survived"],
            "launcher_log": node["launcher_log"],
        }
        for node in nodes
    ]
