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
    EngineError,
    EngineImage,
    error_output,
    existing_parent,
    file_hash,
    logged_in,
    qualified_name,
    read_archive,
    registry_of,
    unpacked_size,
)
from peers import PeerReply
from stage import MARK, NodeTransfer, follow, start
from transfer import TransferError, format_size
from wanted import FileEntry, Piece, split_into_pieces

ARCHIVE = "image.tar"
CHUNK = 2**20
FAILURE_GRACE_PERIOD = 15.0  # seconds for which a failed node still answers peers that start later


class FirstNodeSource:
    """The source of the image: the node that has it, or gets it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def is_local(self, rank: int) -> bool:
        """Whether the source is on this node."""
        return rank == 0

    def list_entries(self, transfer: ImageTransfer) -> list[FileEntry]:
        """The files to distribute. Raises EngineError."""
        return transfer.prepare_entries()


class ImageTransfer(NodeTransfer):
    """One call on one node. The first node is the one that has the image, or gets it."""

    full_remedy = "Make room, or set container_image_directory, and run this again"

    def __init__(self, request: dict[str, Any]) -> None:
        super().__init__({"port_variable": "container_image_port", **request})
        self.engine = Engine(request["engine"])
        self.name: str = request["name"]
        self.needs_nothing = False  # whether this node needs nothing
        self.shared_archive = ""  # on the first node: the archive that is passed on unchanged
        self.request_modified_at = modified_at(os.path.join(self.state_directory, "request.json"))
        self.step = f"waits for {request['names'][0]}, from which the image comes" if self.rank else ""

    def create_source(self) -> FirstNodeSource:
        """The source is the first node."""
        return FirstNodeSource(self.request["names"][0])

    def report(self, step: str) -> None:
        """Report the current step."""
        self.step = step
        self.write_status()

    def write_status(self, **extra: Any) -> None:
        """Write the progress to a file."""
        super().write_status(**{"doing": self.step, **extra})

    # - the first node

    def prepare_entries(self) -> list[FileEntry]:
        """On the first node: get the image, and its archive if another node lacks it. Raises EngineError."""
        if self.rank:
            first_node = self.request["names"][0]
            raise EngineError(
                f"{first_node}, from which the image comes, has failed or does not answer: see its message"
            )
        archive_only = self.request["archive"] and not self.request["requirements"]
        unpacked = self.unpacked_bytes if archive_only else 0
        if unpacked:
            self.shared_archive, image_ids = self.archive_path(), self.request["archive_ids"]
        else:
            image = self.obtain()
            image_ids, unpacked = [image.id], image.size
        if all(image_id in image_ids for image_id in self.request["ids"][1:]):
            self.needs_nothing = True
            return []
        if self.shared_archive:
            self.report(f"reads {self.shared_archive}")
            size, sha256 = os.stat(self.shared_archive).st_size, file_hash(self.shared_archive)
        else:
            size, sha256 = self.save_archive(image)
        self.report("")
        return [FileEntry(ARCHIVE, " ".join(image_ids), size, str(unpacked), sha256)]

    def archive_path(self) -> str:
        """The path of the archive that contains the image."""
        return os.path.expanduser(str(self.request["archive"]))

    @functools.cached_property
    def unpacked_bytes(self) -> int:
        """The archive's uncompressed size in bytes, 0 if unknown; a compressed one must be read completely."""
        return unpacked_size(self.archive_path())

    def target(self, file_index: int) -> str:
        """The path of the archive that is passed on."""
        return self.shared_archive or super().target(file_index)

    def obtain(self) -> EngineImage:
        """Pull, load or build the image; give it its name. Raises EngineError."""
        request, image = self.request, self.engine.find(self.name)
        if image and not request["refresh"]:
            has_archive = bool(request["archive"])
            if (
                image.label == request["label"]
                if request["label"]
                else not has_archive or image.id in request["archive_ids"]
            ):
                return image
        with logged_in(
            self.engine,
            request["base"],
            request["registry_user"],
            request["registry_password"],
            os.path.join(self.state_directory, "login"),
        ):
            if request["archive"]:
                base = self.load()
            elif request["context"]:
                base = self.build(request["context"], "base", "" if request["requirements"] else request["label"])
            else:
                base = self.pull(request["base"])
            if request["requirements"]:
                self.tag(base, self.intermediate_name("base"))  # a builder accepts only names
                base = self.build("", "layer", request["label"])
        self.tag(base, self.name)
        return self.require(self.name)

    def require(self, name: str) -> EngineImage:
        """An image that must exist. Raises EngineError."""
        image = self.engine.find(name)
        if not image:
            raise EngineError(f"{self.engine.name} does not have {name}, although it said that it took it")
        return image

    def pull(self, name: str) -> str:
        """Pull an image from a registry. Raises EngineError."""
        if self.engine.find(name) and not self.request["refresh"]:
            return name
        self.report(f"pulls {name}")
        name = qualified_name(name) if self.engine.name == "podman" else name
        completed = self.engine.run("pull", "--quiet", name)
        if completed.returncode:
            user = self.request["registry_user"]
            raise self.engine.registry_error(f"{name} cannot be pulled", registry_of(name), completed, user)
        return name

    def load(self) -> str:
        """Load the image from the archive; return its id. Raises EngineError."""
        path = self.archive_path()
        ids = read_archive(path)
        if not any(self.engine.find(image_id) for image_id in ids):
            self.check_disk_space(max(os.stat(path).st_size, self.unpacked_bytes), 0)
            self.report(f"loads {path}")
            completed = self.engine.run("load", "--input", path)
            if completed.returncode:
                raise self.engine.command_error(f"{self.engine.name} does not take {path}", completed)
        loaded_ids = [image_id for image_id in ids if self.engine.find(image_id)]
        if not loaded_ids:
            raise EngineError(f"{self.engine.name} has loaded {path}, and does not have the image that it names")
        return loaded_ids[0]

    def intermediate_name(self, part: str) -> str:
        """The name of an intermediate image."""
        return f"localhost/muster-{hashlib.sha256(self.name.encode()).hexdigest()[:16]}:{part}"

    def requirements_dockerfile(self) -> str:
        """A Dockerfile that adds what a job requires to an image, in one layer."""
        encoded = base64.b64encode(self.request["requirements"].encode()).decode()
        return (
            f"FROM {self.intermediate_name('base')}\n"
            f"RUN P=$(command -v python3 || command -v python) && echo {encoded} | base64 -d > /tmp/requirements.txt && "
            'PIP_BREAK_SYSTEM_PACKAGES=1 "$P" -m pip install --no-cache-dir -r /tmp/requirements.txt && '
            "rm /tmp/requirements.txt\n"
        )

    def build(self, context: str, part: str, label: str) -> str:
        """Build from a directory's Dockerfile or, without one, add what a job requires; return the image's name."""
        self.report(f"builds {self.name}")
        name, text, file = self.intermediate_name(part), "", os.path.join(context, self.request["dockerfile"])
        if not context:
            context, text, file = os.path.join(self.state_directory, "context"), self.requirements_dockerfile(), "-"
            os.makedirs(context, exist_ok=True)
        label_option = [f"--label={LABEL}={label}"] if label else []
        arguments = [*self.engine.builder(), "--network=host", *label_option, f"--tag={name}", "--file", file, context]
        completed = self.engine.run(*arguments, text=text)
        if completed.returncode:
            # the failed step may have written to either stream
            completed.stderr = completed.stdout[-2000:] + completed.stderr[-2000:]
            raise self.engine.build_error(f"{self.name} cannot be built", completed, self.request["registry_user"])
        return name

    def tag(self, source: str, name: str) -> None:
        """Give an image a name. Raises EngineError."""
        if source != name:
            completed = self.engine.run("tag", source, name)
            if completed.returncode:
                raise self.engine.command_error(f"{source} cannot be named {name}", completed)

    def save_archive(self, image: EngineImage) -> tuple[int, str]:
        """Write the archive for the other nodes, unless it exists; return its size and SHA-256."""
        path, note_path = os.path.join(self.root, ARCHIVE), os.path.join(self.state_directory, "archive.json")
        with contextlib.suppress(OSError, ValueError), open(note_path, encoding="utf-8") as stream:
            image_id, size, modified, sha256 = json.load(stream)
            status = os.stat(path)
            if [image_id, size, modified] == [image.id, status.st_size, status.st_mtime_ns]:
                return size, sha256
        self.remove_unfinished()
        free = shutil.disk_usage(self.root).free
        if free < image.size + self.reserve:
            raise EngineError(
                f"{self.root} has {format_size(free)} free. Needed: {format_size(image.size)} for the archive of "
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
                output = engine.stderr.read().decode("utf-8", "replace")
            if engine.returncode:
                completed = subprocess.CompletedProcess([], engine.returncode, "", output)
                raise self.engine.command_error(f"{self.name} cannot be written into an archive", completed)
        except (OSError, EngineError):  # the engine ends by itself once nobody reads its output
            os.unlink(path + ".new")
            raise
        os.replace(path + ".new", path)
        with open(note_path, "w", encoding="utf-8") as stream:
            json.dump([image.id, size, os.stat(path).st_mtime_ns, digest.hexdigest()], stream)
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

    def assign_pieces(self) -> list[Piece]:
        """All pieces, each with the node that gets it from the first node, which gets none itself."""
        receivers = max(1, len(self.peers.nodes) - 1)
        return (
            [piece._replace(owner=piece.owner + 1) for piece in split_into_pieces(self.entries, receivers)]
            if self.entries
            else []
        )

    def scan_local(self) -> None:
        """Find what exists here, and check the disk space for the rest. Raises EngineError."""
        self.step = ""
        if not self.entries or (self.rank and self.find_loaded()):
            self.needs_nothing = True
            self.pieces.clear()
            return
        entry = self.entries[0]
        if self.rank:
            self.check_disk_space(max(entry.size, int(entry.etag)), entry.size - self.archive_bytes_on_disk())
            super().scan_local()
            return
        self.index[entry.path] = [entry.size, os.stat(self.target(0)).st_mtime_ns, entry.sha256]
        self.first_pieces = [0]
        with self.changed:
            self.complete.add(0)
            self.local_pieces.update(range(len(self.pieces)))
            self.changed.notify_all()

    def archive_bytes_on_disk(self) -> int:
        """The disk space that the archive already uses: that of its arrived pieces, or all."""
        entry = self.entries[0]
        self.read_index()
        if self.is_present(0):
            return entry.size
        try:
            # the file is sparse, since pieces arrive in any order, so count its 512-byte blocks
            return min(entry.size, os.stat(self.part_path(0)).st_blocks * 512)
        except FileNotFoundError:
            return 0

    def find_loaded(self) -> EngineImage | None:
        """The wanted image, if the engine has it. Engines identify an archive's image by different digests."""
        return next(filter(None, map(self.engine.find, self.entries[0].key.split())), None)

    def check_disk_space(self, image_bytes: int, archive_bytes: int) -> None:
        """Raise EngineError if a disk has no room for the archive and the engine's copies of the image.

        image: uncompressed bytes. archive: bytes still to arrive.
        """
        self.remove_unfinished()
        root, free = self.engine.free_space()
        unpack_directory = self.engine.unpack_directory()
        store_device, unpack_device, archive_device = (
            os.stat(existing_parent(path)).st_dev for path in (root, unpack_directory, self.root)
        )
        needed = bytes_needed(image_bytes, archive_bytes, store_device, unpack_device, archive_device)
        engine, reserve = self.engine.name, f"a reserve of {self.request['reserve_gib']:g} GiB"
        if free < needed[store_device] + self.reserve:
            raise EngineError(
                f"{root}, where {engine} keeps images, has {format_size(free)} free. Needed: {format_size(needed[store_device])} "
                f"for {self.name} while it is loaded, and {reserve}. {self.engine.remedy()}"
            )
        free = shutil.disk_usage(existing_parent(unpack_directory)).free
        if free < needed[unpack_device] + self.reserve:
            raise EngineError(
                f"{unpack_directory}, where {engine} unpacks an image, has {format_size(free)} free. Needed: "
                f"{format_size(needed[unpack_device])} for {self.name} while it is loaded, and {reserve}. Make room, or set "
                "image_copy_tmp_dir, in [engine] of containers.conf, to a directory of a larger disk"
            )

    def fetch_from_source(self, number: int) -> None:
        """Get a piece from the first node."""
        if not self.receive_from_peer(0, number) and not self.failure:
            raise EngineError(
                f"{self.request['names'][0]}, from which the image comes, has failed (see its message), does not "
                f"answer, or the data was changed on the way (see {self.state_directory}/log). Run this again: it resumes "
                "where it stopped"
            )

    def matches_content(self, file_index: int, path: str) -> bool:
        """Whether it is the wanted archive. If all pieces came in this call, each was proved: it is not read again."""
        size = self.entries[file_index].size
        if self.from_peers == size:
            return os.path.getsize(path) == size
        return super().matches_content(file_index, path)

    def refetch(self, file_index: int) -> None:
        """Raise EngineError: the archive that arrived is not the one that was sent."""
        os.unlink(self.part_path(file_index))
        raise EngineError(f"the archive of {self.name} that arrived is not the one that was sent. Run this again")

    def handle_request(self, path: str) -> PeerReply:
        """The answer to a peer; a node that needs nothing serves no pieces."""
        if self.needs_nothing and path.startswith("/piece/"):
            return PeerReply(410)
        return super().handle_request(path)

    def load_into_engine(self) -> bool:
        """Load the archive into the engine; return whether the engine lacked it under its name. Raises EngineError."""
        if not self.rank:
            image = self.obtain() if self.shared_archive else self.require(self.name)
            return bool(image.id != self.request["ids"][0])
        if not self.entries:
            return False
        if not self.needs_nothing:
            self.report(f"loads {self.name}")
            completed = self.engine.run("load", "--input", self.target(0))
            if completed.returncode:
                raise self.load_error(completed)
        image = self.find_loaded()
        if not image:
            first_node, digests = self.request["names"][0], self.entries[0].key.split()
            raise EngineError(
                f"{self.engine.name} has taken {self.name}, but not with the digest {' or '.join(digests)} that it has "
                f"on {first_node}. Needed: engines of one release, with one kind of store, on all nodes"
            )
        self.tag(image.id, self.name)
        return bool(self.request["ids"][self.rank] != image.id)

    def load_error(self, completed: subprocess.CompletedProcess[str]) -> EngineError:
        """Why the engine cannot load the archive; if its disk is full, the space it has and needs."""
        engine = self.engine.name
        if not FULL.search(error_output(completed)):
            return self.engine.command_error(f"{engine} does not take {self.name}", completed)
        try:
            root, free = self.engine.free_space()
        except EngineError:  # with a full disk, the engine may not even answer
            return self.engine.command_error(f"{engine} does not take {self.name}", completed)
        image_bytes = int(self.entries[0].etag)
        return EngineError(
            f"{engine} does not take {self.name}: {error_output(completed)}. {root}, where {engine} keeps images, has "
            f"{format_size(free)} free. Needed: more, for an image of {format_size(image_bytes)} that lies there twice and more "
            f"while it is loaded. {self.engine.remedy()}. Then run this again: what has arrived is kept"
        )

    def wait_for_peers(self, failed_at: float) -> None:
        """Wait until each peer has heard of our failure: others would look for us for a minute.

        Not if the next call is about to start, since its nodes must not meet us.
        since: when we failed, by the monotonic clock.
        """
        last_seen, other_nodes = self.peers.last_seen, self.peers.other_nodes
        while time.monotonic() < failed_at + FAILURE_GRACE_PERIOD and any(
            last_seen.get(peer, 0.0) < failed_at for peer in other_nodes
        ):
            if self.request_modified_at != modified_at(os.path.join(self.state_directory, "request.json")):
                return
            time.sleep(0.1)
        time.sleep(0.5)  # for the answer to the last peer

    def remove_temporary_files(self) -> None:
        """Remove temporary files; on the first node, only when all nodes have the image."""
        if self.rank or all(peer in self.finished_nodes for peer in range(1, len(self.peers.nodes))):
            for path in (os.path.join(self.root, ARCHIVE), os.path.join(self.state_directory, "index.jsonl")):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
        for name in os.listdir(self.state_directory):
            if name.endswith(".part") or name == "pieces":
                os.unlink(os.path.join(self.state_directory, name))


def bytes_needed(
    image_bytes: int, archive_bytes: int, store_device: int, unpack_device: int, archive_device: int
) -> dict[int, int]:
    """The bytes needed on each disk while an archive is loaded.

    image: its bytes. archive: its bytes still to arrive. store, beside, ours: device numbers of the disks on which the
    engine keeps the image, on which it unpacks it first, and on which the archive is.
    """
    needed = dict.fromkeys((store_device, unpack_device, archive_device), 0)
    for device, size in ((store_device, image_bytes), (unpack_device, image_bytes), (archive_device, archive_bytes)):
        needed[device] += size
    return needed


def modified_at(path: str) -> int:
    """The modification time of a file, in ns; 0 if it is gone."""
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def run_image_transfer(request: dict[str, Any]) -> None:
    """Do all the work, and record how it ended."""
    transfer = ImageTransfer(request)
    server = None
    try:
        server = transfer.peers.serve(transfer.handle_request)
        transfer.fetch_all()
        changed = transfer.load_into_engine()
        transfer.step = ""
        transfer.write_status(finished=True)
        transfer.serve_peers()
        transfer.remove_temporary_files()
        image = transfer.require(transfer.name)
        result = {"changed": changed, "id": image.id, "size": image.size, "from_peers": transfer.from_peers}
        transfer.write_status(finished=True, result=result)
        return
    except (EngineError, TransferError) as error:
        message = str(error)
    except OSError as error:
        message = str(transfer.write_error(error))
    except Exception as error:  # a bug of ours: peers must hear of it, too
        traceback.print_exc()
        message = f"{type(error).__name__}: {error} (see {transfer.state_directory}/log)"
    failed_at = time.monotonic()  # before any peer can hear of it
    transfer.failure = message
    transfer.write_status(fault=message)
    if server:
        transfer.wait_for_peers(failed_at)


if __name__ == "__main__":
    with open(sys.argv[2], encoding="utf-8") as stream:
        request = json.load(stream)
    try:
        result = start(request, run_image_transfer) if sys.argv[1] == "start" else follow(request)
        print(MARK + json.dumps(result), flush=True)
    except TransferError as error:
        print(MARK + json.dumps({"fault": str(error)}), flush=True)
        sys.exit(1)
