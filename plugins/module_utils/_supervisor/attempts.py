# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rank 0's record of a run's attempts: who takes part in each, how it ended, and whether another one follows."""

from __future__ import annotations

import collections
import socket
import time

from ansible_collections.muster.training.plugins.module_utils._checkpoints.resume import newest_local_checkpoint
from ansible_collections.muster.training.plugins.module_utils._supervisor.attempt_plan import first_attempt
from ansible_collections.muster.training.plugins.module_utils._supervisor.restart_policy import (
    HARDWARE,
    INTERRUPTED,
    NO_REQUEUE,
    NODE_LOST,
    NOT_STARTED,
    STOPPED,
    SUCCEEDED,
    assign,
    classify_end,
    decide,
    format_seconds,
    has_left,
    with_first,
)

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node some milliseconds
    from collections.abc import Callable, Iterable

    from ansible_collections.muster.training.plugins.module_utils._run.documents import (
        Attempt,
        AttemptRecord,
        NodeView,
        Plan,
        RestartPlan,
    )

PORTS = 16  # that an attempt may use, from the master port: another program may have taken the first
# How an attempt ended, as the hub knows it. given: the class if it is not to be derived; went: whether the job started.
End = collections.namedtuple("End", "reason first_node given went requested")


def free_master_port(first: int, excluded: int) -> int:
    """Return the first of a few ports that nothing listens on; `first` if none is free. excluded: the lifeline's."""
    for port in range(first, min(first + PORTS, 65536)):
        if port == excluded:
            continue
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind(("", port))
                sock.listen(1)  # a port in use for outgoing connections only can still be bound
            except OSError:
                continue
            return port
    return first


class Attempts:
    """The attempts of a run, as rank 0's supervisor counts them."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.policy = plan.get("restart")
        self.current: Attempt = first_attempt(plan)
        self.needs_hub = False  # whether the run goes on if another node leads it
        self.size = len(self.current["members"])
        self.started = time.time()
        self.history: list[AttemptRecord] = []
        self.refused = ""  # why no attempt follows
        self.exit_code = 1  # of a run that failed
        self.waiting = ""  # the nodes that may return, for which the next attempt waits
        self.newest_checkpoint: Callable[[Plan], str] = newest_local_checkpoint
        self.initial_checkpoint = plan.get("checkpoint", "")
        self.is_unreadable = False  # whether the directory of checkpoints did not answer once

    @property
    def number(self) -> int:
        return self.current["number"]

    def takes_part(self, node: NodeView) -> bool:
        return node["node_rank"] in self.current["members"]

    def has_ended(self) -> bool:
        """Return whether the end of the current attempt was recorded."""
        return len(self.history) > self.number

    def begin(self) -> None:
        """Note that the job starts."""
        self.started = time.time()

    def record_end(self, end: End, nodes: list[NodeView]) -> None:
        """Record how the current attempt ended; nodes: all of the run."""
        members = [nodes[member] for member in self.current["members"]]
        if end.requested:
            end_class = STOPPED
        elif not end.reason:
            end_class = SUCCEEDED
        elif end.given:
            end_class = end.given
        elif not end.went and self.number == 0:
            end_class = NOT_STARTED
        else:
            end_class = classify_end(end.first_node, members)
        for node in members:
            broken = end_class in (HARDWARE, INTERRUPTED) and node["name"] == end.first_node
            node["excluded"] = node["excluded"] or broken or leaves_something(node)
        lost = next((node["name"] for node in members if has_left(node)), "") if end_class == NODE_LOST else ""
        self.history.append(
            {
                "number": self.number,
                "nodes": [node["name"] for node in members],
                "started": self.started,
                "ended": time.time(),
                "end_class": end_class,
                "node": lost or end.first_node or "",
                "reason": end.reason,
                "checkpoint": self.read_checkpoint(sum(self.slots(self.current["members"]))) if self.policy else "",
            }
        )

    def next(self, connected: Iterable[int], nodes: list[NodeView], now: float) -> Attempt | None:
        """Return the next attempt, or None: none may follow (`refused` says why), or not yet (`waiting`).

        connected: numbers of the nodes whose supervisors can be reached.
        """
        self.waiting, self.needs_hub = "", False
        if self.policy is None:
            return None
        counts_progress = self.policy["counts_progress"] and not self.is_unreadable
        policy: RestartPlan = {**self.policy, "counts_progress": counts_progress}
        decision = decide(policy, self.history, self.initial_checkpoint)
        self.refused = decision.why
        if not decision.restart:
            self.exit_code = NO_REQUEUE if decision.final else 1
            return None
        returning = [node["name"] for node in nodes if node["state"] == "lost" and now < node["return_by"]]
        if returning:
            self.waiting = ", ".join(returning)
            return None
        usable = [member for member in sorted(connected) if is_usable(nodes[member])]
        members = assign(self.current["members"], usable, self.policy, self.size)
        hub = self.current.get("hub", 0)
        if not members or hub not in members:
            self.needs_hub = bool(members)
            names = ", ".join(nodes[member]["name"] for member in usable) or "no node"
            needed = f"at least {self.policy['min_nodes']} nodes are needed, and only {names} can be used"
            first = f"{nodes[hub]['name']}, the first node, takes part in each attempt, and cannot be used again"
            self.refused = needed if hub in usable else first
            return None
        members = with_first(members, hub)
        port = free_master_port(self.policy["master_port"], self.plan["lifeline"]["port"])
        checkpoint = self.history[-1]["checkpoint"]
        if sum(self.slots(members)) != sum(self.slots(self.current["members"])):
            checkpoint = self.read_checkpoint(sum(self.slots(members)))
        checkpoint = checkpoint or self.current["checkpoint"]
        return {
            "number": self.number + 1,
            "hub": hub,
            "members": members,
            "master_port": port,
            "checkpoint": checkpoint,
        }

    def slots(self, members: list[int]) -> list[int]:
        """Return the ranks of these nodes."""
        return [self.policy["slots"][member] for member in members] if self.policy else []

    def read_checkpoint(self, world_size: int) -> str:
        """Return the newest checkpoint that this number of ranks can load; "" if there is none, or it is unknown."""
        try:
            return self.newest_checkpoint({**self.plan, "world_size": world_size})
        except TimeoutError:
            self.is_unreadable = True
            return ""

    def describe_next(self, attempt: Attempt, names: list[str]) -> str:
        """Return what a person who watches the run should know about the next attempt."""
        last, policy = self.history[-1], self.policy
        what = f"{last['node']} was lost" if last["end_class"] == NODE_LOST and last["node"] else last["reason"]
        remaining = (policy["restarts"] if policy else 0) - attempt["number"]
        text = f"attempt {attempt['number']} starts: {what} after {format_seconds(last['ended'] - last['started'])}"
        if len(attempt["members"]) != len(last["nodes"]):
            text += f"; {len(attempt['members'])} of {self.size} nodes"
        joined = [names[member] for member in attempt["members"] if names[member] not in last["nodes"]]
        if joined:
            text += f"; {', '.join(joined)} join{'s' if len(joined) == 1 else ''}"
        allowed = policy["restarts"] if policy else 0
        return f"{text}; {allowed} restart{'' if allowed == 1 else 's'} allowed, {remaining} remain"


def is_usable(node: NodeView) -> bool:
    """Return whether a node can take part in the next attempt: its processes have ended, and it is well."""
    shuts_down = bool(node["report"] and node["report"]["shutdown"])
    return node["state"] in ("ended", "spare") and not (node["excluded"] or shuts_down or leaves_something(node))


def leaves_something(node: NodeView) -> bool:
    """Return whether something of an attempt that has ended remains on a node, where it may hold GPUs."""
    report = node["report"]
    if report is None:
        return node["state"] not in ("lost", "spare")
    return bool(report["stuck"] or report["container"])
