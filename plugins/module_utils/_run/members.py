# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run's nodes, which may be replaced while it is alive: each replacement fills a missing node's position.

A replacement gets the node_rank of the node that it replaces, so that the number of nodes, and with it the majority,
stays the same. The generation of a node_rank counts its replacements: a node that was replaced and returns can no
longer prove that it holds the run's token.
"""

from __future__ import annotations

import re

from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import (
    NAME,
    RANK,
    Between,
    Maybe,
    conforms,
)

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Any, Mapping

    from ansible_collections.muster.training.plugins.module_utils._run.documents import Member, Plan

ADDRESS = re.compile(r"[0-9A-Za-z.:%_-]{1,255}")
MAX_GENERATION = 10**6
REQUEST = "join.request"  # in the run directory of the node that leads the run, with an id that the reply repeats
REPLY = "join.json"
JOIN = {  # a request
    "id": str,
    "name": NAME,
    "address": ADDRESS,
    "gpus": range(1001),
    "price_per_hour": Maybe(Between(0, 1e6)),  # price in the plan's currency
}
MEMBER = {"node_rank": RANK, "name": NAME, "address": ADDRESS, "generation": range(1, MAX_GENERATION)}


def validate_member(message: Mapping[str, Any], nnodes: int) -> Member | None:
    """Return the replacement node in a message, or None if it is invalid."""
    if not conforms(message, MEMBER) or message["node_rank"] >= nnodes:
        return None
    return {
        "node_rank": message["node_rank"],
        "name": message["name"],
        "address": message["address"],
        "generation": message["generation"],
    }


def generation_of(plan: Mapping[str, Any], node_rank: object) -> int:
    """Return how often a node has been replaced, or 0 for anything that is not a node in the plan."""
    nodes = plan["nodes"]
    if not isinstance(node_rank, int) or isinstance(node_rank, bool) or not 0 <= node_rank < len(nodes):
        return 0
    return int(nodes[node_rank].get("generation") or 0)


def connection_name(name: str, plan: Mapping[str, Any], hub: int, node_rank: object) -> str:
    """Return the name with which both sides of a connection prove that they hold the token.

    name: that of the hub's lifeline, which is used unchanged between nodes that have been in the run from its start.
    """
    generations = (generation_of(plan, hub), generation_of(plan, node_rank))
    return f"{name} {generations[0]}.{generations[1]}" if any(generations) else name


def possible_followers(plan: Mapping[str, Any], hub: int) -> list[int]:
    """Return the node_ranks that may follow a hub: those above it, and replacements of those below it."""
    ranks = range(len(plan["nodes"]))
    return [rank for rank in ranks if rank != hub and (rank > hub or generation_of(plan, rank))]


def replace_host(line: str, old: str, new: str) -> str:
    """Return a hostfile line with its host replaced."""
    end = line[len(old) : len(old) + 1]
    return new + line[len(old) :] if line.startswith(old) and (not end or end == ":" or end.isspace()) else line


def replace_member(plan: Plan, member: Member) -> None:
    """Replace a node in a plan, in place: all parts of a supervisor share the lists of nodes in its plan."""
    node = plan["nodes"][member["node_rank"]]
    restart = plan.get("restart")
    for lines in restart["hostfile_lines"].values() if restart else ():
        number = member["node_rank"]
        for key in ("name", "address"):
            lines[number] = replace_host(lines[number], node[key], member[key])
    node["name"], node["address"], node["generation"] = member["name"], member["address"], member["generation"]
