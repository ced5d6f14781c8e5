# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rank 0's preparation of an attempt: which nodes can take part, and which checkpoint they all resume from.

First, each node checks itself and lists its checkpoints. Then the nodes that lack parts of the newest checkpoint copy
them from those that have them. If that fails, an older checkpoint is used.
"""

from __future__ import annotations

from ansible_collections.muster.training.plugins.module_utils._checkpoints.agreement import (
    Agreement,
    agree_on_checkpoint,
    describe_parts,
    is_listed_checkpoint,
    share_stores,
)
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import (
    COPY_TIMEOUT,
    GPU_FREE_TIMEOUT,
    NODE_CHECK_TIMEOUT,
    REPORT_GRACE_PERIOD,
    SERVE_TIMEOUT,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.preparation.node_preparation import (
    CHECK,
    FETCH,
    SERVE,
)

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from collections.abc import Callable
    from typing import Sequence

    from ansible_collections.muster.training.plugins.module_utils._checkpoints.documents import Checkpoint
    from ansible_collections.muster.training.plugins.module_utils._run.documents import Data, Plan

    Sender = Callable[[int, Data], None]  # sends a request to the node with this number
    Teller = Callable[[str, str], None]  # writes an event: a text, and the node that it is about

CHECK_TIMEOUT = GPU_FREE_TIMEOUT + NODE_CHECK_TIMEOUT + REPORT_GRACE_PERIOD
MAX_LISTED = 8  # a node's checkpoints
MAX_PROBLEMS = 10
MAX_TEXT = 300  # number of characters of a text from another node


class NodeState:
    """A node's replies."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline  # time by which its checks must have ended
        self.listing: list[Checkpoint] = []
        self.store = ""
        self.problems: list[str] | None = None  # None until its checks have ended
        self.port: int | None = None  # port on which it serves parts; None until it has replied
        # the error that its copy ended with, "" if it succeeded; None until it has ended
        self.fetched: str | None = None


class HubPreparation:
    """The state of preparing the next attempt."""

    def __init__(self, plan: Plan, send: Sender, tell: Teller) -> None:
        self.plan = plan
        self.send = send
        self.tell = tell
        self.names = [node["name"] for node in plan["nodes"]]
        self.reset(0)

    def reset(self, number: int) -> None:
        """Reset the state for a new attempt."""
        self.number = number
        self.nodes: dict[int, NodeState] = {}
        self.rejected: set[str] = set()  # checkpoints whose parts could not be copied
        self.agreement: Agreement | None = None
        self.members: list[int] = []
        self.copy_stage = ""  # SERVE | FETCH while parts are being copied
        self.copy_deadline = 0.0
        self.waiting = ""  # human-readable description of what the attempt is waiting for
        self.told: set[str] = set()

    def begin(self, number: int) -> None:
        """Discard the results from an earlier attempt."""
        if number != self.number:
            self.reset(number)

    # - checks

    def check_nodes(self, candidates: Sequence[int], connected: Sequence[int], now: float) -> bool:
        """Ask each candidate once to check itself; return whether all have replied or are late.

        connected: includes those that cannot take part: they only list their checkpoints, which others may lack.
        """
        for member in set(self.nodes).difference(connected):  # a node that reconnects is checked again
            del self.nodes[member]
            self.agreement, self.copy_stage = None, ""
        for member in connected:
            if member not in self.nodes:
                self.nodes[member] = NodeState(now + CHECK_TIMEOUT)
                self.send(member, {"kind": CHECK, "number": self.number, "list_only": member not in candidates})
        pending = [member for member in candidates if self.nodes[member].problems is None]
        for member in pending:
            if now > self.nodes[member].deadline:
                self.note_problems(member, ["its checks timed out"])
        pending = [member for member in pending if self.nodes[member].problems is None]
        self.waiting = f"checking {', '.join(self.names[member] for member in pending)}" if pending else ""
        return not pending

    def note_problems(self, member: int, problems: list[str]) -> None:
        """Record that a node's checks have ended, and report why the node cannot take part."""
        self.nodes[member].problems = problems
        if problems:
            name = self.names[member]
            self.tell_once(f"{name} cannot take part in attempt {self.number}: {'; '.join(problems)}", name)

    def tell_once(self, text: str, node: str = "") -> None:
        if text not in self.told:
            self.told.add(text)
            self.tell(text, node or self.names[0])

    def unusable(self) -> dict[str, str]:
        """Return the reasons why nodes cannot take part, by node name."""
        return {
            self.names[member]: "; ".join(state.problems)
            for member, state in sorted(self.nodes.items())
            if state.problems
        }

    def is_well(self, member: int) -> bool:
        """Return whether a node's checks finished without any problem."""
        return member in self.nodes and self.nodes[member].problems == []

    # - replies

    def take(self, member: int, reply: Data) -> None:
        """Handle a node's reply to a request about the attempt that is being prepared."""
        state = self.nodes.get(member)
        if state is None or reply.get("number") != self.number:
            return
        kind, checkpoint = reply.get("kind"), reply.get("checkpoint")
        if kind == CHECK and checkpoint is not None:
            if is_listed_checkpoint(checkpoint) and len(state.listing) < MAX_LISTED:
                state.listing.append(checkpoint)
        elif kind == CHECK and state.problems is None:
            problems = reply.get("problems")
            texts = problems if isinstance(problems, list) else ["its checks returned no result"]
            state.store = str(reply.get("store", ""))[:MAX_TEXT]
            self.note_problems(member, [clean(text) for text in texts[:MAX_PROBLEMS]])
        elif kind == SERVE:
            port = reply.get("port")
            state.port = port if isinstance(port, int) and 1 < port < 65536 else 0  # True is 1
        elif kind == FETCH:
            state.fetched = clean(reply.get("error", ""))

    # - the checkpoint

    def agree(self, members: Sequence[int], connected: Sequence[int], world_size: int, now: float) -> bool:
        """Choose an attempt's checkpoint, and have its parts copied; return whether the members have all parts.

        connected: the nodes that may have parts, including those that cannot take part in the attempt.
        """
        if list(members) != self.members:
            self.members, self.agreement, self.copy_stage = list(members), None, ""
        if self.agreement is None:
            self.choose(connected, world_size, now)
        return not self.copy_stage or self.continue_copy(connected, now)

    def choose(self, connected: Sequence[int], world_size: int, now: float) -> None:
        """Choose the newest checkpoint that has not been rejected, and start copying it if nodes lack parts."""
        known = [member for member in connected if member in self.nodes]
        listings = {self.names[member]: self.nodes[member].listing for member in known}
        stores = {self.names[member]: self.nodes[member].store for member in known}
        names = [self.names[member] for member in self.members]
        self.agreement = agree_on_checkpoint(share_stores(listings, stores), names, world_size, self.rejected)
        self.describe_torn(self.agreement)
        self.copy_stage = ""
        if self.agreement.missing:
            owners = owners_of(self.agreement)
            self.copy_stage, self.copy_deadline = SERVE, now + SERVE_TIMEOUT + REPORT_GRACE_PERIOD
            for member in map(self.names.index, owners):
                self.nodes[member].port = None
                self.send(member, {"kind": SERVE, "number": self.number, "name": self.agreement.checkpoint["name"]})

    def describe_torn(self, agreement: Agreement) -> None:
        """Report newer checkpoints that cannot be used, with the reasons."""
        chosen = describe_step(agreement.checkpoint) if agreement.checkpoint is not None else ""
        instead = f"using {chosen} instead" if chosen else "no other checkpoint is complete"
        for checkpoint in agreement.torn[:2]:
            if checkpoint["name"] not in self.rejected:
                text = f"{describe_step(checkpoint)} cannot be used, since {clean(checkpoint['reason'])}: {instead}"
                self.tell_once(text)

    def continue_copy(self, connected: Sequence[int], now: float) -> bool:
        """Continue copying parts; return whether all nodes have them. If a copy fails, the next call chooses again."""
        agreement = self.agreement
        if agreement is None or agreement.checkpoint is None:
            return False
        needy = [self.names.index(name) for name in agreement.missing]
        owners = sorted(map(self.names.index, owners_of(agreement)))
        lost = [member for member in (*owners, *needy) if member not in connected]
        if lost or now > self.copy_deadline:
            who = self.names[lost[0]] if lost else ", ".join(self.names[member] for member in needy)
            self.reject(f"{who} {'was lost' if lost else 'did not finish'} during the copy")
        elif self.copy_stage == SERVE:
            self.begin_fetch(agreement, owners, now)
        else:
            errors = {member: self.nodes[member].fetched for member in needy}
            failed = next((member for member, error in errors.items() if error), None)
            if failed is not None:
                self.reject(f"{self.names[failed]} could not copy it: {errors[failed]}")
            elif all(error == "" for error in errors.values()):
                self.copy_stage = ""
                return True
        return False

    def begin_fetch(self, agreement: Agreement, owners: list[int], now: float) -> None:
        """Tell the nodes that lack parts to copy them, once all owners are serving the parts."""
        ports = {member: self.nodes[member].port for member in owners}
        if 0 in ports.values():
            failed = next(member for member, port in ports.items() if port == 0)
            self.reject(f"{self.names[failed]} could not offer it to the other nodes")
        elif None not in ports.values():
            self.copy_stage, self.copy_deadline = FETCH, now + COPY_TIMEOUT + REPORT_GRACE_PERIOD
            checkpoint = agreement.checkpoint
            for name, parts in agreement.missing.items():
                member = self.names.index(name)
                self.nodes[member].fetched = None
                sources = sorted(set(parts.values()))
                addresses = [[self.address(owner), ports[self.names.index(owner)]] for owner in sources]
                request = {"kind": FETCH, "number": self.number, "name": checkpoint["name"], "sources": addresses}
                self.send(member, {**request, **describe_parts(parts)})
            needy, who = ", ".join(agreement.missing), ", ".join(self.names[member] for member in owners)
            size = f"{checkpoint['size'] / 1e6:.1f} MB"
            self.waiting = f"copying {describe_step(checkpoint)}, {size}, from {who} to {needy}"
            self.tell_once(self.waiting)

    def address(self, name: str) -> str:
        return self.plan["nodes"][self.names.index(name)]["address"]

    def reject(self, why: str) -> None:
        """Give up on a checkpoint; the next call to agree chooses an older one."""
        if self.agreement is not None and self.agreement.checkpoint is not None:
            self.rejected.add(self.agreement.checkpoint["name"])
            self.tell_once(f"{describe_step(self.agreement.checkpoint)} is not used: {why}")
        self.agreement, self.copy_stage = None, ""

    @property
    def checkpoint(self) -> Checkpoint | None:
        """Return the checkpoint that all members have, or None if there is none."""
        return self.agreement.checkpoint if self.agreement is not None else None


def owners_of(agreement: Agreement) -> list[str]:
    """Return the names of the nodes that parts are copied from."""
    return sorted({owner for parts in agreement.missing.values() for owner in parts.values()})


def clean(value: object) -> str:
    """Return another node's text on one line."""
    return " ".join(str(value).split())[:MAX_TEXT]


def describe_step(checkpoint: Checkpoint) -> str:
    """Describe a checkpoint for the user by its step and name."""
    name = clean(checkpoint["name"])
    return f"checkpoint {name}" if checkpoint["step"] is None else f"{checkpoint['unit']} {checkpoint['step']} ({name})"
