"""Peers: the supervisors of other nodes, without their processes."""

from __future__ import annotations

import selectors
import socket

from ansible_collections.muster.training.plugins.module_utils._run.timeouts import (
    AUTHENTICATION_TIMEOUT,
    RECONNECT_TIMEOUT,
)
from tests.unit.single_node import NodeMaker


def test_an_elastic_run_ends_on_each_node_when_rank_0_is_killed(make_node: NodeMaker) -> None:
    node = make_node(1, 3, min_nnodes=1)
    node.peer.connections = [node.wire_to(0)]
    node.peers[0].close()
    assert node.peer.connections[0].receive() == []
    node.tend_lifeline(node.now)
    node.tend_lifeline(node.now + RECONNECT_TIMEOUT - 0.1)
    assert node.supervisor.lifeline.stop_reason is None, "it may come back"
    node.tend_lifeline(node.now + RECONNECT_TIMEOUT + 0.1)
    assert str(node.supervisor.lifeline.stop_reason).startswith("node0 is lost: its supervisor closed the lifeline")
    assert node.supervisor.launcher.ending() is not None and node.supervisor.lifeline.result_state == "failed"


def test_node_reconnects_when_rank_0_is_silent(make_node: NodeMaker) -> None:
    """The connection is half open, or another program uses its port: the connection is closed and retried."""
    node = make_node(1, 2)
    with socket.create_server(node.run.lifeline) as listener:
        listener.settimeout(60.0)
        node.tend_lifeline(node.now)
        silent, _address = listener.accept()
        with silent:
            silent.settimeout(60.0)
            first = node.peer.connection
            node.tend_lifeline(node.now + AUTHENTICATION_TIMEOUT - 0.1)
            assert node.peer.connection is first is not None
            node.tend_lifeline(node.now + AUTHENTICATION_TIMEOUT + 0.1)
            assert silent.recv(1000) == b""
        again, _address = listener.accept()
        again.close()
    assert node.supervisor.lifeline.stop_reason is None


def test_start_timeout_does_not_apply_while_connected_to_rank_0(make_node: NodeMaker) -> None:
    node = make_node(1, 3)
    late = node.peer.started + node.peer.timeouts["start"] + 5.1
    node.peer.connections = [node.wire_to(0)]
    node.peer.last_heard = late
    node.tend_lifeline(late)
    assert node.supervisor.lifeline.stop_reason is None
    node.peer.drop(node.peer.connections[0])
    node.peer.retry = late + 1.0
    node.tend_lifeline(late)
    assert str(node.supervisor.lifeline.stop_reason).startswith("node1 could not check in with node0 within 60 s")


def test_stopped_node_does_not_wait_forever_for_rank_0(make_node: NodeMaker) -> None:
    node = make_node(1, 2)
    node.peer.connections = [node.wire_to(0)]  # open, and silent
    (wire,) = node.peer.connections
    node.supervisor.selector.register(wire.sock, selectors.EVENT_READ, wire)
    node.supervisor.lifeline.on_stop_signal("SIGTERM")
    node.supervisor.carry_out_orders()
    assert node.sent_to(0) == ["stop"]
    node.supervisor.make_report([])
    node.supervisor.step(0.0)
    assert not node.supervisor.is_done, "it waits a few seconds for its last message"
    node.peer.deadline = 0.0
    node.supervisor.step(0.0)
    assert node.supervisor.is_done and node.supervisor.lifeline.result_state == "stopped"
