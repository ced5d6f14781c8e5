# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a hub holds: repositories of models and data sets with their commits."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Kind = Literal["model", "dataset"]
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n"


def git_blob_hash(body: bytes) -> str:
    """The name that git gives to a content."""
    return hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()


@dataclass(frozen=True)
class HubFile:
    """A file of a commit. A large one lies in the storage, and git has a pointer to it."""

    body: bytes
    large: bool

    @property
    def sha256(self) -> str:
        """The hash of its content, by which the storage names it."""
        return hashlib.sha256(self.body).hexdigest()

    @property
    def pointer(self) -> bytes:
        """What git has of a large one."""
        return POINTER.format(sha256=self.sha256, size=len(self.body)).encode()

    @property
    def blob(self) -> str:
        """The name of what git has."""
        return git_blob_hash(self.pointer if self.large else self.body)

    @property
    def etag(self) -> str:
        """By what the hub tells its content."""
        return self.sha256 if self.large else self.blob


@dataclass
class Repository:
    """One repository.

    gated: its files are for accounts that have accepted its licence. private: it is for tokens alone.
    """

    kind: Kind
    name: str
    gated: bool = False
    private: bool = False
    commits: dict[str, dict[str, HubFile]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)

    def commit(self, files: dict[str, bytes], *, ref: str = "main", large: int = 1024) -> str:
        """Make these files the content of a branch; those from so many bytes on are large ones. Returns the commit."""
        commit_files = {path: HubFile(body, len(body) >= large) for path, body in sorted(files.items())}
        tree = "".join(f"{path} {file.blob}\n" for path, file in commit_files.items())
        name = hashlib.sha1(f"{self.kind} {self.name} {len(self.commits)}\n{tree}".encode()).hexdigest()
        self.commits[name] = commit_files
        self.refs[ref] = name
        return name

    def resolve(self, revision: str) -> str | None:
        """The commit of a revision."""
        return revision if revision in self.commits else self.refs.get(revision)


def read_directory(directory: Path) -> dict[str, bytes]:
    """The files below a directory."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}
