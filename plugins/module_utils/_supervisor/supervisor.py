# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The supervisor: keeps one node's part of a run alive, or ends it. Private to this collection.

One process a node, started as ``python3 -I -S supervisor.py RUN_DIRECTORY RUN_ID ADDRESS`` (see entry), standard
library only. It reads ``plan.json`` in the run directory, runs the launcher's command and holds the lifeline: one TCP
connection to rank 0's supervisor, over ``node_address``, opened with the run's token, a heartbeat every ``heartbeat``
seconds, which the node answers. A node that fails, or falls silent for ``silence`` seconds, ends the run everywhere; an
elastic run goes on while ``min_nnodes`` nodes and rank 0 are left.

The supervisor signals its own descendants only. It is a child subreaper: a process that detaches itself is handed to it
by the kernel and stays in its reach. On systemd the unit's cgroup is the second net, should the supervisor itself be
killed; elsewhere a guard process of ours is (``--guard``). Both also end a supervisor that hangs, such as on a file
system that does not answer, with all that it has started: it shows that it lives, and they wait for that.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import math
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import time

from ansible_collections.muster.training.plugins.module_utils._run.directory import (
    TAIL_BYTES,
    make_private,
    private,
    read_tail,
    read_told,
    regular,
    write_json,
)
from ansible_collections.muster.training.plugins.module_utils._run.processes import (
    KILL_PATIENCE,
    become_subreaper,
    descendants,
    describe_exit,
    exit_code,
    is_rank,
    oom_kills,
    process_table,
    reap,
    run_quietly,
    signal_all,
)
from ansible_collections.muster.training.plugins.module_utils._run.rank_logs import attempt_directory
from ansible_collections.muster.training.plugins.module_utils._run.secrets import forget_secrets
from ansible_collections.muster.training.plugins.module_utils._supervisor.lifeline import Wire, proof
from ansible_collections.muster.training.plugins.module_utils._supervisor.log_limit import (
    LOG_INTERVAL,
    all_logs,
    bound_logs,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.pulse import Pulse
from ansible_collections.muster.training.plugins.module_utils._supervisor.rank_reports import (
    CLOSING,
    first_to_fail,
    last_words,
    launcher_error,
    rank_end,
    rank_reports,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.reports import checked_report, shorten_report
from ansible_collections.muster.training.plugins.module_utils._supervisor.watchers import (
    LAST_LOOK_PATIENCE,
    LOOK,
    LOOK_INTERVAL,
    LOOK_PATIENCE,
    mount_points,
    read_sample,
)

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node some milliseconds
    from collections.abc import Iterator
    from typing import Any

    from ansible_collections.muster.training.plugins.module_utils._run.documents import Data

# This runs alone on a node: there is no AnsibleModule whose run_command could be called instead of subprocess.
# pylint: disable=ansible-bad-function

BASE_ENVIRONMENT = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ")
HEAD_START = 0.1  # seconds by which rank 0's launcher starts before the others; of 0.05, 0.1 and 0.2 the best
RESERVE = 262144  # bytes of disk that are kept for the last words of a run that has filled it
BEAT_ALONE = 1.5  # heartbeats after which a node beats without having heard rank 0's
MAX_STRANGERS = 64  # connections that have not shown the token yet
STRANGER_PATIENCE = 5.0  # seconds a stranger has to show the token
RECONNECT_PATIENCE = 2.0  # seconds a broken connection may take to come back before its node counts as lost
LAST_WORD_PATIENCE = 1.0  # seconds that a launcher has to end by itself once its ranks have ended or are being ended
# What a container engine says that is asked to remove what is gone, or what somebody is removing already.
GONE_ALREADY = re.compile(r"no such container|no container with|removal of container .* is already in progress", re.I)


class Supervisor:
    """One node's part of a run: its launcher, and its end of the lifeline."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.pulse = Pulse()
        with open(self.path("plan.json"), encoding="utf-8") as stream:
            self.plan = json.load(stream)
        with open(self.path("token"), encoding="ascii") as stream:
            self.token = stream.read().strip()
        self.node_rank = self.plan["node"]["node_rank"]
        self.is_hub = self.node_rank == 0
        self.timeouts = self.plan["timeouts"]
        self.names = [peer["name"] for peer in self.plan["nodes"]]
        self.selector = selectors.DefaultSelector()
        self.listener: socket.socket | None = None
        self.wires: list[Wire] = []
        self.hub: Wire | None = None  # a peer's wire to rank 0
        self.hub_heard = time.monotonic()
        self.hub_broken: float | None = None  # since when the wire to rank 0 is down
        self.hub_retry = 0.0
        self.connect_error = ""
        self.asked: int | None = None  # the signal by which somebody asked this node to stop
        self.leaving = False  # this machine goes down, and an elastic run goes on without it
        self.asked_deadline = math.inf  # until when a peer that was asked to stop waits for rank 0's last word
        self.launcher: subprocess.Popen[bytes] | None = None
        self.launcher_code: int | None = None
        self.remover: int | None = None  # pid of what removes the container of this node, 0 where it did not start
        self.removed: int | None = None  # the exit code of that
        self.rank_failed = ""  # the rank that made this node end its part
        self.ended_by_us = False  # whether this node's part was well when it was told to end
        self.failing = ""  # why this node ends its part: told ahead of its report where that takes time
        self.closing: dict[int, float] = {}  # ranks that torchrun ends, since another one has failed: pid, since when
        self.noticed = False  # whether torchrun has noticed that a rank failed
        self.log_size = 0  # of the launcher's log when it was read for them
        self.awaited: int | None = None  # a launcher that is ending by itself, and has yet to say how its ranks ended
        self.looks: dict[str, tuple[int, float]] = {}  # mount point: pid of what looks into it, and since when
        self.looks_due = 0.0
        self.last_look: float | None = None  # when this node, having failed, looked for the last time
        self.sampler: int | None = None  # pid of what takes a sample of the GPUs
        self.samples_due = 0.0
        self.sample_start = 0  # where the newest begins in gpus.csv
        self.gpus: set[str] = set()  # the indices of those that the first sample has shown
        self.gpus_error = ""  # what nvidia-smi says since it no longer finds all GPUs well
        self.logs_due = 0.0
        self.shortened = ""  # what was done to the logs, or could not be, since they took more than they may
        self.mounts: dict[str, str] = {}  # mount points that have died under the run, and the error of each
        self.ending_since: float | None = None  # since when this node's processes are being ended
        self.ending_at = math.inf  # the moment itself, as bin/muster-rank writes down when a rank ended
        self.killing_since: float | None = None
        self.stop_reason: str | None = None
        self.stop_wanted = False  # told by a person
        self.state = "starting"
        self.message = ""
        self.report: Data | None = None
        self.go = False
        self.go_deadline = 0.0  # until when a launcher that starts all nodes has to have done so
        self.done = False
        self.result_state: str | None = None
        self.started = time.monotonic()
        self.since = time.time()
        self.beat_due = 0.0
        self.tend_due = 0.0  # its processes, the lifeline and the run as a whole
        self.status_due = 0.0
        self.unwritten = ""  # why the run directory could not be written, if that has happened
        self.oom_before = oom_kills()
        self.temporary = self.plan["temporary_directory"]
        # rank 0's view of each node: state waiting | ready | running | ended | lost, by node_rank
        self.nodes = [
            {
                "name": name,
                "node_rank": rank,
                "state": "waiting",
                "since": time.time(),
                "report": None,
                "broken": None,
                "heard": 0.0,
                "why": "",
                "survived": False,  # an elastic run has gone on without it
                "launcher_log": self.path("launcher.log") if rank == 0 else "",  # each has its own home
                "asked": rank == 0,  # of a launcher that starts all nodes: whether this one was started
                "answered": rank == 0,
            }
            for rank, name in enumerate(self.names)
        ]
        self.first_node: str | None = None  # the node that ended the run
        self.hub_deadline: float | None = None  # when rank 0 stops waiting for the last reports

    def path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    # - events and status

    def event(self, kind: str, text: str, **more: Any) -> None:
        """Append to events.jsonl what a person who watches should read."""
        record = {"time": time.time(), "event": kind, "text": text}
        record.update(more)
        path = self.path("events.jsonl")
        with self.however_full_the_disk(), open(path, "a", encoding="utf-8", opener=private) as stream:
            stream.write(json.dumps(record) + "\n")

    @contextlib.contextmanager
    def however_full_the_disk(self) -> Iterator[None]:
        """Note that the run directory could not be written, and live on: a job may do so without what stands there."""
        try:
            yield
        except OSError as error:
            self.unwritten = error.strerror or str(error)

    def make_room(self) -> None:
        """Give back what was kept for the last words, once no process of the job is there to take it."""
        with contextlib.suppress(OSError):
            os.unlink(self.path("reserve"))

    def set_state(self, state: str, message: str = "") -> None:
        if (state, message) != (self.state, self.message):
            self.state, self.message, self.since = state, message, time.time()
            self.status_due = 0.0

    def write_status(self, now: float) -> None:
        status = {
            "run_id": self.plan["run_id"],
            "node_rank": self.node_rank,
            "name": self.plan["node"]["name"],
            "state": self.state,
            "message": self.message,
            "since": self.since,
            "started": self.plan_started(),
            "updated": time.time(),
            "launcher_pid": self.launcher.pid if self.launcher else None,
            "report": self.report,
        }
        if self.is_hub:
            status["nodes"] = [
                {key: node[key] for key in ("name", "node_rank", "state", "since")} for node in self.nodes
            ]
        self.status_due = now + self.timeouts["heartbeat"]
        with self.however_full_the_disk():
            write_json(self.path("status.json"), status)

    # - lifeline, both ends

    def listen(self) -> None:
        address = self.plan["lifeline"]["address"]
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.listener = socket.socket(family, socket.SOCK_STREAM)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind((address, self.plan["lifeline"]["port"]))
        self.listener.listen(128)
        self.listener.setblocking(False)
        self.selector.register(self.listener, selectors.EVENT_READ, None)

    def accept(self, listener: socket.socket, now: float) -> None:
        for _number in range(64):
            try:
                connection, _address = listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError:  # out of descriptors: strangers time out and make room
                return
            strangers = [wire for wire in self.wires if wire.node_rank is None]
            if len(strangers) >= MAX_STRANGERS:  # a peer shows the token at once: who has been here longest is none
                self.drop(strangers[0])
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            wire = Wire(connection, now)
            self.wires.append(wire)
            self.selector.register(connection, selectors.EVENT_READ, wire)
            wire.send({"nonce": wire.nonce})

    def drop(self, wire: Wire) -> None:
        wire.closed = True
        with contextlib.suppress(KeyError, ValueError):
            self.selector.unregister(wire.connection)
        wire.connection.close()
        if wire in self.wires:
            self.wires.remove(wire)

    def admit(self, wire: Wire, message: Data, now: float) -> None:
        """Let a stranger in if it shows the token, else drop it."""
        rank, nonce, mac = message.get("node_rank"), message.get("nonce"), message.get("mac")
        if (
            not isinstance(rank, int)
            or isinstance(rank, bool)
            or not 0 < rank < len(self.nodes)
            or not isinstance(nonce, str)
            or not isinstance(mac, str)
            or not hmac.compare_digest(
                mac.encode("utf-8", "replace"),
                proof(self.token, "peer", self.plan["run_id"], rank, wire.nonce, nonce).encode(),
            )
        ):
            self.drop(wire)
            return
        for other in [other for other in self.wires if other.node_rank == rank]:
            self.drop(other)
        wire.heard = now
        self.nodes[rank]["broken"] = None
        wire.send({"mac": proof(self.token, "server", self.plan["run_id"], rank, wire.nonce, nonce)})
        wire.open(rank, proof(self.token, "key", self.plan["run_id"], rank, wire.nonce, nonce))
        if self.go:
            wire.send({"type": "go"})
        if self.nodes[rank]["asked"]:  # the wire may have broken with the command on it
            self.send_command(wire)
        if self.stop_reason:
            wire.send({"type": "stop", "reason": self.stop_reason})

    def connect(self, now: float) -> None:
        """Open a peer's wire to rank 0; tried again until the start or silence timeout."""
        self.hub_retry = now + 0.1
        lifeline = self.plan["lifeline"]
        family = socket.AF_INET6 if ":" in lifeline["address"] else socket.AF_INET
        connection = socket.socket(family, socket.SOCK_STREAM)
        try:
            connection.bind((self.plan["node"]["address"], 0))
            connection.settimeout(1.0)
            connection.connect((lifeline["address"], lifeline["port"]))
        except OSError as error:
            connection.close()
            self.connect_error = str(error)
            return
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.hub = Wire(connection, now)
        self.selector.register(connection, selectors.EVENT_READ, self.hub)

    def hub_message(self, wire: Wire, message: Data, now: float) -> None:
        """A message of rank 0 to this peer."""
        if wire.stage == "nonce":
            server_nonce = str(message.get("nonce", ""))
            mac = proof(self.token, "peer", self.plan["run_id"], self.node_rank, server_nonce, wire.nonce)
            wire.expected = proof(self.token, "server", self.plan["run_id"], self.node_rank, server_nonce, wire.nonce)
            wire.lines_key = proof(self.token, "key", self.plan["run_id"], self.node_rank, server_nonce, wire.nonce)
            wire.stage = "mac"
            wire.send({"node_rank": self.node_rank, "nonce": wire.nonce, "mac": mac})
            return
        if wire.stage == "mac":
            if not hmac.compare_digest(str(message.get("mac", "")).encode("utf-8", "replace"), wire.expected.encode()):
                self.connect_error = "it does not hold this run's token"
                self.drop(wire)
                return
            wire.stage = "open"
            wire.open(0, wire.lines_key)
            self.connect_error = ""
            self.hub_heard, self.hub_broken = now, None
            ready = {"type": "ready", "launcher_log": self.path("launcher.log")}
            wire.send({"type": "report", "report": self.report} if self.report else ready)
            if self.launcher and not self.report:
                wire.send({"type": "running"})
            if self.stop_wanted:
                wire.send({"type": "stop", "reason": self.stop_reason})
            return
        self.hub_heard = now
        kind = message.get("type")
        if kind == "beat":  # answered at once: so rank 0 hears all nodes together, and seldom wakes for it
            self.beat_due = now + BEAT_ALONE * self.timeouts["heartbeat"]
            wire.send({"type": "beat"})
        elif kind == "go":
            if self.plan.get("remote_start"):
                self.set_state("running")  # rank 0's launcher will say what to start here
            else:
                self.start_launcher()
            wire.send({"type": "running"})
        elif kind == "start" and self.plan.get("remote_start"):
            self.plan["command"] = ["/bin/sh", "-c", str(message.get("command", ""))]
            self.start_launcher()
        elif kind == "stop":
            self.stop(str(message.get("reason", "")))
        elif kind == "end":
            self.result_state = str(message.get("state", "failed"))
            self.message = str(message.get("message", ""))

    def peer_message(self, wire: Wire, message: Data, now: float) -> None:
        """A message of a peer to rank 0."""
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
            self.heed(node, str(message.get("text", "")))
        elif kind in ("mount", "gpus", "logs"):
            self.event(kind, str(message.get("text", "")), node=node["name"])
        elif kind == "stop":
            self.stop_everywhere(str(message.get("reason", "")), wanted=True)

    # - a launcher on rank 0 that starts what runs on the other nodes

    def asked_path(self, node_rank: int) -> str:
        return self.path(os.path.join("asked", f"{node_rank}.json"))

    def send_command(self, wire: Wire) -> None:
        """Rank 0: give a node the command that bin/ssh has left for it; a node starts it once."""
        wire.send({"type": "start", "command": str(read_told(self.asked_path(wire.node_rank or 0)).get("command", ""))})

    def hand_on(self, now: float) -> None:
        """Rank 0: give each node the command that bin/ssh has left for it, and bin/ssh the end of it."""
        for node in self.nodes:
            rank = node["node_rank"]
            if not node["asked"]:
                wire = next((wire for wire in self.wires if wire.node_rank == rank), None)
                if wire is not None and os.path.exists(self.asked_path(rank)):
                    node["asked"] = True
                    self.send_command(wire)
            elif not node["answered"] and node["state"] in ("ended", "lost"):
                path = self.path(os.path.join("asked", f"{rank}.exit"))
                with self.however_full_the_disk():
                    write_json(path, (node["report"] or {}).get("exit_code"))
                    node["answered"] = True
        waiting = [node["name"] for node in self.nodes if not node["asked"]]
        if waiting and self.stop_reason is None and (self.report is not None or now > self.go_deadline):
            what = f"the launcher on {self.names[0]} has started nothing on {', '.join(waiting)}"
            self.first_node = self.names[0]
            self.event("failure", what, node=self.names[0])
            self.stop_everywhere(what)

    # - rank 0's judgement

    def set_node(self, node: Data, state: str) -> None:
        if node["state"] != state:
            node["state"], node["since"] = state, time.time()
            self.status_due = 0.0

    def take_report(self, node: Data, report: Data) -> None:
        if node["state"] == "ended":
            return
        node["report"] = report
        self.set_node(node, "ended")
        if self.has_failed(node) and not self.stop_reason:
            code = describe_exit(report.get("exit_code"))
            self.node_failed(node, report.get("reason") or f"the launcher on {node['name']} ended with {code}")

    def heed(self, node: Data, what: str) -> None:
        """End the run everywhere while a node that has failed still ends its part; an elastic run awaits its report."""
        if not self.stop_reason and not self.plan["elastic"]:
            self.node_failed(node, what)

    def lose(self, node: Data, why: str) -> None:
        if node["state"] in ("lost", "ended"):
            return
        self.set_node(node, "lost")
        node["why"] = f"{node['name']} is lost: {why}"
        if not self.stop_reason:
            self.node_failed(node, node["why"])

    def node_failed(self, node: Data, what: str) -> None:
        """Decide whether the run can go on without a node that failed or is lost."""
        alive = [other for other in self.nodes if other["state"] != "lost" and not self.has_failed(other)]
        if self.plan["elastic"] and len(alive) >= self.plan["min_nnodes"] and node["node_rank"] != 0:
            self.event(
                "shrink",
                f"{what}; the run goes on with {len(alive)} of {len(self.nodes)} nodes "
                f"(at least {self.plan['min_nnodes']} are needed)",
                node=node["name"],
            )
            node["survived"] = True
            if node["state"] == "lost":  # of one that has ended the others hear by themselves
                self.wake_ranks(node)
        else:
            self.first_node = node["name"]
            self.event("failure", what, node=node["name"])
            self.stop_everywhere(what)

    def wake_ranks(self, node: Data) -> None:
        """Have torchrun start anew at once when a node has fallen silent.

        Its peers' collectives would wait for the dead peer until TCP or NCCL gives up, 2 to 30 minutes. One ended rank
        on rank 0's node is enough: its agent calls all others together. Not where they have noticed and started anew
        already.
        """
        newest = attempt_directory(os.path.join(self.directory, "ranks"), 0)
        if newest is None or self.launcher is None:
            return
        with contextlib.suppress(OSError):  # the job has just removed it
            if os.stat(newest).st_mtime > node["heard"]:
                return
        if self.plan.get("wrap"):  # the engine's children, not the launcher's
            ranks = [int(name) for name in os.listdir("/proc") if name.isdigit() and is_rank(int(name), self.directory)]
        else:
            table = process_table()
            ranks = [pid for pid, (parent, _state) in table.items() if parent == self.launcher.pid]
        signal_all(ranks, signal.SIGKILL)

    @staticmethod
    def has_failed(node: Data) -> bool:
        return node["report"] is not None and node["report"].get("exit_code") != 0

    def stop_everywhere(self, reason: str, wanted: bool = False) -> None:
        if self.stop_reason is None:
            self.stop_wanted = wanted
            for wire in self.wires:
                if wire.node_rank is not None:
                    wire.send({"type": "stop", "reason": reason})
            self.hub_deadline = time.monotonic() + self.timeouts["grace"] + KILL_PATIENCE + 2.0
            self.stop(reason)

    def judge(self, now: float) -> None:
        """Rank 0: start the run once the nodes are there, end it once they are through."""
        if not self.go and self.stop_reason is None:
            ready = [node for node in self.nodes if node["state"] == "ready"]
            late = now - self.started > self.timeouts["start"]
            if len(ready) == len(self.nodes) or (
                late and self.plan["elastic"] and len(ready) >= self.plan["min_nnodes"]
            ):
                self.go = True
                self.go_deadline = now + self.timeouts["start"]
                for node in self.nodes:
                    if node["state"] != "ready":
                        self.set_node(node, "lost")
                        node["survived"] = True
                missing = [node["name"] for node in self.nodes if node["state"] == "lost"]
                if missing:
                    there = f"{len(ready)} of {len(self.nodes)} nodes have checked in"
                    self.event("go", f"{there}, starting without {', '.join(missing)}")
                else:
                    there = f"all {len(ready)} nodes have checked in" if len(ready) > 1 else "the node is ready"
                    self.event("go", there)
                # It opens the store: a torch that finds it closed waits 0.25 to 0.75 s, and all others for that one.
                self.start_launcher()
                time.sleep(HEAD_START)
                for wire in self.wires:
                    if wire.node_rank is not None:
                        wire.send({"type": "go"})
            elif late:
                missing = [node["name"] for node in self.nodes if node["state"] != "ready"]
                self.event("failure", f"no word from {', '.join(missing)}")
                for node in self.nodes:
                    if node["state"] != "ready":
                        self.set_node(node, "lost")
                self.stop_everywhere(
                    f"{', '.join(missing)} did not check in within {self.timeouts['start']:g} s: "
                    f"is the lifeline's port {self.plan['lifeline']['port']} open between the nodes?"
                )
        if self.go and self.plan.get("remote_start"):
            self.hand_on(now)
        finished = all(node["state"] in ("ended", "lost") for node in self.nodes)
        if self.report is not None and (finished or (self.hub_deadline is not None and now > self.hub_deadline)):
            self.finish()

    def finish(self) -> None:
        """Rank 0: write the result, tell the peers and end."""
        ended = [node for node in self.nodes if node["state"] == "ended"]
        good = [node for node in ended if not self.has_failed(node)]
        if self.stop_wanted:
            state = "stopped"
        elif (
            self.stop_reason is None
            and len(good) == len(self.nodes)
            or self.stop_reason is None
            and self.plan["elastic"]
            and len(good) >= self.plan["min_nnodes"]
        ):
            state = "succeeded"
        else:
            state = "failed"
        self.set_state(state, self.stop_reason or "")
        self.make_room()
        with self.however_full_the_disk():
            self.write_result(state)
        for wire in self.wires:
            if wire.node_rank is not None:
                wire.send({"type": "end", "state": state, "message": self.stop_reason or ""})
        self.result_state = state
        self.done = True

    def write_result(self, state: str) -> None:
        write_json(
            self.path("result.json"),
            {
                "run_id": self.plan["run_id"],
                "state": state,
                "reason": self.stop_reason or "",
                "first_node": self.first_node,
                "world_size": self.plan["world_size"],
                "nnodes": len(self.nodes),
                "started": self.plan_started(),
                "ended": time.time(),
                "nodes": [
                    {
                        "name": node["name"],
                        "node_rank": node["node_rank"],
                        "state": node["state"],
                        "since": node["since"],
                        "report": node["report"],
                        "why": node["why"],
                        "survived": node["survived"],
                        "launcher_log": node["launcher_log"],
                    }
                    for node in self.nodes
                ],
            },
        )

    def plan_started(self) -> float:
        return time.time() - (time.monotonic() - self.started)

    # - this node's own part

    def launcher_environment(self) -> dict[str, str]:
        """Return all variables of the launcher. Raise OSError or ValueError where the user's own cannot be read."""
        environment = {name: os.environ[name] for name in BASE_ENVIRONMENT if name in os.environ}
        environment.setdefault("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        environment["PATH"] = self.plan["path_prefix"] + os.pathsep + environment["PATH"]
        if not self.plan.get("bare_launcher"):  # one that would write what it finds there into command lines
            environment.update(self.plan["environment"])
            with open(self.path("environment.json"), encoding="utf-8") as stream:
                environment.update(json.load(stream))
        environment.update(self.plan.get("launcher_environment", {}))
        if os.path.isdir(self.path("bin")):  # our ssh and muster-rank, before any other
            environment["PATH"] = self.path("bin") + os.pathsep + environment["PATH"]
        environment.setdefault("TMPDIR", self.temporary)
        return environment

    def in_container(self) -> list[str]:
        """Return the words before the launcher's command: none, or the engine's, with a mount of secrets in memory."""
        words, secrets = self.plan.get("wrap", []), self.path("environment.json")
        if words and os.path.islink(secrets):
            place = os.path.dirname(os.readlink(secrets))
            first = next(index for index, word in enumerate(words) if word.startswith("--volume="))
            words = [*words[:first], f"--volume={place}:{place}:ro", *words[first:]]
        return words

    def start_launcher(self) -> None:
        if self.launcher is not None or self.stop_reason is not None:
            return
        try:
            make_private(self.temporary)
            with open(self.path("launcher.log"), "ab", buffering=0, opener=private) as log:
                self.launcher = subprocess.Popen(
                    self.in_container() + self.plan["command"],
                    cwd=self.plan["working_directory"],
                    env=self.launcher_environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except (OSError, ValueError) as error:  # ValueError: a NUL, or what the file system's encoding does not know
            what = f"muster: cannot start {self.plan['command'][0]} in {self.plan['working_directory']}: {error}\n"
            path = self.path("launcher.log")
            with self.however_full_the_disk(), open(path, "a", encoding="utf-8", opener=private) as log:
                log.write(what)
            self.launcher_code = 127
            self.begin_to_end(time.monotonic())
            return
        self.set_state("running")
        if self.is_hub:
            self.set_node(self.nodes[0], "running")

    def stop(self, reason: str) -> None:
        """End this node's processes: SIGTERM now, SIGKILL after the grace."""
        if self.stop_reason is None:
            self.stop_reason = reason
        if self.report is None:
            self.set_state("stopping", self.stop_reason)
        if self.ending_since is None:
            self.begin_to_end(time.monotonic())
            self.ended_by_us = self.launcher is not None and not self.noticed and not self.has_ended(self.launcher.pid)
            if self.closing and self.launcher is not None:
                self.awaited = self.launcher.pid
            signal_all([pid for pid in descendants(os.getpid()) if pid != self.awaited], signal.SIGTERM)

    def begin_to_end(self, now: float) -> None:
        self.ending_since, self.ending_at = now, time.monotonic()

    @staticmethod
    def has_ended(child: int) -> bool:
        """Return whether a child has ended that was not reaped yet; it stays to be."""
        try:
            return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return False

    def tend_closing(self, now: float, launcher: int) -> None:
        """Give the ranks beside one that has failed our own grace: torchrun waits 30 s for one that does not end."""
        path = self.path("launcher.log")
        size = os.path.getsize(path) if os.path.exists(path) else 0
        if size != self.log_size:
            self.log_size = size
            for pid in CLOSING.findall(read_tail(path)):
                self.closing.setdefault(int(pid), now)
                # else it may start them anew
                self.noticed = self.plan["max_restarts"] == 0 and not self.plan["elastic"]
        if self.closing and not self.plan.get("wrap"):  # in a container pids are others
            table = process_table()
            there = [pid for pid, (parent, state) in table.items() if parent == launcher and state not in "ZX"]
            self.closing = {pid: since for pid, since in self.closing.items() if pid in there}
            late = [pid for pid, since in self.closing.items() if now - since > self.timeouts["grace"]]
            signal_all(late, signal.SIGKILL)
        waited = now - min(self.closing.values(), default=now)
        if waited > LAST_WORD_PATIENCE and self.plan["max_restarts"] == 0:
            self.tell_failing(f"a rank on {self.plan['node']['name']} has failed")

    def tell_failing(self, text: str) -> None:
        """Let the other nodes begin to end: what is left here may take all of its grace. Told once."""
        if self.failing == text:
            return
        self.failing = text
        if self.is_hub:
            self.heed(self.nodes[0], text)
        elif self.hub is not None and self.hub.stage == "open":
            self.hub.send({"type": "failing", "text": text})

    def tend_processes(self, now: float) -> None:
        """Reap, and see this node's end through once it has begun."""
        ended = reap()
        self.tend_mounts(now, ended)
        self.sample_gpus(now, ended)
        self.tend_logs(now)
        grace, name = self.timeouts["grace"], self.plan["node"]["name"]
        if self.remover in ended:
            self.removed = exit_code(ended[self.remover])
        if self.launcher is not None and self.launcher.pid in ended and self.launcher_code is None:
            self.launcher_code = exit_code(ended[self.launcher.pid])
            self.launcher.returncode = self.launcher_code
            if self.ending_since is None:
                self.begin_to_end(now)
                signal_all(descendants(os.getpid()), signal.SIGTERM)
        if self.ending_since is None and self.launcher is not None and self.plan["rank_logs"] == "ranks":
            ends = [rank_end(self.directory, number) for number in range(self.plan["node"]["slots"])]
            failed = first_to_fail(ends, math.inf)
            if failed is not None:  # a launcher may take its time, or never notice
                rank = self.plan["node"]["first_rank"] + failed
                self.rank_failed = f"rank {rank} on {name} ended with {describe_exit(ends[failed][0])}"
                self.begin_to_end(now)
                signal_all(descendants(os.getpid()), signal.SIGTERM)
        if self.ending_since is None and self.launcher is not None and self.plan["rank_logs"] == "torchrun":
            self.tend_closing(now, self.launcher.pid)
        if self.ending_since is None or self.report is not None:
            return
        ended_here = self.launcher is None or self.launcher_code is not None
        if self.plan.get("remove") and self.remover is None and (ended_here or now - self.ending_since > grace):
            # the engine has the container's processes, not we
            self.remover = run_quietly(self.plan["remove"], self.path("supervisor.log"))
            self.removed = None if self.remover else 127
        looks = [pid for pid, _since in self.looks.values()]
        if self.sampler and self.last_look is not None:
            looks.append(self.sampler)
        left = [pid for pid in descendants(os.getpid()) if pid not in looks]
        killed = [pid for pid in left if pid != self.remover]
        if left and now - self.ending_since > grace:
            if self.killing_since is None:
                self.killing_since = now
            if now - self.killing_since > LAST_WORD_PATIENCE:
                self.awaited = None
            signal_all([pid for pid in killed if pid != self.awaited], signal.SIGKILL)
        elif left and not self.stop_reason and now - self.ending_since > LAST_WORD_PATIENCE:
            how = f"the launcher on {name} ended with {describe_exit(self.launcher_code)}"
            if self.launcher_code or self.rank_failed:
                self.tell_failing(self.rank_failed or how)
        stuck = bool(left) and self.killing_since is not None and now - self.killing_since > KILL_PATIENCE
        if not left or stuck:
            if self.launcher is not None and self.launcher_code is None:
                # it ended between reaping and counting: its status comes with the next turn
                if self.launcher.pid not in left:
                    return
                self.launcher_code = -signal.SIGKILL
            if self.remover and self.removed is None and self.remover not in left:
                return  # the same
            if self.launcher_code or self.rank_failed:
                if self.last_look is None:
                    self.last_look = now
                    self.look(now)
                    if not self.ended_by_us and not self.sampler:  # a GPU that is lost ends the job at once
                        self.take_sample(now)
                if (self.looks or self.sampler) and now - self.last_look < LAST_LOOK_PATIENCE:
                    return
            self.make_report(killed, self.container_left(self.remover in left))

    def container_left(self, goes_on: bool) -> str:
        """Return why the container may still be there, and what to do; "" where the engine has removed it."""
        why = "the container engine takes long to remove it"
        if not goes_on:
            said = last_words(read_tail(self.path("supervisor.log"))) if self.removed else ""
            if not self.removed or GONE_ALREADY.search(said):
                return ""
            why = said or f"the container engine ended with {describe_exit(self.removed)}"
        return f"{why}; look there with: {' '.join(self.plan['remove'])}"

    def look(self, now: float) -> None:
        """Look into each mount that the plan names, by a process: a dead one may block it for ever."""
        self.looks_due = now + LOOK_INTERVAL
        there = mount_points() if self.plan.get("mounts") else set()
        for point in self.plan.get("mounts", ()):
            if point not in there:
                self.note_mount(point, "nothing is mounted there any more")
            elif point not in self.looks:
                pid = run_quietly([sys.executable, "-I", "-S", "-c", LOOK, point], os.devnull)
                if pid:
                    self.looks[point] = (pid, now)

    def tend_mounts(self, now: float, ended: dict[int, int]) -> None:
        """Tell of mounts that die under the run, and of those that come back; ended: what was just reaped."""
        if self.launcher is not None and self.ending_since is None and now >= self.looks_due:
            self.look(now)
        for point, (pid, since) in list(self.looks.items()):
            error = None
            if pid in ended:
                del self.looks[point]
                code = exit_code(ended[pid])
                if code >= 0 and code != 1:  # 1: Python itself could not start
                    error = os.strerror(code) if code else ""
            elif now - since > LOOK_PATIENCE or (
                self.last_look is not None and now - self.last_look > LAST_LOOK_PATIENCE
            ):
                error = f"no answer within {now - since:.0f} s"
                signal_all([pid], signal.SIGKILL)
            if error is not None:
                self.note_mount(point, error)

    def sample_gpus(self, now: float, ended: dict[int, int]) -> None:
        """Have what the GPUs do written down while the job runs, by one process at a time: it may never answer."""
        if self.sampler in ended:
            code = exit_code(ended[self.sampler])
            self.sampler = None
            if code >= 0:
                self.heed_sample(code)
        if self.last_look is not None:
            if self.sampler and now - self.last_look > LAST_LOOK_PATIENCE:
                signal_all([self.sampler], signal.SIGKILL)
        elif self.launcher is not None and self.ending_since is None and not self.sampler and now >= self.samples_due:
            self.take_sample(now)

    def take_sample(self, now: float) -> None:
        if self.plan.get("gpu_samples"):
            self.samples_due = now + self.timeouts["sample"]
            self.sample_start = os.path.getsize(self.path("gpus.csv")) if os.path.exists(self.path("gpus.csv")) else 0
            self.sampler = run_quietly(self.plan["gpu_samples"], self.path("gpus.csv"))

    def heed_sample(self, code: int) -> None:
        """Tell what a sample shows beside its figures; code: how nvidia-smi ended."""
        with self.however_full_the_disk(), open(self.path("gpus.csv"), "rb", opener=regular) as stream:
            stream.seek(self.sample_start)
            sample = stream.read(TAIL_BYTES).decode("utf-8", "replace")
            gpus, error = read_sample(sample, code, self.gpus)
            self.gpus = self.gpus or gpus
            if gpus or error:
                self.note_gpus(error)

    def tend_logs(self, now: float) -> None:
        """Keep the logs within their limit while the job goes on, and tell so once."""
        limit = self.plan.get("log_limit", 0)
        if not limit or self.launcher is None or now < self.logs_due:
            return
        self.logs_due = now + LOG_INTERVAL
        try:
            done = bound_logs(all_logs(self.plan, self.directory), limit)
            told = f"the middle of {done[0]}{' and others' if done[1:] else ''} was removed" if done else ""
        except OSError as error:
            told = f"its file system cannot remove the middle of {error.filename}: {error.strerror}"
        if told and not self.shortened:
            name = self.plan["node"]["name"]
            self.shortened = f"the logs on {name} took more than {limit / 1e9:g} GB (launch_log_limit): {told}"
            self.tell("logs", self.shortened)
            if self.state == "running":
                self.set_state("running", self.shortened)

    def note_gpus(self, error: str) -> None:
        """Tell whoever watches that the GPUs have begun to fail (error) or are well again (no error), once."""
        if bool(error) == bool(self.gpus_error):
            return
        self.gpus_error = error
        name = self.plan["node"]["name"]
        self.tell("gpus", f"the GPUs on {name} fail: {error}" if error else f"the GPUs on {name} are well again")

    def note_mount(self, point: str, error: str) -> None:
        """Tell whoever watches that a mount has died (error) or come back (no error), once."""
        if bool(error) == (point in self.mounts):
            return
        name = self.plan["node"]["name"]
        if error:
            self.mounts[point] = error
            said = f"the mount {point} on {name} has died: {error}"
        else:
            del self.mounts[point]
            said = f"the mount {point} on {name} answers again"
        self.tell("mount", said)

    def tell(self, kind: str, text: str) -> None:
        """Tell whoever watches what happens on this node beside the job."""
        if self.is_hub:
            self.event(kind, text, node=self.plan["node"]["name"])
        elif self.hub is not None and self.hub.stage == "open":
            self.hub.send({"type": kind, "text": text})

    def make_report(self, stuck: list[int], container: str = "") -> None:
        self.write_status(time.monotonic())  # a disk that is full now may be why the job failed
        code = self.launcher_code
        oom_after = oom_kills()
        started = self.launcher is not None or code is not None
        ranks = []
        if started:
            ranks = rank_reports(self.plan, self.directory, code, self.ended_by_us, self.ending_at)
        said = launcher_error(code, read_tail(self.path("launcher.log")))
        unwell = [str(rank["rank"]) for rank in ranks if rank["exit_code"] != 0]
        if code == 0 and unwell:  # launchers end with 0 although a signal ended a rank, or where they started none
            code, said = 1, f"the launcher ended with exit code 0, but not so rank {', '.join(unwell)}"
        self.report = {
            "exit_code": code,
            "reason": self.rank_failed,
            "state": "ended" if started else "not started",
            "ended": time.time(),
            "ranks": ranks,
            "launcher_error": said,
            "launcher_log": self.path("launcher.log"),
            "oom_kills": (oom_after or 0) - (self.oom_before or 0),
            "stuck": stuck,
            "mounts": self.mounts,
            "gpus": self.gpus_error,
            "ended_by_us": self.ended_by_us,
            "container": container,
            "unwritten": self.unwritten,
            "shortened": self.shortened,
        }
        shorten_report(self.report)
        if not self.stop_reason:
            self.set_state("ended", "")
        if self.is_hub:
            self.take_report(self.nodes[0], self.report)
        elif self.hub is not None and self.hub.stage == "open":
            self.hub.send({"type": "report", "report": self.report})

    def tend_lifeline(self, now: float) -> None:
        silence = self.timeouts["silence"]
        if self.is_hub:
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
            for wire in list(self.wires):
                if wire.node_rank is not None and now - wire.heard > silence:
                    self.lose(
                        self.nodes[wire.node_rank],
                        f"nothing heard of it for {silence:g} s (powered off, or cut off the network)",
                    )
                    self.drop(wire)
            if now >= self.beat_due:
                self.beat_due = now + self.timeouts["heartbeat"]
                for wire in self.wires:
                    if wire.node_rank is not None:
                        wire.send({"type": "beat"})
            return
        if self.hub is not None and self.hub.closed:
            if self.hub.stage == "open" and self.hub_broken is None:
                self.hub_broken = now
            self.drop(self.hub)
            self.hub = None
        if self.hub is not None and self.hub.stage != "open" and now - self.hub.opened > STRANGER_PATIENCE:
            self.drop(self.hub)
            self.hub = None
        if self.result_state is not None:
            return
        master = self.names[0]
        if self.hub is None and now >= self.hub_retry:
            self.connect(now)
        checked_in = self.hub is not None and self.hub.stage == "open"  # then rank 0 decides, who may have begun later
        late = now - self.started > self.timeouts["start"] + 5.0
        if late and not checked_in and not self.launcher and self.hub_broken is None:
            self.stop(
                f"{self.plan['node']['name']} could not check in with {master} within {self.timeouts['start']:g} s: "
                f"{self.connect_error or 'no answer'}"
            )
            self.result_state = "failed"
        elif self.hub_broken is not None and now - self.hub_broken > RECONNECT_PATIENCE and not checked_in:
            self.stop(
                f"{master} is lost: its supervisor closed the lifeline and did not come back "
                "(killed, or the node went down)"
            )
            self.result_state = "failed"
        elif checked_in and now - self.hub_heard > silence:
            self.stop(f"{master} is lost: nothing heard of it for {silence:g} s (powered off, or cut off the network)")
            self.result_state = "failed"
        if now >= self.beat_due and self.hub is not None and self.hub.stage == "open":
            self.beat_due = now + BEAT_ALONE * self.timeouts["heartbeat"]
            self.hub.send({"type": "beat"})

    def hear(self, wire: Wire, now: float) -> bool:
        """Handle all that has arrived on a wire; return whether it was heartbeats alone."""
        messages = wire.receive()
        beats_alone = bool(messages)
        while messages:
            for message in messages:
                beats_alone = beats_alone and message.get("type") == "beat"
                if wire is self.hub:
                    self.hub_message(wire, message, now)
                elif wire.node_rank is not None:  # its last words count, also where it has hung up since
                    self.peer_message(wire, message, now)
                else:
                    self.admit(wire, message, now)
            messages = [] if wire.closed else wire.receive()
        return beats_alone and not wire.closed

    def turn(self, timeout: float) -> None:
        """Wait for the next thing to happen and handle it."""
        ready = self.selector.select(min(timeout, max(0.0, self.tend_due - time.monotonic())))
        now = time.monotonic()
        self.pulse.beat(now)
        beats_alone = bool(ready)
        for key, mask in ready:
            if mask == selectors.EVENT_READ and isinstance(key.data, Wire):
                beats_alone = self.hear(key.data, now) and beats_alone
                continue
            beats_alone = False
            if self.listener is not None and key.fileobj is self.listener:
                self.accept(self.listener, now)
            elif isinstance(key.data, Wire):
                key.data.flush()
                if mask & selectors.EVENT_READ:
                    self.hear(key.data, now)
            else:  # the wake-up pipe of the signals
                with contextlib.suppress(BlockingIOError):
                    os.read(self.wake, 512)
        if beats_alone and now < self.tend_due:  # of 64 nodes 32 a second, and nothing follows from them
            return
        self.tend_due = now + timeout
        for wire in self.wires + ([self.hub] if self.hub else []):
            if not wire.closed:
                events = selectors.EVENT_READ | (selectors.EVENT_WRITE if wire.outbox else 0)
                if events != wire.events:  # to ask the kernel costs more than all else that is done for a peer
                    self.selector.modify(wire.connection, events, wire)
                    wire.events = events
        if self.asked is not None:
            self.obey()
        self.tend_processes(now)
        self.tend_lifeline(now)
        if self.is_hub:
            self.judge(now)
        elif self.report is not None and (self.result_state or self.leaving or now > self.asked_deadline):
            self.result_state = self.result_state or "stopped"
            self.done = True
        if now >= self.status_due:
            self.write_status(now)

    def run(self) -> int:
        """Live until the run has ended here and, as far as can be known, everywhere; return the exit code."""
        become_subreaper()
        self.wake, wake_writer = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(wake_writer, False)
        signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
        self.selector.register(self.wake, selectors.EVENT_READ, None)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.note_signal)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with self.however_full_the_disk():
            write_json(self.path("supervisor.json"), {"pid": os.getpid()})
        with self.however_full_the_disk(), open(self.path("reserve"), "wb", opener=private) as reserve:
            os.posix_fallocate(reserve.fileno(), 0, RESERVE)
        try:
            if self.is_hub:
                self.listen()
                self.set_node(self.nodes[0], "ready")
        except OSError as error:
            lifeline = self.plan["lifeline"]
            reason = f"{self.names[0]} cannot listen on {lifeline['address']} port {lifeline['port']}: {error}"
            self.event("failure", reason)
            self.stop_everywhere(reason)
            self.hub_deadline = 0.0  # nobody can have checked in
        self.turn(0.0)  # a peer checks in without waiting first
        while not self.done:
            busy = self.state == "starting" or (self.ending_since is not None and self.report is None)
            busy = busy or (self.is_hub and self.plan.get("remote_start") and not all(n["asked"] for n in self.nodes))
            self.turn(0.05 if busy else 0.25)
        self.clean_up()
        return 0 if self.result_state == "succeeded" else 1

    def note_signal(self, number: int, frame: object) -> None:
        self.asked = number

    def obey(self) -> None:
        """Somebody asked this node to stop: stop.yml, systemctl stop, a shutdown of the machine."""
        asked = signal.Signals(self.asked or signal.SIGTERM).name
        reason = f"stopped on request on {self.plan['node']['name']} ({asked})"
        self.asked = None
        if self.is_hub:
            self.stop_everywhere(reason, wanted=True)
        elif self.plan["elastic"] and not os.path.exists(self.path("stop")):
            # this machine goes down, and the others may go on
            self.rank_failed = f"{self.plan['node']['name']} was told to leave ({asked})"
            self.stop(self.rank_failed)
            self.leaving = True
        else:
            self.stop_wanted = True
            if self.hub is not None and self.hub.stage == "open":
                self.hub.send({"type": "stop", "reason": reason})
            self.stop(reason)
            # rank 0 may be gone, or be ended by the same hand: do not outlive the unit's stop timeout for its last word
            if self.result_state is None and self.hub is None:
                self.result_state = "stopped"
            self.asked_deadline = time.monotonic() + self.timeouts["grace"] + KILL_PATIENCE + 2.0

    def clean_up(self) -> None:
        deadline = time.monotonic() + 1.0
        wires = self.wires + ([self.hub] if self.hub else [])
        while any(wire.outbox and not wire.closed for wire in wires) and time.monotonic() < deadline:
            for wire in wires:
                wire.flush()
            time.sleep(0.01)
        for wire in wires:
            self.drop(wire)
        if self.listener is not None:
            self.listener.close()
        forget_secrets(self.directory)
        self.make_room()
        self.set_state(self.result_state or "failed", self.message or self.stop_reason or "")
        self.write_status(time.monotonic())
        remover = run_quietly(["/bin/rm", "-rf", "--", self.temporary], os.devnull)  # of much it may take long
        while remover and remover not in reap():
            self.pulse.beat(time.monotonic())
            time.sleep(0.01)
