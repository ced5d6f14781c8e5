# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Connect each node with every other over TCP, both ways, with full-size packets. Private to this collection.

Runs on the node, standard library only, Python >= 3.8. Every node makes one Probe, at about the same time or one after
the other: a node first listens, then greets all peers. A peer that does not listen yet refuses at once, and will greet
this node when its turn comes, so each pair meets whoever is later. The one greeted connects back to the greeter's
ports, so one meeting proves both directions. A child process keeps listening until every peer has connected.

Full-size packets, with "do not fragment" set as TCP always does, prove the MTU of the path: if a switch or tunnel in
between silently takes less, connections open and then stall.
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

CONNECT_TIMEOUT = 3.0  # seconds; the kernel repeats an unanswered SYN after 1 s
TALK_TIMEOUT = 3.0  # seconds without a byte in an open connection
BULK = 65536  # bytes each way, more than seven packets of 9000 bytes
GREETING_LIMIT = 4096  # bytes
MOST_TALKS = 128  # connections that are served at a time
GREETERS = 32  # peers that are greeted at a time


def connect_all(targets: list[tuple[str, int]], timeout: float) -> dict[tuple[str, int], socket.socket | str]:
    """Connect to all (address, port) at once; return an open connection or, as text, why there is none."""
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
    """Return {port: ""} for those ports to which a connection opens, else why not."""
    outcome = {}
    for (_address, port), result in connect_all([(address, port) for port in ports], CONNECT_TIMEOUT).items():
        if isinstance(result, str):
            outcome[str(port)] = result
        else:
            outcome[str(port)] = ""
            result.close()
    return outcome


def read_json_line(connection: socket.socket) -> Any:
    """Return the object in the first line that comes, None if what comes is none."""
    line = b""
    while not line.endswith(b"\n"):
        there = connection.recv(GREETING_LIMIT, socket.MSG_PEEK)  # the bulk follows: only the line is taken
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
    """Return how many of the BULK bytes come before the sender falls silent."""
    received = 0
    try:
        while received < BULK:
            data = connection.recv(BULK - received)
            if not data:
                break
            received += len(data)
    except OSError:  # a timeout is one
        pass
    return received


class Listener:
    """This node's listening ports: one ephemeral, and those of the run that are free."""

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
        """Listen no more."""
        for listener in self.sockets:
            listener.close()


def serve(listener: Listener, request: Mapping[str, Any], done: int) -> None:
    """Answer peers until each pair has met and our own round is over, or time is up.

    `done`: a pipe that carries the names of the peers that our own round has met, a line each, and then ends. A peer
    that came before us has already greeted us, without success: it does not come again.
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
                with contextlib.suppress(OSError):  # no room for packets that nobody acknowledges
                    connection.sendall(bytes(BULK))
                    connection.settimeout(TALK_TIMEOUT + CONNECT_TIMEOUT)
                    connection.recv(1)  # the peer closes when it is through with our ports
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
    """Meet one peer. Return

    to: "" or why no connection to its ephemeral port opens ("Connection refused" also where it does not listen yet);
    back: {port: "" or why} of the peer's connections to us; ports: {port: "" or why} of ours to its fixed ports;
    sent, received: bytes of full packets that came through each way, None if there was no talk;
    answered_by: the name that the other end gives itself.
    """
    outcome: dict[str, Any] = {"to": "", "back": {}, "ports": {}, "sent": None, "received": None, "answered_by": None}
    opened = False
    for port in request["probe"]["candidates"]:
        result = connect_all([(address, port)], CONNECT_TIMEOUT)[(address, port)]
        if isinstance(result, str):
            outcome["to"] = "" if opened else result
            if result == os.strerror(errno.ECONNREFUSED):  # perhaps taken there by another program: the next is meant
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
    """Greet whoever answers on a connection and record the result; False if it is none of ours."""
    own_ports = ([listener.port] if listener.port else []) + listener.fixed
    greeting = {"token": request["probe"]["token"], "name": request["node"], "ports": own_ports}
    write_json_line(connection, greeting)
    with contextlib.suppress(OSError):  # no room for packets that nobody acknowledges
        connection.sendall(bytes(BULK))
    # the other end may wait for our bulk, and then for a port of ours
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
    """This node's part: it listens from the moment this is made, and greets all peers when asked to.

    request: node (own name), address, peers ({name: address}), ports (of the run, to try as well), probe: token;
    candidates (ephemeral ports, the same on all nodes, of which the first free one is taken); lifetime (seconds).
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
                with open("/proc/self/comm", "w", encoding="ascii") as stream:  # its child has it from birth
                    stream.write(process_name(request["address"]))
                if os.fork() == 0:
                    leave_to_itself({finished, *(one.fileno() for one in self.listener.sockets)})
                    serve(self.listener, request, finished)
            finally:
                os._exit(0)
        os.waitpid(child, 0)  # and no other child of whoever calls
        os.close(finished)
        self.listener.close()
        self.greeter = threading.Thread(target=self.greet_all)
        self.greeter.start()

    def greet_all(self) -> None:
        """Greet all peers, those that follow in the order of names first: else all nodes would begin with one."""
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
    """Let go of everything that our caller waits for, but the descriptors to keep."""
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    for number in range(3, 256):
        if number not in keep:
            with contextlib.suppress(OSError):
                os.close(number)


def process_name(address: str) -> str:
    """Return the name under which the child that listens on an address runs: 15 characters, all the kernel keeps."""
    return f"muster-{zlib.crc32(address.encode()):08x}"


def end_leftover(address: str) -> bool:
    """End the listener of an earlier probe of this address whose peers never came; return whether there was one."""
    ended = []
    listener = process_name(address)
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/comm", encoding="utf-8", errors="replace") as stream:
                    # one that has ended and that nobody has reaped keeps its name
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
    """Whether a thread of a process has not ended: reaped or not, what has ended has let go of its sockets.

    An empty list of descriptors would not say so: the kernel empties it before it closes them.
    """
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return False
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/stat", encoding="utf-8", errors="replace") as stream:
                state = stream.read().rpartition(")")[2].split()[0]
        except OSError:  # it went meanwhile
            continue
        if state not in ("Z", "X"):
            return True
    return False
