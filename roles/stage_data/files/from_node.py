"""A source of the role stage_data: a directory on the first node.

As with a bucket, the other nodes get their shares from the source, here the first node, and the rest from each other.
Standard library of Python >= 3.8.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import fnmatch
import json
import os
from typing import Any, Iterator

from transfer import TransferError, compute_sha256
from wanted import STAGE_DIRECTORY, FileEntry, find_unsafe_paths

FIRST_NODE_FAILED = (
    "the first node, which has the files, has failed or does not answer. See its message, then run this again: "
    "it resumes where it stopped"
)


class DirectorySource:
    """A directory on the first node or, with a list of names, some of its files."""

    name = "the first node"

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request
        self.root = request["path"]

    def is_local(self, rank: int) -> bool:
        """Whether the source is on this node."""
        return rank == 0

    def iter_names(self) -> Iterator[str]:
        """The names of the wanted files and links, relative to the directory."""
        if self.request["list"]:
            with open(self.request["list"], encoding="utf-8") as stream:
                yield from json.load(stream)
            return
        seen_directories = set()
        # A link to a directory means the directory's contents.
        for directory, directories, files in os.walk(self.root, followlinks=True, onerror=raise_error):
            real_path = os.path.realpath(directory)
            if real_path in seen_directories:
                directories.clear()
                continue
            seen_directories.add(real_path)
            directories[:] = sorted(name for name in directories if name != STAGE_DIRECTORY)
            for name in files:
                full_path = os.path.join(directory, name)
                path = os.path.relpath(full_path, self.root)
                if not os.path.isfile(full_path) and not os.path.islink(full_path):
                    continue  # a socket or a pipe, whose reading would never end
                if any(fnmatch.fnmatch(path, pattern) for pattern in self.request["include"]):
                    yield path

    def list_entries(self, transfer: Any) -> list[FileEntry]:
        """The wanted files with their checksums. Raises Fault."""
        if not self.is_local(transfer.rank):
            raise TransferError(FIRST_NODE_FAILED)
        try:
            names = sorted(set(self.iter_names()))
        except FileNotFoundError as error:
            raise TransferError(f"there is no {error.filename}. Correct stage_data_path, or make it") from None
        selected = set(names)
        is_destination = os.path.realpath(self.root) == os.path.realpath(transfer.root)
        checksums = ChecksumCache(
            os.path.join(transfer.state_directory, "index.jsonl" if is_destination else "source.jsonl")
        )
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            entries = list(pool.map(lambda name: self.create_entry(name, selected, checksums), names))
        if not entries:
            raise TransferError(
                f"{self.root} holds no file that is wanted. Correct stage_data_path or stage_data_include"
            )
        unsafe = find_unsafe_paths(entries)
        if unsafe:
            raise TransferError(
                f"{self.root}/{unsafe[0]} has a name that is no path of a file here. Rename it, or exclude it"
            )
        return entries

    def create_entry(self, name: str, selected: set[str], checksums: ChecksumCache) -> FileEntry:
        """The entry of a file. A link to another wanted file stays a link; any other link means its target."""
        path = os.path.join(self.root, name)
        if os.path.islink(path):
            link = os.readlink(path)
            target = os.path.normpath(os.path.join(os.path.dirname(name), link))
            if target in selected and not os.path.isabs(link) and not os.path.islink(os.path.join(self.root, target)):
                return FileEntry(name, name, 0, "", "", link)
        return FileEntry(name, name, os.stat(path).st_size, "", checksums.sha256(name, path))

    def matches_content(self, _entry: FileEntry, _path: str) -> bool | None:
        """Whether a file without a SHA-256 is right; not needed, since all files have one."""
        return False

    def corrupt_message(self, entry: FileEntry) -> str:
        """The message for a file that is wrong at its source."""
        return (
            f"{entry.path} came with another content than the first node had told. It was not put in place. "
            f"If {self.root} is not written to there, run this again; else look at that node's disk"
        )

    def read(self, transfer: Any, entry: FileEntry, start: int, length: int) -> bytes:
        """Get a piece: on the first node from its disk, elsewhere from the first node. Raises Fault."""
        if self.is_local(transfer.rank):
            with open(os.path.join(self.root, entry.path), "rb") as stream:
                stream.seek(start)
                body = stream.read(length)
            if len(body) != length:
                raise TransferError(f"{self.root}/{entry.path} was changed meanwhile. Run this again")
            return body
        number = transfer.piece_number(entry, start)
        while not transfer.failure and not transfer.peers.unavailable[0]:
            content: bytes | None = transfer.peers.query(0, f"/piece/{number}")
            if content is not None and len(content) == length:
                return content
        raise TransferError(transfer.failure or FIRST_NODE_FAILED)


class ChecksumCache:
    """A file of known checksums, by path, with size and modification time."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.entries: dict[str, list[Any]] = {}
        with contextlib.suppress(OSError), open(path, encoding="utf-8") as stream:
            for line in stream:
                with contextlib.suppress(ValueError):  # a truncated line
                    name, *values = json.loads(line)
                    self.entries[name] = values

    def sha256(self, name: str, path: str) -> str:
        """The checksum of a file, computed if it is not known."""
        status = os.stat(path)
        size, modified, checksum = self.entries.get(name, [-1, -1, ""])
        if (size, modified) == (status.st_size, status.st_mtime_ns) and len(checksum) == 64:
            return str(checksum)
        checksum = compute_sha256(path)
        with open(self.path, "a", encoding="utf-8") as stream:
            stream.write(json.dumps([name, status.st_size, status.st_mtime_ns, checksum]) + "\n")
        return checksum


def raise_error(error: OSError) -> None:
    """Raise an error for an unreadable directory, which must not count as empty."""
    raise error
