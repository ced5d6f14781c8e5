# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Determine who leads a run after its first node is lost. Pure functions.

The supervisor that leads a run is the hub: at first that of node 0. If it is lost, the living node with the lowest
node_rank above it succeeds it, once a majority of the nodes that started, spares included, follows it. The hub itself
begins another attempt only while the nodes that it cannot reach are not a majority. So two parts of a network that was
split never run the job at the same time.
"""

from __future__ import annotations

from ansible_collections.muster.training.plugins.module_utils._run.hub_node import can_succeed
from ansible_collections.muster.training.plugins.module_utils._run.members import possible_followers
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import (
    CANDIDATE_TIMEOUT,
    KILL_TIMEOUT,
    RECONNECT_TIMEOUT,
    RETURN_TIMEOUT,
)

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Collection

    from ansible_collections.muster.training.plugins.module_utils._run.documents import Plan, Timeouts


MAX_CANDIDATES = 8  # candidates that are not responding; without this many of its nodes, a run does not continue


def majority(nnodes: int) -> int:
    """Return how many of the nodes that started the run must follow a successor."""
    return nnodes // 2 + 1


def has_quorum(plan: Plan, hub: int, connected: Collection[int]) -> bool:
    """Return whether a hub may start another attempt; connected: the nodes that the hub can reach.

    If not, the other nodes are a majority and may have a successor. A node follows only nodes before it, except for a
    node that has joined the run in place of a node before the hub.
    """
    others = [rank for rank in possible_followers(plan, hub) if rank not in connected]
    return not can_succeed(plan) or len(others) < majority(len(plan["nodes"]))


def takeover_delay(timeouts: Timeouts) -> float:
    """Return the number of seconds after which a hub that nodes have lost has certainly ended its job or died.

    It may notice only after them that the connection broke, and then ends its job as any node does.
    """
    end = RECONNECT_TIMEOUT + 2 * timeouts["heartbeat"] + timeouts["grace"] + KILL_TIMEOUT
    return max(RETURN_TIMEOUT, end)


def gather_timeout(nnodes: int) -> float:
    """Return how many seconds a candidate has to gather a majority; some nodes may still be waiting for earlier
    candidates.
    """
    return CANDIDATE_TIMEOUT * (min(nnodes, MAX_CANDIDATES) + 1)


def has_given_up(own: int, hub: int, elapsed: float, total: int) -> bool:
    """Return whether a node has looked for a leader for long enough, if it cannot become a candidate in time.

    A node before the hub only follows. Other nodes wait for all candidates before them, which may be many.
    """
    return (own < hub or own - hub > MAX_CANDIDATES) and elapsed > gather_timeout(total)


def choose_candidate(own: int, hub: int, lost: Collection[int], elapsed: float, total: int = 0) -> int:
    """Return the node that should lead the run, from the perspective of node `own`.

    hub: node_rank of the lost hub. lost: nodes that it had already lost. elapsed: seconds since the election began;
    each candidate has CANDIDATE_TIMEOUT to respond. A node before the hub, which has joined the run later, only
    follows: total is the number of nodes.
    """
    candidates = [rank for rank in range(hub + 1, own) if rank not in lost] + [own]
    if own < hub:
        candidates = [rank for rank in range(hub + 1, total) if rank not in lost] or [hub]
    return candidates[min(int(elapsed // CANDIDATE_TIMEOUT), len(candidates) - 1)]


def lifeline_name(run_id: str, hub: int) -> str:
    """Return the name for which both ends of a connection prove that they hold the token; each hub has its own."""
    return f"{run_id} {hub}" if hub else run_id
