"""Nodes that connect to each other, each on a loopback address of its own."""

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


def request(number: int, count: int, ports: Sequence[int] = (), **given: Any) -> dict[str, Any]:
    probe = {"token": TOKEN, "candidates": [PORT, SECOND, THIRD], "lifetime": 60, **given}
    peers = {f"node{item}": address(item) for item in range(1, count + 1)}
    return {"node": f"node{number}", "address": address(number), "peers": peers, "ports": ports, "probe": probe}


def eventually(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, condition.__doc__ or condition
        time.sleep(0.02)


def all_gone(count: int) -> bool:
    """Check that no node is listening anymore."""
    return all(
        network.bind_error(address(number), port) == ""
        for number in range(1, count + 1)
        for port in (PORT, SECOND, THIRD, FIXED)
    )


@pytest.fixture(autouse=True)
def leave_nothing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Check that nothing is listening afterward; a responding node gets time for that on a busy machine."""
    monkeypatch.setattr(peer_probe, "CONNECT_TIMEOUT", 30.0)
    monkeypatch.setattr(peer_probe, "EXCHANGE_TIMEOUT", 30.0)
    yield
    for number in range(1, 7):
        peer_probe.stop_stale_listener(address(number))
    eventually(lambda: all_gone(6))


def test_nodes_arriving_in_turn_test_each_pair_in_both_directions() -> None:
    fixed = {1: [FIXED], 2: [], 3: []}
    answers = {number: peer_probe.PeerProbe(request(number, 3, ports=fixed[number])).result() for number in (1, 2, 3)}
    assert {answer["port"] for answer in answers.values()} == {PORT}
    assert answers[1]["fixed"] == [FIXED]
    # all nodes refused the first node, and the last node connected to all of them
    assert {outcome["to"] for outcome in answers[1]["peers"].values()} == {"Connection refused"}
    for early, late in ((1, 2), (1, 3), (2, 3)):
        met = answers[late]["peers"][f"node{early}"]
        assert met["to"] == ""
        assert met["back"] == {str(PORT): ""}
        assert met["ports"] == ({str(FIXED): ""} if early == 1 else {})
        assert (met["sent"], met["received"]) == (peer_probe.BULK_BYTES, peer_probe.BULK_BYTES)
        assert met["answered_by"] == f"node{early}"
    eventually(lambda: all_gone(3))


def test_nodes_arriving_at_once_all_connect() -> None:
    probes = [peer_probe.PeerProbe(request(number, 6)) for number in range(1, 7)]
    answers = [probe.result() for probe in probes]
    for number, answer in enumerate(answers, 1):
        assert len(answer["peers"]) == 5
        for peer, outcome in answer["peers"].items():
            back = answers[int(peer[4:]) - 1]["peers"][f"node{number}"]
            assert "" in (outcome["to"], back["back"].get(str(PORT)))
    eventually(lambda: all_gone(6))


def test_next_candidate_port_is_used_if_the_first_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_probe, "EXCHANGE_TIMEOUT", 2.0)  # the unknown client sends nothing
    monkeypatch.setattr(peer_probe, "CONNECT_TIMEOUT", 3.0)
    with socket.socket() as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # the port from the previous test
        stranger.bind((address(1), PORT))
        stranger.listen()
        first = peer_probe.PeerProbe(request(1, 2, ports=[PORT])).result()
        assert first["port"] == SECOND
        assert first["fixed"] == []  # no process of ours is listening on it: another check reports ports in use
        second = peer_probe.PeerProbe(request(2, 2)).result()
    assert second["peers"]["node1"]["to"] == ""
    assert second["peers"]["node1"]["answered_by"] == "node1"
    assert second["peers"]["node1"]["back"] == {str(PORT): ""}


def test_dropped_packets_are_distinguished_from_a_refused_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A listener whose queue is full answers no SYN, as a packet filter that drops."""
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
        answer = peer_probe.PeerProbe(request(1, 3, lifetime=1)).result()
        assert time.monotonic() - start < 60
        assert answer["peers"]["node2"]["to"] == "no reply within 0 s"
        assert answer["peers"]["node3"]["to"] == "Connection refused"
        for filler in fillers:
            filler.close()
    eventually(lambda: all_gone(1))


def test_dropped_full_size_packets_are_visible_in_byte_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection fails after the greeting: full-size packets that follow never arrive."""
    monkeypatch.setattr(peer_probe, "EXCHANGE_TIMEOUT", 2.0)
    peer_probe.PeerProbe(request(1, 2)).result()

    class Swallowing(socket.socket):
        def sendall(self, data: Any, flags: int = 0) -> None:
            if len(data) < peer_probe.BULK_BYTES:
                super().sendall(data, flags)

    monkeypatch.setattr(socket, "socket", Swallowing)
    met = peer_probe.PeerProbe(request(2, 2)).result()["peers"]["node1"]
    assert (met["to"], met["answered_by"]) == ("", "node1")
    assert met["sent"] == 0
    assert met["received"] == peer_probe.BULK_BYTES


@pytest.mark.parametrize(
    "said",
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
def test_unknown_clients_get_no_reply_and_cause_no_harm(said: bytes) -> None:
    peer_probe.PeerProbe(request(1, 2)).result()
    with socket.create_connection((address(1), PORT), timeout=120) as stranger:
        try:
            stranger.sendall(said)
            stranger.shutdown(socket.SHUT_WR)
            answer = stranger.recv(100)
        except OSError as error:  # the peer was disconnected before it had finished
            assert error.errno in (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN), error
            answer = b""
    assert answer == b""
    met = peer_probe.PeerProbe(request(2, 2)).result()["peers"]["node1"]
    assert met["to"] == ""
    eventually(lambda: all_gone(2))


def test_listener_that_no_peer_reaches_exits_after_its_lifetime() -> None:
    peer_probe.PeerProbe(request(1, 2, lifetime=3)).result()
    assert not all_gone(1)
    eventually(lambda: all_gone(1))


def test_leftover_listener_can_be_ended() -> None:
    peer_probe.PeerProbe(request(1, 2)).result()
    assert not all_gone(1)
    assert not peer_probe.stop_stale_listener(address(99))
    assert peer_probe.stop_stale_listener(address(1))
    eventually(lambda: all_gone(1))


def ended_child() -> int:
    """A child of this process that has ended with 7, and that nobody has reaped."""
    child = os.fork()
    if child == 0:
        try:
            Path("/proc/self/comm").write_text(peer_probe.listener_process_name(address(1)))
        finally:
            os._exit(7)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    return child


def test_listener_has_its_process_name_before_the_probe_replies(monkeypatch: pytest.MonkeyPatch) -> None:
    other = ended_child()
    name, ours = peer_probe.listener_process_name, os.getpid()

    def late(address: str) -> str:
        time.sleep(0.5 if os.getpid() != ours else 0)
        return name(address)

    monkeypatch.setattr(peer_probe, "listener_process_name", late)
    peer_probe.PeerProbe(request(1, 2)).result()
    assert peer_probe.stop_stale_listener(address(1))
    eventually(lambda: all_gone(1))
    assert os.waitstatus_to_exitcode(os.waitpid(other, 0)[1]) == 7, "another child of ours is left to us"


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
    done = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, timeout=300, check=True)
    assert time.monotonic() - start < 100
    assert done.stderr == b""
    assert not all_gone(1)


def test_listener_whose_main_thread_has_ended_is_ended_too() -> None:
    """As a listener that ends itself just now: its list of descriptors is empty, its ports are not free yet."""
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
        assert not all_gone(1)
        assert peer_probe.stop_stale_listener(address(1))
        assert all_gone(1)
    finally:
        child.kill()
        child.wait()
