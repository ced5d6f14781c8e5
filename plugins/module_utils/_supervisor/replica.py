# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The run's history, which the hub sends to the other nodes so that any of them can take over the run."""

from __future__ import annotations

import json
import time

from ansible_collections.muster.training.plugins.module_utils._files.bounded import parse_json
from ansible_collections.muster.training.plugins.module_utils._run.hub_node import can_succeed
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import RESULT, Between, conforms

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Iterator, Protocol

    from ansible_collections.muster.training.plugins.module_utils._run.documents import (
        AttemptRecord,
        Data,
        NodeView,
        Plan,
        Timeouts,
    )
    from ansible_collections.muster.training.plugins.module_utils._supervisor.attempts import Attempts
    from ansible_collections.muster.training.plugins.module_utils._supervisor.journal import Journal
    from ansible_collections.muster.training.plugins.module_utils._supervisor.lifeline import LifelineConnection
    from ansible_collections.muster.training.plugins.module_utils._supervisor.notices.hub_notices import HubNotices

    class ReplicatedHub(Protocol):
        """The parts of a hub that the other nodes need to know."""

        plan: Plan
        timeouts: Timeouts
        journal: Journal
        attempts: Attempts
        nodes: list[NodeView]
        notices: HubNotices

        def admitted_connections(self) -> list[LifelineConnection]:
            """Return the connections to nodes that have proved that they hold the token."""


KINDS = ("state", "record", "event")  # types of messages
MAX_EVENTS = 200  # number of most recent events that each node keeps
MAX_EVENT = 4000  # number of characters of an event
MAX_RECORD = 32000  # number of characters; the record of an attempt on thousands of nodes is longer, and is not sent
MAX_ATTEMPTS = 1000
STATE = {
    "final": bool,  # a person or a limit has ended the run
    "lost": [range(10**6)],
    "excluded": [range(10**6)],
    "elapsed": Between(0, 1e9),  # seconds since the job first started
    "began": Between(0, 1e11),  # time at which the current attempt's job started
    "checkpoint": str,  # the checkpoint that existed before the first attempt
}
EVENT = {"time": Between(0, 1e11), "event": str, "text": str}


class Replica:
    """A run's state, as a node has received it from the hub."""

    def __init__(self) -> None:
        self.is_final = False
        self.lost: list[int] = []
        self.excluded: list[int] = []
        self.started: float | None = None  # monotonic time at which the job first started
        self.began = time.time()
        self.checkpoint = ""
        self.records: list[AttemptRecord] = []
        self.events: list[str] = []  # lines of events.jsonl

    def take(self, message: Data) -> None:
        """Adopt the contents of a message, ignoring anything invalid."""
        kind = message.get("type")
        if kind == "state" and conforms(message, STATE):
            self.is_final = message["final"]
            self.began = message["began"]
            self.started = time.monotonic() - message["elapsed"] if message["elapsed"] else None
            self.lost, self.excluded, self.checkpoint = message["lost"], message["excluded"], message["checkpoint"]
        elif kind == "record" and conforms([message.get("record")], RESULT["attempts"]):
            record = message["record"]
            if record["number"] == len(self.records) < MAX_ATTEMPTS:
                self.records.append(record)
        elif kind == "event" and conforms(message.get("event"), EVENT):
            line = json.dumps({**message["event"], "replicated": True}) + "\n"
            if line not in self.events:  # they are repeated on a new connection
                self.events = [*self.events, line][-MAX_EVENTS:]

    def forget_node(self, node_rank: int) -> None:
        """Forget that a node was lost, because another node has replaced it."""
        self.lost = [rank for rank in self.lost if rank != node_rank]
        self.excluded = [rank for rank in self.excluded if rank != node_rank]


class Replicator:
    """The hub's messages about the run's history."""

    def __init__(self, hub: ReplicatedHub) -> None:
        self.hub = hub
        self.is_needed = can_succeed(hub.plan)
        self.due = 0.0
        self.state: Data = {}  # the state that was last sent, without its time
        self.records = self.events = 0  # numbers of records and events that were sent

    def step(self, now: float) -> None:
        """Send events and records immediately, and send the state once per heartbeat interval."""
        journal, attempts = self.hub.journal, self.hub.attempts
        has_news = (journal.event_count, len(attempts.history)) != (self.events, self.records)
        if self.is_needed and (has_news or now >= self.due):
            self.due = now + self.hub.timeouts["heartbeat"]
            self.send_news()

    def send_news(self) -> None:
        """Send everything new to all nodes."""
        if not self.is_needed:
            return
        count, history = self.hub.journal.event_count, self.hub.attempts.history
        messages = [*self.events_since(self.events), *self.records_since(self.records)]
        self.events, self.records = count, len(history)
        state = self.current_state()
        key = {**state, "elapsed": state["elapsed"] > 0}
        if key != self.state:
            self.state = key
            messages.append(state)
        for connection in self.hub.admitted_connections():
            for message in messages:
                connection.send(message)

    def send_all(self, connection: LifelineConnection) -> None:
        """Send everything to a newly connected node."""
        if self.is_needed:
            for message in (*self.records_since(0), self.current_state(), *self.events_since(0)):
                connection.send(message)

    def current_state(self) -> Data:
        hub = self.hub
        return {
            "type": "state",
            "final": hub.attempts.policy is None,
            "lost": [node["node_rank"] for node in hub.nodes if node["state"] == "lost"],
            "excluded": [node["node_rank"] for node in hub.nodes if node["excluded"]],
            "elapsed": hub.notices.elapsed(),
            "began": hub.attempts.started,
            "checkpoint": hub.attempts.initial_checkpoint,
        }

    def records_since(self, number: int) -> Iterator[Data]:
        for record in self.hub.attempts.history[number:]:
            if len(json.dumps(record)) <= MAX_RECORD:
                yield {"type": "record", "record": record}

    def events_since(self, number: int) -> Iterator[Data]:
        new = self.hub.journal.event_count - number
        for line in self.hub.journal.events[-min(new, MAX_EVENTS) :] if new > 0 else ():
            if len(line) <= MAX_EVENT:
                yield {"type": "event", "event": parse_json(line)}
