"""A supervisor of one node without its processes, and the other nodes' ends of its connections."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._run.safe_files import (
    write_json,
)
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import validate_report
from ansible_collections.muster.training.plugins.module_utils._supervisor import launcher
from ansible_collections.muster.training.plugins.module_utils._supervisor.hub import Hub
from ansible_collections.muster.training.plugins.module_utils._supervisor.lifeline import (
    LifelineConnection,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.peer import Peer
from ansible_collections.muster.training.plugins.module_utils._supervisor.supervisor import Supervisor
from tests.unit.supervised import Run, make_run


@dataclass
class Node:
    """A node's supervisor, with the other nodes' ends of its connections. The test sets the time."""

    run: Run
    supervisor: Supervisor
    peers: dict[int, socket.socket] = field(default_factory=dict)
    now: float = field(default_factory=time.monotonic)

    @property
    def hub(self) -> Hub:
        """Rank 0's end of the lifeline."""
        assert isinstance(self.supervisor.lifeline, Hub)
        return self.supervisor.lifeline

    @property
    def peer(self) -> Peer:
        """Another node's end of the lifeline."""
        assert isinstance(self.supervisor.lifeline, Peer)
        return self.supervisor.lifeline

    def tend_lifeline(self, now: float) -> None:
        """Handle the lifeline once."""
        self.supervisor.lifeline.step(now)
        self.supervisor.carry_out_orders()

    def judge(self, now: float) -> None:
        """Let rank 0 assess the run as a whole."""
        self.hub.judge(now)
        self.supervisor.carry_out_orders()

    def wire_to(self, rank: int) -> LifelineConnection:
        """Return a connection to another node that has been authenticated with the token."""
        near_end, self.peers[rank] = socket.socketpair()
        self.peers[rank].setblocking(False)
        wire = LifelineConnection(near_end, self.now)
        wire.node_rank, wire.stage = rank, "open"
        return wire

    def sent_to(self, rank: int) -> list[str]:
        """Return the kinds of messages that another node has received since it last checked."""
        got = b""
        with contextlib.suppress(BlockingIOError):
            while data := self.peers[rank].recv(65536):
                got += data
        return [json.loads(line)["type"] for line in got.splitlines()]

    def fail(self, rank: int, how: str) -> None:
        """Make a node fall silent, or make its launcher fail."""
        node = self.hub.nodes[rank]
        if how == "lost":
            self.hub.lose(node, "no sign of life")
        else:
            self.hub.take_report(node, validate_report({"exit_code": 1}))
        self.supervisor.carry_out_orders()

    def close(self) -> None:
        for connection in [*self.peers.values(), *(wire.sock for wire in self.supervisor.lifeline.connections)]:
            connection.close()
        if isinstance(self.supervisor.lifeline, Hub) and self.supervisor.lifeline.listener is not None:
            self.supervisor.lifeline.listener.close()
        self.supervisor.selector.close()


NodeMaker = Callable[..., Node]


def run_job(supervisor: Supervisor, job: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
    """Treat a process as the launcher that a node's supervisor has started."""
    supervisor.launcher.process, supervisor.launcher.phase = job, launcher.Running()
    return job


def node_maker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NodeMaker]:
    """Yield a function that creates the supervisor of a node; it starts no launcher, and ends no process."""
    created: list[Node] = []
    monkeypatch.setattr(launcher, "descendants", lambda _root: [])  # otherwise, all processes that the tests started
    monkeypatch.setattr(launcher.LauncherProcess, "start", lambda job, _command: not job.journal.set_state("running"))

    def maker(rank: int, nnodes: int, **options: Any) -> Node:
        run = make_run(tmp_path, [["/bin/true"]] * nnodes, **options)
        run.node(rank).mkdir(parents=True)
        write_json(str(run.node(rank) / "plan.json"), run.plans[rank])
        (run.node(rank) / "token").write_text(run.token)
        node = Node(run, Supervisor(str(run.node(rank))))
        created.append(node)
        return node

    yield maker
    for node in created:
        node.close()


def hub_maker(make_node: NodeMaker) -> NodeMaker:
    """Return a function that creates rank 0's supervisor, connected to all other nodes, which are in one state."""

    def maker(nnodes: int, state: str = "running", **options: Any) -> Node:
        node = make_node(0, nnodes, **options)
        node.hub.go = state == "running"
        node.hub.connections = [node.wire_to(rank) for rank in range(1, nnodes)]
        for peer in node.hub.nodes:
            node.hub.set_node(peer, state)
        return node

    return maker
