# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A supervisor's end of the lifeline, and the orders it gives on its own node.

Private to this collection.
"""

from __future__ import annotations

import collections
import contextlib
import selectors
import socket
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node some milliseconds
    from ansible_collections.muster.training.plugins.module_utils._run.documents import Data, Plan, Report
    from ansible_collections.muster.training.plugins.module_utils._supervisor.journal import Journal
    from ansible_collections.muster.training.plugins.module_utils._supervisor.lifeline import Wire

RECONNECT_PATIENCE = 2.0  # seconds a broken connection may take to come back before its node counts as lost
STRANGER_PATIENCE = 5.0  # seconds a stranger has to prove the token

# Orders from an end of the lifeline to its supervisor, which carries them out in sequence.
Start = collections.namedtuple("Start", "command")  # the job; command: a list of words
Stop = collections.namedtuple("Stop", "reason leaving")  # the job; leaving: this machine goes down, the run goes on
RestartRanks = collections.namedtuple("RestartRanks", "heard")  # after a node was lost; heard: when it was last heard


class Link:
    """Base of Hub, on rank 0, and Peer, on all other nodes; both override what raises NotImplementedError."""

    def __init__(self, plan: Plan, token: str, journal: Journal, selector: selectors.BaseSelector) -> None:
        self.plan = plan
        self.token = token
        self.journal = journal
        self.selector = selector
        self.timeouts = plan["timeouts"]
        self.names = [peer["name"] for peer in plan["nodes"]]
        self.started = time.monotonic()
        self.beat_due = 0.0
        self.wires: list[Wire] = []
        self.orders: list[Start | Stop | RestartRanks] = []
        self.stop_reason: str | None = None
        self.stop_wanted = False  # whether a person requested the stop
        self.own_report: Report | None = None  # this node's
        self.result_state: str | None = None  # how the run ended, as far as this node knows

    def take_orders(self) -> list[Start | Stop | RestartRanks]:
        orders, self.orders = self.orders, []
        return orders

    def drop(self, wire: Wire) -> None:
        wire.closed = True
        with contextlib.suppress(KeyError, ValueError):
            self.selector.unregister(wire.connection)
        wire.connection.close()
        if wire in self.wires:
            self.wires.remove(wire)

    def close(self) -> None:
        """Flush the outgoing messages, for at most one second, and close the connections."""
        deadline = time.monotonic() + 1.0
        while any(wire.outbox and not wire.closed for wire in self.wires) and time.monotonic() < deadline:
            for wire in self.wires:
                wire.flush()
            time.sleep(0.01)
        for wire in list(self.wires):
            self.drop(wire)

    def family(self) -> int:
        return socket.AF_INET6 if ":" in self.plan["lifeline"]["address"] else socket.AF_INET

    def open(self) -> None:
        """Open this end of the lifeline, once the supervisor is ready."""
        raise NotImplementedError

    def on_message(self, wire: Wire, message: Data, now: float) -> None:
        """Handle a message from the other side of a wire."""
        raise NotImplementedError

    def on_stop_signal(self, name: str) -> None:
        """Handle a request to stop this node: stop.yml, systemctl stop, or a shutdown; name: the signal's."""
        raise NotImplementedError

    def after_start(self, started: bool) -> None:
        """Go on after a Start was carried out; started: whether this node's job is running."""
        raise NotImplementedError

    def say(self, kind: str, text: str) -> None:
        """Tell those who watch the run about an event on this node."""
        raise NotImplementedError

    def report(self, report: Report) -> None:
        """Report how this node's part ended."""
        raise NotImplementedError

    def step(self, now: float) -> None:
        """Do what is due."""
        raise NotImplementedError

    def is_busy(self) -> bool:
        """Whether the next turn should come soon."""
        raise NotImplementedError

    def is_over(self, now: float) -> bool:
        """Whether nothing is left to wait for or do here."""
        raise NotImplementedError

    def status(self) -> Data:
        """Return its fields of status.json."""
        raise NotImplementedError
