# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hub: the lifeline end that leads the run, initially on node 0.

It tracks all nodes, and decides when the run starts and ends, and who failed first.
"""

from __future__ import annotations

import functools
import selectors
import socket
import time

from ansible_collections.muster.training.plugins.module_utils._run.ended_ranks import RANK_NUMBER, describe_ended_ranks
from ansible_collections.muster.training.plugins.module_utils._run.flight_records import validate_operations
from ansible_collections.muster.training.plugins.module_utils._run.hang_analysis import HANG, validate_groups
from ansible_collections.muster.training.plugins.module_utils._run.hub_node import can_succeed
from ansible_collections.muster.training.plugins.module_utils._run.members import (
    connection_name,
    generation_of,
    possible_followers,
)
from ansible_collections.muster.training.plugins.module_utils._run.nccl_setups import validate_setups
from ansible_collections.muster.training.plugins.module_utils._run.processes import describe_exit
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import validate_report
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import (
    AUTHENTICATION_TIMEOUT,
    HEAD_START_INTERVAL,
    KILL_TIMEOUT,
    RANK_END_NOTICE_TIMEOUT,
    RECONNECT_TIMEOUT,
    REPORT_GRACE_PERIOD,
    RETURN_TIMEOUT,
    SAVED_GRACE_PERIOD,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor import restart_policy
from ansible_collections.muster.training.plugins.module_utils._supervisor.attempts import Attempts, End
from ansible_collections.muster.training.plugins.module_utils._supervisor.hang_watch import HangWatch
from ansible_collections.muster.training.plugins.module_utils._supervisor.health.idle import IDLE, IdleWatch
from ansible_collections.muster.training.plugins.module_utils._supervisor.health.node_health import (
    BROKEN,
    HEALTH,
    HEALTHY,
    PACE,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.health.pace import PaceWatch
from ansible_collections.muster.training.plugins.module_utils._supervisor.lifeline import (
    LifelineConnection,
    authenticate_rank,
    handshake_mac,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.lifeline_end import (
    CollectStacks,
    LifelineEnd,
    NewAttempt,
    Prepare,
    RestartRanks,
    Save,
    Start,
    Stop,
    shutdown_reason,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.live_sampling import SAMPLE_KIND, SampleLog
from ansible_collections.muster.training.plugins.module_utils._supervisor.nccl_ras import describe_nccl
from ansible_collections.muster.training.plugins.module_utils._supervisor.new_members import KIND, NewMembers
from ansible_collections.muster.training.plugins.module_utils._supervisor.node_views import (
    has_failed,
    have_succeeded,
    initial_views,
    reset_views,
    results_of,
    status_of,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.notices.hub_notices import (
    HubNotices,
    validate_notice,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.notices.save_watch import SaveWatch
from ansible_collections.muster.training.plugins.module_utils._supervisor.preparation.hub_preparation import (
    HubPreparation,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.rank_watch import ENDED_RANKS
from ansible_collections.muster.training.plugins.module_utils._supervisor.remote_start import RemoteStart
from ansible_collections.muster.training.plugins.module_utils._supervisor.replica import Replicator
from ansible_collections.muster.training.plugins.module_utils._supervisor.succession import (
    has_quorum,
    lifeline_name,
    majority,
)

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from ansible_collections.muster.training.plugins.module_utils._run.documents import (
        Attempt,
        AttemptPhases,
        Data,
        NodeReport,
        NodeView,
        Plan,
        Result,
        SaveNotice,
    )
    from ansible_collections.muster.training.plugins.module_utils._supervisor.journal import Journal

OF_ATTEMPT = ("ready", "running", "report", "failing", ENDED_RANKS)  # messages that concern one attempt
MAX_BROKEN = 100  # number of entries about broken hardware in the result
MAX_UNAUTHENTICATED = 64  # connections that have not proved that they hold the token, beyond those of missing nodes
BACKLOG = 1024  # connections that the kernel keeps until they are accepted: all nodes may connect at the same time


class Hub(LifelineEnd):
    """Listens for the other nodes, tracks the state of each, and decides how the run continues."""

    def __init__(self, plan: Plan, token: str, journal: Journal, selector: selectors.BaseSelector) -> None:
        super().__init__(plan, token, journal, selector)
        self.own = plan["node"]["node_rank"]
        self.listener: socket.socket | None = None
        self.go = False
        self.go_deadline = 0.0  # time by which a launcher that starts all nodes must have started them
        self.first_node: str | None = None  # the node that ended the run
        self.deadline: float | None = None  # time until which rank 0 waits for the last reports
        self.nodes = initial_views(self.names, journal.path("launcher.log"))
        self.remote_start = RemoteStart(journal, self.nodes)
        self.attempts = Attempts(plan)
        self.attempts.preparation = HubPreparation(plan, self.send_request, self.tell_preparation)
        self.phases: AttemptPhases = {}  # time at which the failure that ends the attempt was noticed
        self.end_class = ""  # class of the attempt's end, if whoever ends the attempt knows it: see restart_policy.py
        # times, in seconds since 1970, at which ranks exited while others were still running
        self.ended_ranks: dict[int, float] = {}
        self.hangs = HangWatch(plan)
        self.ended_early: list[int] = []  # ranks that had exited with 0 when the run began to end
        self.named_ranks: set[int] = set()  # ranks for which an event has been written
        self.notices = HubNotices(plan)
        self.pace = PaceWatch(plan)
        self.idle = IdleWatch(plan)
        self.samples = SampleLog(journal, plan)
        self.broken: list[dict[str, str]] = []  # broken hardware across all attempts: node and text
        self.save_watch = SaveWatch(plan, self.send_request)
        self.is_cut_off = False  # whether the other nodes may continue without this node
        self.replicator = Replicator(self)
        self.new_members = NewMembers(self)

    def admitted_connections(self) -> list[LifelineConnection]:
        """Return the connections to nodes that have proved that they hold the token."""
        return [connection for connection in self.connections if connection.node_rank is not None]

    # - connections

    def open(self) -> None:
        lifeline = self.plan["lifeline"]
        try:
            self.listen()
            self.set_node(self.nodes[self.own], "ready")
        except OSError as error:
            reason = f"{self.names[0]} cannot listen on {lifeline['address']} port {lifeline['port']}: {error}"
            self.journal.event("failure", reason)
            self.stop_everywhere(reason)
            self.deadline = 0.0  # no node can have checked in, so do not wait for any

    def listen(self, port: int = 0) -> None:
        """Listen on a port, by default the planned one."""
        if self.listener is not None:
            self.listener.close()
        self.listener = socket.socket(self.family(), socket.SOCK_STREAM)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind((self.plan["lifeline"]["address"], port or self.plan["lifeline"]["port"]))
        self.listener.listen(BACKLOG)
        self.listener.setblocking(False)
        self.selector.register(self.listener, selectors.EVENT_READ, functools.partial(self.accept, self.listener))

    def close(self) -> None:
        super().close()
        if self.listener is not None:
            self.listener.close()

    def accept(self, listener: socket.socket, now: float) -> None:
        for _number in range(64):
            try:
                sock, _address = listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError:  # no descriptors are free until unauthenticated connections time out
                return
            unauthenticated = [connection for connection in self.connections if connection.node_rank is None]
            missing = len(self.nodes) - 1 - (len(self.connections) - len(unauthenticated))  # may all connect together
            # a peer authenticates at once, so the oldest unauthenticated connection does not belong to a peer
            if len(unauthenticated) >= MAX_UNAUTHENTICATED + missing:
                self.drop(unauthenticated[0])
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = LifelineConnection(sock, now)
            self.connections.append(connection)
            self.selector.register(sock, selectors.EVENT_READ, connection)
            connection.send({"nonce": connection.nonce})

    def admit(self, connection: LifelineConnection, message: Data, now: float) -> None:
        """Admit a connection that proves that it holds the token; drop any other."""
        name = lifeline_name(self.plan["run_id"], self.own)
        run_id = connection_name(name, self.plan, self.own, message.get("node_rank"))
        ranks = possible_followers(self.plan, self.own)  # the nodes before this one were lost
        rank = authenticate_rank(connection, message, self.token, run_id, ranks)
        if rank is None:
            self.drop(connection)
            return
        for duplicate in [other for other in self.connections if other.node_rank == rank]:
            self.drop(duplicate)
        connection.last_heard = now
        self.nodes[rank]["broken"] = None
        connection.send({"mac": handshake_mac(self.token, "server", run_id, rank, connection.nonce, message["nonce"])})
        connection.open(rank, handshake_mac(self.token, "key", run_id, rank, connection.nonce, message["nonce"]))
        connection.side, connection.other_side = "server", "peer"  # even if it replaces node 0
        self.new_members.arrive(rank)
        for replacement in self.new_members.messages():
            connection.send(replacement)
        self.replicator.send_all(connection)
        if self.attempts.number:
            connection.send({"type": "attempt", **self.attempts.current_without_replaced()})
        if self.go and self.attempts.takes_part(self.nodes[rank]):
            connection.send({"type": "go"})
        if self.nodes[rank]["remote_started"] and self.attempts.takes_part(
            self.nodes[rank]
        ):  # the connection may have broken before the command arrived
            self.remote_start.send_command(connection)
        if self.notices.current is not None:  # the connection may have broken before it arrived
            connection.send(self.save_message(self.notices.current))
        if self.stop_reason:
            connection.send({"type": "stop", "reason": self.stop_reason})

    def on_message(self, connection: LifelineConnection, message: Data, now: float) -> None:
        if connection.node_rank is None:
            self.admit(connection, message, now)
        else:  # messages count even if the peer has since hung up
            self.peer_message(connection, message, now)

    def peer_message(self, connection: LifelineConnection, message: Data, now: float) -> None:
        """Handle a message from a peer."""
        connection.last_heard = now
        node = self.nodes[connection.node_rank or 0]
        node["last_message"] = now
        kind = message.get("type")
        if kind in OF_ATTEMPT and message.get("attempt", 0) != self.attempts.number:
            return
        text = str(message.get("text", ""))
        if kind in ("mount", "gpus", "logs", "files", "metrics", "debugger", "saving", HEALTH, HEALTHY, BROKEN):
            self.note_event(kind, text, node["name"])
        elif kind == "ready":
            self.on_ready(node, str(message.get("launcher_log", "")))
        elif kind == "running" and node["state"] not in ("ended", "spare"):
            self.set_node(node, "running")
        elif kind == "report" and isinstance(message.get("report"), dict):
            report = validate_report(message["report"])
            report["stacks"] = validate_groups(report["stacks"], self.ranks_of(node["node_rank"]))
            report["operations"] = validate_operations(report["operations"], self.ranks_of(node["node_rank"]))
            report["nccl"] = validate_setups(report["nccl"], self.ranks_of(node["node_rank"]))
            self.take_report(node, report)
        elif kind == "stop":
            self.stop_everywhere(str(message.get("reason", "")), requested=True)
        else:
            self.job_message(node, message, text)

    def job_message(self, node: NodeView, message: Data, text: str) -> None:
        """Handle a message about the ranks of a node that is running its part."""
        kind, node_rank = message.get("type"), node["node_rank"]
        if kind == "failing":
            self.on_failing(node, text)
        elif kind == "notice":
            self.raise_notice(message, node["name"])
        elif kind == "prepared" and isinstance(message.get("reply"), dict):
            self.take_prepared(node_rank, message["reply"])
        elif kind == "beat":
            self.hangs.note_quiet(node_rank, message.get("quiet"), node["last_message"])
        elif kind == "stacks":
            self.hangs.take(node_rank, message.get("groups"))
        elif kind == KIND:
            self.new_members.acknowledge(node_rank, message)
        elif kind == PACE:
            self.pace.take(node["name"], text, time.monotonic())
        elif kind == SAMPLE_KIND:
            self.take_sample(node["name"], text)
        elif kind == ENDED_RANKS:
            self.note_ended_ranks(node_rank, text)

    def on_ready(self, node: NodeView, launcher_log: str) -> None:
        """Note that a node has checked in for the current attempt, or can be a spare."""
        if self.go and not self.attempts.takes_part(node):
            self.add_spare(node)
            return
        node["launcher_log"] = launcher_log
        if node["state"] in ("waiting", "lost") and not self.go:
            self.set_node(node, "ready")

    def check_connections(self, now: float) -> None:
        """Drop connections that fail to authenticate in time, and give up on nodes that hung up or fell silent."""
        silence = self.timeouts["silence"]
        for connection in list(self.connections):
            if connection.node_rank is None and now - connection.opened > AUTHENTICATION_TIMEOUT:
                connection.closed = True
            if connection.closed:
                if connection.node_rank is not None:
                    self.nodes[connection.node_rank]["broken"] = now
                self.drop(connection)
        for node in self.nodes:
            if node["broken"] is not None and now - node["broken"] > RECONNECT_TIMEOUT:
                self.lose(
                    node, "its supervisor closed the lifeline and did not reconnect (killed, or the node went down)"
                )
        for connection in self.admitted_connections():
            if now - connection.last_heard > silence:
                node = self.nodes[connection.node_rank or 0]
                node["return_by"] = now + RETURN_TIMEOUT
                self.lose(node, f"no sign of life for {silence:g} s (powered off, or cut off from the network)")
                self.drop(connection)
        if now >= self.beat_due:
            self.beat_due = now + self.timeouts["heartbeat"]
            for connection in self.admitted_connections():
                connection.send({"type": "beat"})

    def forward_commands(self, now: float) -> None:
        """Forward the commands of a launcher that starts all nodes; end the run if it omits a node."""
        waiting = self.remote_start.forward(self.connections)
        if waiting and self.stop_reason is None and (self.local_report is not None or now > self.go_deadline):
            reason = f"the launcher on {self.names[0]} started no processes on {', '.join(waiting)}"
            self.first_node = self.names[0]
            self.journal.event("failure", reason, node=self.names[0])
            self.stop_everywhere(reason)

    # - preparation of the next attempt

    def send_request(self, member: int, request: Data) -> None:
        """Send a node a request about the next attempt."""
        if member == self.own:
            self.orders.append(Prepare(request))
        for connection in self.admitted_connections():
            if connection.node_rank == member:
                connection.send({"type": "prepare", "request": request})

    def send_prepared(self, reply: Data) -> None:
        self.take_prepared(self.own, reply)

    def take_prepared(self, member: int, reply: Data) -> None:
        """Handle a node's reply to send_request."""
        self.save_watch.take(member, reply)
        if self.attempts.preparation is not None:
            self.attempts.preparation.take(member, reply)

    def tell_preparation(self, text: str, node: str) -> None:
        self.journal.event("prepare", text, node=node)

    # - failures

    def set_node(self, node: NodeView, state: str) -> None:
        if node["state"] != state:
            node["state"], node["since"] = state, time.time()
            self.journal.status_due = 0.0

    def report(self, report: NodeReport) -> None:
        self.local_report = report
        self.take_report(self.nodes[self.own], report)

    def take_report(self, node: NodeView, report: NodeReport) -> None:
        if node["state"] == "ended":
            return
        if not self.attempts.takes_part(node):
            self.lose(node, report.get("reason") or "its supervisor has ended")
            return
        node["report"] = report
        self.set_node(node, "ended")
        if not has_failed(node):
            self.note_ended_ranks(node["node_rank"], " ".join(map(str, self.ranks_of(node["node_rank"]))))
        if has_failed(node) and not self.stop_reason:
            code = describe_exit(report.get("exit_code"))
            self.node_failed(node, report.get("reason") or f"the launcher on {node['name']} ended with {code}")

    def on_failing(self, node: NodeView, reason: str) -> None:
        """End the run everywhere while a failed node is still ending its part; an elastic run waits for its report."""
        runs = node["state"] != "ended" and self.attempts.takes_part(node)
        if not self.stop_reason and not self.plan["elastic"] and runs:
            self.node_failed(node, reason)

    def lose(self, node: NodeView, reason: str) -> None:
        """Mark a node as lost: powered off, cut off from the network, or without its supervisor."""
        if node["state"] in ("lost", "ended"):
            return
        if node["last_message"] and not self.stop_reason and self.attempts.takes_part(node):
            self.phases["silent"] = time.monotonic() - node["last_message"]
        self.set_node(node, "lost")
        node["lost_reason"] = f"{node['name']} is lost: {reason}"
        if self.attempts.takes_part(node):
            if not self.stop_reason:
                self.node_failed(node, node["lost_reason"])
        elif self.stop_reason or not self.go or self.has_quorum():
            self.journal.event(
                "spare", f"{node['lost_reason']}; the run continues with one fewer spare", node=node["name"]
            )
        else:
            self.is_cut_off = True
            reason = (
                f"{node['lost_reason']}: fewer than half of the nodes can be reached, and the others may continue on "
                "their own"
            )
            self.first_node = node["name"]
            self.journal.event("failure", reason, node=node["name"])
            self.stop_everywhere(reason, end_class=restart_policy.NODE_LOST)

    def has_quorum(self) -> bool:
        """Return whether no successor can be leading the run on the nodes that this one cannot reach."""
        return has_quorum(self.plan, self.own, [node["node_rank"] for node in self.nodes if node["state"] != "lost"])

    def add_spare(self, node: NodeView, is_back: bool = True) -> None:
        """Keep a node that does not take part in this attempt for the next; is_back: after it was lost."""
        if node["state"] == "lost" and not node["excluded"]:
            if is_back:
                returns = "" if generation_of(self.plan, node["node_rank"]) else " is back, and"
                self.journal.event("spare", f"{node['name']}{returns} is waiting as a spare", node=node["name"])
            self.set_node(node, "spare")

    def node_failed(self, node: NodeView, reason: str) -> None:
        """Decide whether the run can continue without a node that failed or is lost."""
        if self.notices.is_saving(time.monotonic()) and self.has_quorum():  # other nodes' ranks may still be writing
            self.journal.event("notice", f"{reason}; the other nodes may still be saving", node=node["name"])
            return
        alive = [
            other_node for other_node in self.nodes if other_node["state"] != "lost" and not has_failed(other_node)
        ]
        if self.plan["elastic"] and len(alive) >= self.plan["min_nnodes"] and node["node_rank"] != 0:
            self.journal.event(
                "shrink",
                f"{reason}; the run continues with {len(alive)} of {len(self.nodes)} nodes "
                f"(at least {self.plan['min_nnodes']} are needed)",
                node=node["name"],
            )
            node["survived"] = True
            if node["state"] == "lost":  # ranks themselves notice when a node has ended
                self.orders.append(RestartRanks(node["last_message"]))
        else:
            self.first_node = node["name"]
            self.journal.event("failure", reason, node=node["name"])
            self.stop_everywhere(reason)

    def stop_everywhere(
        self, reason: str, requested: bool = False, shutdown: bool = False, end_class: str = ""
    ) -> None:
        """Stop the current attempt on all nodes, and with it the run unless its plan allows another attempt.

        requested: whether a person requested the stop, which rules out a restart. shutdown: whether rank 0's machine
        is shutting down. end_class: see restart_policy.py.
        """
        if requested or (shutdown and not can_succeed(self.plan)):
            self.attempts.policy = None
        if requested and self.attempts.has_ended():  # the next attempt has not begun
            self.stop_reason, self.stop_requested, self.first_node = reason, True, None
        if self.stop_reason is None:
            self.stop_reason, self.stop_requested = reason, requested
            self.phases["noticed"] = time.time()
            self.end_class = end_class or self.end_class
            self.ended_early = sorted(self.ended_ranks)
            for connection in self.admitted_connections():
                connection.send({"type": "stop", "reason": reason})
            self.deadline = time.monotonic() + self.timeouts["grace"] + KILL_TIMEOUT + REPORT_GRACE_PERIOD
            self.orders.append(Stop(reason, leaving=shutdown, shutdown=shutdown))

    def on_stop_signal(self, name: str) -> None:
        if self.machine_leaves():
            if can_succeed(self.plan):
                self.nodes[self.own]["excluded"] = True  # another node leads the next attempt
            else:
                self.attempts.policy = None  # the next attempt would start on a machine that is shutting down
            if self.stop_reason is None:  # otherwise another failure came first
                self.first_node = self.names[self.own]
                reason = shutdown_reason(self.names[self.own])
                self.journal.event("failure", reason, node=self.names[self.own])
                self.stop_everywhere(reason, shutdown=True)
            return
        self.stop_everywhere(f"stopped on request on {self.names[self.own]} ({name})", requested=True)

    def say(self, kind: str, text: str) -> None:
        if kind == "failing":
            self.on_failing(self.nodes[self.own], text)
        elif kind == PACE:
            self.pace.take(self.names[self.own], text, time.monotonic())
        elif kind == SAMPLE_KIND:
            self.take_sample(self.names[self.own], text)
        elif kind == ENDED_RANKS:
            self.note_ended_ranks(self.own, text)
        else:
            self.note_event(kind, text, self.names[self.own])

    def take_sample(self, name: str, text: str) -> None:
        """Keep a node's sample."""
        sample = self.samples.take(name, text)
        if sample is not None:
            self.idle.take(name, sample, time.monotonic())

    def note_event(self, kind: str, text: str, name: str) -> None:
        """Write an event about a node, and remember broken hardware for the result."""
        self.journal.event(kind, text, node=name)
        if kind == BROKEN and len(self.broken) < MAX_BROKEN:
            self.broken.append({"node": name, "text": text[:1000]})

    # - notices

    def note_late_notice(self, notice: SaveNotice, now: float) -> None:
        """Let a run end as interrupted if a person or a limit ends it between two attempts."""
        if notice["ends"] and not notice["machine"] and self.attempts.has_ended():
            self.journal.event("notice", notice["text"], node=notice["node"])
            self.notices.accept(notice, now)

    def raise_notice(self, fields: Data, node: str = "") -> None:
        """Send a notice to the ranks on all nodes, since saving is collective; node: where the notice comes from."""
        now, notice = time.monotonic(), validate_notice(fields, node or self.names[self.own])
        member = self.nodes[self.names.index(notice["node"])]
        is_reclaimed = notice["ends"] and notice["machine"]
        if is_reclaimed and not self.plan["elastic"]:
            member["excluded"] = True  # excluded from the next attempts, even if this one is ending
        elif notice["ends"] and not notice["machine"]:
            self.attempts.policy = None  # a person or a limit is ending the run, even between two attempts
        if self.stop_reason is not None:
            self.note_late_notice(notice, now)
            return
        if is_reclaimed and not self.attempts.takes_part(member):
            self.journal.event("notice", notice["text"], node=notice["node"])
            return
        if notice["ends"] and notice["machine"] and self.can_spare(notice["node"]):
            notice["ends"] = False
        self.journal.event("notice", notice["text"], node=notice["node"])
        if notice["ends"] and notice["machine"] and not self.notices.ends_run:
            self.first_node, self.end_class = notice["node"], restart_policy.INTERRUPTED
        if not self.go:  # the ranks have not started
            if notice["ends"]:
                self.notices.accept(notice, now)
                self.stop_everywhere(notice["text"])
            return
        if self.notices.accept(notice, now):
            for connection in self.admitted_connections():
                connection.send(self.save_message(notice))
            self.orders.append(Save(notice, self.notices.number))
            if notice["ends"]:
                self.journal.set_state("running", f"saving before the end: {notice['text']}")

    def save_message(self, notice: SaveNotice) -> Data:
        return {"type": "save", "number": self.notices.number, "notice": notice}

    def can_spare(self, name: str) -> bool:
        """Return whether an elastic run can continue without a node whose machine will be taken away."""
        alive = [node for node in self.nodes if node["state"] != "lost" and not has_failed(node)]
        return bool(self.plan["elastic"] and len(alive) > self.plan["min_nnodes"] and name != self.names[0])

    def step_notices(self, now: float) -> None:
        """Watch the run's limits, and end the run once its ranks have had their time to save."""
        if not self.go or self.stop_reason is not None:
            return
        if self.notices.started is None:
            self.notices.started = now
        for text in self.notices.warnings(now):
            self.journal.event("limit", text)
        for notice in self.notices.due(now):
            self.raise_notice(dict(notice))
        if self.notices.is_saving(now):
            self.watch_for_save(now)
        if self.notices.is_late(now) and self.notices.current is not None:
            self.stop_everywhere(self.notices.current["text"])

    def watch_for_save(self, now: float) -> None:
        """Shorten the time that ranks have to save before the end, once they have."""
        connected = {self.own, *(connection.node_rank or 0 for connection in self.admitted_connections())}
        members = [member for member in self.attempts.current["members"] if member in connected]
        saved = self.save_watch.step(members, self.plan["world_size"], now)
        if saved:
            self.journal.event("saving", f"{saved} was saved after the notice: the ranks are ending now")
            self.notices.shorten(now + SAVED_GRACE_PERIOD)

    # - ranks that are waiting for others

    def ranks_of(self, node_rank: int) -> range:
        """Return the global ranks of a node."""
        node = self.plan["nodes"][node_rank]
        return range(node["first_rank"], node["first_rank"] + node["slots"])

    def note_ended_ranks(self, node_rank: int, text: str) -> None:
        """Record which of a node's ranks have exited; text: their numbers, separated by spaces."""
        numbers = {int(number) for number in text[:65536].split() if RANK_NUMBER.fullmatch(number)}
        for rank in self.ranks_of(node_rank):
            if rank not in numbers:
                self.ended_ranks.pop(rank, None)
                self.named_ranks.discard(rank)
            else:
                self.ended_ranks.setdefault(rank, time.time())
        self.journal.status_due = 0.0

    def describe_ended_ranks(self) -> str:
        """Return a text about ranks that exited a while ago, and those that the run still waits for; "" if none did."""
        ages = {rank: time.time() - since for rank, since in self.ended_ranks.items()}
        if self.stop_reason is not None or max(ages.values(), default=0.0) <= RANK_END_NOTICE_TIMEOUT:
            return ""
        nodes = [node for node, view in zip(self.plan["nodes"], self.nodes) if view["state"] != "lost"]
        return describe_ended_ranks(ages, nodes)

    def name_ended_ranks(self) -> None:
        """Write an event about ranks that exited a while ago, once."""
        old = {rank for rank, since in self.ended_ranks.items() if time.time() - since > RANK_END_NOTICE_TIMEOUT}
        text = self.describe_ended_ranks() if old - self.named_ranks else ""
        if text:
            self.named_ranks |= old
            self.journal.event("ranks", text)

    # - hangs

    def send_stacks(self, groups: list[Data]) -> None:
        self.hangs.take(self.own, groups)

    def watch_for_hangs(self, now: float) -> None:
        """Ask all nodes for stacks if the run is silent, and report a hang; end the run if the user wants that."""
        if self.stop_reason is not None:
            return
        running = [node["node_rank"] for node in self.nodes if node["state"] == "running"]
        self.hangs.note_quiet(self.own, self.quiet, now)
        if self.hangs.step(now, running, sorted(self.ended_ranks)):
            self.orders.append(CollectStacks())
            for connection in self.admitted_connections():
                connection.send({"type": "collect"})
        self.notices.note_hang(now, self.hangs.hang is not None)
        # if another job shares the node, NCCL's port may belong to that job
        if self.hangs.news and self.hangs.hang is not None and not self.plan.get("gpus"):
            self.hangs.add_evidence(describe_nccl(self.plan["environment"]))
        news = self.hangs.take_news()
        if news:
            self.journal.event("hang", news)
            self.journal.status_due = 0.0
        if news and self.hangs.hang is not None and self.plan.get("on_hang") == "stop":
            self.stop_everywhere(f"{HANG}{news}", end_class=restart_policy.HANG)

    # - start and end

    def step(self, now: float) -> None:
        self.check_connections(now)
        self.name_ended_ranks()
        self.step_notices(now)
        self.watch_for_hangs(now)
        for text in self.pace.take_news():
            self.journal.event("slow", text)
            self.journal.status_due = 0.0
        for text in self.idle.news(now):
            self.journal.event(IDLE, text)
            self.journal.status_due = 0.0
        self.replicator.step(now)
        self.new_members.step(now)
        self.judge(now)

    def judge(self, now: float) -> None:
        """Start the run once the nodes have checked in, and finish it once they have ended."""
        if not self.go and self.stop_reason is None:
            self.judge_start(now)
        if self.go and self.plan.get("remote_start"):
            self.forward_commands(now)
        finished = all(node["state"] in ("ended", "lost") for node in self.nodes if self.attempts.takes_part(node))
        late = self.deadline is not None and now > self.deadline
        has_ended = self.local_report is not None or not self.attempts.takes_part(self.nodes[self.own])
        if has_ended and (finished or late) and not self.continues(now):
            self.finish()

    def continues(self, now: float) -> bool:
        """After the end of an attempt, begin the next one or wait for it; return whether the run continues."""
        if not self.attempts.has_ended():
            reason = self.stop_reason or self.notices.reason()
            end = End(reason, self.first_node, self.end_class, self.go, self.stop_requested)
            self.attempts.record_end(end, self.nodes)
            self.attempts.note_reached(self.journal.directory)
            self.attempts.history[-1].update(self.phases)
        connected = {self.own, *(connection.node_rank or 0 for connection in self.admitted_connections())}
        attempt = self.attempts.next(connected, self.nodes, now)
        waits = bool(self.attempts.waiting) and not self.attempts.lacks_nodes  # without a majority, no node can join
        may_wait = waits or self.stop_requested or not (self.go or self.attempts.number)
        if not may_wait and not has_quorum(self.plan, self.own, connected):
            self.is_cut_off = True
            self.refuse_without_quorum(attempt, connected)
            attempt, self.attempts.waiting = None, ""
        if self.attempts.needs_hub and can_succeed(self.plan) and len(connected) > majority(len(self.nodes)):
            self.hand_over()
            return True
        if attempt is not None:
            self.begin_attempt(attempt, now)
        elif self.attempts.waiting:
            self.journal.set_state("restarting", self.attempts.waiting)
        self.failure_code = self.attempts.exit_code
        return attempt is not None or bool(self.attempts.waiting)

    def refuse_without_quorum(self, attempt: Attempt | None, connected: set[int]) -> None:
        """Begin no attempt that may run beside another attempt of the same run."""
        if attempt is not None or self.attempts.lacks_nodes:
            names, total = ", ".join(self.names[rank] for rank in sorted(connected)), len(self.names)
            self.attempts.refused = (
                f"only {names} of the {total} nodes that started can be reached: fewer than half, so the others may "
                "continue on their own"
            )

    def hand_over(self) -> None:
        """Leave the run, which continues under another node's lead."""
        reason = self.stop_reason or self.notices.reason()
        text = f"{self.names[self.own]} is leaving the run, which another node will lead from now on"
        self.journal.event("handover", text, node=self.names[self.own])
        self.replicator.send_news()
        for connection in self.admitted_connections():
            connection.send({"type": "handover", "reason": reason})
        self.journal.set_state("failed", f"{reason}; the run continues without this node")
        self.result_state = "failed"

    def begin_attempt(self, attempt: Attempt, now: float) -> None:
        """Begin the next attempt: all nodes get ready, and then start as they did the first time."""
        text = self.attempts.describe_next(attempt, self.names)
        self.journal.event("attempt", text, attempt=attempt["number"])
        self.attempts.change(attempt)
        self.go, self.started = False, now
        self.stop_reason = self.first_node = self.deadline = self.local_report = None
        self.end_class, self.phases = "", {}
        self.ended_early = []
        self.notices.forget()
        self.save_watch.forget()
        self.ended_ranks.clear()
        self.named_ranks.clear()
        self.orders.append(NewAttempt(attempt))
        self.replicator.send_news()
        for connection in self.admitted_connections():
            connection.send({"type": "attempt", **attempt})

    def after_new_attempt(self, plan: Plan) -> None:
        self.plan = plan
        self.hangs = HangWatch(plan)
        self.pace, self.idle = PaceWatch(plan), IdleWatch(plan)
        reset_views(self.nodes, self.attempts.current["members"], self.journal.log_path("launcher.log"))
        self.set_node(self.nodes[self.own], "ready")

    def judge_start(self, now: float) -> None:
        """Start the run once all nodes have checked in; after the start timeout, start with enough nodes or give up."""
        again = self.attempts.number > 0
        nodes = [node for node in self.nodes if not again or self.attempts.takes_part(node)]
        ready = [node for node in nodes if node["state"] == "ready"]
        missing = [node for node in nodes if node["state"] != "ready"]
        late = now - self.started > self.timeouts["start"]
        if missing and not late:
            return
        for node in missing:
            self.set_node(node, "lost")
        names = ", ".join(node["name"] for node in missing)
        if missing and not (self.plan["elastic"] and len(ready) >= self.plan["min_nnodes"]):
            self.journal.event("failure", f"no check-in from {names}")
            reason = f"{names} did not check in within {self.timeouts['start']:g} s"
            port = self.plan["lifeline"]["port"]
            self.stop_everywhere(
                f"{reason} for attempt {self.attempts.number}"
                if again
                else f"{reason}: is the lifeline's port {port} open between the nodes?"
            )
            return
        self.go = True
        self.attempts.begin()
        for node in self.nodes:
            if not self.attempts.takes_part(node) and node["state"] == "ready":
                node["remote_started"] = node["answered"] = node["survived"] = True
                self.set_node(node, "spare")
        self.go_deadline = now + self.timeouts["start"]
        for node in missing:
            node["survived"] = True
        message = f"all {len(ready)} nodes have checked in" if len(ready) > 1 else "the node is ready"
        if missing:
            message = f"{len(ready)} of {len(self.nodes)} nodes have checked in; starting without {names}"
        self.journal.event("go", message)
        self.orders.append(Start(self.plan["command"]))

    def after_start(self, started: bool) -> None:
        """Tell the other nodes to start.

        Rank 0's launcher must open the store first: a torch process that finds it closed retries after 0.25 to
        0.75 s, and all other nodes wait for it.
        """
        if started:
            self.set_node(self.nodes[self.own], "running")
        self.replicator.send_news()  # by the time ranks run, each node knows that they do
        time.sleep(HEAD_START_INTERVAL)
        for connection in self.admitted_connections():
            if self.attempts.takes_part(self.nodes[connection.node_rank or 0]):
                connection.send({"type": "go"})

    def finish(self) -> None:
        """Write the result, and send it to the peers."""
        if self.stop_requested:
            state = "stopped"
        elif self.notices.current is not None and self.notices.ends_run:
            state = "interrupted"
            self.stop_reason = self.stop_reason or self.notices.current["text"]
        else:
            members = [node for node in self.nodes if self.attempts.takes_part(node)]
            state = "succeeded" if self.stop_reason is None and have_succeeded(self.plan, members) else "failed"
        self.journal.set_state(state, self.stop_reason or "")
        self.journal.free_reserved_space()
        self.result = self.make_result(state)
        self.journal.write("result.json", self.result)
        for connection in self.admitted_connections():
            connection.send({"type": "end", "state": state, "message": self.stop_reason or ""})
        self.result_state = state

    def make_result(self, state: str) -> Result:
        """Return the content of result.json."""
        return {
            "run_id": self.plan["run_id"],
            "state": state,
            "reason": self.stop_reason or "",
            "first_node": self.first_node,
            "world_size": self.plan["world_size"],
            "nnodes": len(self.attempts.current["members"]),
            "started": self.journal.started_at(),
            "ended": time.time(),
            "nodes": results_of(self.nodes),
            "ended_early": self.ended_early,
            "hang": self.hangs.hang,
            "attempts": self.attempts.history if "restart" in self.plan else [],
            "not_restarted": self.attempts.refused,
            "notice": self.notices.current if self.notices.ends_run else None,
            "broken": self.broken,
            "hub": self.own,
            "cut_off": self.is_cut_off,
        }

    def is_busy(self) -> bool:
        return bool(self.plan.get("remote_start")) and not all(node["remote_started"] for node in self.nodes)

    def is_over(self, now: float) -> bool:
        return self.result_state is not None

    def status(self) -> Data:
        exited = self.describe_ended_ranks()
        fields: Data = {
            "nodes": status_of(self.nodes),
            "ended_ranks": self.ended_ranks,
            "exited": exited,
            "hang": self.hangs.hang,
            "slow": [*self.pace.texts(), *self.idle.texts()],
        }
        missing = self.new_members.missing(time.monotonic())
        if missing:
            fields["missing"] = missing
        if "restart" not in self.plan:
            return fields
        lost = self.attempts.describe_losses()
        return {**fields, "attempt": self.attempts.number, "hub": self.own, "lost": lost}
