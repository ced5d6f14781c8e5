# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lifeline's end on each node other than rank 0's node: one connection to rank 0, which makes the decisions."""

from __future__ import annotations

import hmac
import math
import os
import selectors
import socket
import time

from ansible_collections.muster.training.plugins.module_utils._run.hub_node import can_succeed
from ansible_collections.muster.training.plugins.module_utils._run.members import (
    connection_name,
    generation_of,
    replace_member,
    validate_member,
)
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import (
    AUTHENTICATION_TIMEOUT,
    CHECK_IN_GRACE_PERIOD,
    CONNECT_RETRY_INTERVAL,
    CONNECT_TIMEOUT,
    KILL_TIMEOUT,
    RECONNECT_TIMEOUT,
    REPORT_GRACE_PERIOD,
    UNPROMPTED_BEAT_INTERVAL,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.attempt_plan import (
    first_attempt,
    plan_with_hub,
    validate_attempt,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.lifeline import (
    LifelineConnection,
    handshake_mac,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.lifeline_end import (
    CollectStacks,
    LifelineEnd,
    NewAttempt,
    Prepare,
    Save,
    Start,
    Stop,
    TakeOver,
    shutdown_reason,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.notices.hub_notices import validate_notice
from ansible_collections.muster.training.plugins.module_utils._supervisor.ports import lifeline_port
from ansible_collections.muster.training.plugins.module_utils._supervisor.replica import KINDS, Replica
from ansible_collections.muster.training.plugins.module_utils._supervisor.succession import (
    choose_candidate,
    has_given_up,
    lifeline_name,
    takeover_delay,
)

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from ansible_collections.muster.training.plugins.module_utils._run.documents import Attempt, Data, NodeReport, Plan
    from ansible_collections.muster.training.plugins.module_utils._supervisor.journal import Journal


MAX_UNSENT_NOTICES = 100  # reconnecting takes seconds
MAX_REASON = 2000  # characters


class Peer(LifelineEnd):
    """Checks in with rank 0, follows its orders, and stops on its own if rank 0 goes silent."""

    def __init__(self, plan: Plan, token: str, journal: Journal, selector: selectors.BaseSelector) -> None:
        super().__init__(plan, token, journal, selector)
        self.node_rank = plan["node"]["node_rank"]
        self.last_heard = time.monotonic()
        self.broken: float | None = None  # time at which the connection to rank 0 broke
        self.retry = 0.0
        self.connect_error = ""
        self.has_started = False  # whether this node's job has started
        self.leaving = False  # whether this node is ending its part without a request to stop the run
        self.unsent: list[Data] = []  # notices that rank 0 receives once the lifeline is open again
        self.attempt = 0  # number of the current attempt
        self.current: Attempt = first_attempt(plan)
        self.hub = plan.get("hub", 0)  # node_rank of the node that leads the run
        self.candidate = self.hub  # the node that this one connects to
        self.port_number = 0  # number of the lifeline port on that node: see ports.py
        self.replica = Replica()
        self.election: float | None = None  # time at which this node began to look for another hub
        self.election_due = math.inf
        self.admitted = False  # whether this node has ever checked in
        self.lost_at: float | None = None  # time at which rank 0 was given up on
        self.loss = ""  # why
        self.deadline = math.inf  # time until which a stopped node waits for rank 0's result
        self.unsent_notices: list[Data] = []  # notices that arose while there was no connection
        self.notice_number = 0  # number of the newest notice from rank 0
        self.is_ending = False  # whether a notice ends the run
        self.stepped = time.monotonic()
        self.woke = -math.inf  # time at which this supervisor resumed after a hang that the hub mistook for a loss

    @property
    def connection(self) -> LifelineConnection | None:
        """Return the connection to rank 0, whether it is open or not."""
        return self.connections[0] if self.connections else None

    def open_connection(self) -> LifelineConnection | None:
        """Return the connection to rank 0 if both sides have authenticated."""
        return self.connection if self.connection is not None and self.connection.stage == "open" else None

    def open(self) -> None:
        """Do nothing, because the first step checks in."""

    def connect(self, now: float) -> None:
        """Connect to rank 0, and retry until the start or silence timeout."""
        self.retry = now + CONNECT_RETRY_INTERVAL
        lifeline = plan_with_hub(self.plan, self.candidate)["lifeline"]
        sock = socket.socket(self.family(), socket.SOCK_STREAM)
        try:
            sock.bind((self.plan["node"]["address"], 0))
            sock.settimeout(CONNECT_TIMEOUT)
            sock.connect((lifeline["address"], lifeline_port(lifeline["port"], self.port_number)))
        except OSError as error:
            sock.close()
            self.connect_error = str(error)
            if isinstance(error, ConnectionRefusedError):
                self.try_next_port()
            return
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = LifelineConnection(sock, now)
        self.connections.append(connection)
        self.selector.register(sock, selectors.EVENT_READ, connection)

    def try_next_port(self) -> None:
        """Try the next port if this node is connecting to the first node's successor.

        The successor may have found the current port in use.
        """
        if self.candidate:
            self.port_number += 1

    def compute_mac(self, side: str, server_nonce: str, connection: LifelineConnection) -> str:
        name = lifeline_name(self.plan["run_id"], self.candidate)
        run_id = connection_name(name, self.plan, self.candidate, self.node_rank)
        return handshake_mac(self.token, side, run_id, self.node_rank, server_nonce, connection.nonce)

    def on_message(self, connection: LifelineConnection, message: Data, now: float) -> None:
        """Handle a message from rank 0."""
        if connection.stage == "nonce":
            nonce = str(message.get("nonce", ""))
            connection.expected = self.compute_mac("server", nonce, connection)
            connection.lines_key = self.compute_mac("key", nonce, connection)
            connection.stage = "mac"
            connection.send(
                {
                    "node_rank": self.node_rank,
                    "nonce": connection.nonce,
                    "mac": self.compute_mac("peer", nonce, connection),
                }
            )
        elif connection.stage == "mac":
            self.check_in(connection, message, now)
        else:
            self.last_heard = now
            self.obey(connection, message, now)

    def check_in(self, connection: LifelineConnection, message: Data, now: float) -> None:
        """Open the connection and send this node's state if rank 0 proves that it has the token; otherwise, drop it."""
        if not hmac.compare_digest(
            str(message.get("mac", "")).encode("utf-8", "replace"), connection.expected.encode()
        ):
            self.connect_error = "it does not have this run's token"
            self.try_next_port()
            self.drop(connection)
            return
        connection.stage = "open"
        connection.open(0, connection.lines_key)
        self.connect_error = ""
        self.last_heard, self.broken, self.lost_at, self.admitted = now, None, None, True
        self.election, self.hub = None, self.candidate
        if not self.takes_part():
            self.journal.set_state("spare")
        if self.local_report and self.takes_part():
            self.send({"type": "report", "report": self.local_report})
        else:
            self.send({"type": "ready", "launcher_log": self.journal.log_path("launcher.log")})
            if self.has_started:
                self.send({"type": "running"})
        for notice in self.unsent:
            self.send(notice)
        self.unsent = []
        if self.stop_requested:
            connection.send({"type": "stop", "reason": self.stop_reason})
        notices, self.unsent_notices = self.unsent_notices, []
        for fields in notices:
            self.raise_notice(fields)

    def send(self, message: Data) -> None:
        """Send a message about the current attempt, if rank 0 is reachable."""
        connection = self.open_connection()
        if connection is not None:
            connection.send({**message, "attempt": self.attempt} if self.attempt else message)

    def begin_attempt(self, attempt: Attempt) -> None:
        """Prepare for another attempt.

        Ignore it if it is not new, or if this node is stopping, leaving the run, stuck or still ending an attempt.
        """
        is_ending = self.has_started and self.local_report is None
        stuck = self.local_report is not None and self.local_report["stuck"]
        if attempt["number"] <= self.attempt or self.stop_requested or self.leaving or stuck or is_ending:
            return
        self.attempt, self.current = attempt["number"], attempt
        self.stop_reason = self.local_report = None
        self.has_started = self.is_ending = False
        self.orders.append(NewAttempt(attempt))

    def after_new_attempt(self, plan: Plan) -> None:
        self.plan = plan
        self.send({"type": "ready", "launcher_log": self.journal.log_path("launcher.log")})

    def takes_part(self) -> bool:
        """Return whether this node takes part in the current attempt or is waiting as a spare."""
        return self.plan["node"]["slots"] > 0

    def obey(self, connection: LifelineConnection, message: Data, now: float) -> None:
        kind = message.get("type")
        if kind == "beat":  # reply at once, so that rank 0 hears from all nodes together and wakes up less often
            self.beat_due = now + UNPROMPTED_BEAT_INTERVAL * self.timeouts["heartbeat"]
            connection.send({"type": "beat", "quiet": self.quiet})
        elif kind in ("collect", "prepare"):
            self.orders.append(CollectStacks() if kind == "collect" else Prepare(message.get("request")))
        elif kind == "go":
            if self.plan.get("remote_start"):
                self.journal.set_state("running")  # rank 0's launcher will send the command to start here
            else:
                self.orders.append(Start(self.plan["command"]))
            self.send({"type": "running"})
        elif kind == "start" and self.plan.get("remote_start"):
            self.orders.append(Start(["/bin/sh", "-c", str(message.get("command", ""))]))
        elif kind == "stop" and self.takes_part():
            self.stop(str(message.get("reason", "")))
        elif kind == "save" and isinstance(message.get("notice"), dict):
            self.on_save(message)
        elif kind == "end":
            if self.local_report is None:  # a spare
                self.orders.append(Stop("the run has ended", leaving=False, shutdown=False))
            self.result_state = str(message.get("state", "failed"))
            self.journal.message = str(message.get("message", ""))
        else:
            self.note_attempts(connection, message, now)

    def note_attempts(self, connection: LifelineConnection, message: Data, now: float) -> None:
        """Handle a message about the run's attempts, or about the node that leads it."""
        kind = message.get("type")
        if kind in KINDS:
            self.replica.take(message)
        elif kind == "member":
            self.take_member(message)
        elif kind == "attempt":
            attempt = validate_attempt(message, len(self.names))
            if attempt is not None:
                self.begin_attempt(attempt)
        elif kind == "handover" and can_succeed(self.plan):
            self.lost_at, self.loss, self.election_due = now, str(message.get("reason", ""))[:MAX_REASON], now
            self.drop(connection)

    def take_member(self, message: Data) -> None:
        """Record that a node was replaced, and acknowledge this to the hub."""
        member = validate_member(message, len(self.names))
        if member is None:
            return
        rank = member["node_rank"]
        if rank != self.node_rank and member["generation"] > generation_of(self.plan, rank):
            replace_member(self.plan, member)
            self.names[rank] = member["name"]
            self.replica.forget_node(rank)
            self.journal.record_plan()
        self.send({**member, "type": "member"})

    def stop(self, reason: str, leaving: bool = False, shutdown: bool = False) -> None:
        if self.stop_reason is None:
            self.stop_reason = reason
        self.orders.append(Stop(reason, leaving, shutdown))

    def on_stop_signal(self, name: str) -> None:
        node = self.plan["node"]["name"]
        shutdown = self.machine_leaves()
        if shutdown or (self.plan["elastic"] and not os.path.lexists(self.journal.path("stop"))):
            # this machine is leaving the run, and in an elastic run the other nodes may continue
            self.leaving = True
            reason = shutdown_reason(node) if shutdown else f"{node} was stopped ({name})"
            self.say("failing", reason)
            self.stop(reason, leaving=True, shutdown=shutdown)
            return
        reason = f"stopped on request on {node} ({name})"
        self.stop_requested = True
        connection = self.open_connection()
        if connection is not None:
            connection.send({"type": "stop", "reason": reason})
        self.stop(reason)
        # rank 0 may be lost or may be stopping as well: do not wait for its result beyond the unit's stop timeout
        if self.result_state is None and self.connection is None:
            self.result_state = "stopped"
        self.deadline = time.monotonic() + self.timeouts["grace"] + KILL_TIMEOUT + REPORT_GRACE_PERIOD

    def after_start(self, started: bool) -> None:
        self.has_started = self.has_started or started

    def say(self, kind: str, text: str) -> None:
        connection = self.open_connection()
        if connection is not None and not connection.closed:
            self.send({"type": kind, "text": text})
        elif len(self.unsent) < MAX_UNSENT_NOTICES:
            self.unsent.append({"type": kind, "text": text})

    def send_stacks(self, groups: list[Data]) -> None:
        self.send({"type": "stacks", "groups": groups})

    def send_prepared(self, reply: Data) -> None:
        self.send({"type": "prepared", "reply": reply})

    def raise_notice(self, fields: Data) -> None:
        connection = self.open_connection()
        if connection is None:
            self.unsent_notices.append(fields)
        else:
            connection.send({**fields, "type": "notice"})

    def on_save(self, message: Data) -> None:
        """Let this node's ranks save, once per notice, because rank 0 repeats the notice on a new connection."""
        number = message.get("number")
        if isinstance(number, int) and number > self.notice_number:
            self.notice_number = number
            fields = message["notice"]
            notice = validate_notice(fields, str(fields.get("node", ""))[:255])
            self.is_ending = self.is_ending or notice["ends"]
            self.orders.append(Save(notice, number))

    def report(self, report: NodeReport) -> None:
        self.local_report = report
        self.send({"type": "report", "report": report})

    def step(self, now: float) -> None:
        self.woke = now if now - self.stepped > self.timeouts["silence"] / 2 else self.woke
        self.stepped = now
        connection = self.connection
        if connection is not None and connection.closed:
            if connection.stage != "open":
                self.try_next_port()
            elif self.broken is None:
                self.broken = now
            self.drop(connection)
        elif connection is not None and connection.stage != "open" and now - connection.opened > AUTHENTICATION_TIMEOUT:
            self.try_next_port()
            self.drop(connection)
        if self.result_state is not None:
            return
        ending = self.lost_at is not None and self.takes_part() and self.local_report is None  # connecting delays it
        if self.connection is None and now >= self.retry and not ending:
            self.connect(now)
        self.judge(now)
        connection = self.open_connection()
        if now >= self.beat_due and connection is not None:
            self.beat_due = now + UNPROMPTED_BEAT_INTERVAL * self.timeouts["heartbeat"]
            connection.send({"type": "beat"})

    def judge(self, now: float) -> None:
        """End this node's part if the hub is unreachable; the hub or a successor may return if the run may restart."""
        if self.lost_at is not None:
            if now > self.election_due:
                self.elect(now)
            return
        master, silence = self.names[self.hub], self.timeouts["silence"]
        # in that case rank 0 decides, and its start timeout may end later
        checked_in = self.open_connection() is not None
        late = now - self.started > self.timeouts["start"] + CHECK_IN_GRACE_PERIOD
        if late and not checked_in and not self.has_started and self.broken is None:
            reason = (
                f"{self.plan['node']['name']} could not check in with {master} within {self.timeouts['start']:g} s: "
                f"{self.connect_error or 'no reply'}"
            )
        elif self.broken is not None and now - self.broken > RECONNECT_TIMEOUT and not checked_in:
            reason = (
                f"{master} is lost: its supervisor closed the lifeline and did not reconnect "
                "(killed, or the node went down)"
            )
        elif checked_in and now - self.last_heard > silence:
            reason = f"{master} is lost: no sign of life for {silence:g} s (powered off, or cut off from the network)"
        else:
            return
        if "restart" not in self.plan or not self.admitted:
            self.stop(reason)
            self.lost_at, self.loss = now, reason
            self.result_state = "interrupted" if self.is_ending else "failed"
            return
        self.lost_at, self.loss, self.election_due = now, reason, now + takeover_delay(self.timeouts)
        if self.takes_part():
            self.stop(reason)
        if self.connection is not None:
            self.drop(self.connection)

    def elect(self, now: float) -> None:
        """Find another node that leads the run, or take the lead; end this node's part if the run cannot continue."""
        if not can_succeed(self.plan) or self.replica.is_final or self.stop_requested or self.leaving:
            self.stop(self.loss)
            ended = "interrupted" if self.is_ending else "failed"  # ranks may have saved
            self.result_state = "stopped" if self.stop_requested else ended
            return
        if self.takes_part() and self.local_report is None:  # its job is still ending
            return
        if self.election is None:
            self.election = now
            self.journal.set_state(
                "restarting", (f"{self.loss}; the other nodes are looking for a node to lead the run")
            )
        if self.connection is not None and self.connection.stage != "nonce":  # a candidate is answering
            return
        total, elapsed = len(self.names), now - self.election
        if has_given_up(self.node_rank, self.hub, elapsed, total):
            self.stop(self.loss)
            self.result_state = "failed"
            return
        candidate = choose_candidate(self.node_rank, self.hub, self.replica.lost, elapsed, total)
        if candidate == self.node_rank:
            self.orders.append(TakeOver())
            self.election_due = math.inf
        elif candidate != self.candidate:
            self.candidate, self.retry, self.port_number = candidate, now, 0
            if self.connection is not None:
                self.drop(self.connection)

    def is_busy(self) -> bool:
        checks_in = self.journal.state == "starting" and self.open_connection() is None
        return checks_in or self.election is not None

    def is_over(self, now: float) -> bool:
        if self.local_report is None or not (self.result_state or self.leaving or now > self.deadline):
            return False
        self.result_state = self.result_state or "stopped"
        return True

    def loss_to_report(self) -> str:
        if self.lost_at is None or not self.admitted or self.stop_requested or self.leaving:
            return ""
        if self.lost_at - self.woke < self.timeouts["silence"]:
            return ""
        reporter = choose_candidate(self.node_rank, self.hub, self.replica.lost, 0.0, len(self.names))
        return self.loss if reporter == self.node_rank else ""

    def status(self) -> Data:
        return {"hub": self.hub} if "restart" in self.plan else {}
