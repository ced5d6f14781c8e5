# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A supervisor's end of the lifeline, and the orders it gives on its own node."""

from __future__ import annotations

import collections
import contextlib
import os
import selectors
import socket
import time

from ansible_collections.muster.training.plugins.module_utils._run.machine_shutdown import is_shutting_down
from ansible_collections.muster.training.plugins.module_utils._run.node_loss import SHUT_DOWN
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import FLUSH_TIMEOUT

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from ansible_collections.muster.training.plugins.module_utils._run.documents import Data, NodeReport, Plan, Result
    from ansible_collections.muster.training.plugins.module_utils._supervisor.journal import Journal
    from ansible_collections.muster.training.plugins.module_utils._supervisor.lifeline import LifelineConnection


# Orders from one end of the lifeline to its supervisor, which carries them out in sequence.
Start = collections.namedtuple("Start", "command")  # the job; command: its argv
# The job. leaving: this node ends its part without a request to stop the run; shutdown: it does so because its machine
# is shutting down.
Stop = collections.namedtuple("Stop", "reason leaving shutdown")
# Sent after a node was lost; last_heard: the monotonic time at which its last message arrived.
RestartRanks = collections.namedtuple("RestartRanks", "last_heard")
# The stacks of this node's ranks, to be sent to rank 0.
CollectStacks = collections.namedtuple("CollectStacks", "")
# The next attempt to run the job, once the last one has ended on this node.
NewAttempt = collections.namedtuple("NewAttempt", "attempt")
# A step in preparing the next attempt; request: rank 0's request, see preparation/node_preparation.py.
Prepare = collections.namedtuple("Prepare", "request")
# This node's ranks must save; number: the notice's number in this run.
Save = collections.namedtuple("Save", "notice number")
# From now on, this node must lead the run.
TakeOver = collections.namedtuple("TakeOver", "")


def shutdown_reason(node: str) -> str:
    """Return why a node ends its part of the run when its machine shuts down."""
    return f"{node} {SHUT_DOWN}"


class LifelineEnd:
    """Base class of Hub, on rank 0, and Peer, on all other nodes, which implement its abstract methods."""

    def __init__(self, plan: Plan, token: str, journal: Journal, selector: selectors.BaseSelector) -> None:
        self.plan = plan
        self.token = token
        self.journal = journal
        self.selector = selector
        self.timeouts = plan["timeouts"]
        self.names = [peer["name"] for peer in plan["nodes"]]
        self.started = time.monotonic()
        self.beat_due = 0.0
        self.connections: list[LifelineConnection] = []
        self.orders: list[Start | Stop | RestartRanks | CollectStacks | NewAttempt | Prepare | Save | TakeOver] = []
        self.stop_reason: str | None = None
        self.stop_requested = False  # whether a person requested the stop
        self.quiet = 0.0  # seconds since this node's job last made progress
        self.local_report: NodeReport | None = None  # this node's report
        self.result: Result | None = None  # the result that rank 0 has written; None on other nodes
        self.result_state: str | None = None  # how the run ended, as far as this node knows
        self.failure_code = 1  # the supervisor's exit code if it failed

    def take_orders(self) -> list[Start | Stop | RestartRanks | CollectStacks | NewAttempt | Prepare | Save | TakeOver]:
        orders, self.orders = self.orders, []
        return orders

    def drop(self, connection: LifelineConnection) -> None:
        connection.closed = True
        with contextlib.suppress(KeyError, ValueError):
            self.selector.unregister(connection.sock)
        connection.sock.close()
        if connection in self.connections:
            self.connections.remove(connection)

    def close(self) -> None:
        """Flush the outgoing messages, for at most one second, and close the connections."""
        deadline = time.monotonic() + FLUSH_TIMEOUT
        while (
            any(connection.outbox and not connection.closed for connection in self.connections)
            and time.monotonic() < deadline
        ):
            for connection in self.connections:
                connection.flush()
            time.sleep(0.01)
        for connection in list(self.connections):
            self.drop(connection)

    def family(self) -> int:
        return socket.AF_INET6 if ":" in self.plan["lifeline"]["address"] else socket.AF_INET

    def machine_leaves(self) -> bool:
        """Return whether a stop signal was caused by the shutdown of this machine rather than a request to stop the
        run.

        A request leaves the file `stop`, which a shutdown does not.
        """
        return not os.path.lexists(self.journal.path("stop")) and is_shutting_down()

    def open(self) -> None:
        """Open this end of the lifeline, once the supervisor is ready."""
        raise NotImplementedError

    def on_message(self, connection: LifelineConnection, message: Data, now: float) -> None:
        """Handle a message that arrived on a connection."""
        raise NotImplementedError

    def on_stop_signal(self, name: str) -> None:
        """Handle a request to stop this node: stop.yml, systemctl stop, or a shutdown; name: the signal's."""
        raise NotImplementedError

    def after_start(self, started: bool) -> None:
        """Continue after a Start has been carried out; started: whether this node's job is running."""
        raise NotImplementedError

    def after_new_attempt(self, plan: Plan) -> None:
        """Continue with the plan of a new attempt, for which this node is ready."""
        raise NotImplementedError

    def say(self, kind: str, text: str) -> None:
        """Report an event on this node to those who are watching the run."""
        raise NotImplementedError

    def send_stacks(self, groups: list[Data]) -> None:
        """Send what this node's ranks are doing."""
        raise NotImplementedError

    def send_prepared(self, reply: Data) -> None:
        """Send the reply to a request from rank 0 about preparing the next attempt."""
        raise NotImplementedError

    def raise_notice(self, fields: Data) -> None:
        """Report that this node's ranks, and therefore those of all nodes, must save."""
        raise NotImplementedError

    def report(self, report: NodeReport) -> None:
        """Send this node's report."""
        raise NotImplementedError

    def step(self, now: float) -> None:
        """Perform the actions that are due."""
        raise NotImplementedError

    def is_busy(self) -> bool:
        """Return whether the next turn should come soon."""
        raise NotImplementedError

    def is_over(self, now: float) -> bool:
        """Return whether this node has nothing more to wait for or do."""
        raise NotImplementedError

    def loss_to_report(self) -> str:
        """Return why the node leading the run was lost, if this node reports the loss in its place, or "" otherwise."""
        return ""

    def status(self) -> Data:
        """Return this end's fields of status.json."""
        raise NotImplementedError
