# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Copy a checkpoint's parts from one node of a run to another between two attempts.

Both ends are child processes of supervisors and hold a key derived from the run's token. Each sends a nonce;
after that, each line is preceded by "MAC ", as on the lifeline, and the content of a file is followed by its MAC.
  client: NONCE                       server: NONCE
  client: {"list": true}              server: {"parts": {path: [size, time]}}
  client: {"part": path}              server: {"size"}, the content, its MAC
The server sends regular files of the one checkpoint that it was started for, and soon closes a connection that has not
proved that it has the key. The client writes below the directory of checkpoints, only parts that the nodes agreed on,
and only if the checkpoint is complete with them. A checkpoint that was absent appears there all at once, under its
final name.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import io
import json
import os
import posixpath
import socket
import threading
import time

from ansible_collections.muster.training.plugins.module_utils._checkpoints.agreement import (
    is_copyable,
    is_part,
    select_agreed,
)
from ansible_collections.muster.training.plugins.module_utils._checkpoints.choice import is_of_rank
from ansible_collections.muster.training.plugins.module_utils._checkpoints.find import LATEST, MAX_PARTS, inspect_path
from ansible_collections.muster.training.plugins.module_utils._files.bounded import (
    open_regular,
    parse_json,
    remove_tree,
)
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import Between, conforms
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import (
    COPY_ACCEPT_RETRY_INTERVAL,
    COPY_AUTHENTICATION_TIMEOUT,
    COPY_SILENCE_TIMEOUT,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.lifeline import line_mac

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing would cost each node a few milliseconds
    from collections.abc import Iterator
    from typing import Any, Callable, Dict, Mapping, Sequence, Tuple

    Parts = Dict[str, Tuple[int, float]]  # size and modification time, by path

MAX_LINE = 8 * 2**20  # bytes; a list of MAX_PARTS parts takes less
MAX_FIRST_LINE = 256  # bytes that a client may send before it has proved that it has the key
MAX_CLIENTS = 64
MAX_UNPROVEN = 64  # connections that have not yet proved that they have the key
BLOCK = 2**20  # bytes
MAC_LENGTH = 64  # hex digits
SUFFIX = ".muster.part"  # suffix of incomplete files; files with this suffix are not checkpoints
FREE_SHARE = 0.02  # fraction of a disk that a copy leaves free


class TransferError(Exception):
    """The parts could not be copied; the message explains why."""


def transfer_key(token: str, run_id: str, number: int) -> str:
    """Return the key for the transfers before one attempt; it does not reveal the token."""
    return hmac.new(token.encode(), f"checkpoints|{run_id}|{number}".encode(), hashlib.sha256).hexdigest()


class TimedReader(io.RawIOBase):
    """Reads from a socket: each read must finish within COPY_SILENCE_TIMEOUT and, while `deadline` is set, before
    it.
    """

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self.sock = sock
        self.deadline: float | None = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        remaining = COPY_SILENCE_TIMEOUT if self.deadline is None else self.deadline - time.monotonic()
        if remaining <= 0:
            raise socket.timeout("the other side did not prove in time that it has the key")
        self.sock.settimeout(min(remaining, COPY_SILENCE_TIMEOUT))
        return self.sock.recv_into(buffer)


class Channel:
    """A connection with authenticated lines and files. proven: called with the first line from the other side.

    A client proves that it has the key with its first line, which is short, and a server with the list of its parts.
    """

    def __init__(self, sock: socket.socket, key: str, side: str, proven: Callable[[], None] = lambda: None) -> None:
        is_client = side == "client"
        timeout = COPY_SILENCE_TIMEOUT if is_client else COPY_AUTHENTICATION_TIMEOUT
        sock.settimeout(timeout)
        self.sock, self.proven = sock, proven
        self.source = TimedReader(sock, time.monotonic() + timeout)
        self.reader = io.BufferedReader(self.source)
        self.max_line = MAX_LINE if is_client else MAX_FIRST_LINE
        self.side, self.other_side = side, "server" if is_client else "client"
        own = os.urandom(16).hex()
        self.write(own.encode() + b"\n")
        other = self.reader.readline(128).strip().decode("ascii", "replace")
        nonces = f"{own}|{other}" if side == "client" else f"{other}|{own}"
        self.key = hmac.new(key.encode(), nonces.encode(), hashlib.sha256).hexdigest().encode()
        self.sent = self.received = 0

    def write(self, data: bytes) -> None:
        self.sock.sendall(data)

    def send(self, message: Any) -> None:
        line = json.dumps(message).encode()
        self.write(line_mac(self.key, self.side, self.sent, line) + b" " + line + b"\n")
        self.sent += 1

    def receive(self) -> Any:
        """Return the next message, or None at the end. Raise TransferError if the message is not from the other
        side.
        """
        line = self.reader.readline(self.max_line)
        if not line:
            return None
        mac, _blank, content = line.rstrip(b"\n").partition(b" ")
        if not hmac.compare_digest(mac, line_mac(self.key, self.other_side, self.received, content)):
            raise TransferError("the other node does not have this run's token")
        self.received += 1
        if self.source.deadline is not None:
            self.source.deadline, self.max_line = None, MAX_LINE
            self.sock.settimeout(COPY_SILENCE_TIMEOUT)
            self.proven()
        return parse_json(content.decode("utf-8"))

    def content_mac(self, side: str, path: str, size: int) -> hmac.HMAC:
        """Return an HMAC object for a file's content, which is added later."""
        return hmac.new(self.key, f"{side}|{path}|{size}|".encode(), hashlib.sha256)

    def send_file(self, path: str, stream: Any, size: int) -> None:
        """Send a part's content. Raise TransferError if the file has been truncated."""
        mac = self.content_mac(self.side, path, size)
        self.send({"size": size})
        remaining = size
        while remaining:
            data = stream.read(min(BLOCK, remaining))
            if not data:
                raise TransferError(f"{path} was truncated during the transfer")
            mac.update(data)
            self.write(data)
            remaining -= len(data)
        self.write(mac.hexdigest().encode())

    def receive_file(self, path: str, stream: Any, expected: int) -> None:
        """Write a part's content to a stream. Raise TransferError if it differs from the sender's data."""
        reply = self.receive()
        size = reply.get("size") if isinstance(reply, dict) else None
        if size != expected:
            raise TransferError(f"{path} changed while it was being copied")
        mac, remaining = self.content_mac(self.other_side, path, expected), expected
        while remaining:
            data = self.reader.read(min(BLOCK, remaining))
            if not data:
                raise TransferError("the connection was closed")
            mac.update(data)
            stream.write(data)
            remaining -= len(data)
        if not hmac.compare_digest(self.reader.read(MAC_LENGTH), mac.hexdigest().encode()):
            raise TransferError(f"{path} was modified in transit")


def path_of(target: str, part: str) -> str:
    """Return the path of a checkpoint part."""
    return posixpath.normpath(posixpath.join(target, part)) if part else target


def intact_parts(directory: str, name: str) -> Parts:
    """Return the parts of a checkpoint that are not damaged here, or {} if it does not exist."""
    checkpoint = inspect_path(directory, name)
    parts: Parts = {}
    for part in checkpoint["parts"] if checkpoint is not None else ():
        if checkpoint is not None and part not in checkpoint["damaged"] and is_part(part):
            with contextlib.suppress(OSError):
                status = os.lstat(path_of(checkpoint["path"], part))
                parts[part] = (status.st_size, status.st_mtime)
    return parts


# - the node that has the parts


class Server:
    """Serves the parts of one checkpoint to nodes that hold the key."""

    def __init__(self, directory: str, name: str, key: str) -> None:
        require_copyable(directory, name)
        self.target = os.path.normpath(os.path.join(directory, name))
        self.parts = intact_parts(directory, name)
        self.key = key
        self.lock = threading.Lock()
        self.unproven: list[socket.socket] = []  # connections, the oldest first
        self.clients: set[socket.socket] = set()  # connections that have proved that they have the key

    def listen(self, address: str) -> socket.socket:
        """Return a socket that listens on any free port of this node's address. Raise OSError."""
        listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        listener.bind((address, 0))
        listener.listen(MAX_CLIENTS)
        return listener

    def accept_all(self, listener: socket.socket) -> None:
        """Serve each connection in its own thread, until the process ends."""
        while listener.fileno() >= 0:
            try:
                sock, _address = listener.accept()
            except OSError:  # such as a reset by the other side, or too many descriptors
                time.sleep(COPY_ACCEPT_RETRY_INTERVAL)
                continue
            self.add(sock)
            try:
                threading.Thread(target=self.serve, args=(sock,), daemon=True).start()
            except RuntimeError:  # too many threads
                self.remove(sock)
                sock.close()

    def add(self, sock: socket.socket) -> None:
        """Count a new connection; if there are too many, close the oldest unauthenticated one."""
        with self.lock:
            if len(self.unproven) >= MAX_UNPROVEN:
                with contextlib.suppress(OSError):
                    self.unproven.pop(0).shutdown(socket.SHUT_RDWR)
            self.unproven.append(sock)

    def admit(self, sock: socket.socket) -> None:
        """Count a connection as a client. Raise TransferError if there are too many."""
        with self.lock:
            if sock not in self.unproven or len(self.clients) >= MAX_CLIENTS:
                raise TransferError("too many nodes are copying from this one")
            self.unproven.remove(sock)
            self.clients.add(sock)

    def remove(self, sock: socket.socket) -> None:
        """Stop counting a connection."""
        with self.lock:
            self.clients.discard(sock)
            if sock in self.unproven:
                self.unproven.remove(sock)

    def serve(self, sock: socket.socket) -> None:
        """Reply to the requests on one connection."""
        try:
            with contextlib.suppress(OSError, ValueError, TransferError), sock:
                channel = Channel(sock, self.key, "server", lambda: self.admit(sock))
                request = channel.receive()
                while isinstance(request, dict):
                    if "list" in request:
                        channel.send({"parts": self.parts})
                    else:
                        self.send_part(channel, request.get("part"))
                    request = channel.receive()
        finally:
            self.remove(sock)

    def send_part(self, channel: Channel, part: Any) -> None:
        """Send a part if it was listed; otherwise, send a size that no part can have."""
        if not isinstance(part, str) or part not in self.parts:
            channel.send({"size": -1})
            return
        with open(path_of(self.target, part), "rb", opener=open_regular) as stream:
            channel.send_file(part, stream, os.fstat(stream.fileno()).st_size)


# - the node that lacks the parts


class Source:
    """A node that has parts of the checkpoint."""

    def __init__(self, address: str, port: int, key: str) -> None:
        self.sock = socket.create_connection((address, port), COPY_SILENCE_TIMEOUT)
        self.channel = Channel(self.sock, key, "client")
        self.channel.send({"list": True})
        self.parts = validate_parts(self.channel.receive())

    def close(self) -> None:
        self.sock.close()


def validate_parts(reply: Any) -> Parts:
    """Return the parts that another node lists. Raise TransferError if the reply is invalid."""
    parts = reply.get("parts") if isinstance(reply, dict) else None
    if not isinstance(parts, dict) or len(parts) > MAX_PARTS or not all(map(is_part, parts)):
        raise TransferError("the other node sent an invalid list of files")
    checked: Parts = {}
    for path, value in parts.items():
        size, changed = value if isinstance(value, list) and len(value) == 2 else (None, None)
        if not conforms(size, range(2**50)) or not conforms(changed, Between(0, 1e11)):
            raise TransferError("the other node sent an invalid list of files")
        checked[path] = (int(size or 0), float(changed or 0.0))
    return checked


def require_copyable(directory: str, name: str) -> None:
    """Raise TransferError if the parts of a checkpoint with this name must not be copied."""
    if not is_copyable(name):
        raise TransferError(f"{name} is not inside {directory}")


def require_checkpoint(directory: str, name: str) -> None:
    """Raise TransferError if the target of the copy exists and is neither a checkpoint nor an empty directory."""
    target = os.path.normpath(os.path.join(directory, name))
    with contextlib.suppress(OSError):
        if not os.path.islink(target) and not os.listdir(target):
            return
    if os.path.lexists(target) and inspect_path(directory, name) is None:
        raise TransferError(f"{target} exists and is not a checkpoint")


def fetch(directory: str, name: str, key: str, addresses: Sequence[Sequence[Any]], agreed: Any) -> int:
    """Copy the parts that this node lacks from the nodes that have them; return the parts' size in bytes.

    agreed: the parts that the nodes agreed on, as describe_parts() returns them. Raise TransferError, OSError or
    ValueError.
    """
    require_copyable(directory, name)
    require_checkpoint(directory, name)
    target = os.path.normpath(os.path.join(directory, name))
    stage = os.path.join(directory, posixpath.dirname(name), f".{posixpath.basename(name)}{SUFFIX}")
    sources: list[Source] = []
    try:
        for address, port in addresses:
            sources.append(Source(address, port, key))
        offers = [source.parts for source in sources]
        missing = select_agreed(missing_parts(offers, intact_parts(directory, name)), agreed)
        owners = {part: next(source for source in sources if part in source.parts) for part in missing}
        make_directories(directory, posixpath.dirname(name))
        require_room(directory, sum(size for size, _time in missing.values()))
        with staging(stage):
            copy(stage, missing, {part: source.channel for part, source in owners.items()})
            require_complete(directory, name, {part: staged_path(stage, part) for part in missing})
            publish(stage, target, missing)
    finally:
        for source in sources:
            source.close()
    require_complete(directory, name)
    return sum(size for size, _time in missing.values())


def require_complete(directory: str, name: str, staged: Mapping[str, str] | None = None) -> None:
    """Raise TransferError if a checkpoint is incomplete. staged: paths of the parts that will be moved into it."""
    checkpoint = inspect_path(directory, name, staged)
    if checkpoint is None:
        raise TransferError(f"{name} is not a checkpoint")
    if not checkpoint["complete"]:
        raise TransferError(f"{name} is not complete: {checkpoint['reason']}")
    if LATEST in (staged or ()) and checkpoint["format"] != "deepspeed":
        raise TransferError(f"{name} is not a DeepSpeed checkpoint, but contains DeepSpeed's {LATEST} file")
    if set(staged or ()) > {""} and "" in (staged or ()):
        raise TransferError(f"{name} is both a file and a directory")


def missing_parts(offers: Sequence[Parts], present: Parts) -> Parts:
    """Return the parts that other nodes have and this node lacks, except the random states of their ranks."""
    missing: Parts = {}
    for parts in offers:
        for part, value in parts.items():
            if part not in present and not is_of_rank(part):
                missing.setdefault(part, value)
    return missing


def require_room(directory: str, size: int) -> None:
    """Raise TransferError if the disk does not have enough space for this many bytes."""
    status = os.statvfs(directory)
    free = int((status.f_bavail - FREE_SHARE * status.f_blocks) * status.f_frsize)
    if size > free:
        raise TransferError(
            f"{size / 1e9:.1f} GB are needed in {directory}, but only {max(0, free) / 1e9:.1f} GB are free"
        )


def make_directories(base: str, relative: str) -> None:
    """Create the directories in a relative path below a directory. Raise OSError if one of them is a link or a file."""
    os.makedirs(base, exist_ok=True)
    path = base
    for component in filter(None, relative.split("/")):
        path = os.path.join(path, component)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path)
        if os.path.islink(path) or not os.path.isdir(path):
            raise NotADirectoryError(20, "it is not a directory", path)


@contextlib.contextmanager
def staging(stage: str) -> Iterator[None]:
    """Create an empty directory, and remove it at the end."""
    if os.path.lexists(stage):
        remove_tree(stage)
    os.mkdir(stage, 0o700)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            remove_tree(stage)


def copy(stage: str, parts: Parts, channels: Mapping[str, Channel]) -> None:
    """Copy parts to a directory next to the checkpoint."""
    for part, (size, changed) in parts.items():
        staged = staged_path(stage, part)
        make_directories(stage, posixpath.dirname(posixpath.relpath(staged, stage)))
        channels[part].send({"part": part})
        with open(staged, "xb") as stream:
            channels[part].receive_file(part, stream, size)
            stream.flush()
            os.fsync(stream.fileno())
        os.utime(staged, (changed, changed))


def staged_path(stage: str, part: str) -> str:
    """Return a part's temporary path, which is used until all parts have arrived."""
    if part == LATEST:
        return os.path.join(stage, "latest")
    name = os.path.basename(stage)[1 : -len(SUFFIX)]  # the file's suffix determines how it is read
    return os.path.join(stage, "files", part) if part else os.path.join(stage, "file", name)


def publish(stage: str, target: str, parts: Parts) -> None:
    """Move parts to their final names: all at once for a new checkpoint, with DeepSpeed's `latest` last."""
    files = os.path.join(stage, "files")
    if "" in parts:
        os.replace(staged_path(stage, ""), target)
    elif not os.path.lexists(target):
        if os.path.isdir(files):
            os.chmod(files, 0o777 & ~current_umask())
            os.rename(files, target)
    else:
        for part in parts:
            if part != LATEST:
                make_directories(target, posixpath.dirname(part))
                os.replace(staged_path(stage, part), os.path.join(target, part))
    if LATEST in parts:
        os.replace(staged_path(stage, LATEST), path_of(target, LATEST))


def current_umask() -> int:
    """Return the process's umask."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
