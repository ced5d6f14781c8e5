# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Connect each node with every other over TCP, both ways, with full-size packets. Private to this collection.

Runs on the node, standard library only, Python >= 3.8. Every node makes one Probe, at about the same time or one after
another. A node first listens, then greets all peers. A peer that is not listening yet refuses at once and greets this
node later, so each pair meets in any order. The greeted node connects back to the greeter's ports, so one meeting
proves both directions. A child process keeps listening until every peer has connected.

Full-size packets, with "do not fragment" set as always in TCP, prove the path's MTU: if a switch or tunnel silently
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
TALK_TIMEOUT = 3.0  # seconds without a byte in an open connection
BULK = 65536  # bytes each way, more than seven packets of 9000 bytes
GREETING_LIMIT = 4096  # bytes
MOST_TALKS = 128  # connections served at a time
GREETERS = 32  # peers greeted at a time


def connect_all(targets: list[tuple[str, int]], timeout: float) -> dict[tuple[str, int], socket.socket | str]:
    """Connect to all (address, port) at once; return an open connection or the error text for each."""
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
        left = deadline - time.monotonic()
        for number, _events in poller.poll(max(0, left * 1000)):
            poller.unregister(number)
            target, connection = opening.pop(number)
            code = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                results[target] = os.strerror(code)
                connection.close()
            else:
                connection.settimeout(TALK_TIMEOUT)
                results[target] = connection
        if left <= 0:
            break
    for target, connection in opening.values():
        results[target] = f"no answer within {timeout:.0f} s"
        connection.close()
    return results


def try_ports(address: str, ports: list[int]) -> dict[str, str]:
    """Return {port: "" if a connection opens, else the error}."""
    outcome = {}
    for (_address, port), result in connect_all([(address, port) for port in ports], CONNECT_TIMEOUT).items():
        if isinstance(result, str):
            outcome[str(port)] = result
        else:
            outcome[str(port)] = ""
            result.close()
    return outcome


def read_json_line(connection: socket.socket) -> Any:
    """Return the JSON object in the first line received, None if there is none."""
    line = b""
    while not line.endswith(b"\n"):
        there = connection.recv(GREETING_LIMIT, socket.MSG_PEEK)  # take only the line: bulk data follows
        if not there or len(line) > GREETING_LIMIT:
            return None
        line += connection.recv(there.find(b"\n") + 1 or len(there))
    try:
        return json.loads(line)
    except ValueError:
        return None


def write_json_line(connection: socket.socket, content: Mapping[str, Any]) -> None:
    """Send an object as a line, in its own packet."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(json.dumps(content).encode() + b"\n")


def read_bulk(connection: socket.socket) -> int:
    """Return how many of the BULK bytes arrive before the sender falls silent."""
    received = 0
    try:
        while received < BULK:
            data = connection.recv(BULK - received)
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
        """Listen on a port; False if it is taken."""
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


def serve(listener: Listener, request: Mapping[str, Any], done: int) -> None:
    """Serve peers until every pair with this node has met and our own round is over, or time is up.

    `done`: a pipe with the names of the peers met in our own round, one per line, until end of file. A peer that ran
    before us has already tried to greet us, in vain, and does not try again.
    """
    probe, peers, name = request["probe"], request["peers"], request["node"]
    missing = {peer for peer in peers if peer != name}
    slots = threading.Semaphore(MOST_TALKS)
    changed, change = os.pipe()

    def answer(connection: socket.socket) -> None:
        try:
            with connection:
                connection.settimeout(TALK_TIMEOUT)
                greeting = read_json_line(connection)
                if not isinstance(greeting, dict) or greeting.get("token") != probe["token"]:
                    return
                peer = greeting.get("name")
                if peer not in peers:
                    return
                received = read_bulk(connection)
                ports = [port for port in greeting.get("ports", []) if isinstance(port, int)][:8]
                seen = {"name": name, "received": received, "ports": listener.fixed}
                write_json_line(connection, {**seen, "back": try_ports(peers[peer], ports)})
                with contextlib.suppress(OSError):  # the send buffer is full without acknowledgements
                    connection.sendall(bytes(BULK))
                    connection.settimeout(TALK_TIMEOUT + CONNECT_TIMEOUT)
                    connection.recv(1)  # the peer closes when it has tried our ports
                missing.discard(peer)
                os.write(change, b".")
        except OSError:
            pass
        finally:
            slots.release()

    deadline = time.monotonic() + probe["lifetime"]
    waiting = {listener.fileno(): listener for listener in listener.sockets}
    own_round, told = True, b""
    while (missing or own_round) and time.monotonic() < deadline:
        left = max(0.0, deadline - time.monotonic())
        ready, _out, _bad = select.select([*waiting, changed, *([done] if own_round else [])], [], [], left)
        for number in ready:
            if number == done:
                met = os.read(done, 65536)
                own_round = bool(met)
                told += met
                missing.difference_update(told.decode().split("\n"))
            elif number == changed:
                os.read(changed, 1024)
            else:
                slots.acquire()
                try:
                    connection = waiting[number].accept()[0]
                except OSError:
                    slots.release()
                    continue
                threading.Thread(target=answer, args=(connection,), daemon=True).start()
    listener.close()


def greet(address: str, listener: Listener, request: Mapping[str, Any]) -> dict[str, Any]:
    """Greet one peer. Return

    to: "" or why no connection to its ephemeral port opens ("Connection refused" also if it is not listening yet);
    back: {port: "" or error} of the peer's connections to us; ports: {port: "" or error} of ours to its fixed ports;
    sent, received: bytes in full packets that arrived each way, None without an exchange;
    answered_by: the name that the other end reports.
    """
    outcome: dict[str, Any] = {"to": "", "back": {}, "ports": {}, "sent": None, "received": None, "answered_by": None}
    opened = False
    for port in request["probe"]["candidates"]:
        result = connect_all([(address, port)], CONNECT_TIMEOUT)[(address, port)]
        if isinstance(result, str):
            outcome["to"] = "" if opened else result
            if result == os.strerror(errno.ECONNREFUSED):  # another program may hold the port there: try the next
                continue
            break
        opened = True
        with result as connection, contextlib.suppress(OSError):
            if talk(connection, address, listener, request, outcome):
                break
    return outcome


def talk(
    connection: socket.socket,
    address: str,
    listener: Listener,
    request: Mapping[str, Any],
    outcome: dict[str, Any],
) -> bool:
    """Greet the other end of a connection and record the result; False if it is not one of our probes."""
    own_ports = ([listener.port] if listener.port else []) + listener.fixed
    greeting = {"token": request["probe"]["token"], "name": request["node"], "ports": own_ports}
    write_json_line(connection, greeting)
    with contextlib.suppress(OSError):  # the send buffer is full without acknowledgements
        connection.sendall(bytes(BULK))
    # the other end may wait for our bulk data, and then for a port of ours
    connection.settimeout(TALK_TIMEOUT + CONNECT_TIMEOUT + 2.0)
    answer = read_json_line(connection)
    outcome["to"] = ""
    if not isinstance(answer, dict):
        return False
    connection.settimeout(TALK_TIMEOUT)
    outcome.update(answered_by=answer["name"], back=answer["back"], sent=answer["received"])
    outcome["received"] = read_bulk(connection)
    outcome["ports"] = try_ports(address, answer["ports"])
    return True


class Probe:
    """This node's part: listens from creation on, and greets all peers on request.

    request: node (own name), address, peers ({name: address}), ports (the run's, also tested), probe: token;
    candidates (ephemeral ports, the same on all nodes, of which the first free one is used); lifetime (seconds).
    """

    def __init__(self, request: Mapping[str, Any]) -> None:
        self.request = request
        self.listener = Listener(request["address"], request["probe"]["candidates"], request["ports"])
        self.outcomes: dict[str, Any] = {}
        finished, self.finish = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.setsid()
                with open("/proc/self/comm", "w", encoding="ascii") as stream:  # the child inherits it
                    stream.write(process_name(request["address"]))
                if os.fork() == 0:
                    leave_to_itself({finished, *(one.fileno() for one in self.listener.sockets)})
                    serve(self.listener, request, finished)
            finally:
                os._exit(0)
        os.waitpid(child, 0)  # only this child, not others of the caller
        os.close(finished)
        self.listener.close()
        self.greeter = threading.Thread(target=self.greet_all)
        self.greeter.start()

    def greet_all(self) -> None:
        """Greet all peers, starting after this node in name order, so that not all nodes begin with the same peer."""
        own = self.request["node"]
        names = sorted(self.request["peers"], key=lambda name: (name < own, name))
        waiting = [name for name in reversed(names) if name != own]

        def work() -> None:
            while waiting:
                try:
                    name = waiting.pop()
                except IndexError:  # another thread was faster
                    return
                self.outcomes[name] = greet(self.request["peers"][name], self.listener, self.request)

        workers = [threading.Thread(target=work) for _worker in range(min(GREETERS, len(waiting)))]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        met = [name for name, outcome in self.outcomes.items() if outcome["answered_by"]]
        with os.fdopen(self.finish, "w") as stream:
            stream.writelines(f"{name}\n" for name in met)

    def answer(self) -> dict[str, Any]:
        """Return port and fixed (ports on which this node listens), lifetime, and peers: {name: outcome of greet()}."""
        self.greeter.join()
        return {
            "port": self.listener.port,
            "fixed": self.listener.fixed,
            "lifetime": self.request["probe"]["lifetime"],
            "peers": self.outcomes,
        }


def leave_to_itself(keep: set[int]) -> None:
    """Close everything that our caller waits for, except the descriptors to keep."""
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    for number in range(3, 256):
        if number not in keep:
            with contextlib.suppress(OSError):
                os.close(number)


def process_name(address: str) -> str:
    """Return the process name of the child that listens on an address: 15 characters, the kernel's limit."""
    return f"muster-{zlib.crc32(address.encode()):08x}"


def end_leftover(address: str) -> bool:
    """End an earlier probe's listener on this address whose peers never came; return whether there was one."""
    ended = []
    listener = process_name(address)
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/comm", encoding="utf-8", errors="replace") as stream:
                    # a zombie keeps its name
                    if stream.read().strip() == listener and holds_sockets(name):
                        os.kill(int(name), signal.SIGKILL)
                        ended.append(name)
            except OSError:
                continue
    deadline = time.monotonic() + 1.0
    while any(map(holds_sockets, ended)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return bool(ended)


def holds_sockets(pid: str) -> bool:
    """Whether any thread of a process has not ended; once all have, its sockets are closed, even if it is a zombie.

    An empty list of descriptors proves nothing: the kernel empties the list before it closes them.
    """
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return False
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/stat", encoding="utf-8", errors="replace") as stream:
                state = stream.read().rpartition(")")[2].split()[0]
        except OSError:  # it has ended
            continue
        if state not in ("Z", "X"):
            return True
    return False
