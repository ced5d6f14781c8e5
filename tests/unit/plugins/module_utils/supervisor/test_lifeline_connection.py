"""Connections of the lifeline: authentication and messages."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._supervisor.lifeline import (
    MAX_BACKLOG,
    MAX_LINE,
    LifelineConnection,
    handshake_mac,
)
from tests.unit.hostile import JSON_VALUES

ARGUMENTS = ("token", "peer", "run", 1, "theirs", "mine")


@pytest.mark.parametrize("index", range(6))
def test_mac_depends_on_each_of_its_inputs(index: int) -> None:
    changed: list[Any] = list(ARGUMENTS)
    changed[index] = 2 if index == 3 else changed[index] + "x"
    assert handshake_mac(*changed) != handshake_mac(*ARGUMENTS)
    assert handshake_mac(*ARGUMENTS) == handshake_mac(*ARGUMENTS)
    assert len(handshake_mac(*ARGUMENTS)) == 64


def test_mac_differs_between_peer_and_server() -> None:
    assert handshake_mac("t", "peer", "r", 1, "a", "b") != handshake_mac("t", "server", "r", 1, "a", "b")


@given(st.text(st.characters(exclude_categories=[])))
def test_mac_can_be_computed_from_any_nonce(nonce: str) -> None:
    assert len(handshake_mac("token", "peer", "run", 1, "theirs", nonce)) == 64


@pytest.fixture
def ends() -> Iterator[tuple[LifelineConnection, socket.socket]]:
    """Yield a connection and the socket at its other end."""
    local, remote = socket.socketpair()
    with local, remote:
        remote.settimeout(60)
        yield LifelineConnection(local, 0.0), remote


def drain(wire: LifelineConnection, turns: int = 100) -> list[dict[str, Any]]:
    """Return all messages received on a connection in several turns of the supervisor."""
    return [message for _turn in range(turns) for message in wire.receive()]


def test_split_messages_arrive_whole(ends: tuple[LifelineConnection, socket.socket]) -> None:
    wire, remote = ends
    wire.node_rank = 1
    received = []
    for byte in b'{"type": "beat"}\n{"n": "\\u00e9"}\n{"n": 2':
        remote.send(bytes([byte]))
        received += wire.receive()
    assert received == [{"type": "beat"}, {"n": "\u00e9"}]
    remote.send(b"}\n")
    assert wire.receive() == [{"n": 2}]


@pytest.mark.parametrize("authenticated", [False, True], ids=["stranger", "peer"])
@pytest.mark.parametrize(
    "data",
    [b"hello\n", b"[]\n", b"1\n", b"null\n", b"\n", b"\xff\n", b'{"a"\n', b"[" * 50000 + b"\n", b"x" * (MAX_LINE + 1)],
    ids=["word", "list", "number", "null", "empty", "bytes", "half", "deep", "long"],
)
def test_invalid_message_closes_the_connection(
    ends: tuple[LifelineConnection, socket.socket], data: bytes, authenticated: bool
) -> None:
    wire, remote = ends
    wire.node_rank = 1 if authenticated else None
    remote.setblocking(False)
    sent = 0
    for _turn in range(100):
        if sent < len(data):
            with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
                sent += remote.send(data[sent:])
        assert wire.receive() == []
        assert len(wire.inbox) <= 2 * MAX_LINE
    assert wire.closed


def test_connection_closes_after_the_last_messages_of_the_other_side(
    ends: tuple[LifelineConnection, socket.socket],
) -> None:
    wire, remote = ends
    wire.node_rank = 1
    remote.sendall(b'{"n": 1}\n{"n": 2}\n{"n": ')
    remote.close()
    assert wire.receive() == [{"n": 1}, {"n": 2}]
    assert wire.closed


def test_data_read_at_once_from_an_unknown_client_is_limited(ends: tuple[LifelineConnection, socket.socket]) -> None:
    wire, remote = ends
    line = b'{"n": "' + b"x" * 1000 + b'"}\n'
    remote.setblocking(False)
    sent = 0
    while sent < 3 * MAX_LINE:
        try:
            sent += remote.send(line * 10)
        except BlockingIOError:
            break
    assert sum(len(json.dumps(message)) for message in wire.receive()) <= MAX_LINE


def test_connection_closes_at_the_backlog_limit_of_unread_output(
    ends: tuple[LifelineConnection, socket.socket],
) -> None:
    wire, _remote = ends
    longest = 0
    for _number in range(100000):
        wire.send({"type": "beat", "filling": "x" * 1000})
        longest = max(longest, len(wire.outbox))
        if wire.closed:
            break
    assert wire.closed
    assert longest <= MAX_BACKLOG + 2000


def test_unsent_messages_are_sent_later_in_order(ends: tuple[LifelineConnection, socket.socket]) -> None:
    wire, remote = ends
    wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    for number in range(200):
        wire.send({"n": number, "filling": "x" * 500})
    assert wire.outbox and not wire.closed
    received = b""
    while received.count(b"\n") < 200:
        received += remote.recv(65536)
        wire.flush()
    assert [json.loads(line)["n"] for line in received.splitlines()] == list(range(200))
    assert not wire.outbox


def test_sending_to_a_closed_peer_closes_the_connection(ends: tuple[LifelineConnection, socket.socket]) -> None:
    wire, remote = ends
    remote.close()
    wire.send({"type": "beat"})
    assert wire.closed
    wire.send({"type": "beat"})  # does not raise an error


@given(st.lists(st.dictionaries(st.text(max_size=5), JSON_VALUES, max_size=4), max_size=10), st.integers(1, 100))
def test_a_connection_carries_any_message(messages: list[dict[str, Any]], cut: int) -> None:
    local, remote = socket.socketpair()
    with local, remote:
        sender, receiver = LifelineConnection(local, 0.0), LifelineConnection(remote, 0.0)
        receiver.node_rank = 1
        received = []
        for message in messages:
            sender.send(message)
            received += receiver.receive()
        assert received == messages
        assert not sender.closed and not receiver.closed


@pytest.fixture
def known_ends() -> Iterator[tuple[LifelineConnection, LifelineConnection]]:
    """Yield rank 0's end and a peer's end of a connection that has been opened."""
    local, remote = socket.socketpair()
    with local, remote:
        server, peer = LifelineConnection(local, 0.0), LifelineConnection(remote, 0.0)
        server.open(1, "key")
        peer.open(0, "key")
        yield server, peer


@given(st.lists(st.dictionaries(st.text(max_size=5), JSON_VALUES, max_size=4), max_size=10))
def test_an_opened_connection_carries_any_message_in_both_directions(messages: list[dict[str, Any]]) -> None:
    local, remote = socket.socketpair()
    with local, remote:
        server, peer = LifelineConnection(local, 0.0), LifelineConnection(remote, 0.0)
        server.open(1, "key")
        peer.open(0, "key")
        for message in messages:
            server.send(message)
            assert peer.receive() == [message]
            peer.send(message)
            assert server.receive() == [message]


def exchanged(lines: list[bytes], how: str) -> list[bytes]:
    """Return three lines as modified by an attacker on the path."""
    first, second, third = lines
    return {
        "nothing": lines,
        "added": [b'{"type": "stop"}\n', *lines],
        "left out": [second, third],
        "exchanged": [first, second.replace(b"2", b"3"), third],
        "reordered": [second, first, third],
        "repeated": [first, first, second],
        "cut": [first, second[65:], third],
    }[how]


@pytest.mark.parametrize(
    ("how", "received"),
    [
        ("nothing", [1, 2, 3]),
        ("added", []),
        ("left out", []),
        ("exchanged", [1]),
        ("reordered", []),
        ("repeated", [1]),
        ("cut", [1]),
    ],
)
def test_tampered_messages_are_rejected_and_close_the_connection(
    known_ends: tuple[LifelineConnection, LifelineConnection], how: str, received: list[int]
) -> None:
    server, peer = known_ends
    peer.sock.setblocking(True)
    messages = []
    for number in (1, 2, 3):
        server.send({"n": number})
        messages.append(peer.sock.recv(65536))
    peer.sock.setblocking(False)
    server.sock.sendall(b"".join(exchanged(messages, how)))
    assert [message["n"] for message in peer.receive()] == received
    assert peer.closed == (how != "nothing")


def test_reflected_message_is_rejected(known_ends: tuple[LifelineConnection, LifelineConnection]) -> None:
    server, peer = known_ends
    server.send({"type": "stop"})
    peer.sock.setblocking(True)
    peer.sock.sendall(peer.sock.recv(65536))
    assert server.receive() == [] and server.closed


def test_message_right_after_the_greeting_must_be_authenticated(ends: tuple[LifelineConnection, socket.socket]) -> None:
    """Both may arrive in one packet."""
    wire, remote = ends
    remote.sendall(b'{"mac": "theirs"}\n{"type": "go"}\n')
    assert wire.receive() == [{"mac": "theirs"}]
    wire.open(0, "key")
    assert wire.receive() == [] and wire.closed


@given(st.binary(max_size=300))
def test_connection_survives_arbitrary_bytes(data: bytes) -> None:
    local, remote = socket.socketpair()
    with local, remote:
        wire = LifelineConnection(local, 0.0)
        remote.sendall(data)
        remote.shutdown(socket.SHUT_WR)
        for message in drain(wire, 5):
            assert isinstance(message, dict)
        assert wire.closed
