# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hub on a node that succeeds a lost one: it gathers a majority of the nodes and continues the run."""

from __future__ import annotations

import contextlib
import selectors
import time

from ansible_collections.muster.training.plugins.module_utils._files.bounded import parse_json
from ansible_collections.muster.training.plugins.module_utils._run.members import possible_followers
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import (
    KILL_TIMEOUT,
    REPORT_GRACE_PERIOD,
    SETTLE_TIMEOUT,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor import restart_policy
from ansible_collections.muster.training.plugins.module_utils._supervisor.attempt_plan import plan_with_hub
from ansible_collections.muster.training.plugins.module_utils._supervisor.attempts import End
from ansible_collections.muster.training.plugins.module_utils._supervisor.health.node_health import BROKEN
from ansible_collections.muster.training.plugins.module_utils._supervisor.hub import MAX_BROKEN, Hub
from ansible_collections.muster.training.plugins.module_utils._supervisor.ports import LIFELINE_PORTS, lifeline_port
from ansible_collections.muster.training.plugins.module_utils._supervisor.succession import gather_timeout, majority

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from ansible_collections.muster.training.plugins.module_utils._run.documents import Attempt, NodeView, Plan
    from ansible_collections.muster.training.plugins.module_utils._supervisor.journal import Journal
    from ansible_collections.muster.training.plugins.module_utils._supervisor.peer import Peer


def find_broken(lines: list[str], names: list[str]) -> list[dict[str, str]]:
    """Find broken hardware in a run's events, and return it in the format used in the result: node and text."""
    events = []
    for line in lines:
        with contextlib.suppress(ValueError):
            events.append(parse_json(line))
    return [
        {"node": event["node"], "text": str(event.get("text"))[:1000]}
        for event in events
        if isinstance(event, dict) and event.get("event") == BROKEN and event.get("node") in names
    ][:MAX_BROKEN]


class Successor(Hub):
    """Takes over a run in which this node has been a peer."""

    def __init__(self, plan: Plan, token: str, journal: Journal, selector: selectors.BaseSelector) -> None:
        super().__init__(plan_with_hub(plan, plan["node"]["node_rank"]), token, journal, selector)
        self.predecessor = self.own
        self.loss = ""
        self.leads = False  # whether a majority is following
        self.abandoned = ""  # reason why this node is not leading the run
        self.gather_by = time.monotonic() + gather_timeout(len(self.names))
        self.settled: float | None = None  # time at which this node stopped waiting for more nodes

    def inherit(self, peer: Peer, attempt: Attempt) -> None:
        """Adopt what this node learned as a peer; attempt: the current attempt."""
        replica, now = peer.replica, time.monotonic()
        lost_at = peer.lost_at or now
        self.phases = {"noticed": time.time() - (now - lost_at), "silent": lost_at - peer.last_heard}
        self.predecessor, self.loss = peer.hub, peer.loss
        self.local_report, self.quiet = peer.local_report, peer.quiet
        self.attempts.current = {**attempt, "hub": self.own}
        self.attempts.history = list(replica.records)
        self.attempts.initial_checkpoint, self.attempts.started = replica.checkpoint, replica.began
        if replica.is_final:
            self.attempts.policy = None
        self.notices.number = peer.notice_number
        self.notices.started = replica.started
        self.notices.warnings(now)  # assigned by the previous hub
        self.journal.restore_events(replica.events)
        self.go, self.stop_reason, self.first_node = True, self.loss, self.names[self.predecessor]
        followers = possible_followers(self.plan, self.own)
        for node in self.nodes:
            rank = node["node_rank"]
            node["state"] = "lost"
            node["excluded"] = rank in replica.excluded or rank not in (self.own, *followers)
        self.broken = find_broken(replica.events, self.names)
        self.nodes[0]["launcher_log"] = ""  # the log is on another node
        self.nodes[self.predecessor]["lost_reason"] = self.loss
        own = self.nodes[self.own]
        own["report"] = peer.local_report
        own["launcher_log"] = self.journal.log_path("launcher.log")
        own["state"] = "ended" if peer.local_report else "spare"
        self.deadline = time.monotonic() + self.timeouts["grace"] + KILL_TIMEOUT + REPORT_GRACE_PERIOD

    def open(self) -> None:
        planned, error = self.plan["lifeline"]["port"], ""
        for port in dict.fromkeys(lifeline_port(planned, number) for number in range(LIFELINE_PORTS)):
            try:
                self.listen(port)
                break
            except OSError as exception:  # another run may be leading its nodes from here
                error = f"port {port}: {exception.strerror}"
        else:
            self.give_up(f"{self.loss}; {self.names[self.own]} cannot lead the run: {error}")
            return
        self.journal.set_state("restarting", f"{self.loss}; {self.names[self.own]} is waiting for the others")

    def stop_everywhere(
        self, reason: str, requested: bool = False, shutdown: bool = False, end_class: str = ""
    ) -> None:
        """Stop the run; until this node leads it, only a request from a person changes how the run ends."""
        if requested and not self.leads:
            self.record_loss()
        super().stop_everywhere(reason, requested, shutdown, end_class)

    def add_spare(self, node: NodeView, is_back: bool = True) -> None:
        """Keep a node for the next attempt; a node that has followed this one from the beginning was never lost."""
        super().add_spare(node, is_back and self.leads)

    def judge(self, now: float) -> None:
        """Wait for a majority, then continue like the previous hub."""
        if self.leads:
            super().judge(now)
        elif self.stop_requested:
            self.finish()
        elif self.has_majority():
            self.take_over(now)
        elif now > self.gather_by:
            needed, total = majority(len(self.names)), len(self.names)
            here = ", ".join(self.names[rank] for rank in self.followers())
            self.give_up(
                f"{self.loss}; to continue without it, {needed} of the {total} nodes that started must reach each "
                f"other, but only {here} can"
            )

    def followers(self) -> list[int]:
        """Return the node_ranks of the reachable nodes, including this one."""
        ranks = [connection.node_rank for connection in self.admitted_connections()]
        return sorted({self.own, *(rank for rank in ranks if rank is not None)})

    def has_majority(self) -> bool:
        return len(self.followers()) >= majority(len(self.names))

    def take_over(self, now: float) -> None:
        """Lead the run once all other live nodes have had time to connect and have ended their part."""
        missing = len(self.names) - 1 - len(self.followers())
        if self.settled is None:
            self.settled = now + SETTLE_TIMEOUT
        if missing and now < self.settled:
            return
        self.leads = True
        followers = ", ".join(self.names[rank] for rank in self.followers() if rank != self.own)
        text = f"{self.names[self.own]} will lead the run from now on, followed by {followers}"
        self.journal.event("successor", f"{self.loss}; {text}", node=self.names[self.own])
        self.record_loss()

    def record_loss(self) -> None:
        """Record the end of the attempt, unless the previous hub has already done so."""
        if not self.attempts.has_ended():
            end = End(self.loss, self.first_node, restart_policy.NODE_LOST, True, False)
            self.attempts.record_end(end, self.nodes)
            self.attempts.history[-1].update(self.phases)

    def loss_to_report(self) -> str:
        return self.abandoned

    def give_up(self, reason: str) -> None:
        """End the part of this node and of the nodes that follow it, without a verdict."""
        for connection in self.admitted_connections():
            connection.send({"type": "end", "state": "failed", "message": reason})
        self.journal.message = self.abandoned = reason
        self.result_state = "failed"
