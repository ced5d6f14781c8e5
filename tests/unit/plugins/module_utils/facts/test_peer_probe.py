"""Connections between nodes, each on its own loopback address."""

from __future__ import annotations

import errno
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._facts import network, peer_probe

NETWORK = f"127.{random.randrange(1, 255)}.{random.randrange(256)}"  # per process, so that tests can run concurrently
PORT, SECOND, THIRD, FIXED = random.sample(range(10000, 20000), 4)  # the case of a listener on all addresses is above
TOKEN = "the token of this test"


def address(number: int) -> str:
    return f"{NETWORK}.{number}"


def request(number: int, count: int, ports: Sequence[int] = (), **options: Any) -> dict[str, Any]:
    probe = {"token": TOKEN, "candidates": [PORT, SECOND, THIRD], "lifetime": 60, **options}
    peers = {f"node{item}": address(item) for item in range(1, count + 1)}
    return {"node": f"node{number}", "address": address(number), "peers": peers, "ports": ports, "probe": probe}


def eventually(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, condition.__doc__ or condition
        time.sleep(0.02)


def all_closed(count: int) -> bool:
    """Check that no node is listening anymore."""
    return all(
        network.bind_error(address(number), port) == ""
        for number in range(1, count + 1)
        for port in (PORT, SECOND, THIRD, FIXED)
    )


@pytest.fixture(autouse=True)
def no_leftover_listeners(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Check that nothing is listening afterward; a responding node gets time for that on a busy machine."""
    monkeypatch.setattr(peer_probe, "CONNECT_TIMEOUT", 30.0)
    monkeypatch.setattr(peer_probe, "EXCHANGE_TIMEOUT", 30.0)
    yield
    for number in range(1, 7):
        peer_probe.stop_stale_listener(address(number))
    eventually(lambda: all_closed(6))


def test_nodes_arriving_in_turn_test_each_pair_in_both_directions() -> None:
    fixed = {1: [FIXED], 2: [], 3: []}
    replies = {number: peer_probe.PeerProbe(request(number, 3, ports=fixed[number])).result() for number in (1, 2, 3)}
    assert {reply["port"] for reply in replies.values()} == {PORT}
    assert replies[1]["fixed"] == [FIXED]
    # all nodes refused the first node, and the last node connected to all of them
    assert {outcome["to"] for outcome in replies[1]["peers"].values()} == {"Connection refused"}
    for early, late in ((1, 2), (1, 3), (2, 3)):
        result = replies[late]["peers"][f"node{early}"]
        assert result["to"] == ""
        assert result["back"] == {str(PORT): ""}
        assert result["ports"] == ({str(FIXED): ""} if early == 1 else {})
        assert (result["sent"], result["received"]) == (peer_probe.BULK_BYTES, peer_probe.BULK_BYTES)
        assert result["answered_by"] == f"node{early}"
    eventually(lambda: all_closed(3))


def test_nodes_arriving_at_once_all_connect() -> None:
    probes = [peer_probe.PeerProbe(request(number, 6)) for number in range(1, 7)]
    replies = [probe.result() for probe in probes]
    for number, reply in enumerate(replies, 1):
        assert len(reply["peers"]) == 5
        for peer, outcome in reply["peers"].items():
            back = replies[int(peer[4:]) - 1]["peers"][f"node{number}"]
            assert "" in (outcome["to"], back["back"].get(str(PORT)))
    eventually(lambda: all_closed(6))


def test_next_candidate_port_is_used_if_the_first_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_probe, "EXCHANGE_TIMEOUT", 2.0)  # the unknown client sends nothing
    monkeypatch.setattr(peer_probe, "CONNECT_TIMEOUT", 3.0)
    with socket.socket() as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # the port from the previous test
        stranger.bind((address(1), PORT))
        stranger.listen()
        first = peer_probe.PeerProbe(request(1, 2, ports=[PORT])).result()
        assert first["port"] == SECOND
        assert first["fixed"] == []  # not used by this listener: another check reports ports in use
        second = peer_probe.PeerProbe(request(2, 2)).result()
    assert second["peers"]["node1"]["to"] == ""
    assert second["peers"]["node1"]["answered_by"] == "node1"
    assert second["peers"]["node1"]["back"] == {str(PORT): ""}


def test_dropped_packets_are_distinguished_from_a_refused_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A listener with a full queue does not answer a SYN, like a packet filter that drops packets."""
    monkeypatch.setattr(peer_probe, "CONNECT_TIMEOUT", 0.5)
    with socket.socket() as full:
        full.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # the port of the previous test
        full.bind((address(2), PORT))
        full.listen(0)
        fillers = [socket.socket() for _filler in range(8)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex((address(2), PORT))
        start = time.monotonic()
        reply = peer_probe.PeerProbe(request(1, 3, lifetime=1)).result()
        assert time.monotonic() - start < 60
        assert reply["peers"]["node2"]["to"] == "no reply within 0 s"
        assert reply["peers"]["node3"]["to"] == "Connection refused"
        for filler in fillers:
            filler.close()
    eventually(lambda: all_closed(1))


def test_dropped_full_size_packets_are_visible_in_byte_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection fails after the greeting: full-size packets that follow never arrive."""
    monkeypatch.setattr(peer_probe, "EXCHANGE_TIMEOUT", 2.0)
    peer_probe.PeerProbe(request(1, 2)).result()

    class Swallowing(socket.socket):
        def sendall(self, data: Any, flags: int = 0) -> None:
            if len(data) < peer_probe.BULK_BYTES:
                super().sendall(data, flags)

    monkeypatch.setattr(socket, "socket", Swallowing)
    result = peer_probe.PeerProbe(request(2, 2)).result()["peers"]["node1"]
    assert (result["to"], result["answered_by"]) == ("", "node1")
    assert result["sent"] == 0
    assert result["received"] == peer_probe.BULK_BYTES


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff" * 10000,
        b'{"token": "wrong", "name": "node2", "ports": [1]}\n',
        b'{"token": "the token of this test", "name": "stranger", "ports": [1]}\n',
        b"[]\n",
        b"5\n",
    ],
)
def test_unknown_clients_get_no_reply_and_cause_no_harm(data: bytes) -> None:
    peer_probe.PeerProbe(request(1, 2)).result()
    with socket.create_connection((address(1), PORT), timeout=120) as stranger:
        try:
            stranger.sendall(data)
            stranger.shutdown(socket.SHUT_WR)
            reply = stranger.recv(100)
        except OSError as error:  # the peer was disconnected before it had finished
            assert error.errno in (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN), error
            reply = b""
    assert reply == b""
    result = peer_probe.PeerProbe(request(2, 2)).result()["peers"]["node1"]
    assert result["to"] == ""
    eventually(lambda: all_closed(2))


def test_listener_that_no_peer_reaches_exits_after_its_lifetime() -> None:
    peer_probe.PeerProbe(request(1, 2, lifetime=3)).result()
    assert not all_closed(1)
    eventually(lambda: all_closed(1))


def test_leftover_listener_can_be_ended() -> None:
    peer_probe.PeerProbe(request(1, 2)).result()
    assert not all_closed(1)
    assert not peer_probe.stop_stale_listener(address(99))
    assert peer_probe.stop_stale_listener(address(1))
    eventually(lambda: all_closed(1))


def ended_child() -> int:
    """Return the pid of an unreaped child of this process that exited with code 7."""
    child = os.fork()
    if child == 0:
        try:
            Path("/proc/self/comm").write_text(peer_probe.listener_process_name(address(1)))
        finally:
            os._exit(7)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    return child


def test_listener_has_its_process_name_before_the_probe_replies(monkeypatch: pytest.MonkeyPatch) -> None:
    child_pid = ended_child()
    name, own_pid = peer_probe.listener_process_name, os.getpid()

    def late(address: str) -> str:
        time.sleep(0.5 if os.getpid() != own_pid else 0)
        return name(address)

    monkeypatch.setattr(peer_probe, "listener_process_name", late)
    peer_probe.PeerProbe(request(1, 2)).result()
    assert peer_probe.stop_stale_listener(address(1))
    eventually(lambda: all_closed(1))
    assert os.waitstatus_to_exitcode(os.waitpid(child_pid, 0)[1]) == 7, "another child of ours is left to us"


def test_zombie_process_is_not_treated_as_a_listener() -> None:
    child = ended_child()
    assert not peer_probe.stop_stale_listener(address(1))
    os.waitpid(child, 0)


def test_listener_does_not_keep_the_output_pipes_open() -> None:
    """ssh keeps running until no process holds its pipes anymore."""
    script = f"""
import sys; sys.path.insert(0, {str(Path(peer_probe.__file__).parent)!r})
import peer_probe
peer_probe.PeerProbe({request(1, 2, lifetime=120)!r}).result()
"""
    start = time.monotonic()
    completed = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, timeout=300, check=True)
    assert time.monotonic() - start < 100
    assert completed.stderr == b""
    assert not all_closed(1)


def test_listener_whose_main_thread_has_ended_is_ended_too() -> None:
    """Like a listener that is exiting: it has no open descriptors, but its ports are not free yet."""
    script = f"""
import ctypes, sys, threading; sys.path.insert(0, {str(Path(peer_probe.__file__).parent)!r})
import peer_probe
listener = peer_probe.Listener({address(1)!r}, [{PORT}], [])
open("/proc/self/comm", "w").write(peer_probe.listener_process_name({address(1)!r}))
threading.Thread(target=listener.sockets[0].accept, daemon=True).start()
ctypes.CDLL(None).pthread_exit(None)  # this thread alone
"""
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", script])
    status = Path(f"/proc/{child.pid}/stat")
    try:
        eventually(lambda: ") Z " in status.read_text())
        assert not all_closed(1)
        assert peer_probe.stop_stale_listener(address(1))
        assert all_closed(1)
    finally:
        child.kill()
        child.wait()
