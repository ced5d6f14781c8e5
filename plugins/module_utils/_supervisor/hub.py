# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rank 0's end of the lifeline: hears all nodes, and decides when the run starts, who failed first, and when all end.

Private to this collection.
"""

from __future__ import annotations

import functools
import selectors
import socket
import time

from ansible_collections.muster.training.plugins.module_utils._run.processes import KILL_PATIENCE, describe_exit
from ansible_collections.muster.training.plugins.module_utils._supervisor.lifeline import Wire, proof, shown_rank
from ansible_collections.muster.training.plugins.module_utils._supervisor.lifeline_end import (
    RECONNECT_PATIENCE,
    STRANGER_PATIENCE,
    Link,
    RestartRanks,
    Start,
    Stop,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.node_views import (
    first_views,
    has_failed,
    have_succeeded,
    results_of,
    status_of,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.remote_start import RemoteStart
from ansible_collections.muster.training.plugins.module_utils._supervisor.reports import checked_report

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node some milliseconds
    from ansible_collections.muster.training.plugins.module_utils._run.documents import (
        Data,
        NodeView,
        Plan,
        Report,
        Result,
    )
    from ansible_collections.muster.training.plugins.module_utils._supervisor.journal import Journal

HEAD_START = 0.1  # seconds by which rank 0's launcher starts before the others; the best of 0.05, 0.1 and 0.2
MAX_STRANGERS = 64  # most connections that have not yet proved they hold the token


class Hub(Link):
    """Listens for the other nodes, tracks the state of each, and decides how the run goes on."""

    def __init__(self, plan: Plan, token: str, journal: Journal, selector: selectors.BaseSelector) -> None:
        super().__init__(plan, token, journal, selector)
        self.listener: socket.socket | None = None
        self.go = False
        self.go_deadline = 0.0  # by when a launcher that starts all nodes must have started them
        self.first_node: str | None = None  # the node that ended the run
        self.deadline: float | None = None  # when rank 0 stops waiting for the last reports
        self.nodes = first_views(self.names, journal.path("launcher.log"))
        self.remote_start = RemoteStart(journal, self.nodes)

    def known(self) -> list[Wire]:
        """Return the wires to nodes that have proved they hold the token."""
        return [wire for wire in self.wires if wire.node_rank is not None]

    # - who is on the lifeline

    def open(self) -> None:
        lifeline = self.plan["lifeline"]
        try:
            self.listen()
            self.set_node(self.nodes[0], "ready")
        except OSError as error:
            reason = f"{self.names[0]} cannot listen on {lifeline['address']} port {lifeline['port']}: {error}"
            self.journal.event("failure", reason)
            self.stop_everywhere(reason)
            self.deadline = 0.0  # no node can have checked in, so wait for none

    def listen(self) -> None:
        self.listener = socket.socket(self.family(), socket.SOCK_STREAM)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind((self.plan["lifeline"]["address"], self.plan["lifeline"]["port"]))
        self.listener.listen(128)
        self.listener.setblocking(False)
        self.selector.register(self.listener, selectors.EVENT_READ, functools.partial(self.accept, self.listener))

    def close(self) -> None:
        super().close()
        if self.listener is not None:
            self.listener.close()

    def accept(self, listener: socket.socket, now: float) -> None:
        for _number in range(64):
            try:
                connection, _address = listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError:  # out of descriptors until strangers time out
                return
            strangers = [wire for wire in self.wires if wire.node_rank is None]
            if len(strangers) >= MAX_STRANGERS:  # a peer proves the token at once, so the oldest is none
                self.drop(strangers[0])
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            wire = Wire(connection, now)
            self.wires.append(wire)
            self.selector.register(connection, selectors.EVENT_READ, wire)
            wire.send({"nonce": wire.nonce})

    def admit(self, wire: Wire, message: Data, now: float) -> None:
        """Admit a stranger that proves it holds the token; drop any other."""
        run_id = self.plan["run_id"]
        rank = shown_rank(wire, message, self.token, run_id, len(self.nodes))
        if rank is None:
            self.drop(wire)
            return
        for other in [other for other in self.wires if other.node_rank == rank]:
            self.drop(other)
        wire.heard = now
        self.nodes[rank]["broken"] = None
        wire.send({"mac": proof(self.token, "server", run_id, rank, wire.nonce, message["nonce"])})
        wire.open(rank, proof(self.token, "key", run_id, rank, wire.nonce, message["nonce"]))
        if self.go:
            wire.send({"type": "go"})
        if self.nodes[rank]["remote_started"]:  # the wire may have broken before the command arrived
            self.remote_start.send_command(wire)
        if self.stop_reason:
            wire.send({"type": "stop", "reason": self.stop_reason})

    def on_message(self, wire: Wire, message: Data, now: float) -> None:
        if wire.node_rank is None:
            self.admit(wire, message, now)
        else:  # messages count even if the peer has hung up since
            self.peer_message(wire, message, now)

    def peer_message(self, wire: Wire, message: Data, now: float) -> None:
        """Handle a message from a peer."""
        wire.heard = now
        node = self.nodes[wire.node_rank or 0]
        node["heard"] = time.time()
        kind = message.get("type")
        if kind == "ready":
            node["launcher_log"] = str(message.get("launcher_log", ""))
            if node["state"] in ("waiting", "lost") and not self.go:
                self.set_node(node, "ready")
        elif kind == "running" and node["state"] != "ended":
            self.set_node(node, "running")
        elif kind == "report" and isinstance(message.get("report"), dict):
            self.take_report(node, checked_report(message["report"]))
        elif kind == "failing":
            self.on_failing(node, str(message.get("text", "")))
        elif kind in ("mount", "gpus", "logs"):
            self.journal.event(kind, str(message.get("text", "")), node=node["name"])
        elif kind == "stop":
            self.stop_everywhere(str(message.get("reason", "")), wanted=True)

    def tend_wires(self, now: float) -> None:
        """Drop strangers that fail to prove the token in time, and give up nodes that hung up or fell silent."""
        silence = self.timeouts["silence"]
        for wire in list(self.wires):
            if wire.node_rank is None and now - wire.opened > STRANGER_PATIENCE:
                wire.closed = True
            if wire.closed:
                if wire.node_rank is not None:
                    self.nodes[wire.node_rank]["broken"] = now
                self.drop(wire)
        for node in self.nodes[1:]:
            if node["broken"] is not None and now - node["broken"] > RECONNECT_PATIENCE:
                self.lose(
                    node, "its supervisor closed the lifeline and did not come back (killed, or the node went down)"
                )
        for wire in self.known():
            if now - wire.heard > silence:
                self.lose(
                    self.nodes[wire.node_rank or 0],
                    f"no sign of life for {silence:g} s (powered off, or cut off from the network)",
                )
                self.drop(wire)
        if now >= self.beat_due:
            self.beat_due = now + self.timeouts["heartbeat"]
            for wire in self.known():
                wire.send({"type": "beat"})

    def forward_commands(self, now: float) -> None:
        """Forward the commands of a launcher that starts all nodes; end the run if it leaves out a node."""
        waiting = self.remote_start.forward(self.wires)
        if waiting and self.stop_reason is None and (self.own_report is not None or now > self.go_deadline):
            what = f"the launcher on {self.names[0]} started nothing on {', '.join(waiting)}"
            self.first_node = self.names[0]
            self.journal.event("failure", what, node=self.names[0])
            self.stop_everywhere(what)

    # - who failed first

    def set_node(self, node: NodeView, state: str) -> None:
        if node["state"] != state:
            node["state"], node["since"] = state, time.time()
            self.journal.status_due = 0.0

    def report(self, report: Report) -> None:
        self.own_report = report
        self.take_report(self.nodes[0], report)

    def take_report(self, node: NodeView, report: Report) -> None:
        if node["state"] == "ended":
            return
        node["report"] = report
        self.set_node(node, "ended")
        if has_failed(node) and not self.stop_reason:
            code = describe_exit(report.get("exit_code"))
            self.node_failed(node, report.get("reason") or f"the launcher on {node['name']} ended with {code}")

    def on_failing(self, node: NodeView, what: str) -> None:
        """End the run everywhere while a failed node is still ending its part; an elastic run waits for its report."""
        if not self.stop_reason and not self.plan["elastic"]:
            self.node_failed(node, what)

    def lose(self, node: NodeView, why: str) -> None:
        """Mark a node as lost: powered off, cut off from the network, or without its supervisor."""
        if node["state"] in ("lost", "ended"):
            return
        self.set_node(node, "lost")
        node["why"] = f"{node['name']} is lost: {why}"
        if not self.stop_reason:
            self.node_failed(node, node["why"])

    def node_failed(self, node: NodeView, what: str) -> None:
        """Decide whether the run can go on without a node that failed or is lost."""
        alive = [other for other in self.nodes if other["state"] != "lost" and not has_failed(other)]
        if self.plan["elastic"] and len(alive) >= self.plan["min_nnodes"] and node["node_rank"] != 0:
            self.journal.event(
                "shrink",
                f"{what}; the run continues with {len(alive)} of {len(self.nodes)} nodes "
                f"(at least {self.plan['min_nnodes']} are needed)",
                node=node["name"],
            )
            node["survived"] = True
            if node["state"] == "lost":  # ranks notice one that has ended by themselves
                self.orders.append(RestartRanks(node["heard"]))
        else:
            self.first_node = node["name"]
            self.journal.event("failure", what, node=node["name"])
            self.stop_everywhere(what)

    def stop_everywhere(self, reason: str, wanted: bool = False) -> None:
        if self.stop_reason is None:
            self.stop_reason, self.stop_wanted = reason, wanted
            for wire in self.known():
                wire.send({"type": "stop", "reason": reason})
            self.deadline = time.monotonic() + self.timeouts["grace"] + KILL_PATIENCE + 2.0
            self.orders.append(Stop(reason, False))

    def on_stop_signal(self, name: str) -> None:
        self.stop_everywhere(f"stopped on request on {self.names[0]} ({name})", wanted=True)

    def say(self, kind: str, text: str) -> None:
        if kind == "failing":
            self.on_failing(self.nodes[0], text)
        else:
            self.journal.event(kind, text, node=self.names[0])

    # - when the run starts and ends

    def step(self, now: float) -> None:
        self.tend_wires(now)
        self.judge(now)

    def judge(self, now: float) -> None:
        """Start the run once the nodes have checked in, finish it once they are done."""
        if not self.go and self.stop_reason is None:
            self.judge_start(now)
        if self.go and self.plan.get("remote_start"):
            self.forward_commands(now)
        finished = all(node["state"] in ("ended", "lost") for node in self.nodes)
        if self.own_report is not None and (finished or (self.deadline is not None and now > self.deadline)):
            self.finish()

    def judge_start(self, now: float) -> None:
        """Start the run once all nodes have checked in; after the start timeout, start with enough nodes or give up."""
        ready = [node for node in self.nodes if node["state"] == "ready"]
        missing = [node for node in self.nodes if node["state"] != "ready"]
        late = now - self.started > self.timeouts["start"]
        if missing and not late:
            return
        for node in missing:
            self.set_node(node, "lost")
        names = ", ".join(node["name"] for node in missing)
        if missing and not (self.plan["elastic"] and len(ready) >= self.plan["min_nnodes"]):
            self.journal.event("failure", f"no check-in from {names}")
            self.stop_everywhere(
                f"{names} did not check in within {self.timeouts['start']:g} s: "
                f"is the lifeline's port {self.plan['lifeline']['port']} open between the nodes?"
            )
            return
        self.go = True
        self.go_deadline = now + self.timeouts["start"]
        for node in missing:
            node["survived"] = True
        there = f"all {len(ready)} nodes have checked in" if len(ready) > 1 else "the node is ready"
        if missing:
            there = f"{len(ready)} of {len(self.nodes)} nodes have checked in, starting without {names}"
        self.journal.event("go", there)
        self.orders.append(Start(self.plan["command"]))

    def after_start(self, started: bool) -> None:
        """Tell the other nodes to start.

        Rank 0's launcher opens the store first: a torch that finds it closed waits 0.25 to 0.75 s, and all other nodes
        wait for that one.
        """
        if started:
            self.set_node(self.nodes[0], "running")
        time.sleep(HEAD_START)
        for wire in self.known():
            wire.send({"type": "go"})

    def finish(self) -> None:
        """Write the result, and send it to the peers."""
        if self.stop_wanted:
            state = "stopped"
        else:
            state = "succeeded" if self.stop_reason is None and have_succeeded(self.plan, self.nodes) else "failed"
        self.journal.set_state(state, self.stop_reason or "")
        self.journal.make_room()
        self.journal.write("result.json", self.result(state))
        for wire in self.known():
            wire.send({"type": "end", "state": state, "message": self.stop_reason or ""})
        self.result_state = state

    def result(self, state: str) -> Result:
        """Return the content of result.json."""
        return {
            "run_id": self.plan["run_id"],
            "state": state,
            "reason": self.stop_reason or "",
            "first_node": self.first_node,
            "world_size": self.plan["world_size"],
            "nnodes": len(self.nodes),
            "started": self.journal.started_at(),
            "ended": time.time(),
            "nodes": results_of(self.nodes),
        }

    def is_busy(self) -> bool:
        return bool(self.plan.get("remote_start")) and not all(node["remote_started"] for node in self.nodes)

    def is_over(self, now: float) -> bool:
        return self.result_state is not None

    def status(self) -> Data:
        return {"nodes": status_of(self.nodes)}
