"""The role stage_data's work on a node: copy files to the local disk, each read from its source once for all nodes.

    stage.py start REQUEST      start in the background, unless already running
    stage.py follow REQUEST     show the progress until it ends

The first node lists the wanted files, which are cut into pieces. Each node gets an equal share of the bytes from the
source (from_s3.py: a bucket; from_node.py: a directory on the first node), and the rest from the nodes that have it
(peers.py). If a node is gone, its share also comes from the source. A file appears under its name once it is complete
and its checksum is right. Existing files are kept; an interrupted call is resumed.
"""

from __future__ import annotations

import bisect
import concurrent.futures
import contextlib
import errno
import fcntl
import hashlib
import io
import json
import os
import shutil
import sys
import threading
import time
from typing import Any, BinaryIO, Callable

from peers import LONG_POLL, Answer, Peers
from transfer import CHUNK, Fault, in_words, sha256_of
from wanted import OWN, PIECE, Entry, Piece, cut, read_plan

MARK = "MUSTER-RESULT "
SOURCE_THREADS = 8
PEER_THREADS = 8


def source_of(request: dict[str, Any]) -> Any:
    """Where the files come from."""
    if request["path"]:
        from from_node import Directory

        return Directory(request)
    from from_s3 import Bucket

    return Bucket(request, 4 * SOURCE_THREADS)


def write_all(file: io.FileIO, content: bytes | memoryview) -> None:
    """Write all content: a nearly full disk first accepts a part, and fails later. Raises OSError."""
    view = memoryview(content)
    while view:
        view = view[file.write(view) :]


# --- Bringing it ------------------------------------------------------------------------------------------------------


class Stage:
    """One call on one node."""

    full_remedy = "Make room, and run this again: it resumes where it stopped"

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request
        self.root = request["destination"]
        self.own = os.path.join(self.root, OWN)
        self.me = request["me"]
        self.source = self.where_from()
        self.peers = Peers(request, self.source.name)
        self.entries: list[Entry] = []
        self.pieces: list[Piece] = []
        self.first: list[int] = []  # number of the first piece of each entry
        self.plan = b""
        self.pieces_here: set[int] = set()  # pieces on this node
        self.left: dict[int, int] = {}  # number of missing pieces of each entry
        self.whole: set[int] = set()  # entries that are complete, under their names
        self.index: dict[str, list[Any]] = {}
        self.changed = threading.Condition()
        self.from_source = self.from_peers = self.by_size = self.fetched = 0
        self.done: set[int] = set()  # nodes that need nothing more
        self.failed = ""
        self.began = time.monotonic()
        self.digests: dict[int, str] = {}  # SHA-256 of pieces served to peers

    # - where it comes from

    def where_from(self) -> Any:
        """Where the files come from."""
        return source_of(self.request)

    def share(self) -> list[Piece]:
        """All pieces, each with the node that reads it from the source."""
        return cut(self.entries, len(self.peers.nodes))

    # - what lies here

    def target(self, entry: int) -> str:
        """The path of a complete file."""
        return os.path.join(self.root, self.entries[entry].path)

    def part_path(self, entry: int) -> str:
        """The path of a file until it is complete."""
        one = self.entries[entry]
        return os.path.join(self.own, hashlib.sha256(f"{one.key}\0{one.tag}".encode()).hexdigest()[:32] + ".part")

    def read_index(self) -> None:
        """Read what earlier calls have verified, by path: size, modification time, tag."""
        with contextlib.suppress(OSError), open(os.path.join(self.own, "index.jsonl"), encoding="utf-8") as stream:
            for line in stream:
                with contextlib.suppress(ValueError):  # a truncated line
                    path, *rest = json.loads(line)
                    self.index[path] = rest

    def record(self, entry: int) -> None:
        """Record that a file is complete."""
        found = os.stat(self.target(entry))
        one = self.entries[entry]
        with open(os.path.join(self.own, "index.jsonl"), "a", encoding="utf-8") as stream:
            stream.write(json.dumps([one.path, one.size, found.st_mtime_ns, one.tag]) + "\n")

    def is_right(self, entry: int, path: str) -> bool:
        """Whether a file has the wanted content."""
        one = self.entries[entry]
        if os.path.getsize(path) != one.size:
            return False
        if one.sha256:
            return sha256_of(path) == one.sha256
        same = self.source.is_right(one, path)
        self.by_size += same is None
        return same is not False

    def is_there(self, entry: int) -> bool:
        """Whether a file already exists, from an earlier call or from elsewhere."""
        one = self.entries[entry]
        if one.link:
            return os.path.islink(self.target(entry)) and os.readlink(self.target(entry)) == one.link
        try:
            found = os.stat(self.target(entry))
        except OSError:
            return False
        if self.index.get(one.path) == [one.size, found.st_mtime_ns, one.tag]:
            return True
        if not self.is_right(entry, self.target(entry)):
            return False
        self.record(entry)
        return True

    def scan_local(self) -> None:
        """Find what exists here, and check the disk space for the rest. Raises Fault."""
        self.read_index()
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            there = list(pool.map(self.is_there, range(len(self.entries))))
        halves: dict[str, set[int]] = {}
        with contextlib.suppress(OSError), open(os.path.join(self.own, "pieces"), encoding="ascii") as stream:
            for line in stream:
                name, _space, start = line.rstrip("\n").partition(" ")
                if start.isdigit() and line.endswith("\n"):
                    halves.setdefault(name, set()).add(int(start))
        self.first = [bisect.bisect_left(self.pieces, (number,)) for number in range(len(self.entries))]
        missing = 0
        with self.changed:
            for number, one in enumerate(self.entries):
                last = self.first[number + 1] if number + 1 < len(self.entries) else len(self.pieces)
                numbers = range(self.first[number], last)
                if there[number]:
                    self.whole.add(number)
                    self.pieces_here.update(numbers)
                    continue
                part = self.part_path(number)
                known = halves.get(os.path.basename(part), set()) if os.path.exists(part) else set()
                old = [piece for piece in numbers if self.pieces[piece].start in known]
                self.pieces_here.update(old)
                self.left[number] = len(numbers) - len(old)
                missing += one.size - sum(self.pieces[piece].length for piece in old)
            self.changed.notify_all()
        free = shutil.disk_usage(self.root).free
        if missing and free < missing + self.request["reserve_gib"] * 2**30:
            raise Fault(
                f"{self.root} has {in_words(free)} free. Needed: {in_words(missing)} and a reserve of "
                f"{self.request['reserve_gib']:g} GiB. Make room, or choose a larger disk"
            )

    # - pieces

    def write(self, number: int, body: bytes, counted: str) -> None:
        """Write a piece from the source into its file. Raises OSError."""
        piece = self.pieces[number]
        with self.open_part(piece.entry) as part:
            part.seek(piece.start)
            write_all(part, body)
        self.arrived(number, counted)

    def receive(self, peer: int, number: int) -> bool:
        """Write a piece from a peer into its file; return whether it arrived completely. Raises Fault."""
        piece = self.pieces[number]
        with self.open_part(piece.entry) as part:
            part.seek(piece.start)
            left = piece.length

            def take(chunk: memoryview) -> None:
                nonlocal left
                left -= len(chunk)
                if left < 0:
                    return  # it would overwrite the next piece
                try:
                    write_all(part, chunk)
                except OSError as error:  # an error of this disk, not of the connection
                    raise self.not_written(error) from None

            digest = self.peers.receive(peer, f"/piece/{number}", take)
        if not digest:
            return False
        if left:
            self.peers.discard(peer, f"piece {number} has another length than its file tells")
            return False
        self.digests[number] = digest
        self.arrived(number, "from_peers")
        return True

    def receive_while_there(self, peer: int, number: int) -> bool:
        """Ask a peer for a piece until it arrives, the peer is gone, or this call fails; return whether it arrived."""
        while not self.failed and not self.peers.gone[peer]:
            if self.receive(peer, number):
                return True
        return False

    def open_part(self, entry: int) -> io.FileIO:
        """Open an incomplete file for writing."""
        return io.FileIO(os.open(self.part_path(entry), os.O_RDWR | os.O_CREAT, 0o644), "r+")

    def not_written(self, error: OSError) -> Fault:
        """The fault if the disk cannot be written."""
        where = self.request["destination"]
        if error.errno == errno.ENOSPC:
            return Fault(f"{where} is full. {self.full_remedy}")
        return Fault(f"{error.filename or where}: {error.strerror or error}")

    def arrived(self, number: int, counted: str) -> None:
        """Record that a piece has arrived; after the last one, give the file its name."""
        piece = self.pieces[number]
        with open(os.path.join(self.own, "pieces"), "a", encoding="ascii") as stream:
            stream.write(f"{os.path.basename(self.part_path(piece.entry))} {piece.start}\n")
        with self.changed:
            setattr(self, counted, getattr(self, counted) + piece.length)
            self.pieces_here.add(number)
            self.left[piece.entry] -= 1
            complete = not self.left[piece.entry]
            self.changed.notify_all()
        if complete:
            self.finish(piece.entry)

    def finish(self, entry: int) -> None:
        """Give a file its name if its content is right; otherwise get it from the source again first. Raises Fault."""
        one, part, target = self.entries[entry], self.part_path(entry), self.target(entry)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if one.link:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(part)
            os.symlink(one.link, part)
            os.replace(part, target)
        else:
            if not one.size:
                open(part, "wb").close()
            if not self.is_right(entry, part):
                self.refetch(entry)
            os.replace(part, target)
            self.record(entry)
        with self.changed:
            self.whole.add(entry)
            self.fetched += 1

    def refetch(self, entry: int) -> None:
        """Read a whole wrong file from the source itself, and check it again. Raises Fault."""
        one, part = self.entries[entry], self.part_path(entry)
        with open(part, "wb") as stream:
            for start in range(0, one.size, PIECE):
                stream.write(self.source.get(self, one, start, min(PIECE, one.size - start)))
        if not self.is_right(entry, part):
            os.unlink(part)
            raise Fault(self.source.corrupt(one))

    def number_of(self, one: Entry, start: int) -> int:
        """The number of a file's piece that begins at `start`."""
        return self.first[bisect.bisect_left(self.entries, one)] + start // PIECE

    def fetch_own(self, number: int) -> None:
        """Get a piece from the source."""
        if not self.failed:
            piece = self.pieces[number]
            body = self.source.get(self, self.entries[piece.entry], piece.start, piece.length)
            self.write(number, body, "from_source")

    def fetch_peers(self, number: int) -> None:
        """Get a piece from the node whose share it is, or from the source if that node is gone."""
        if not self.receive_while_there(self.pieces[number].owner, number):
            self.fetch_own(number)

    # - peers

    def answer(self, path: str) -> Answer:
        """The answer to a peer."""
        words = path.strip("/").split("/")
        if self.failed:
            return Answer(410)
        if words[0] == "done":
            self.done.add(int(words[1]))
            return Answer(200, b"well")
        deadline = time.monotonic() + LONG_POLL
        ready: Callable[[], bool] = (
            (lambda: bool(self.plan)) if words[0] == "plan" else (lambda: int(words[1]) in self.pieces_here)
        )
        with self.changed:
            while not ready():
                if self.failed or not self.changed.wait(deadline - time.monotonic()):
                    return Answer(404)
        return Answer(200, self.plan) if words[0] == "plan" else self.piece_answer(int(words[1]))

    def piece_answer(self, number: int) -> Answer:
        """The answer with a piece that is here."""
        piece = self.pieces[number]
        for path in (self.part_path(piece.entry), self.target(piece.entry), self.part_path(piece.entry)):
            with contextlib.suppress(OSError):  # the file may just be getting its name
                file = open(path, "rb")  # noqa: SIM115  it is closed when it was sent
                return Answer(200, b"", file, piece.start, piece.length, self.digest_of(number, file))
        return Answer(404)

    def digest_of(self, number: int, file: BinaryIO) -> str:
        """The SHA-256 of a piece, computed only once; known already if the piece came from a peer."""
        if number not in self.digests:
            digest, left = hashlib.sha256(), self.pieces[number].length
            file.seek(self.pieces[number].start)
            while left:
                chunk = file.read(min(CHUNK, left))
                if not chunk:
                    raise OSError(errno.EIO, "shorter than it was", file.name)
                digest.update(chunk)
                left -= len(chunk)
            self.digests[number] = digest.hexdigest()
        return self.digests[number]

    # - the whole

    def make_plan(self) -> None:
        """List the wanted files: the first node asks the source, the others ask the first node."""
        while self.me and not self.peers.gone[0]:
            told = self.peers.ask(0, "/plan")
            if told is not None:
                self.entries = read_plan(told)
                break
        else:
            self.entries = self.source.find(self)
        self.pieces = self.share()

    def write_status(self, **more: Any) -> None:
        """Write the progress to a file."""
        size = sum(one.size for one in self.entries)
        status = {
            "pid": os.getpid(),
            "files": len(self.entries),
            "bytes": size,
            "whole": len(self.whole),
            "source": self.source.name,
            "from_source": self.from_source,
            "from_peers": self.from_peers,
            "seconds": round(time.monotonic() - self.began, 1),
            **more,
        }
        path = os.path.join(self.own, "status.json")
        with open(path + ".new", "w", encoding="utf-8") as stream:
            json.dump(status, stream)
        os.replace(path + ".new", path)

    def bring(self) -> None:
        """Get everything that is missing. Raises Fault."""
        self.write_status()
        self.make_plan()
        self.scan_local()
        self.plan = json.dumps(self.entries).encode()
        with self.changed:
            self.changed.notify_all()
        for number in [number for number, left in self.left.items() if not left and not self.entries[number].link]:
            self.finish(number)
        missing = [number for number in range(len(self.pieces)) if number not in self.pieces_here]
        here = self.source.is_here(self.me)
        own = [number for number in missing if here or self.pieces[number].owner == self.me]
        others = [number for number in missing if not here and self.pieces[number].owner != self.me]
        # Nodes ask different peers first, and for each peer's pieces in the order in which it gets them.
        turn: dict[int, int] = {}
        order = []
        for number in others:
            owner = self.pieces[number].owner
            turn[owner] = turn.get(owner, 0) + 1
            order.append((turn[owner], (owner - self.me) % len(self.peers.nodes), number))
        with concurrent.futures.ThreadPoolExecutor(
            SOURCE_THREADS
        ) as from_source, concurrent.futures.ThreadPoolExecutor(PEER_THREADS) as from_peers:
            running = {from_source.submit(self.fetch_own, number) for number in own}
            running |= {from_peers.submit(self.fetch_peers, number) for _turn, _owner, number in sorted(order)}
            try:
                while running:
                    ended, running = concurrent.futures.wait(
                        running, timeout=1, return_when=concurrent.futures.FIRST_COMPLETED
                    )
                    for one in ended:
                        one.result()
                    self.write_status()
            except BaseException as error:
                self.failed = str(error) or type(error).__name__
                for one in running:
                    one.cancel()
                raise
        # After their targets exist.
        for number in [number for number in self.left if self.entries[number].link]:
            self.finish(number)
        self.write_status()

    def serve_peers(self) -> None:
        """Tell the peers that we are done, and serve them what they still need."""
        others = self.peers.others
        with concurrent.futures.ThreadPoolExecutor(16) as pool:

            def report(peer: int) -> None:
                while not self.peers.gone[peer] and self.peers.ask(peer, f"/done/{self.me}") is None:
                    pass

            list(pool.map(report, others))
        while any(not self.peers.gone[peer] and peer not in self.done for peer in others):
            time.sleep(0.2)
            for peer in others:
                if peer not in self.done and not self.peers.gone[peer]:
                    self.peers.ask(peer, f"/done/{self.me}")


def tidy(own: str) -> None:
    """Remove what is no longer needed."""
    for name in os.listdir(own):
        if name.endswith(".part") or name == "pieces":
            os.unlink(os.path.join(own, name))


def work(request: dict[str, Any]) -> None:
    """Do all the work, and record how it ended."""
    stage = Stage(request)
    server = None
    try:
        server = stage.peers.serve(stage.answer)
        stage.bring()
        tidy(stage.own)
        stage.write_status(finished=True)
        stage.serve_peers()
        result = {
            "changed": stage.fetched > 0,
            "files": len(stage.entries),
            "bytes": sum(one.size for one in stage.entries),
            "fetched": stage.fetched,
            "from_source": stage.from_source,
            "from_peers": stage.from_peers,
            "by_size": stage.by_size,
            "first": stage.entries[0].path.split("/")[0],
        }
        stage.write_status(finished=True, result=result)
        return
    except Fault as fault:
        said = str(fault)
    except OSError as error:
        said = str(stage.not_written(error))
    stage.failed = said
    stage.write_status(fault=said)
    if server:
        time.sleep(2)  # so that peers who ask learn of the failure


# --- The command line -------------------------------------------------------------------------------------------------


def status_of(request: dict[str, Any]) -> dict[str, Any]:
    """The progress of the background process."""
    try:
        with open(os.path.join(request["destination"], OWN, "status.json"), encoding="utf-8") as stream:
            status: dict[str, Any] = json.load(stream)
            return status
    except (OSError, ValueError):
        return {}


def lock(request: dict[str, Any]) -> int:
    """Lock the destination; return -1 if another process has the lock."""
    file = os.open(os.path.join(request["destination"], OWN, "lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        return -1
    return file


def start(request: dict[str, Any], do: Callable[[dict[str, Any]], None] = work) -> dict[str, Any]:
    """Start in a new session."""
    held = lock(request)
    while held < 0 and status_of(request).keys() & {"fault", "result"}:  # its holder is about to end
        time.sleep(0.1)
        held = lock(request)
    if held < 0:
        return {"changed": False}  # still running after an interrupted call: it will be followed
    path = os.path.join(request["destination"], OWN, "status.json")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    if os.fork() == 0:
        os.setsid()
        log = os.open(os.path.join(request["destination"], OWN, "log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for here, there in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(here, there)
        try:
            do(request)
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(0)
    return {"changed": False}


def follow(request: dict[str, Any]) -> dict[str, Any]:
    """Show the progress. Raises Fault."""
    began, pause = time.monotonic(), 0.1
    while True:
        held = lock(request)
        status = status_of(request)
        if "fault" in status:
            raise Fault(status["fault"])
        if "result" in status:
            result: dict[str, Any] = status["result"]
            return result
        if held >= 0 and time.monotonic() - began > 5:
            log = os.path.join(request["destination"], OWN, "log")
            raise Fault(f"it ended without a result (killed, or the node was rebooted; see {log}). Run this again")
        if held >= 0:
            os.close(held)
        if status.get("doing"):
            print(status["doing"], flush=True)
        elif status.get("files"):
            got = status["from_source"] + status["from_peers"]
            speed = got / max(1.0, status["seconds"])
            from_there = in_words(status["from_source"])
            source = f", {from_there} of it from {status['source']}" if status["from_source"] else ""
            waits = "; waits until the other nodes have all" if status.get("finished") else ""
            print(
                f"{status['whole']} of {status['files']} files, {in_words(got)} brought, {in_words(speed)}/s"
                f"{source}{waits}",
                flush=True,
            )
        time.sleep(pause)
        pause = min(1.0, 2 * pause)


if __name__ == "__main__":
    with open(sys.argv[2], encoding="utf-8") as given:
        asked = json.load(given)
    try:
        print(MARK + json.dumps({"start": start, "follow": follow}[sys.argv[1]](asked)), flush=True)
    except Fault as problem:
        print(MARK + json.dumps({"fault": str(problem)}), flush=True)
        sys.exit(1)
