# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Connect each node to every other node over TCP, in both directions, with full-size packets.

Every node creates one PeerProbe, at about the same time or one after another. A node first listens, then greets all
peers. A peer that is not listening yet refuses immediately and greets this node later, so any order works. The
greeted node connects back to the greeter's ports, so one exchange verifies both directions. A child process keeps
listening until every peer has connected.

Full-size packets, with "do not fragment" set as always in TCP, verify the path's MTU: if a switch or tunnel silently
drops large packets, connections open and then stall.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
import socket
import threading
import time
import zlib

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

CONNECT_TIMEOUT = 3.0  # seconds; the kernel resends an unanswered SYN after 1 s
EXCHANGE_TIMEOUT = 3.0  # seconds without receiving a byte on an open connection
BULK_BYTES = 65536  # bytes in each direction, more than seven packets of 9000 bytes
GREETING_LIMIT = 4096  # bytes
MAX_CONNECTIONS = 128  # number of connections served at a time
MAX_GREETERS = 32  # number of peers greeted at a time
GREETED = b"\0"


def connect_all(targets: list[tuple[str, int]], timeout: float) -> dict[tuple[str, int], socket.socket | str]:
    """Connect to all (address, port) pairs in parallel; return an open connection or an error message for each."""
    results: dict[tuple[str, int], socket.socket | str] = {}
    opening = {}
    poller = select.poll()
    for target in targets:
        connection = socket.socket(socket.AF_INET6 if ":" in target[0] else socket.AF_INET, socket.SOCK_STREAM)
        connection.setblocking(False)
        code = connection.connect_ex(target)
        if code in (0, errno.EINPROGRESS):
            opening[connection.fileno()] = (target, connection)
            poller.register(connection.fileno(), select.POLLOUT)
        else:
            results[target] = os.strerror(code)
            connection.close()
    deadline = time.monotonic() + timeout
    while opening:
        remaining = deadline - time.monotonic()
        for number, _events in poller.poll(max(0, remaining * 1000)):
            poller.unregister(number)
            target, connection = opening.pop(number)
            code = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                results[target] = os.strerror(code)
                connection.close()
            else:
                connection.settimeout(EXCHANGE_TIMEOUT)
                results[target] = connection
        if remaining <= 0:
            break
    for target, connection in opening.values():
        results[target] = f"no reply within {timeout:.0f} s"
        connection.close()
    return results


def try_ports(address: str, ports: list[int]) -> dict[str, str]:
    """Return {port: "" if a connection opens, otherwise the error}."""
    outcome = {}
    for (_address, port), result in connect_all([(address, port) for port in ports], CONNECT_TIMEOUT).items():
        if isinstance(result, str):
            outcome[str(port)] = result
        else:
            outcome[str(port)] = ""
            result.close()
    return outcome


def read_json_line(connection: socket.socket) -> Any:
    """Return the JSON object in the first line received, or None."""
    line = b""
    while not line.endswith(b"\n"):
        peeked = connection.recv(GREETING_LIMIT, socket.MSG_PEEK)  # consume only the line: bulk data follows
        if not peeked or len(line) > GREETING_LIMIT:
            return None
        line += connection.recv(peeked.find(b"\n") + 1 or len(peeked))
    try:
        return json.loads(line)
    except ValueError:
        return None


def write_json_line(connection: socket.socket, content: Mapping[str, Any]) -> None:
    """Send an object as one line, in its own packet."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(json.dumps(content).encode() + b"\n")


def read_bulk(connection: socket.socket) -> int:
    """Return how many of the BULK_BYTES arrive before the sender falls silent."""
    received = 0
    try:
        while received < BULK_BYTES:
            data = connection.recv(BULK_BYTES - received)
            if not data:
                break
            received += len(data)
    except OSError:  # includes timeouts
        pass
    return received


class Listener:
    """This node's listening ports: one ephemeral port, and the run's free ports."""

    def __init__(self, address: str, candidates: list[int], fixed: list[int]) -> None:
        self.address = address
        self.sockets: list[socket.socket] = []
        self.port = next((port for port in candidates if self.listen(port)), 0)
        self.fixed = [port for port in fixed if self.listen(port)]

    def listen(self, port: int) -> bool:
        """Listen on a port; return False if it is in use."""
        family = socket.AF_INET6 if ":" in self.address else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((self.address, port))
            listener.listen(1024)
        except OSError:
            listener.close()
            return False
        self.sockets.append(listener)
        return True

    def close(self) -> None:
        """Stop listening."""
        for listener in self.sockets:
            listener.close()


def serve(listener: Listener, request: Mapping[str, Any], met_pipe: int) -> None:
    """Serve peers until every pair that includes this node has met and this node has greeted all peers, or time is up.

    Args:
        met_pipe: a pipe with the names of the peers met while greeting, one per line, then GREETED. A peer that ran
            before us has already tried to greet us, in vain, and does not try again. Without GREETED, the process that
            greets was ended, and nobody needs this one.
    """
    probe, peers, name = request["probe"], request["peers"], request["node"]
    missing_peers = {peer for peer in peers if peer != name}
    slots = threading.Semaphore(MAX_CONNECTIONS)
    wake_reader, wake_writer = os.pipe()

    def handle_peer(connection: socket.socket) -> None:
        try:
            with connection:
                connection.settimeout(EXCHANGE_TIMEOUT)
                greeting = read_json_line(connection)
                if not isinstance(greeting, dict) or greeting.get("token") != probe["token"]:
                    return
                peer = greeting.get("name")
                if peer not in peers:
                    return
                received = read_bulk(connection)
                ports = [port for port in greeting.get("ports", []) if isinstance(port, int)][:8]
                reply = {"name": name, "received": received, "ports": listener.fixed}
                write_json_line(connection, {**reply, "back": try_ports(peers[peer], ports)})
                with contextlib.suppress(OSError):  # the send buffer is full because nothing is being acknowledged
                    connection.sendall(bytes(BULK_BYTES))
                    connection.settimeout(EXCHANGE_TIMEOUT + CONNECT_TIMEOUT)
                    connection.recv(1)  # the peer closes the connection once it has tried our ports
                missing_peers.discard(peer)
                os.write(wake_writer, b".")
        except OSError:
            pass
        finally:
            slots.release()

    deadline = time.monotonic() + probe["lifetime"]
    waiting = {listener.fileno(): listener for listener in listener.sockets}
    is_greeting, met_names = True, b""
    while (missing_peers or is_greeting) and time.monotonic() < deadline:
        remaining = max(0.0, deadline - time.monotonic())
        ready, _out, _bad = select.select(
            [*waiting, wake_reader, *([met_pipe] if is_greeting else [])], [], [], remaining
        )
        for number in ready:
            if number == met_pipe:
                data = os.read(met_pipe, 65536)
                is_greeting = bool(data)
                met_names += data
                missing_peers.difference_update(met_names.decode().split("\n"))
                if not is_greeting and not met_names.endswith(GREETED):
                    missing_peers.clear()
            elif number == wake_reader:
                os.read(wake_reader, 1024)
            else:
                slots.acquire()
                try:
                    connection = waiting[number].accept()[0]
                except OSError:
                    slots.release()
                    continue
                threading.Thread(target=handle_peer, args=(connection,), daemon=True).start()
    listener.close()


def greet(address: str, listener: Listener, request: Mapping[str, Any]) -> dict[str, Any]:
    """Greet one peer, and return the outcome.

    to: "" or why no connection to its ephemeral port opens ("Connection refused" may mean that it is not listening
    yet);
    back: {port: "" or error} of the peer's connections to us; ports: {port: "" or error} of ours to its fixed ports;
    sent, received: bytes in full packets that arrived each way, None without an exchange;
    answered_by: the name that the other end reports.
    """
    outcome: dict[str, Any] = {"to": "", "back": {}, "ports": {}, "sent": None, "received": None, "answered_by": None}
    has_connected = False
    for port in request["probe"]["candidates"]:
        result = connect_all([(address, port)], CONNECT_TIMEOUT)[(address, port)]
        if isinstance(result, str):
            outcome["to"] = "" if has_connected else result
            if result == os.strerror(errno.ECONNREFUSED):  # another program may be using the peer's port: try the next
                continue
            break
        has_connected = True
        with result as connection, contextlib.suppress(OSError):
            if exchange(connection, address, listener, request, outcome):
                break
    return outcome


def exchange(
    connection: socket.socket,
    address: str,
    listener: Listener,
    request: Mapping[str, Any],
    outcome: dict[str, Any],
) -> bool:
    """Greet the other end of a connection and record the outcome; return False if it does not belong to our probes."""
    local_ports = ([listener.port] if listener.port else []) + listener.fixed
    greeting = {"token": request["probe"]["token"], "name": request["node"], "ports": local_ports}
    write_json_line(connection, greeting)
    with contextlib.suppress(OSError):  # the send buffer is full because nothing is being acknowledged
        connection.sendall(bytes(BULK_BYTES))
    # the other end may be waiting for our bulk data, and then for one of our ports
    connection.settimeout(EXCHANGE_TIMEOUT + CONNECT_TIMEOUT + 2.0)
    reply = read_json_line(connection)
    outcome["to"] = ""
    if not isinstance(reply, dict):
        return False
    connection.settimeout(EXCHANGE_TIMEOUT)
    outcome.update(answered_by=reply["name"], back=reply["back"], sent=reply["received"])
    outcome["received"] = read_bulk(connection)
    outcome["ports"] = try_ports(address, reply["ports"])
    return True


class PeerProbe:
    """This node's part in the connection tests: starts listening and greets all peers as soon as it is created.

    request: node (this node's name), address, peers ({name: address}), ports (the run's, also tested), probe: token;
    candidates (ephemeral ports, the same on all nodes, of which the first free one is used); lifetime (seconds).
    """

    def __init__(self, request: Mapping[str, Any]) -> None:
        self.request = request
        self.listener = Listener(request["address"], request["probe"]["candidates"], request["ports"])
        self.outcomes: dict[str, Any] = {}
        met_reader, self.met_writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.setsid()
                with open("/proc/self/comm", "w", encoding="ascii") as stream:  # the child inherits it
                    stream.write(listener_process_name(request["address"]))
                if os.fork() == 0:
                    detach({met_reader, *(listening.fileno() for listening in self.listener.sockets)})
                    serve(self.listener, request, met_reader)
            finally:
                os._exit(0)
        os.waitpid(child, 0)  # only this child, not the caller's other children
        os.close(met_reader)
        self.listener.close()
        self.greeter = threading.Thread(target=self.greet_all)
        self.greeter.start()

    def greet_all(self) -> None:
        """Greet all peers in name order, starting after this node, so that not all nodes begin with the same peer."""
        node = self.request["node"]
        names = sorted(self.request["peers"], key=lambda name: (name < node, name))
        waiting = [name for name in reversed(names) if name != node]

        def greet_waiting() -> None:
            while waiting:
                try:
                    name = waiting.pop()
                except IndexError:  # another thread was faster
                    return
                self.outcomes[name] = greet(self.request["peers"][name], self.listener, self.request)

        workers = [threading.Thread(target=greet_waiting) for _worker in range(min(MAX_GREETERS, len(waiting)))]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        met = [name for name, outcome in self.outcomes.items() if outcome["answered_by"]]
        with os.fdopen(self.met_writer, "w") as stream:
            stream.writelines(f"{name}\n" for name in met)
            stream.write(GREETED.decode())

    def result(self) -> dict[str, Any]:
        """Return port and fixed (ports on which this node listens), lifetime, and peers: {name: outcome of greet()}."""
        self.greeter.join()
        return {
            "port": self.listener.port,
            "fixed": self.listener.fixed,
            "lifetime": self.request["probe"]["lifetime"],
            "peers": self.outcomes,
        }


def detach(keep_open: set[int]) -> None:
    """Close every descriptor the caller is waiting on, except those to keep open."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    for number in range(3, 256):
        if number not in keep_open:
            with contextlib.suppress(OSError):
                os.close(number)


def listener_process_name(address: str) -> str:
    """Return the process name of the child that listens on an address: 15 characters, the kernel's limit."""
    return f"muster-{zlib.crc32(address.encode()):08x}"


def stop_stale_listener(address: str) -> bool:
    """Stop an earlier probe's listener on this address whose peers never connected; return whether there was one."""
    pids = []
    listener = listener_process_name(address)
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/comm", encoding="utf-8", errors="replace") as stream:
                    # a zombie keeps its name
                    if stream.read().strip() == listener and has_live_thread(name):
                        os.kill(int(name), signal.SIGKILL)
                        pids.append(name)
            except OSError:
                continue
    deadline = time.monotonic() + 1.0
    while any(map(has_live_thread, pids)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return bool(pids)


def has_live_thread(pid: str) -> bool:
    """Return whether a thread of a process is alive; once all have ended, its sockets are closed, even if a zombie.

    An empty list of descriptors is no evidence: the kernel empties the list before it closes them.
    """
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return False
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/stat", encoding="utf-8", errors="replace") as stream:
                state = stream.read().rpartition(")")[2].split()[0]
        except OSError:  # the thread has ended
            continue
        if state not in ("Z", "X"):
            return True
    return False
