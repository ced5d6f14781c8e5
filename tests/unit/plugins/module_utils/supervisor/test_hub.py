"""The hub: the supervisor of node 0, without its processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._run.processes import (
    describe_exit,
    is_rank,
    process_table,
)
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import (
    REPORT_FIELDS,
    validate_report,
)
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import (
    AUTHENTICATION_TIMEOUT,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor import lifeline_end
from ansible_collections.muster.training.plugins.module_utils._supervisor.hub import MAX_UNAUTHENTICATED
from ansible_collections.muster.training.plugins.module_utils._supervisor.reports import shorten_report
from ansible_collections.muster.training.plugins.plugin_utils._failures.first_failure import first_failure
from tests.unit.hostile import JSON_VALUES
from tests.unit.single_node import NodeMaker, run_job
from tests.unit.supervised import eventually

ANYTHING = JSON_VALUES | st.integers() | st.floats()


@pytest.mark.parametrize("how", ["lost", "failed"])
def test_elastic_run_below_its_minimum_ends_on_every_node(make_rank_0: NodeMaker, how: str) -> None:
    node = make_rank_0(3, min_nnodes=3)
    node.fail(2, how)
    assert node.supervisor.lifeline.stop_reason and "node2" in node.supervisor.lifeline.stop_reason
    assert node.hub.first_node == "node2"
    assert node.supervisor.launcher.ending() is not None, "rank 0's own part continues"
    assert node.sent_to(1) == node.sent_to(2) == ["stop"]
    assert node.run.events() == [node.supervisor.lifeline.stop_reason]


@given(st.dictionaries(st.sampled_from([name for name, _kind, _other in REPORT_FIELDS]), ANYTHING))
def test_arbitrary_report_does_not_crash_rank_0_or_readers_of_the_result(fields: dict[str, Any]) -> None:
    report = validate_report(fields)
    describe_exit(report["exit_code"])
    shorten_report(report)
    node = {"name": "node1", "node_rank": 1, "state": "ended", "since": 1.0, "lost_reason": "", "report": report}
    result = {"reason": "", "first_node": "node1", "ended": 2.0, "nodes": [node]}
    first_failure(json.loads(json.dumps(result)))


def test_report_with_an_invalid_exit_code_fails_the_run(make_rank_0: NodeMaker) -> None:
    node = make_rank_0(2)
    message = {"type": "report", "report": {"exit_code": "boom", "ranks": 7}}
    node.hub.peer_message(node.hub.connections[0], message, node.now)
    assert node.supervisor.lifeline.stop_reason == "the launcher on node1 ended with no exit code"


def test_elastic_run_survives_losing_nodes_only_down_to_its_minimum(make_rank_0: NodeMaker) -> None:
    node = make_rank_0(5, min_nnodes=2)
    for rank, how, remaining in ((4, "lost", 4), (1, "failed", 3), (3, "lost", 2)):
        node.fail(rank, how)
        assert node.supervisor.lifeline.stop_reason is None, f"without node{rank}"
        assert f"the run continues with {remaining} of 5 nodes (at least 2 are needed)" in node.run.events()[-1]
    assert [node.sent_to(rank) for rank in range(1, 5)] == [[], [], [], []]
    node.fail(2, "failed")
    assert node.supervisor.lifeline.stop_reason == "the launcher on node2 ended with exit code 1"
    assert [node.sent_to(rank) for rank in range(1, 5)] == [["stop"]] * 4


@pytest.mark.parametrize("in_container", [False, True])
def test_ranks_of_node_0_are_killed_to_restart_when_a_node_is_lost(make_rank_0: NodeMaker, in_container: bool) -> None:
    """Ranks in a container are not children of the launcher, which is only the engine's client."""
    node = make_rank_0(3, min_nnodes=2)
    supervisor = node.supervisor
    supervisor.plan["wrap"] = ["docker", "run"] if in_container else []
    attempt = node.run.node(0) / "ranks" / "first" / "attempt_0" / "0"
    attempt.mkdir(parents=True)
    future = time.time() + 3600.0  # the clock has been set back since then
    os.utime(attempt, (future, future))
    supervisor.plan["rank_logs"] = "torchrun"
    supervisor.launcher.note_attempt(time.monotonic())
    node.hub.nodes[2]["last_message"] = time.monotonic() + 1.0
    sleep = "exec sleep 60 <&- >&- 2>&-"
    client = subprocess.Popen(["/bin/sh", "-c", f"({sleep}) & echo $!; {sleep}"], stdout=subprocess.PIPE)
    environment = {"MUSTER_RUN_DIRECTORY": str(node.run.node(0)), "LOCAL_RANK": "0"}
    contained = subprocess.Popen(["/bin/sleep", "60"], env=environment)
    assert client.stdout is not None
    child = int(client.stdout.readline())
    try:
        run_job(supervisor, client)
        eventually(lambda: is_rank(contained.pid, str(node.run.node(0))))
        node.hub.lose(node.hub.nodes[2], "no sign of life")
        supervisor.carry_out_orders()
        if in_container:
            assert contained.wait(60) == -signal.SIGKILL
        else:
            eventually(lambda: process_table().get(child, (0, "Z"))[1] == "Z")
            assert contained.poll() is None
        assert client.poll() is None, "it is to start them again"
    finally:
        for pid in (child, client.pid, contained.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        client.stdout.close()
        client.wait()
        contained.wait()


def test_elastic_run_ends_when_the_launcher_of_rank_0_fails(make_rank_0: NodeMaker) -> None:
    """The ranks' store is in that launcher: without it the others could not find each other."""
    node = make_rank_0(3, min_nnodes=1)
    node.fail(0, "failed")
    assert node.supervisor.lifeline.stop_reason == "the launcher on node0 ended with exit code 1"
    assert node.hub.first_node == "node0"
    assert node.sent_to(1) == node.sent_to(2) == ["stop"]


def test_elastic_run_starts_without_late_nodes_after_the_start_timeout(make_rank_0: NodeMaker) -> None:
    node = make_rank_0(4, "ready", min_nnodes=2)
    for wire, late in zip(node.hub.connections[1:], node.hub.nodes[2:], strict=True):
        node.hub.drop(wire)
        node.hub.set_node(late, "waiting")
    in_time = node.hub.started + node.hub.timeouts["start"]
    node.judge(in_time - 0.1)
    assert not node.hub.go, "those that are late have their time"
    node.judge(in_time + 0.1)
    assert node.hub.go and node.supervisor.lifeline.stop_reason is None
    assert node.run.events() == ["2 of 4 nodes have checked in; starting without node2, node3"]
    assert node.supervisor.journal.state == "running", "rank 0's own launcher does not start"
    assert node.sent_to(1) == ["go"]
    assert [entry["state"] for entry in node.hub.nodes[2:]] == ["lost", "lost"]


@pytest.mark.parametrize("min_nnodes", [3, None], ids=["below its minimum", "not elastic"])
def test_run_without_a_required_node_does_not_start(make_rank_0: NodeMaker, min_nnodes: int | None) -> None:
    node = make_rank_0(4, "ready", min_nnodes=min_nnodes)
    for rank in (2, 3) if min_nnodes else (3,):
        node.hub.set_node(node.hub.nodes[rank], "waiting")
    node.judge(node.hub.started + node.hub.timeouts["start"] + 0.1)
    assert not node.hub.go and node.supervisor.journal.state == "stopping"
    assert "node3 did not check in within 60 s" in str(node.supervisor.lifeline.stop_reason)
    assert node.sent_to(1) == ["stop"]


def test_all_nodes_may_connect_before_any_proves_that_it_holds_the_token(make_node: NodeMaker) -> None:
    nodes = 2 * MAX_UNAUTHENTICATED + 50
    node = make_node(0, nodes)
    hub = node.hub
    hub.listen()
    assert hub.listener is not None
    with contextlib.ExitStack() as clients:
        for _number in range(nodes - 1):  # more than a backlog of 128, before the hub accepts any
            clients.enter_context(socket.create_connection(node.run.lifeline, timeout=60.0))
        for _batch in range(nodes):
            hub.accept(hub.listener, node.now)
        assert len(hub.connections) == nodes - 1
        for _number in range(MAX_UNAUTHENTICATED + 1):
            clients.enter_context(socket.create_connection(node.run.lifeline, timeout=60.0))
        for _batch in range(nodes):
            hub.accept(hub.listener, node.now)
        assert len(hub.connections) == nodes - 1 + MAX_UNAUTHENTICATED, "anybody can open more connections than nodes"


@pytest.mark.parametrize("data", [b"", b'{"node_rank": 1, '], ids=["nothing", "half a line"])
def test_client_without_the_token_is_disconnected(make_rank_0: NodeMaker, data: bytes) -> None:
    node = make_rank_0(3)
    hub = node.hub
    hub.listen()
    assert hub.listener is not None
    with socket.create_connection(node.run.lifeline, timeout=60.0) as stranger:
        assert hub.selector.select(60.0)
        hub.accept(hub.listener, node.now)
        assert b"nonce" in stranger.recv(1000)
        stranger.sendall(data)
        assert hub.selector.select(60.0 if data else 0.0) or not data
        *nodes, wire = hub.connections
        assert wire.receive() == []
        for connection in nodes:
            connection.last_heard = node.now + AUTHENTICATION_TIMEOUT
        hub.check_connections(node.now + AUTHENTICATION_TIMEOUT - 0.1)
        assert len(hub.connections) == 3, "it has not had its time"
        hub.check_connections(node.now + AUTHENTICATION_TIMEOUT + 0.1)
        assert stranger.recv(1000) == b""
    assert hub.connections == nodes, "a node was shown out with it"
    assert hub.stop_reason is None


def test_shutdown_of_the_first_machine_fails_the_run(make_rank_0: NodeMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    node = make_rank_0(2)
    monkeypatch.setattr(lifeline_end, "is_shutting_down", lambda: True)
    node.supervisor.lifeline.on_stop_signal("SIGTERM")
    node.supervisor.carry_out_orders()
    assert node.sent_to(1) == ["stop"]
    assert (node.hub.first_node, node.hub.stop_requested) == ("node0", False)
    assert node.hub.stop_reason == "node0 was rebooted or shut down"
    assert node.supervisor.launcher.shutdown
