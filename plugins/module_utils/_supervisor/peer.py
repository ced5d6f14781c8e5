# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lifeline's end on every node but rank 0's: one wire to rank 0, which decides.

Private to this collection.
"""

from __future__ import annotations

import hmac
import math
import os
import selectors
import socket
import time

from ansible_collections.muster.training.plugins.module_utils._run.processes import KILL_PATIENCE
from ansible_collections.muster.training.plugins.module_utils._supervisor.lifeline import Wire, proof
from ansible_collections.muster.training.plugins.module_utils._supervisor.lifeline_end import (
    RECONNECT_PATIENCE,
    STRANGER_PATIENCE,
    Link,
    Start,
    Stop,
)

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node some milliseconds
    from ansible_collections.muster.training.plugins.module_utils._run.documents import Data, Plan, Report
    from ansible_collections.muster.training.plugins.module_utils._supervisor.journal import Journal

BEAT_ALONE = 1.5  # heartbeat intervals after which a node beats without having heard rank 0


class Peer(Link):
    """Checks in with rank 0, does what it says, and stops on its own when rank 0 falls silent."""

    def __init__(self, plan: Plan, token: str, journal: Journal, selector: selectors.BaseSelector) -> None:
        super().__init__(plan, token, journal, selector)
        self.node_rank = plan["node"]["node_rank"]
        self.heard = time.monotonic()
        self.broken: float | None = None  # when the wire to rank 0 went down
        self.retry = 0.0
        self.connect_error = ""
        self.has_started = False  # whether this node's job has
        self.leaving = False  # whether this machine goes down and an elastic run continues without it
        self.deadline = math.inf  # until when a stopped node waits for rank 0's result

    @property
    def wire(self) -> Wire | None:
        """Return the wire to rank 0, open or not."""
        return self.wires[0] if self.wires else None

    def open_wire(self) -> Wire | None:
        """Return the wire to rank 0 if both sides have proved the token."""
        return self.wire if self.wire is not None and self.wire.stage == "open" else None

    def open(self) -> None:
        """Do nothing: the first step checks in."""

    def connect(self, now: float) -> None:
        """Connect to rank 0; retried until the start or silence timeout."""
        self.retry = now + 0.1
        lifeline = self.plan["lifeline"]
        connection = socket.socket(self.family(), socket.SOCK_STREAM)
        try:
            connection.bind((self.plan["node"]["address"], 0))
            connection.settimeout(1.0)
            connection.connect((lifeline["address"], lifeline["port"]))
        except OSError as error:
            connection.close()
            self.connect_error = str(error)
            return
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        wire = Wire(connection, now)
        self.wires.append(wire)
        self.selector.register(connection, selectors.EVENT_READ, wire)

    def proof(self, side: str, server_nonce: str, wire: Wire) -> str:
        return proof(self.token, side, self.plan["run_id"], self.node_rank, server_nonce, wire.nonce)

    def on_message(self, wire: Wire, message: Data, now: float) -> None:
        """Handle a message from rank 0."""
        if wire.stage == "nonce":
            nonce = str(message.get("nonce", ""))
            wire.expected = self.proof("server", nonce, wire)
            wire.lines_key = self.proof("key", nonce, wire)
            wire.stage = "mac"
            wire.send({"node_rank": self.node_rank, "nonce": wire.nonce, "mac": self.proof("peer", nonce, wire)})
        elif wire.stage == "mac":
            self.check_in(wire, message, now)
        else:
            self.heard = now
            self.obey(wire, message, now)

    def check_in(self, wire: Wire, message: Data, now: float) -> None:
        """Open the wire once rank 0 has proved the token, and send it this node's state."""
        if not hmac.compare_digest(str(message.get("mac", "")).encode("utf-8", "replace"), wire.expected.encode()):
            self.connect_error = "it does not have this run's token"
            self.drop(wire)
            return
        wire.stage = "open"
        wire.open(0, wire.lines_key)
        self.connect_error = ""
        self.heard, self.broken = now, None
        ready = {"type": "ready", "launcher_log": self.journal.path("launcher.log")}
        wire.send({"type": "report", "report": self.own_report} if self.own_report else ready)
        if self.has_started and not self.own_report:
            wire.send({"type": "running"})
        if self.stop_wanted:
            wire.send({"type": "stop", "reason": self.stop_reason})

    def obey(self, wire: Wire, message: Data, now: float) -> None:
        kind = message.get("type")
        if kind == "beat":  # answer at once, so that rank 0 hears all nodes together and wakes less often
            self.beat_due = now + BEAT_ALONE * self.timeouts["heartbeat"]
            wire.send({"type": "beat"})
        elif kind == "go":
            if self.plan.get("remote_start"):
                self.journal.set_state("running")  # rank 0's launcher will send the command to start here
            else:
                self.orders.append(Start(self.plan["command"]))
            wire.send({"type": "running"})
        elif kind == "start" and self.plan.get("remote_start"):
            self.orders.append(Start(["/bin/sh", "-c", str(message.get("command", ""))]))
        elif kind == "stop":
            self.stop(str(message.get("reason", "")))
        elif kind == "end":
            self.result_state = str(message.get("state", "failed"))
            self.journal.message = str(message.get("message", ""))

    def stop(self, reason: str, leaving: bool = False) -> None:
        if self.stop_reason is None:
            self.stop_reason = reason
        self.orders.append(Stop(reason, leaving))

    def on_stop_signal(self, name: str) -> None:
        node = self.plan["node"]["name"]
        if self.plan["elastic"] and not os.path.exists(self.journal.path("stop")):
            # this machine goes down, and the other nodes may go on
            self.leaving = True
            self.stop(f"{node} was told to leave ({name})", leaving=True)
            return
        reason = f"stopped on request on {node} ({name})"
        self.stop_wanted = True
        wire = self.open_wire()
        if wire is not None:
            wire.send({"type": "stop", "reason": reason})
        self.stop(reason)
        # rank 0 may be gone, or stopping as well: do not outlive the unit's stop timeout to wait for its result
        if self.result_state is None and self.wire is None:
            self.result_state = "stopped"
        self.deadline = time.monotonic() + self.timeouts["grace"] + KILL_PATIENCE + 2.0

    def after_start(self, started: bool) -> None:
        self.has_started = self.has_started or started

    def say(self, kind: str, text: str) -> None:
        wire = self.open_wire()
        if wire is not None:
            wire.send({"type": kind, "text": text})

    def report(self, report: Report) -> None:
        self.own_report = report
        wire = self.open_wire()
        if wire is not None:
            wire.send({"type": "report", "report": report})

    def step(self, now: float) -> None:
        wire = self.wire
        if wire is not None and wire.closed:
            if wire.stage == "open" and self.broken is None:
                self.broken = now
            self.drop(wire)
        elif wire is not None and wire.stage != "open" and now - wire.opened > STRANGER_PATIENCE:
            self.drop(wire)
        if self.result_state is not None:
            return
        if self.wire is None and now >= self.retry:
            self.connect(now)
        self.judge(now)
        wire = self.open_wire()
        if now >= self.beat_due and wire is not None:
            self.beat_due = now + BEAT_ALONE * self.timeouts["heartbeat"]
            wire.send({"type": "beat"})

    def judge(self, now: float) -> None:
        """End this node's part if rank 0 is no longer reachable, or never was."""
        master, silence = self.names[0], self.timeouts["silence"]
        checked_in = self.open_wire() is not None  # then rank 0 decides, whose start timeout may end later
        late = now - self.started > self.timeouts["start"] + 5.0
        if late and not checked_in and not self.has_started and self.broken is None:
            why = (
                f"{self.plan['node']['name']} could not check in with {master} within {self.timeouts['start']:g} s: "
                f"{self.connect_error or 'no answer'}"
            )
        elif self.broken is not None and now - self.broken > RECONNECT_PATIENCE and not checked_in:
            why = (
                f"{master} is lost: its supervisor closed the lifeline and did not come back "
                "(killed, or the node went down)"
            )
        elif checked_in and now - self.heard > silence:
            why = f"{master} is lost: no sign of life for {silence:g} s (powered off, or cut off from the network)"
        else:
            return
        self.stop(why)
        self.result_state = "failed"

    def is_busy(self) -> bool:
        return False

    def is_over(self, now: float) -> bool:
        if self.own_report is None or not (self.result_state or self.leaving or now > self.deadline):
            return False
        self.result_state = self.result_state or "stopped"
        return True

    def status(self) -> Data:
        return {}
