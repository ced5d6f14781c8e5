# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One node's part in distributing an image, which works like file distribution with the engine as the destination."""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import json
import os
import shutil
import subprocess
import time
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._containers.image_transfer import (
    FULL,
    LABEL,
    Engine,
    EngineImage,
    error_output,
    existing_parent,
    qualified_name,
    read_archive,
    registry_of,
    temporary_login,
    unpacked_size,
)
from ansible_collections.muster.training.plugins.module_utils._detached.result_line import StepError
from ansible_collections.muster.training.plugins.module_utils._files.content import CHUNK, compute_sha256, format_size
from ansible_collections.muster.training.plugins.module_utils._stage_data.peers import PeerReply
from ansible_collections.muster.training.plugins.module_utils._stage_data.pieces import (
    FileEntry,
    FilePiece,
    split_into_pieces,
)
from ansible_collections.muster.training.plugins.module_utils._stage_data.transfer import NodeTransfer

ARCHIVE = "image.tar"
FAILURE_GRACE_PERIOD = 15.0  # seconds for which a failed node keeps replying to peers that start later


class FirstNodeSource:
    """The source of the image: the first node, which has or obtains it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def is_local(self, rank: int) -> bool:
        """Return whether the source is on this node."""
        return rank == 0

    def list_entries(self, transfer: ImageTransfer) -> list[FileEntry]:
        """Return the files to distribute. Raise StepError."""
        return transfer.prepare_entries()


class ImageTransfer(NodeTransfer):
    """One node's part in distributing an image."""

    full_remedy = "Free some space or set container_image_directory, and run this again"

    def __init__(self, request: dict[str, Any]) -> None:
        super().__init__({"port_variable": "container_image_port", **request}, FirstNodeSource(request["names"][0]))
        self.engine = Engine(request["engine"])
        self.name: str = request["name"]
        self.needs_nothing = False  # whether this node has the image or needs none
        self.shared_archive = ""  # path of the archive, which is passed on unchanged; only on the first node
        self.request_modified_at = modified_at(os.path.join(self.state_directory, "request.json"))
        self.step = f"waiting for {request['names'][0]}, which provides the image" if self.rank else ""

    def report(self, step: str) -> None:
        """Report the current step."""
        self.step = step
        self.write_status()

    def write_status(self, **extra: Any) -> None:
        """Write the progress to a file."""
        super().write_status(**{"doing": self.step, **extra})

    # - the first node

    def prepare_entries(self) -> list[FileEntry]:
        """On the first node, obtain the image, and create its archive if another node lacks the image. Raise
        StepError.
        """
        if self.rank:
            first_node = self.request["names"][0]
            raise StepError(f"{first_node}, which provides the image, has failed or is not responding. See its message")
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
            self.report(f"reading {self.shared_archive}")
            size, sha256 = os.stat(self.shared_archive).st_size, compute_sha256(self.shared_archive)
        else:
            size, sha256 = self.save_archive(image)
        self.report("")
        return [FileEntry(ARCHIVE, " ".join(image_ids), size, str(unpacked), sha256)]

    def archive_path(self) -> str:
        """Return the path of the user-provided archive that contains the image."""
        return os.path.expanduser(str(self.request["archive"]))

    @functools.cached_property
    def unpacked_bytes(self) -> int:
        """The archive's uncompressed size in bytes, or 0 if unknown; a compressed archive must be read completely."""
        return unpacked_size(self.archive_path())

    def target(self, file_index: int) -> str:
        """Return the path of the archive that is passed on."""
        return self.shared_archive or super().target(file_index)

    def obtain(self) -> EngineImage:
        """Pull, load or build the image, and tag it; return it. Raise StepError."""
        request, image = self.request, self.engine.find(self.name)
        if image and not request["refresh"]:
            has_archive = bool(request["archive"])
            if (
                image.label == request["label"]
                if request["label"]
                else not has_archive or image.id in request["archive_ids"]
            ):
                return image
        with temporary_login(
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
        """Return an image, or raise StepError if it does not exist."""
        image = self.engine.find(name)
        if not image:
            raise StepError(f"{self.engine.name} does not have {name}, although it reported success")
        return image

    def pull(self, name: str) -> str:
        """Pull an image from a registry; return its name. Raise StepError."""
        if self.engine.find(name) and not self.request["refresh"]:
            return name
        self.report(f"pulling {name}")
        name = qualified_name(name) if self.engine.name == "podman" else name
        completed = self.engine.run("pull", "--quiet", name)
        if completed.returncode:
            user = self.request["registry_user"]
            raise self.engine.registry_error(f"{name} cannot be pulled", registry_of(name), completed, user)
        return name

    def load(self) -> str:
        """Load the image from the user-provided archive; return its id. Raise StepError."""
        path = self.archive_path()
        ids = read_archive(path)
        if not any(self.engine.find(image_id) for image_id in ids):
            self.check_disk_space(max(os.stat(path).st_size, self.unpacked_bytes), 0)
            self.report(f"loading {path}")
            completed = self.engine.run("load", "--input", path)
            if completed.returncode:
                raise self.engine.command_error(f"{self.engine.name} cannot load {path}", completed)
        loaded_ids = [image_id for image_id in ids if self.engine.find(image_id)]
        if not loaded_ids:
            raise StepError(f"{self.engine.name} has loaded {path}, but lacks the image that the archive names")
        return loaded_ids[0]

    def intermediate_name(self, part: str) -> str:
        """Return the name of an intermediate image."""
        return f"localhost/muster-{hashlib.sha256(self.name.encode()).hexdigest()[:16]}:{part}"

    def requirements_dockerfile(self) -> str:
        """Return a Dockerfile that adds a job's Python requirements to an image in one layer."""
        text = base64.b64encode(self.request["requirements"].encode()).decode()
        return (
            f"FROM {self.intermediate_name('base')}\n"
            f"RUN P=$(command -v python3 || command -v python) && echo {text} | base64 -d > /tmp/requirements.txt && "
            'PIP_BREAK_SYSTEM_PACKAGES=1 "$P" -m pip install --no-cache-dir -r /tmp/requirements.txt && '
            "rm /tmp/requirements.txt\n"
        )

    def build(self, context: str, part: str, label: str) -> str:
        """Build from a directory's Dockerfile or, if it has none, add a job's requirements; return the image's name."""
        self.report(f"building {self.name}")
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
        """Give an image a name. Raise StepError."""
        if source != name:
            completed = self.engine.run("tag", source, name)
            if completed.returncode:
                raise self.engine.command_error(f"{source} cannot be tagged {name}", completed)

    def save_archive(self, image: EngineImage) -> tuple[int, str]:
        """Write the archive for the other nodes, unless it exists; return its size and SHA-256. Raise StepError."""
        path, note_path = os.path.join(self.root, ARCHIVE), os.path.join(self.state_directory, "archive.json")
        with contextlib.suppress(OSError, ValueError), open(note_path, encoding="utf-8") as stream:
            image_id, size, modified, sha256 = json.load(stream)
            status = os.stat(path)
            if [image_id, size, modified] == [image.id, status.st_size, status.st_mtime_ns]:
                return size, sha256
        self.remove_unfinished()
        free = shutil.disk_usage(self.root).free
        if free < image.size + self.reserve:
            raise StepError(
                f"{self.root} has {format_size(free)} free, but needs {format_size(image.size)} for the archive of "
                f"{self.name} plus a reserve of {self.request['reserve_gib']:g} GiB. Free some space, or set "
                "container_image_directory"
            )
        self.report(f"writing {self.name} to an archive")
        digest, size = hashlib.sha256(), 0
        try:
            with open(path + ".new", "wb") as archive, subprocess.Popen(
                [self.engine.name, "save", self.name], stdout=subprocess.PIPE, stderr=subprocess.PIPE
            ) as engine:
                stdout: Any = engine.stdout  # pipes, as requested
                stderr: Any = engine.stderr
                while True:
                    chunk = stdout.read(CHUNK)
                    if not chunk:
                        break
                    digest.update(chunk)
                    size += archive.write(chunk)
                output = stderr.read().decode("utf-8", "replace")
            if engine.returncode:
                completed = subprocess.CompletedProcess([], engine.returncode, "", output)
                raise self.engine.command_error(f"{self.name} cannot be written to an archive", completed)
        except (OSError, StepError):  # the engine exits once nothing is reading its output
            os.unlink(path + ".new")
            raise
        os.replace(path + ".new", path)
        with open(note_path, "w", encoding="utf-8") as stream:
            json.dump([image.id, size, os.stat(path).st_mtime_ns, digest.hexdigest()], stream)
        return size, digest.hexdigest()

    def remove_unfinished(self) -> None:
        """Remove the partial archive left by a killed call, to free its disk space."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self.root, ARCHIVE + ".new"))

    # - the other nodes

    @property
    def reserve(self) -> float:
        """Number of bytes to keep free."""
        return float(self.request["reserve_gib"] * 2**30)

    def assign_pieces(self) -> list[FilePiece]:
        """Return all pieces, each with the node that reads it from the first node; the first node itself reads none."""
        receivers = max(1, len(self.peers.nodes) - 1)
        return (
            [piece._replace(owner=piece.owner + 1) for piece in split_into_pieces(self.entries, receivers)]
            if self.entries
            else []
        )

    def scan_local(self) -> None:
        """Find out which parts are present, and check the disk space for the rest. Raise StepError."""
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
        """Return the disk space in bytes that the archive or its received pieces already use."""
        entry = self.entries[0]
        self.read_index()
        if self.is_present(0):
            return entry.size
        try:
            # the file is sparse because pieces arrive in any order, so count its 512-byte blocks
            return min(entry.size, os.stat(self.part_path(0)).st_blocks * 512)
        except FileNotFoundError:
            return 0

    def find_loaded(self) -> EngineImage | None:
        """Return the image if the engine has it. Engines identify an archive's image by different digests."""
        return next(filter(None, map(self.engine.find, self.entries[0].key.split())), None)

    def check_disk_space(self, image_bytes: int, archive_bytes: int) -> None:
        """Raise StepError if a disk does not have enough space for the archive and the engine's copies of the image.

        Args:
            image_bytes: Uncompressed size.
            archive_bytes: Bytes of the archive that are still missing.
        """
        self.remove_unfinished()
        root, free = self.engine.free_space()
        unpack_directory = self.engine.unpack_directory()
        store_device, unpack_device, archive_device = (
            os.stat(existing_parent(path)).st_dev for path in (root, unpack_directory, self.root)
        )
        needed = bytes_needed(image_bytes, archive_bytes, store_device, unpack_device, archive_device)
        engine, reserve = self.engine.name, f"plus a reserve of {self.request['reserve_gib']:g} GiB"
        if free < needed[store_device] + self.reserve:
            raise StepError(
                f"{root}, where {engine} keeps images, has {format_size(free)} free, but loading "
                f"{self.name} needs {format_size(needed[store_device])} {reserve}. {self.engine.remedy()}"
            )
        free = shutil.disk_usage(existing_parent(unpack_directory)).free
        if free < needed[unpack_device] + self.reserve:
            raise StepError(
                f"{unpack_directory}, where {engine} unpacks images, has {format_size(free)} free, but loading "
                f"{self.name} needs {format_size(needed[unpack_device])} {reserve}. Free some space, or set "
                "image_copy_tmp_dir, in [engine] of containers.conf, to a directory on a larger disk"
            )

    def fetch_from_source(self, number: int) -> None:
        """Read a piece from the first node."""
        if not self.receive_from_peer(0, number) and not self.failure:
            raise StepError(
                f"{self.request['names'][0]}, which provides the image, has failed (see its message) or is not "
                f"responding, or the data was altered in transit (see {self.state_directory}/log). Run this "
                "again: the transfer resumes"
            )

    def matches_content(self, file_index: int, path: str) -> bool:
        """Return whether a file is the expected archive. If all pieces arrived during this call, they have been
        verified.
        """
        size = self.entries[file_index].size
        if self.from_peers == size:
            return os.path.getsize(path) == size
        return super().matches_content(file_index, path)

    def refetch(self, file_index: int) -> None:
        """Raise StepError because the archive that arrived differs from what was sent."""
        os.unlink(self.part_path(file_index))
        raise StepError(f"the archive of {self.name} was altered in transit. Run this again")

    def handle_request(self, path: str) -> PeerReply:
        """Return the reply to a peer's request; a node without the archive serves no pieces."""
        if self.needs_nothing and path.startswith("/piece/"):
            return PeerReply(410)
        return super().handle_request(path)

    def load_into_engine(self) -> bool:
        """Load the archive into the engine and tag the image; return whether the node changed. Raise StepError."""
        if not self.rank:
            image = self.obtain() if self.shared_archive else self.require(self.name)
            return bool(image.id != self.request["ids"][0])
        if not self.entries:
            return False
        if not self.needs_nothing:
            self.report(f"loading {self.name}")
            completed = self.engine.run("load", "--input", self.target(0))
            if completed.returncode:
                raise self.load_error(completed)
        loaded = self.find_loaded()
        if not loaded:
            first_node, digests = self.request["names"][0], self.entries[0].key.split()
            raise StepError(
                f"{self.engine.name} has loaded {self.name}, but without the digest {' or '.join(digests)} that "
                f"it has on {first_node}. Use the same engine version and image store type on all nodes"
            )
        self.tag(loaded.id, self.name)
        return bool(self.request["ids"][self.rank] != loaded.id)

    def load_error(self, completed: subprocess.CompletedProcess[str]) -> StepError:
        """Return why the engine cannot load the archive; if its disk is full, include the free and required space."""
        engine = self.engine.name
        if not FULL.search(error_output(completed)):
            return self.engine.command_error(f"{engine} cannot load {self.name}", completed)
        try:
            root, free = self.engine.free_space()
        except StepError:  # if the disk is full, the engine may not even respond
            return self.engine.command_error(f"{engine} cannot load {self.name}", completed)
        image_bytes = int(self.entries[0].etag)
        return StepError(
            f"{engine} cannot load {self.name}: {error_output(completed)}. {root}, where {engine} keeps images, "
            f"has {format_size(free)} free, but loading the {format_size(image_bytes)} image needs more than "
            f"twice its size there. {self.engine.remedy()}. Then run this again: the received data is kept"
        )

    def wait_for_peers(self, failed_at: float) -> None:
        """Wait until each peer has learned of this node's failure, since peers retry for a minute otherwise.

        Return early if the next call is about to start, since its nodes must not reach this process.

        Args:
            failed_at: Monotonic time at which this node failed.
        """
        last_seen, other_nodes = self.peers.last_seen, self.peers.other_nodes
        while time.monotonic() < failed_at + FAILURE_GRACE_PERIOD and any(
            last_seen.get(peer, 0.0) < failed_at for peer in other_nodes
        ):
            if self.request_modified_at != modified_at(os.path.join(self.state_directory, "request.json")):
                return
            time.sleep(0.1)
        time.sleep(0.5)  # give the reply to the last peer time to leave

    def remove_temporary_files(self) -> None:
        """Remove temporary files; on the first node, only if all nodes have the image."""
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
    """Return how many bytes are needed on each disk, by device number, while an archive is being loaded.

    Args:
        image_bytes: Size of the image.
        archive_bytes: Bytes of the archive that are still missing.
        store_device, unpack_device, archive_device: Devices on which the engine keeps the image, on which it unpacks it
            first, and on which the archive is stored.
    """
    needed = dict.fromkeys((store_device, unpack_device, archive_device), 0)
    for device, size in ((store_device, image_bytes), (unpack_device, image_bytes), (archive_device, archive_bytes)):
        needed[device] += size
    return needed


def modified_at(path: str) -> int:
    """Return a file's modification time in ns, or 0 if it is missing."""
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0
