# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""File source of the role stage_data: a directory on the first node.

As with a bucket, the other nodes read their shares from the source, here the first node, and the rest from each other.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import fnmatch
import json
import os
from typing import Any, Iterator

from ansible_collections.muster.training.plugins.module_utils._detached.result_line import StepError
from ansible_collections.muster.training.plugins.module_utils._files.content import compute_sha256
from ansible_collections.muster.training.plugins.module_utils._files.walk import raise_error
from ansible_collections.muster.training.plugins.module_utils._stage_data.pieces import (
    STAGE_DIRECTORY,
    FileEntry,
    find_unsafe_paths,
)

FIRST_NODE_FAILED = (
    "the first node, which has the files, has failed or is not responding. See its message, then run this again: "
    "the transfer resumes"
)


class DirectorySource:
    """A directory on the first node, or the files in it that a list names."""

    name = "the first node"

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request
        self.root = request["path"]

    def is_local(self, rank: int) -> bool:
        """Return whether the source is on this node."""
        return rank == 0

    def iter_names(self) -> Iterator[str]:
        """Yield the names of the selected files and links, relative to the directory."""
        if self.request["list"]:
            with open(self.request["list"], encoding="utf-8") as stream:
                yield from json.load(stream)
            return
        seen_directories = set()
        # A link to a directory stands for that directory's contents.
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
                    continue  # reading a socket or a pipe would never end
                if any(fnmatch.fnmatch(path, pattern) for pattern in self.request["include"]):
                    yield path

    def list_entries(self, transfer: Any) -> list[FileEntry]:
        """Return the selected files with their checksums. Raise StepError if a file is missing or unsafe."""
        if not self.is_local(transfer.rank):
            raise StepError(FIRST_NODE_FAILED)
        try:
            names = sorted(set(self.iter_names()))
        except FileNotFoundError as error:
            raise StepError(f"{error.filename} does not exist. Correct stage_data_path, or create it") from None
        selected = set(names)
        is_destination = os.path.realpath(self.root) == os.path.realpath(transfer.root)
        checksums = ChecksumCache(
            os.path.join(transfer.state_directory, "index.jsonl" if is_destination else "source.jsonl")
        )
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            entries = list(pool.map(lambda name: self.create_entry(name, selected, checksums), names))
        if not entries:
            raise StepError(f"{self.root} contains no matching file. Correct stage_data_path or stage_data_include")
        unsafe = find_unsafe_paths(entries)
        if unsafe:
            raise StepError(f"{self.root}/{unsafe[0]} is not a valid relative file path. Rename it, or exclude it")
        return entries

    def create_entry(self, name: str, selected: set[str], checksums: ChecksumCache) -> FileEntry:
        """Return the entry of a file. Links to selected files stay links, others are replaced by their targets."""
        path = os.path.join(self.root, name)
        if os.path.islink(path):
            link = os.readlink(path)
            target = os.path.normpath(os.path.join(os.path.dirname(name), link))
            if target in selected and not os.path.isabs(link) and not os.path.islink(os.path.join(self.root, target)):
                return FileEntry(name, name, 0, "", "", link)
        return FileEntry(name, name, os.stat(path).st_size, "", checksums.sha256(name, path))

    def matches_content(self, _entry: FileEntry, _path: str) -> bool | None:
        """Return False; this is never called, since all of this source's entries have a SHA-256."""
        return False

    def corrupt_message(self, entry: FileEntry) -> str:
        """Return the error message for a file whose content is wrong at the source."""
        return (
            f"{entry.path} does not have the checksum that the first node reported, and was discarded. "
            f"If another program writes to {self.root} there, stop it and run this again; otherwise check that "
            "node's disk"
        )

    def read(self, transfer: Any, entry: FileEntry, start: int, length: int) -> bytes:
        """Return a piece, read from disk on the first node and from the first node elsewhere. Raise StepError."""
        if self.is_local(transfer.rank):
            with open(os.path.join(self.root, entry.path), "rb") as stream:
                stream.seek(start)
                body = stream.read(length)
            if len(body) != length:
                raise StepError(f"{self.root}/{entry.path} changed while it was being read. Run this again")
            return body
        number = transfer.piece_number(entry, start)
        while not transfer.failure and not transfer.peers.unavailable[0]:
            content: bytes | None = transfer.peers.query(0, f"/piece/{number}")
            if content is not None and len(content) == length:
                return content
        raise StepError(transfer.failure or FIRST_NODE_FAILED)


class ChecksumCache:
    """Cached checksums by file name, valid while size and modification time are unchanged."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.entries: dict[str, list[Any]] = {}
        with contextlib.suppress(OSError), open(path, encoding="utf-8") as stream:
            for line in stream:
                with contextlib.suppress(ValueError):  # a truncated line
                    name, *values = json.loads(line)
                    self.entries[name] = values

    def sha256(self, name: str, path: str) -> str:
        """Return the checksum of a file, computed unless it is cached."""
        status = os.stat(path)
        size, modified, checksum = self.entries.get(name, [-1, -1, ""])
        if (size, modified) == (status.st_size, status.st_mtime_ns) and len(checksum) == 64:
            return str(checksum)
        checksum = compute_sha256(path)
        with open(self.path, "a", encoding="utf-8") as stream:
            stream.write(json.dumps([name, status.st_size, status.st_mtime_ns, checksum]) + "\n")
        return checksum
