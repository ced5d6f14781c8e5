# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Determine whether a node leads a run, and whether another node can take over."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Any, Mapping

LEAST_NODES = 3  # with only two nodes, the remaining one would not be a majority


def leads_run(plan: Mapping[str, Any]) -> bool:
    """Return whether the supervisor of a plan's node is leading the run: the supervisor of node 0, or its successor."""
    return bool(plan["node"]["node_rank"] == (plan.get("hub") or 0))


def can_succeed(plan: Mapping[str, Any]) -> bool:
    """Return whether another node can lead a run after its current leader is lost.

    A launcher that starts the other nodes, such as mpirun, has its command on node 0 only.
    """
    return "restart" in plan and not plan.get("remote_start") and len(plan["nodes"]) >= LEAST_NODES
