# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Split the files that the role stage_data copies into pieces that the nodes share, and serialize the list of files."""

from __future__ import annotations

import json
import os
from typing import NamedTuple

from ansible_collections.muster.training.plugins.module_utils._detached.result_line import StepError
from ansible_collections.muster.training.plugins.module_utils._files.content import MIB

PIECE_SIZE = 64 * MIB
REQUEST_OVERHEAD = 64 * 1024  # number of bytes that a request is counted as when pieces are assigned to nodes
MAX_PIECES = 2**22  # pieces of all files, equivalent to 256 TiB of large files: a list of more does not fit into memory
MAX_TEXT = 4096  # number of characters of a path or key
STAGE_DIRECTORY = ".muster-stage"
MAX_FILES = 10**7


class FileEntry(NamedTuple):
    """A file to copy. It has one checksum: `etag` from S3, or `sha256` of the content.

    If `link` is set, it is a symbolic link to another file of the list; `link` is the link's relative target.
    """

    path: str
    key: str
    size: int
    etag: str
    sha256: str
    link: str = ""

    @property
    def checksum(self) -> str:
        """Return the checksum that identifies the content."""
        return self.sha256 or self.etag

    @property
    def link_target(self) -> str:
        """Return the path of a link's target, relative to the directory."""
        return os.path.normpath(os.path.join(os.path.dirname(self.path), self.link))


class FilePiece(NamedTuple):
    """A piece of a file: the file's index, the byte range, and the node that reads it from the source."""

    file_index: int
    start: int
    length: int
    owner: int


def split_into_pieces(entries: list[FileEntry], nodes: int) -> list[FilePiece]:
    """Return all pieces, each with its node; the nodes' shares are equal in bytes and requests."""
    spans = [(file_index, start, min(PIECE_SIZE, entry.size - start))
             for file_index, entry in enumerate(entries) for start in range(0, entry.size, PIECE_SIZE)]  # fmt: skip
    total = sum(length + REQUEST_OVERHEAD for _index, _start, length in spans)
    pieces, bytes_before = [], 0
    for file_index, start, length in spans:
        midpoint = bytes_before + (length + REQUEST_OVERHEAD) // 2
        pieces.append(FilePiece(file_index, start, length, midpoint * nodes // total))
        bytes_before += length + REQUEST_OVERHEAD
    return pieces


def is_inside(path: str) -> bool:
    """Return whether a path stays below its directory."""
    parts = path.split("/")
    return "\0" not in path and not {"", ".", ".."} & set(parts) and parts[0] != STAGE_DIRECTORY


def find_unsafe_paths(entries: list[FileEntry]) -> list[str]:
    """Return paths that must not be written: outside the directory, below a link, or a link to an unlisted file."""
    files = {entry.path for entry in entries if not entry.link}
    links = {entry.path for entry in entries if entry.link}
    unsafe = []
    for entry in entries:
        parts = entry.path.split("/")
        parents = {"/".join(parts[:length]) for length in range(1, len(parts))}
        is_bad_link = bool(entry.link) and (
            entry.link.startswith("/") or entry.link_target not in files or entry.size != 0
        )
        if not is_inside(entry.path) or parents & links or is_bad_link:
            unsafe.append(entry.path)
    return unsafe


def is_entry(entry: FileEntry) -> bool:
    """Return whether the fields of an entry from another node have valid types and ranges."""
    texts = (entry.path, entry.key, entry.etag, entry.sha256, entry.link)
    if not all(isinstance(text, str) and len(text) <= MAX_TEXT for text in texts):
        return False
    return isinstance(entry.size, int) and not isinstance(entry.size, bool) and 0 <= entry.size < 2**63


def parse_plan(plan: bytes) -> list[FileEntry]:
    """Return the first node's file list. Raise StepError if it is invalid or a path leaves the directory."""
    try:
        content = json.loads(plan)
        if not isinstance(content, list) or len(content) > MAX_FILES:
            raise ValueError("not a list of files")
        entries = [FileEntry(*fields) for fields in content]
        if not all(map(is_entry, entries)) or sum(entry.size // PIECE_SIZE + 1 for entry in entries) > MAX_PIECES:
            raise ValueError("not files, or too large")
        unsafe = find_unsafe_paths(entries)
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise StepError("the first node sent an invalid file list. Run this again") from None
    if unsafe:
        raise StepError(
            f"the first node's list contains {unsafe[0]!r}, which is not a path inside the directory. Nothing "
            "was written. Check whether someone else has access to the first node"
        )
    return entries
