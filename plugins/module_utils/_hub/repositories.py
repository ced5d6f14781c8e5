# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A hub's repositories and their files."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

COMMIT = re.compile(r"[0-9a-f]{40}")


class RepositoryFile(NamedTuple):
    """A file in a repository. Large files have a `sha256`; others have a `blob`, git's hash of the content."""

    path: str
    size: int
    sha256: str
    blob: str


class RepositorySnapshot(NamedTuple):
    """The selected files of one commit of a repository."""

    kind: str
    name: str
    revision: str
    commit: str
    files: tuple[RepositoryFile, ...]

    @property
    def folder(self) -> str:
        """The repository's directory in the cache, named as the library names it."""
        return "--".join([f"{self.kind}s", *self.name.split("/")])

    def pointer_path(self, file: RepositoryFile) -> str:
        """Return the path, relative to the cache, at which programs find a file."""
        return f"{self.folder}/snapshots/{self.commit}/{file.path}"


def parse_repository(fields: Any) -> RepositorySnapshot:
    """Return a repository from a document's fields."""
    kind, name, revision, commit, files = fields
    return RepositorySnapshot(
        kind, name, revision, commit, tuple(RepositoryFile(*file_fields) for file_fields in files)
    )
