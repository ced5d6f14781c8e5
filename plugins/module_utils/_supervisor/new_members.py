# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hub's part when a node joins an active run: requests, and the agreement of the other nodes.

A request is answered once so many nodes know the replacement that the others cannot form a majority. Thus, no part of a
split network can count both the replaced node and its replacement.
"""

from __future__ import annotations

import contextlib
import os
import time

from ansible_collections.muster.training.plugins.module_utils._files.bounded import remove_entry
from ansible_collections.muster.training.plugins.module_utils._run.members import (
    JOIN,
    MAX_GENERATION,
    REPLY,
    REQUEST,
    generation_of,
    replace_member,
)
from ansible_collections.muster.training.plugins.module_utils._run.safe_files import read_job_object
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import conforms
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import (
    JOIN_REQUEST_TIMEOUT,
    RECONNECT_TIMEOUT,
)
from ansible_collections.muster.training.plugins.module_utils._slurm import queued_run
from ansible_collections.muster.training.plugins.module_utils._supervisor.notices.limits import run_limits
from ansible_collections.muster.training.plugins.module_utils._supervisor.restart_policy import has_left
from ansible_collections.muster.training.plugins.module_utils._supervisor.succession import majority

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Iterator, Protocol

    from ansible_collections.muster.training.plugins.module_utils._run.documents import Data, Member, NodeView, Plan
    from ansible_collections.muster.training.plugins.module_utils._supervisor.attempts import Attempts
    from ansible_collections.muster.training.plugins.module_utils._supervisor.journal import Journal
    from ansible_collections.muster.training.plugins.module_utils._supervisor.lifeline import LifelineConnection
    from ansible_collections.muster.training.plugins.module_utils._supervisor.notices.hub_notices import HubNotices
    from ansible_collections.muster.training.plugins.module_utils._supervisor.notices.save_watch import SaveWatch

    class JoinableHub(Protocol):
        """The parts of a hub that change if a node joins."""

        own: int
        plan: Plan
        journal: Journal
        attempts: Attempts
        nodes: list[NodeView]
        names: list[str]
        notices: HubNotices
        save_watch: SaveWatch

        def admitted_connections(self) -> list[LifelineConnection]:
            """Return the connections to nodes that have proved that they hold the token."""

        def drop(self, connection: LifelineConnection) -> None:
            """Close a connection."""


KIND = "member"  # type of the messages about new members


class NewMembers:
    """The replacements of nodes from the hub's point of view."""

    def __init__(self, hub: JoinableHub) -> None:
        self.hub = hub
        self.request: Data | None = None  # the request that has not been answered yet
        self.deadline = 0.0  # time by which that request must be answered
        self.member: Member | None = None  # the member that was chosen in response to that request
        self.acknowledged: set[int] = set()  # node_ranks of the nodes that know the new member
        self.awaited: dict[int, Member] = {}  # members that have not connected yet
        self.is_fixed = os.path.lexists(hub.journal.path(queued_run.MARKER))  # no node can join a Slurm job

    # - the run's state

    def missing(self, now: float) -> list[Data]:
        """Return the nodes that a new node can replace."""
        if (
            self.is_fixed
            or self.hub.plan.get("remote_start")
            or not ("restart" in self.hub.plan or self.hub.plan["elastic"])
        ):
            return []
        return [
            {"node_rank": node["node_rank"], "name": node["name"], "excluded": node["excluded"]}
            for node in self.hub.nodes
            if self.is_missing(node, now)
        ]

    def gpus(self, node_rank: int) -> int:
        """Return how many GPUs a node had at launch."""
        hardware = self.hub.plan["nodes"][node_rank].get("hardware")
        return hardware["gpus"] if hardware else 0

    def is_missing(self, node: NodeView, now: float) -> bool:
        """Return whether the run has permanently lost a node, and its part in the attempt is over."""
        hub, rank = self.hub, node["node_rank"]
        is_member = hub.attempts.takes_part(node) and not hub.attempts.has_ended()
        if rank == hub.own or now < node["return_by"] or (is_member and not hub.plan["elastic"]):
            return False
        is_cut = node["broken"] is not None and now - node["broken"] > RECONNECT_TIMEOUT
        has_ended = bool(hub.plan["elastic"] and node["state"] == "ended" and node["survived"])
        return node["excluded"] or has_left(node) or is_cut or has_ended

    # - requests

    def step(self, now: float) -> None:
        """Accept a request, and answer it once the other nodes know about the replacement."""
        if self.request is None:
            self.take_request(now)
        if self.request is None:
            return
        if self.member is None:
            self.choose(self.request, now)
        elif self.is_agreed():
            self.answer({"node_rank": self.member["node_rank"]})
        if self.request is not None and now > self.deadline:
            self.answer({"error": "too few nodes can be reached to replace a node; try again later"})

    def take_request(self, now: float) -> None:
        """Read and remove a request from the run directory."""
        path = self.hub.journal.path(REQUEST)
        if not os.path.lexists(path):
            return
        document = read_job_object(path)
        with contextlib.suppress(OSError):
            remove_entry(path)
        if conforms(document, JOIN):
            self.request, self.member = document, None
            self.deadline = now + JOIN_REQUEST_TIMEOUT

    def choose(self, request: Data, now: float) -> None:
        """Choose the node to be replaced, and tell all others; answer the request immediately if there is none."""
        repeated = [
            member
            for member in self.awaited.values()
            if (member["name"], member["address"]) == (request["name"], request["address"])
        ]
        if repeated:
            self.announce(repeated[0])
            return
        rank, error = self.choose_rank(request, now)
        if rank is None:
            if error:
                self.answer({"error": error})
            return
        generation = generation_of(self.hub.plan, rank) + 1
        if generation >= MAX_GENERATION:
            self.answer({"error": f"node {rank} has been replaced too often"})
            return
        member: Member = {
            "node_rank": rank,
            "name": request["name"],
            "address": request["address"],
            "generation": generation,
        }
        replaced = self.hub.names[rank]
        self.replace(member)
        self.note_price(rank, request.get("price_per_hour"))
        self.awaited[rank] = member
        text = f"{member['name']} joins the run" + (f" in place of {replaced}" if replaced != member["name"] else "")
        self.hub.journal.event("join", text, node=member["name"])
        self.announce(member)

    def note_price(self, node_rank: int, price: float | None) -> None:
        """Include a new node's price in the run's cost; if unknown, keep the price of the node that it replaces."""
        if price is not None:
            self.hub.plan["nodes"][node_rank]["price_per_hour"] = price
            self.hub.notices.limits = run_limits(self.hub.plan)
            self.hub.journal.record_plan()

    def choose_rank(self, request: Data, now: float) -> tuple[int | None, str]:
        """Return the node_rank for a node or why it cannot join, or neither while a lost node may still return."""
        name = request["name"]
        missing = self.missing(now)
        if not missing:
            lost = [node["name"] for node in self.hub.nodes if node["state"] == "lost"]
            return None, "" if lost else "no node of the run is missing"
        present = {node["name"] for node in self.hub.nodes} - {node["name"] for node in missing}
        if name in present:
            return None, f"{name} is already a node of the run"
        same_name = any(node["name"] == name for node in missing)
        ranks = [node["node_rank"] for node in missing if node["name"] == name or not same_name]
        fitting = [rank for rank in ranks if self.gpus(rank) <= request["gpus"]]
        if not fitting:
            gpus = ", ".join(f"{self.hub.names[rank]} {self.gpus(rank)}" for rank in ranks)
            return None, f"{name} has {request['gpus']} GPUs, but the missing nodes had more: {gpus}"
        return min(fitting, key=lambda rank: (rank in self.awaited, rank)), ""

    def answer(self, fields: Data) -> None:
        """Reply to the request."""
        if self.request is not None:
            self.hub.journal.write(REPLY, {"id": self.request["id"][:64], **fields})
        self.request = self.member = None

    # - the other nodes

    def announce(self, member: Member) -> None:
        """Tell all nodes about a replacement; its request is answered once they have acknowledged it."""
        self.member, self.acknowledged = member, {self.hub.own}
        for connection in self.hub.admitted_connections():
            connection.send({"type": KIND, **member})

    def acknowledge(self, node_rank: int, message: Data) -> None:
        """Record that a node knows about a replacement."""
        member = self.member
        acknowledged = (message.get("node_rank"), message.get("generation"))
        if member is not None and acknowledged == (member["node_rank"], member["generation"]):
            self.acknowledged.add(node_rank)

    def is_agreed(self) -> bool:
        """Return whether the nodes that do not know about the replacement cannot form a majority."""
        total = len(self.hub.nodes)
        return total - len(self.acknowledged) < majority(total)

    def messages(self) -> Iterator[Data]:
        """Yield the messages that a newly connected node may have missed."""
        for rank, node in enumerate(self.hub.plan["nodes"]):
            generation = generation_of(self.hub.plan, rank)
            if generation:
                fields = {"node_rank": rank, "name": node["name"], "address": node["address"]}
                yield {"type": KIND, **fields, "generation": generation}

    def arrive(self, node_rank: int) -> None:
        """Record that a node has connected."""
        self.awaited.pop(node_rank, None)

    def replace(self, member: Member) -> None:
        """Replace a node in the hub's state; the new node counts as lost until its supervisor connects."""
        hub, rank = self.hub, member["node_rank"]
        text = f"{hub.names[rank]} was replaced by {member['name']}"
        for connection in [each for each in hub.admitted_connections() if each.node_rank == rank]:
            connection.send({"type": "end", "state": "failed", "message": text})
            hub.drop(connection)
        view = hub.nodes[rank]
        view["name"], view["state"], view["since"], view["lost_reason"] = member["name"], "lost", time.time(), text
        view["report"] = view["broken"] = None
        view["last_message"] = view["return_by"] = 0.0
        view["excluded"] = view["survived"] = False
        for plan in (hub.plan, hub.attempts.plan):
            replace_member(plan, member)
        preparation = hub.attempts.preparation
        for names in (hub.names, hub.save_watch.names, *([preparation.names] if preparation is not None else [])):
            names[rank] = member["name"]
        if not hub.plan["elastic"]:
            hub.attempts.replaced.add(rank)
        hub.journal.record_plan()
        hub.journal.status_due = 0.0
