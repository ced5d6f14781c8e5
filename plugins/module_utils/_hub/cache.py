# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The Hub library's cache below HF_HOME, in the library's own layout."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._files.content import CHUNK, read_pieces
from ansible_collections.muster.training.plugins.module_utils._files.text import write
from ansible_collections.muster.training.plugins.module_utils._hub.repositories import (
    RepositoryFile,
    RepositorySnapshot,
)
from ansible_collections.muster.training.plugins.module_utils._stage_data.from_node import ChecksumCache
from ansible_collections.muster.training.plugins.module_utils._stage_data.pieces import STAGE_DIRECTORY, is_inside

HUB_DIRECTORY = ".muster-hub"


class HubCache:
    """The library's cache below HF_HOME, and this program's documents about it."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.home = request["home"]
        self.hub = os.path.join(self.home, "hub")
        self.document_directory = os.path.join(self.home, HUB_DIRECTORY)
        for directory in (os.path.join(self.hub, STAGE_DIRECTORY), self.document_directory):
            os.makedirs(directory, mode=0o700, exist_ok=True)
        # The transfer to the other nodes uses the same checksums, so large files are read only once.
        self.checksums = ChecksumCache(os.path.join(self.hub, STAGE_DIRECTORY, "index.jsonl"))

    def read(self, name: str) -> Any:
        """Return one of the documents, or None if it does not exist."""
        with contextlib.suppress(OSError, ValueError), open(
            os.path.join(self.document_directory, name), encoding="utf-8"
        ) as stream:
            return json.load(stream)
        return None

    def write(self, name: str, content: Any) -> None:
        """Write one of the documents."""
        write(os.path.join(self.document_directory, name), json.dumps(content))

    def content_path(self, repository: RepositorySnapshot, file: RepositoryFile) -> str:
        """Return the path of a file's content, relative to the cache."""
        pointer = repository.pointer_path(file)
        path = os.path.join(self.hub, pointer)
        if not os.path.islink(path):
            return pointer
        return os.path.normpath(os.path.join(os.path.dirname(pointer), os.readlink(path)))

    def matches_content(self, repository: RepositorySnapshot, file: RepositoryFile) -> bool:
        """Return whether a file exists and has the same content as on the hub."""
        name = self.content_path(repository, file)
        path = os.path.join(self.hub, name)
        if not is_inside(name) or not os.path.isfile(path) or os.path.getsize(path) != file.size:
            return False
        if file.sha256:
            return self.checksums.sha256(name, path) == file.sha256
        digest = hashlib.sha1(b"blob %d\0" % file.size)
        for piece in read_pieces(path, CHUNK):
            digest.update(piece)
        return digest.hexdigest() == file.blob

    def remove(self, repository: RepositorySnapshot, file: RepositoryFile) -> None:
        """Remove a corrupt file, which the library would otherwise accept."""
        for path in (
            os.path.join(self.hub, self.content_path(repository, file)),
            os.path.join(self.hub, repository.pointer_path(file)),
        ):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def downloaded_bytes(self, repositories: list[RepositorySnapshot]) -> int:
        """Return how many bytes of these repositories are on this disk, including incomplete files."""
        size = 0
        for folder in {repository.folder for repository in repositories}:
            with contextlib.suppress(OSError), os.scandir(os.path.join(self.hub, folder, "blobs")) as blobs:
                for blob in blobs:
                    with contextlib.suppress(OSError):  # it has just been renamed
                        size += blob.stat().st_size
        return size
