# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The content of a hub: repositories of models and data sets with their commits."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Kind = Literal["model", "dataset"]
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n"


def git_blob_hash(body: bytes) -> str:
    """Return git's hash of a content."""
    return hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()


@dataclass(frozen=True)
class HubFile:
    """A file in a commit. The content of a large one is in the storage, and git has a pointer to it."""

    body: bytes
    large: bool

    @property
    def sha256(self) -> str:
        """The SHA-256 of the content, by which the storage names it."""
        return hashlib.sha256(self.body).hexdigest()

    @property
    def pointer(self) -> bytes:
        """Git's pointer to a large file."""
        return POINTER.format(sha256=self.sha256, size=len(self.body)).encode()

    @property
    def blob(self) -> str:
        """Git's hash of the content or pointer."""
        return git_blob_hash(self.pointer if self.large else self.body)

    @property
    def etag(self) -> str:
        """The ETag by which the hub identifies the content."""
        return self.sha256 if self.large else self.blob


@dataclass
class HubRepository:
    """A repository.

    Attributes:
        gated: Whether only accounts that have accepted its license may read its files.
        private: Whether requests need a token.
    """

    kind: Kind
    name: str
    gated: bool = False
    private: bool = False
    commits: dict[str, dict[str, HubFile]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)

    def commit(self, files: dict[str, bytes], *, ref: str = "main", large: int = 1024) -> str:
        """Make these files the content of a branch; return the commit.

        Args:
            large: Size in bytes from which a file is in the storage.
        """
        commit_files = {path: HubFile(body, len(body) >= large) for path, body in sorted(files.items())}
        tree = "".join(f"{path} {file.blob}\n" for path, file in commit_files.items())
        name = hashlib.sha1(f"{self.kind} {self.name} {len(self.commits)}\n{tree}".encode()).hexdigest()
        self.commits[name] = commit_files
        self.refs[ref] = name
        return name

    def resolve(self, revision: str) -> str | None:
        """Return the commit of a revision, or None."""
        return revision if revision in self.commits else self.refs.get(revision)


def read_directory(directory: Path) -> dict[str, bytes]:
    """Return the files below a directory."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}
