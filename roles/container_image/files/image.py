"""The role container_image's work on a node: get the same image onto all nodes, fetched or built once.

    image.py start REQUEST      start in the background, unless already running
    image.py follow REQUEST     show the progress until it ends

The first node pulls, loads or builds the image and, if another node lacks it, writes it into an archive. A given
archive to which nothing is added is passed on unchanged, while the first node loads it. Each other node gets an equal
share of the archive from the first and the rest from its peers, as in stage.py and with the proofs of peers.py, and
loads it into its engine. An interrupted call is resumed.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import traceback
from typing import Any

from engine import (
    FULL,
    LABEL,
    Engine,
    Fault,
    Found,
    file_hash,
    logged_in,
    nearest,
    read_archive,
    registry_of,
    unpacked_size,
    whole_name,
    words_of,
)
from peers import Answer
from stage import MARK, Stage, follow, start
from transfer import Fault as StageFault
from transfer import in_words
from wanted import Entry, Piece, cut

ARCHIVE = "image.tar"
CHUNK = 2**20
FAREWELL = 15.0  # seconds for which a failed node still answers peers that start later


class FirstNode:
    """The source of the image: the node that has it, or gets it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def is_here(self, me: int) -> bool:
        """Whether the source is on this node."""
        return me == 0

    def find(self, image: Image) -> list[Entry]:
        """The files to distribute. Raises Fault."""
        return image.list_wanted()


class Image(Stage):
    """One call on one node. The first node is the one that has the image, or gets it."""

    full_remedy = "Make room, or set container_image_directory, and run this again"

    def __init__(self, request: dict[str, Any]) -> None:
        super().__init__({"port_variable": "container_image_port", **request})
        self.engine = Engine(request["engine"])
        self.name: str = request["name"]
        self.idle = False  # whether this node needs nothing
        self.as_it_is = ""  # on the first node: the archive that is passed on unchanged
        self.asked = changed_at(os.path.join(self.own, "request.json"))
        self.doing = f"waits for {request['names'][0]}, from which the image comes" if self.me else ""

    def where_from(self) -> FirstNode:
        """The source is the first node."""
        return FirstNode(self.request["names"][0])

    def report(self, doing: str) -> None:
        """Report the current step."""
        self.doing = doing
        self.write_status()

    def write_status(self, **more: Any) -> None:
        """Write the progress to a file."""
        super().write_status(**{"doing": self.doing, **more})

    # - the first node

    def list_wanted(self) -> list[Entry]:
        """On the first node: get the image, and its archive if another node lacks it. Raises Fault."""
        if self.me:
            first = self.request["names"][0]
            raise Fault(f"{first}, from which the image comes, has failed or does not answer: see its message")
        alone = self.request["archive"] and not self.request["requirements"]
        unpacked = self.unpacked if alone else 0
        if unpacked:
            self.as_it_is, known = self.archive(), self.request["archive_ids"]
        else:
            found = self.make()
            known, unpacked = [found.id], found.size
        if all(one in known for one in self.request["ids"][1:]):
            self.idle = True
            return []
        if self.as_it_is:
            self.report(f"reads {self.as_it_is}")
            size, sha256 = os.stat(self.as_it_is).st_size, file_hash(self.as_it_is)
        else:
            size, sha256 = self.save(found)
        self.report("")
        return [Entry(ARCHIVE, " ".join(known), size, str(unpacked), sha256)]

    def archive(self) -> str:
        """The path of the archive that contains the image."""
        return os.path.expanduser(str(self.request["archive"]))

    @functools.cached_property
    def unpacked(self) -> int:
        """The archive's uncompressed size in bytes, 0 if unknown; a compressed one must be read completely."""
        return unpacked_size(self.archive())

    def target(self, entry: int) -> str:
        """The path of the archive that is passed on."""
        return self.as_it_is or super().target(entry)

    def make(self) -> Found:
        """Pull, load or build the image; give it its name. Raises Fault."""
        request, found = self.request, self.engine.find(self.name)
        if found and not request["refresh"]:
            archive = bool(request["archive"])
            if (
                found.label == request["label"]
                if request["label"]
                else not archive or found.id in request["archive_ids"]
            ):
                return found
        with logged_in(
            self.engine,
            request["base"],
            request["registry_user"],
            request["registry_password"],
            os.path.join(self.own, "login"),
        ):
            if request["archive"]:
                base = self.load()
            elif request["context"]:
                base = self.build(request["context"], "base", "" if request["requirements"] else request["label"])
            else:
                base = self.pull(request["base"])
            if request["requirements"]:
                self.give_name(base, self.own_name("base"))  # a builder accepts only names
                base = self.build("", "layer", request["label"])
        self.give_name(base, self.name)
        return self.must_find(self.name)

    def must_find(self, name: str) -> Found:
        """An image that must exist. Raises Fault."""
        found = self.engine.find(name)
        if not found:
            raise Fault(f"{self.engine.name} does not have {name}, although it said that it took it")
        return found

    def pull(self, name: str) -> str:
        """Pull an image from a registry. Raises Fault."""
        if self.engine.find(name) and not self.request["refresh"]:
            return name
        self.report(f"pulls {name}")
        name = whole_name(name) if self.engine.name == "podman" else name
        done = self.engine.run("pull", "--quiet", name)
        if done.returncode:
            user = self.request["registry_user"]
            raise self.engine.registry_fault(f"{name} cannot be pulled", registry_of(name), done, user)
        return name

    def load(self) -> str:
        """Load the image from the archive; return its id. Raises Fault."""
        path = self.archive()
        ids = read_archive(path)
        if not any(self.engine.find(one) for one in ids):
            self.check_room(max(os.stat(path).st_size, self.unpacked), 0)
            self.report(f"loads {path}")
            done = self.engine.run("load", "--input", path)
            if done.returncode:
                raise self.engine.fault(f"{self.engine.name} does not take {path}", done)
        known = [one for one in ids if self.engine.find(one)]
        if not known:
            raise Fault(f"{self.engine.name} has loaded {path}, and does not have the image that it names")
        return known[0]

    def own_name(self, part: str) -> str:
        """The name of an intermediate image."""
        return f"localhost/muster-{hashlib.sha256(self.name.encode()).hexdigest()[:16]}:{part}"

    def layer(self) -> str:
        """A Dockerfile that adds what a job requires to an image, in one layer."""
        text = base64.b64encode(self.request["requirements"].encode()).decode()
        return (
            f"FROM {self.own_name('base')}\n"
            f"RUN P=$(command -v python3 || command -v python) && echo {text} | base64 -d > /tmp/requirements.txt && "
            'PIP_BREAK_SYSTEM_PACKAGES=1 "$P" -m pip install --no-cache-dir -r /tmp/requirements.txt && '
            "rm /tmp/requirements.txt\n"
        )

    def build(self, context: str, part: str, label: str) -> str:
        """Build from a directory's Dockerfile or, without one, add what a job requires; return the image's name."""
        self.report(f"builds {self.name}")
        name, text, file = self.own_name(part), "", os.path.join(context, self.request["dockerfile"])
        if not context:
            context, text, file = os.path.join(self.own, "context"), self.layer(), "-"
            os.makedirs(context, exist_ok=True)
        more = [f"--label={LABEL}={label}"] if label else []
        words = [*self.engine.builder(), "--network=host", *more, f"--tag={name}", "--file", file, context]
        done = self.engine.run(*words, text=text)
        if done.returncode:
            # the failed step may have written to either stream
            done.stderr = done.stdout[-2000:] + done.stderr[-2000:]
            raise self.engine.build_fault(f"{self.name} cannot be built", done, self.request["registry_user"])
        return name

    def give_name(self, there: str, name: str) -> None:
        """Give an image a name. Raises Fault."""
        if there != name:
            done = self.engine.run("tag", there, name)
            if done.returncode:
                raise self.engine.fault(f"{there} cannot be named {name}", done)

    def save(self, found: Found) -> tuple[int, str]:
        """Write the archive for the other nodes, unless it exists; return its size and SHA-256."""
        path, note = os.path.join(self.root, ARCHIVE), os.path.join(self.own, "archive.json")
        with contextlib.suppress(OSError, ValueError), open(note, encoding="utf-8") as stream:
            identity, size, changed, sha256 = json.load(stream)
            there = os.stat(path)
            if [identity, size, changed] == [found.id, there.st_size, there.st_mtime_ns]:
                return size, sha256
        self.remove_unfinished()
        free = shutil.disk_usage(self.root).free
        if free < found.size + self.reserve:
            raise Fault(
                f"{self.root} has {in_words(free)} free. Needed: {in_words(found.size)} for the archive of "
                f"{self.name}, and a reserve of {self.request['reserve_gib']:g} GiB. Make room, or set "
                "container_image_directory"
            )
        self.report(f"writes {self.name} into an archive")
        digest, size = hashlib.sha256(), 0
        try:
            with open(path + ".new", "wb") as archive, subprocess.Popen(
                [self.engine.name, "save", self.name], stdout=subprocess.PIPE, stderr=subprocess.PIPE
            ) as engine:
                assert engine.stdout and engine.stderr
                while True:
                    chunk = engine.stdout.read(CHUNK)
                    if not chunk:
                        break
                    digest.update(chunk)
                    size += archive.write(chunk)
                said = engine.stderr.read().decode("utf-8", "replace")
            if engine.returncode:
                done = subprocess.CompletedProcess([], engine.returncode, "", said)
                raise self.engine.fault(f"{self.name} cannot be written into an archive", done)
        except (OSError, Fault):  # the engine ends by itself once nobody reads its output
            os.unlink(path + ".new")
            raise
        os.replace(path + ".new", path)
        with open(note, "w", encoding="utf-8") as stream:
            json.dump([found.id, size, os.stat(path).st_mtime_ns, digest.hexdigest()], stream)
        return size, digest.hexdigest()

    def remove_unfinished(self) -> None:
        """Remove a partial archive of a killed call, whose disk space the next one needs."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self.root, ARCHIVE + ".new"))

    # - the others

    @property
    def reserve(self) -> float:
        """Bytes to keep free."""
        return float(self.request["reserve_gib"] * 2**30)

    def share(self) -> list[Piece]:
        """All pieces, each with the node that gets it from the first node, which gets none itself."""
        others = max(1, len(self.peers.nodes) - 1)
        return [piece._replace(owner=piece.owner + 1) for piece in cut(self.entries, others)] if self.entries else []

    def scan_local(self) -> None:
        """Find what exists here, and check the disk space for the rest. Raises Fault."""
        self.doing = ""
        if not self.entries or (self.me and self.find_arrived()):
            self.idle = True
            self.pieces.clear()
            return
        one = self.entries[0]
        if self.me:
            self.check_room(max(one.size, int(one.etag)), one.size - self.room_taken())
            super().scan_local()
            return
        self.index[one.path] = [one.size, os.stat(self.target(0)).st_mtime_ns, one.sha256]
        self.first = [0]
        with self.changed:
            self.whole.add(0)
            self.pieces_here.update(range(len(self.pieces)))
            self.changed.notify_all()

    def room_taken(self) -> int:
        """The disk space that the archive already uses: that of its arrived pieces, or all."""
        one = self.entries[0]
        self.read_index()
        if self.is_there(0):
            return one.size
        try:
            # the file is sparse, since pieces arrive in any order, so count its 512-byte blocks
            return min(one.size, os.stat(self.part_path(0)).st_blocks * 512)
        except FileNotFoundError:
            return 0

    def find_arrived(self) -> Found | None:
        """The wanted image, if the engine has it. Engines identify an archive's image by different digests."""
        return next(filter(None, map(self.engine.find, self.entries[0].key.split())), None)

    def check_room(self, image: int, archive: int) -> None:
        """Raise Fault if a disk has no room for the archive and the engine's copies of the image.

        image: uncompressed bytes. archive: bytes still to arrive.
        """
        self.remove_unfinished()
        root, free = self.engine.room()
        unpacked = self.engine.unpacks_in()
        store, beside, ours = (os.stat(nearest(path)).st_dev for path in (root, unpacked, self.root))
        needed = room_needed(image, archive, store, beside, ours)
        engine, reserve = self.engine.name, f"a reserve of {self.request['reserve_gib']:g} GiB"
        if free < needed[store] + self.reserve:
            raise Fault(
                f"{root}, where {engine} keeps images, has {in_words(free)} free. Needed: {in_words(needed[store])} "
                f"for {self.name} while it is loaded, and {reserve}. {self.engine.remedy()}"
            )
        free = shutil.disk_usage(nearest(unpacked)).free
        if free < needed[beside] + self.reserve:
            raise Fault(
                f"{unpacked}, where {engine} unpacks an image, has {in_words(free)} free. Needed: "
                f"{in_words(needed[beside])} for {self.name} while it is loaded, and {reserve}. Make room, or set "
                "image_copy_tmp_dir, in [engine] of containers.conf, to a directory of a larger disk"
            )

    def fetch_own(self, number: int) -> None:
        """Get a piece from the first node."""
        if not self.receive_while_there(0, number) and not self.failed:
            raise Fault(
                f"{self.request['names'][0]}, from which the image comes, has failed (see its message), does not "
                f"answer, or the data was changed on the way (see {self.own}/log). Run this again: it resumes "
                "where it stopped"
            )

    def is_right(self, entry: int, path: str) -> bool:
        """Whether it is the wanted archive. If all pieces came in this call, each was proved: it is not read again."""
        size = self.entries[entry].size
        if self.from_peers == size:
            return os.path.getsize(path) == size
        return super().is_right(entry, path)

    def refetch(self, entry: int) -> None:
        """Raise Fault: the archive that arrived is not the one that was sent."""
        os.unlink(self.part_path(entry))
        raise Fault(f"the archive of {self.name} that arrived is not the one that was sent. Run this again")

    def answer(self, path: str) -> Answer:
        """The answer to a peer; a node that needs nothing serves no pieces."""
        if self.idle and path.startswith("/piece/"):
            return Answer(410)
        return super().answer(path)

    def hand_to_engine(self) -> bool:
        """Load the archive into the engine; return whether the engine lacked it under its name. Raises Fault."""
        if not self.me:
            found = self.make() if self.as_it_is else self.must_find(self.name)
            return bool(found.id != self.request["ids"][0])
        if not self.entries:
            return False
        if not self.idle:
            self.report(f"loads {self.name}")
            done = self.engine.run("load", "--input", self.target(0))
            if done.returncode:
                raise self.not_taken(done)
        found = self.find_arrived()
        if not found:
            first, digests = self.request["names"][0], self.entries[0].key.split()
            raise Fault(
                f"{self.engine.name} has taken {self.name}, but not with the digest {' or '.join(digests)} that it has "
                f"on {first}. Needed: engines of one release, with one kind of store, on all nodes"
            )
        self.give_name(found.id, self.name)
        return bool(self.request["ids"][self.me] != found.id)

    def not_taken(self, done: subprocess.CompletedProcess[str]) -> Fault:
        """Why the engine cannot load the archive; if its disk is full, the space it has and needs."""
        engine = self.engine.name
        if not FULL.search(words_of(done)):
            return self.engine.fault(f"{engine} does not take {self.name}", done)
        try:
            root, free = self.engine.room()
        except Fault:  # with a full disk, the engine may not even answer
            return self.engine.fault(f"{engine} does not take {self.name}", done)
        size = int(self.entries[0].etag)
        return Fault(
            f"{engine} does not take {self.name}: {words_of(done)}. {root}, where {engine} keeps images, has "
            f"{in_words(free)} free. Needed: more, for an image of {in_words(size)} that lies there twice and more "
            f"while it is loaded. {self.engine.remedy()}. Then run this again: what has arrived is kept"
        )

    def take_leave(self, since: float) -> None:
        """Wait until each peer has heard of our failure: others would look for us for a minute.

        Not if the next call is about to start, since its nodes must not meet us.
        since: when we failed, by the monotonic clock.
        """
        heard, others = self.peers.heard, self.peers.others
        while time.monotonic() < since + FAREWELL and any(heard.get(peer, 0.0) < since for peer in others):
            if self.asked != changed_at(os.path.join(self.own, "request.json")):
                return
            time.sleep(0.1)
        time.sleep(0.5)  # for the answer to the last peer

    def clear_up(self) -> None:
        """Remove temporary files; on the first node, only when all nodes have the image."""
        if self.me or all(peer in self.done for peer in range(1, len(self.peers.nodes))):
            for path in (os.path.join(self.root, ARCHIVE), os.path.join(self.own, "index.jsonl")):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
        for name in os.listdir(self.own):
            if name.endswith(".part") or name == "pieces":
                os.unlink(os.path.join(self.own, name))


def room_needed(image: int, archive: int, store: int, beside: int, ours: int) -> dict[int, int]:
    """The bytes needed on each disk while an archive is loaded.

    image: its bytes. archive: its bytes still to arrive. store, beside, ours: device numbers of the disks on which the
    engine keeps the image, on which it unpacks it first, and on which the archive is.
    """
    needed = dict.fromkeys((store, beside, ours), 0)
    for disk, size in ((store, image), (beside, image), (ours, archive)):
        needed[disk] += size
    return needed


def changed_at(path: str) -> int:
    """The modification time of a file, in ns; 0 if it is gone."""
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def work(request: dict[str, Any]) -> None:
    """Do all the work, and record how it ended."""
    image = Image(request)
    server = None
    try:
        server = image.peers.serve(image.answer)
        image.bring()
        changed = image.hand_to_engine()
        image.doing = ""
        image.write_status(finished=True)
        image.serve_peers()
        image.clear_up()
        found = image.must_find(image.name)
        result = {"changed": changed, "id": found.id, "size": found.size, "from_peers": image.from_peers}
        image.write_status(finished=True, result=result)
        return
    except (Fault, StageFault) as fault:
        said = str(fault)
    except OSError as error:
        said = str(image.not_written(error))
    except Exception as error:  # a bug of ours: peers must hear of it, too
        traceback.print_exc()
        said = f"{type(error).__name__}: {error} (see {image.own}/log)"
    since = time.monotonic()  # before any peer can hear of it
    image.failed = said
    image.write_status(fault=said)
    if server:
        image.take_leave(since)


if __name__ == "__main__":
    with open(sys.argv[2], encoding="utf-8") as given:
        asked = json.load(given)
    try:
        answer = start(asked, work) if sys.argv[1] == "start" else follow(asked)
        print(MARK + json.dumps(answer), flush=True)
    except StageFault as problem:
        print(MARK + json.dumps({"fault": str(problem)}), flush=True)
        sys.exit(1)
