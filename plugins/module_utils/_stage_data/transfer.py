# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One node's part in a transfer: its files and pieces, and how it gets the rest."""

from __future__ import annotations

import bisect
import concurrent.futures
import contextlib
import errno
import hashlib
import io
import json
import os
import shutil
import threading
import time
from typing import Any, BinaryIO, Callable

from ansible_collections.muster.training.plugins.module_utils._detached.result_line import StepError
from ansible_collections.muster.training.plugins.module_utils._files.content import CHUNK, compute_sha256, format_size
from ansible_collections.muster.training.plugins.module_utils._stage_data.peers import LONG_POLL, PeerReply, Peers
from ansible_collections.muster.training.plugins.module_utils._stage_data.pieces import (
    PIECE_SIZE,
    STAGE_DIRECTORY,
    FileEntry,
    FilePiece,
    parse_plan,
    split_into_pieces,
)

SOURCE_THREADS = 8
PEER_THREADS = 8


def write_all(file: io.FileIO, content: bytes | memoryview) -> None:
    """Write all content, since a nearly full disk may accept a part at first and fail later. Raise OSError."""
    view = memoryview(content)
    while view:
        view = view[file.write(view) :]


class NodeTransfer:
    """One node's part in a transfer."""

    full_remedy = "Free some space, and run this again: the transfer resumes"

    def __init__(self, request: dict[str, Any], source: Any) -> None:
        self.request = request
        self.root = request["destination"]
        self.state_directory = os.path.join(self.root, STAGE_DIRECTORY)
        self.rank = request["me"]
        self.source = source
        self.peers = Peers(request, self.source.name)
        self.entries: list[FileEntry] = []
        self.pieces: list[FilePiece] = []
        self.first_pieces: list[int] = []  # number of the first piece of each entry
        self.plan = b""
        self.local_pieces: set[int] = set()  # pieces on this node
        self.missing_counts: dict[int, int] = {}  # number of missing pieces of each incomplete entry
        self.complete: set[int] = set()  # indexes of entries that are complete and already have their final names
        self.index: dict[str, list[Any]] = {}
        self.changed = threading.Condition()
        self.from_source = self.from_peers = self.by_size = self.fetched = 0
        self.finished_nodes: set[int] = set()  # nodes that need no more pieces
        self.failure = ""
        self.started = time.monotonic()
        self.piece_digests: dict[int, str] = {}  # SHA-256 digests of pieces served to peers

    def assign_pieces(self) -> list[FilePiece]:
        """Return all pieces, each with the node that reads it from the source."""
        return split_into_pieces(self.entries, len(self.peers.nodes))

    # - local files

    def target(self, file_index: int) -> str:
        """Return a complete file's path."""
        return os.path.join(self.root, self.entries[file_index].path)

    def part_path(self, file_index: int) -> str:
        """Return a file's path before it is complete."""
        entry = self.entries[file_index]
        return os.path.join(
            self.state_directory, hashlib.sha256(f"{entry.key}\0{entry.checksum}".encode()).hexdigest()[:32] + ".part"
        )

    def read_index(self) -> None:
        """Read which files earlier calls have verified, by path: size, modification time, checksum."""
        with contextlib.suppress(OSError), open(
            os.path.join(self.state_directory, "index.jsonl"), encoding="utf-8"
        ) as stream:
            for line in stream:
                with contextlib.suppress(ValueError):  # a truncated line
                    path, *values = json.loads(line)
                    self.index[path] = values

    def record_complete(self, file_index: int) -> None:
        """Record that a file is complete."""
        status = os.stat(self.target(file_index))
        entry = self.entries[file_index]
        with open(os.path.join(self.state_directory, "index.jsonl"), "a", encoding="utf-8") as stream:
            stream.write(json.dumps([entry.path, entry.size, status.st_mtime_ns, entry.checksum]) + "\n")

    def matches_content(self, file_index: int, path: str) -> bool:
        """Return whether a file has the expected content."""
        entry = self.entries[file_index]
        if os.path.getsize(path) != entry.size:
            return False
        if entry.sha256:
            return compute_sha256(path) == entry.sha256
        matches = self.source.matches_content(entry, path)
        self.by_size += matches is None
        return matches is not False

    def is_present(self, file_index: int) -> bool:
        """Return whether a file already exists, from an earlier call or another source."""
        entry = self.entries[file_index]
        if entry.link:
            return os.path.islink(self.target(file_index)) and os.readlink(self.target(file_index)) == entry.link
        try:
            status = os.stat(self.target(file_index))
        except OSError:
            return False
        if self.index.get(entry.path) == [entry.size, status.st_mtime_ns, entry.checksum]:
            return True
        if not self.matches_content(file_index, self.target(file_index)):
            return False
        self.record_complete(file_index)
        return True

    def scan_local(self) -> None:
        """Find which files and pieces are present, and check the disk space for the rest. Raise StepError."""
        self.read_index()
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            present = list(pool.map(self.is_present, range(len(self.entries))))
        known_pieces: dict[str, set[int]] = {}
        with contextlib.suppress(OSError), open(
            os.path.join(self.state_directory, "pieces"), encoding="ascii"
        ) as stream:
            for line in stream:
                name, _space, start = line.rstrip("\n").partition(" ")
                if start.isdigit() and line.endswith("\n"):
                    known_pieces.setdefault(name, set()).add(int(start))
        self.first_pieces = [bisect.bisect_left(self.pieces, (index,)) for index in range(len(self.entries))]
        missing = 0
        with self.changed:
            for index, entry in enumerate(self.entries):
                last = self.first_pieces[index + 1] if index + 1 < len(self.entries) else len(self.pieces)
                piece_numbers = range(self.first_pieces[index], last)
                if present[index]:
                    self.complete.add(index)
                    self.local_pieces.update(piece_numbers)
                    continue
                part = self.part_path(index)
                known_starts = known_pieces.get(os.path.basename(part), set()) if os.path.exists(part) else set()
                received = [piece for piece in piece_numbers if self.pieces[piece].start in known_starts]
                self.local_pieces.update(received)
                self.missing_counts[index] = len(piece_numbers) - len(received)
                missing += entry.size - sum(self.pieces[piece].length for piece in received)
            self.changed.notify_all()
        free = shutil.disk_usage(self.root).free
        if missing and free < missing + self.request["reserve_gib"] * 2**30:
            raise StepError(
                f"{self.root} has {format_size(free)} free, but needs {format_size(missing)} plus a reserve of "
                f"{self.request['reserve_gib']:g} GiB. Free some space, or choose a larger disk"
            )

    # - pieces

    def write_piece(self, number: int, body: bytes, counter: str) -> None:
        """Write a piece from the source into its file. Raise OSError."""
        piece = self.pieces[number]
        with self.open_part(piece.file_index) as part:
            part.seek(piece.start)
            write_all(part, body)
        self.record_piece(number, counter)

    def receive_piece(self, peer: int, number: int) -> bool:
        """Write a piece from a peer into its file; return whether it arrived completely. Raise StepError."""
        piece = self.pieces[number]
        with self.open_part(piece.file_index) as part:
            part.seek(piece.start)
            remaining = piece.length

            def write_chunk(chunk: memoryview) -> None:
                nonlocal remaining
                remaining -= len(chunk)
                if remaining < 0:
                    return  # it would overwrite the next piece
                try:
                    write_all(part, chunk)
                except OSError as error:  # a local disk error, not a connection error
                    raise self.write_error(error) from None

            digest = self.peers.receive(peer, f"/piece/{number}", write_chunk)
        if not digest:
            return False
        if remaining:
            self.peers.reject(peer, f"piece {number} has an unexpected length")
            return False
        self.piece_digests[number] = digest
        self.record_piece(number, "from_peers")
        return True

    def receive_from_peer(self, peer: int, number: int) -> bool:
        """Request a piece from a peer until it arrives, the peer is unavailable, or this transfer fails.

        Return whether it arrived.
        """
        while not self.failure and not self.peers.unavailable[peer]:
            if self.receive_piece(peer, number):
                return True
        return False

    def open_part(self, file_index: int) -> io.FileIO:
        """Open an incomplete file for writing."""
        return io.FileIO(os.open(self.part_path(file_index), os.O_RDWR | os.O_CREAT, 0o644), "r+")

    def write_error(self, error: OSError) -> StepError:
        """Return the error for a disk that cannot be written to."""
        directory = self.request["destination"]
        if error.errno == errno.ENOSPC:
            return StepError(f"{directory} is full. {self.full_remedy}")
        return StepError(f"{error.filename or directory}: {error.strerror or error}")

    def record_piece(self, number: int, counter: str) -> None:
        """Record that a piece has arrived; after a file's last piece, rename it to its final name."""
        piece = self.pieces[number]
        with open(os.path.join(self.state_directory, "pieces"), "a", encoding="ascii") as stream:
            stream.write(f"{os.path.basename(self.part_path(piece.file_index))} {piece.start}\n")
        with self.changed:
            setattr(self, counter, getattr(self, counter) + piece.length)
            self.local_pieces.add(number)
            self.missing_counts[piece.file_index] -= 1
            complete = not self.missing_counts[piece.file_index]
            self.changed.notify_all()
        if complete:
            self.finish_file(piece.file_index)

    def finish_file(self, file_index: int) -> None:
        """Rename a file to its final name; if its content is wrong, first read it from the source again. Raise
        StepError.
        """
        entry, part, target = self.entries[file_index], self.part_path(file_index), self.target(file_index)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if entry.link:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(part)
            os.symlink(entry.link, part)
            os.replace(part, target)
        else:
            if not entry.size:
                open(part, "wb").close()
            if not self.matches_content(file_index, part):
                self.refetch(file_index)
            os.replace(part, target)
            self.record_complete(file_index)
        with self.changed:
            self.complete.add(file_index)
            self.fetched += 1

    def refetch(self, file_index: int) -> None:
        """Read a corrupt file completely from the source, and verify it again. Raise StepError."""
        entry, part = self.entries[file_index], self.part_path(file_index)
        with open(part, "wb") as stream:
            for start in range(0, entry.size, PIECE_SIZE):
                stream.write(self.source.read(self, entry, start, min(PIECE_SIZE, entry.size - start)))
        if not self.matches_content(file_index, part):
            os.unlink(part)
            raise StepError(self.source.corrupt_message(entry))

    def piece_number(self, entry: FileEntry, start: int) -> int:
        """Return the number of the piece that begins at byte `start` of a file."""
        return self.first_pieces[bisect.bisect_left(self.entries, entry)] + start // PIECE_SIZE

    def fetch_from_source(self, number: int) -> None:
        """Read a piece from the source."""
        if not self.failure:
            piece = self.pieces[number]
            body = self.source.read(self, self.entries[piece.file_index], piece.start, piece.length)
            self.write_piece(number, body, "from_source")

    def fetch_from_owner(self, number: int) -> None:
        """Read a piece from the node that owns it, or from the source if that node is unavailable."""
        if not self.receive_from_peer(self.pieces[number].owner, number):
            self.fetch_from_source(number)

    # - peers

    def handle_request(self, path: str) -> PeerReply:
        """Return the reply to a peer's request."""
        parts = path.strip("/").split("/")
        if self.failure:
            return PeerReply(410)
        if parts[0] == "done":
            self.finished_nodes.add(int(parts[1]))
            return PeerReply(200, b"well")
        deadline = time.monotonic() + LONG_POLL
        is_ready: Callable[[], bool] = (
            (lambda: bool(self.plan)) if parts[0] == "plan" else (lambda: int(parts[1]) in self.local_pieces)
        )
        with self.changed:
            while not is_ready():
                if self.failure or not self.changed.wait(deadline - time.monotonic()):
                    return PeerReply(404)
        return PeerReply(200, self.plan) if parts[0] == "plan" else self.piece_reply(int(parts[1]))

    def piece_reply(self, number: int) -> PeerReply:
        """Return a reply that contains a local piece."""
        piece = self.pieces[number]
        for path in (self.part_path(piece.file_index), self.target(piece.file_index), self.part_path(piece.file_index)):
            with contextlib.suppress(OSError):  # the file may be in the process of being renamed
                file = open(path, "rb")  # noqa: SIM115  closed after it was sent
                return PeerReply(200, b"", file, piece.start, piece.length, self.piece_digest(number, file))
        return PeerReply(404)

    def piece_digest(self, number: int, file: BinaryIO) -> str:
        """Return the SHA-256 of a piece, computed once; it is already cached if the piece came from a peer."""
        if number not in self.piece_digests:
            digest, remaining = hashlib.sha256(), self.pieces[number].length
            file.seek(self.pieces[number].start)
            while remaining:
                chunk = file.read(min(CHUNK, remaining))
                if not chunk:
                    raise OSError(errno.EIO, "file is too short", file.name)
                digest.update(chunk)
                remaining -= len(chunk)
            self.piece_digests[number] = digest.hexdigest()
        return self.piece_digests[number]

    # - all steps

    def make_plan(self) -> None:
        """List the files to copy: the first node reads the source, the others query the first node."""
        while self.rank and not self.peers.unavailable[0]:
            plan = self.peers.query(0, "/plan")
            if plan is not None:
                self.entries = parse_plan(plan)
                break
        else:
            self.entries = self.source.list_entries(self)
        self.pieces = self.assign_pieces()

    def write_status(self, **extra: Any) -> None:
        """Write the progress to a file."""
        size = sum(entry.size for entry in self.entries)
        status = {
            "pid": os.getpid(),
            "files": len(self.entries),
            "bytes": size,
            "whole": len(self.complete),
            "source": self.source.name,
            "from_source": self.from_source,
            "from_peers": self.from_peers,
            "seconds": round(time.monotonic() - self.started, 1),
            **extra,
        }
        path = os.path.join(self.state_directory, "status.json")
        with open(path + ".new", "w", encoding="utf-8") as stream:
            json.dump(status, stream)
        os.replace(path + ".new", path)

    def fetch_all(self) -> None:
        """Fetch everything that is missing. Raise StepError."""
        self.write_status()
        self.make_plan()
        self.scan_local()
        self.plan = json.dumps(self.entries).encode()
        with self.changed:
            self.changed.notify_all()
        for index in [
            index for index, count in self.missing_counts.items() if not count and not self.entries[index].link
        ]:
            self.finish_file(index)
        missing = [number for number in range(len(self.pieces)) if number not in self.local_pieces]
        is_local = self.source.is_local(self.rank)
        source_pieces = [number for number in missing if is_local or self.pieces[number].owner == self.rank]
        peer_pieces = [number for number in missing if not is_local and self.pieces[number].owner != self.rank]
        # Nodes start with different peers, and request pieces from each peer in the order in which that peer reads
        # them.
        position: dict[int, int] = {}
        queue = []
        for number in peer_pieces:
            owner = self.pieces[number].owner
            position[owner] = position.get(owner, 0) + 1
            queue.append((position[owner], (owner - self.rank) % len(self.peers.nodes), number))
        with concurrent.futures.ThreadPoolExecutor(
            SOURCE_THREADS
        ) as from_source, concurrent.futures.ThreadPoolExecutor(PEER_THREADS) as from_peers:
            running = {from_source.submit(self.fetch_from_source, number) for number in source_pieces}
            running |= {from_peers.submit(self.fetch_from_owner, number) for _position, _owner, number in sorted(queue)}
            try:
                while running:
                    completed, running = concurrent.futures.wait(
                        running, timeout=1, return_when=concurrent.futures.FIRST_COMPLETED
                    )
                    for future in completed:
                        future.result()
                    self.write_status()
            except BaseException as error:
                self.failure = str(error) or type(error).__name__
                for future in running:
                    future.cancel()
                raise
        # Links come last, once their targets exist.
        for index in [index for index in self.missing_counts if self.entries[index].link]:
            self.finish_file(index)
        self.write_status()

    def serve_peers(self) -> None:
        """Tell the peers that this node is complete, and serve them until they are complete, too."""
        other_nodes = self.peers.other_nodes
        with concurrent.futures.ThreadPoolExecutor(16) as pool:

            def report(peer: int) -> None:
                while not self.peers.unavailable[peer] and self.peers.query(peer, f"/done/{self.rank}") is None:
                    pass

            list(pool.map(report, other_nodes))
        while any(not self.peers.unavailable[peer] and peer not in self.finished_nodes for peer in other_nodes):
            time.sleep(0.2)
            for peer in other_nodes:
                if peer not in self.finished_nodes and not self.peers.unavailable[peer]:
                    self.peers.query(peer, f"/done/{self.rank}")


def remove_temporary_files(directory: str) -> None:
    """Remove the files left by an incomplete transfer."""
    for name in os.listdir(directory):
        if name.endswith(".part") or name == "pieces":
            os.unlink(os.path.join(directory, name))
