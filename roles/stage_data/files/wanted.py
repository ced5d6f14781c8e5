"""The files that the role stage_data copies: cut into pieces that the nodes share, and as a list to send.

Standard library of Python >= 3.8.
"""

from __future__ import annotations

import json
import os
from typing import NamedTuple

from transfer import MIB, Fault

PIECE = 64 * MIB
OVERHEAD = 64 * 1024  # bytes that a request for a piece counts for when the work is shared
OWN = ".muster-stage"


class Entry(NamedTuple):
    """A wanted file. One checksum is known: `etag` is S3's, `sha256` that of the content.

    With `link` it is a symbolic link to another wanted file; `link` is the link's relative target.
    """

    path: str
    key: str
    size: int
    etag: str
    sha256: str
    link: str = ""

    @property
    def tag(self) -> str:
        """The checksum that identifies the content."""
        return self.sha256 or self.etag

    @property
    def linked(self) -> str:
        """The path of a link's target."""
        return os.path.normpath(os.path.join(os.path.dirname(self.path), self.link))


class Piece(NamedTuple):
    """A piece of a file. `entry` is the file's number, `owner` the node that gets it from the source."""

    entry: int
    start: int
    length: int
    owner: int


def cut(entries: list[Entry], nodes: int) -> list[Piece]:
    """All pieces, each with its node; the nodes' shares are equal in bytes and requests."""
    spans = [(number, start, min(PIECE, one.size - start))
             for number, one in enumerate(entries) for start in range(0, one.size, PIECE)]  # fmt: skip
    total = sum(length + OVERHEAD for _number, _start, length in spans)
    pieces, before = [], 0
    for number, start, length in spans:
        middle = before + (length + OVERHEAD) // 2
        pieces.append(Piece(number, start, length, middle * nodes // total))
        before += length + OVERHEAD
    return pieces


def inside(path: str) -> bool:
    """Whether a path stays below its directory."""
    parts = path.split("/")
    return "\0" not in path and not {"", ".", ".."} & set(parts) and parts[0] != OWN


def leads_elsewhere(entries: list[Entry]) -> list[str]:
    """The paths that must not be written: outside the directory, below a link, or a link to none of these files."""
    files = {one.path for one in entries if not one.link}
    links = {one.path for one in entries if one.link}
    wrong = []
    for one in entries:
        parts = one.path.split("/")
        above = {"/".join(parts[:number]) for number in range(1, len(parts))}
        strays = bool(one.link) and (one.link.startswith("/") or one.linked not in files or one.size != 0)
        if not inside(one.path) or above & links or strays:
            wrong.append(one.path)
    return wrong


def read_plan(told: bytes) -> list[Entry]:
    """Read the first node's list of wanted files. Raises Fault if it is invalid or a path leaves the directory."""
    try:
        entries = [Entry(*one) for one in json.loads(told)]
        wrong = leads_elsewhere(entries)
    except (ValueError, TypeError, AttributeError):
        raise Fault("the first node sent a list of files that cannot be read. Run this again") from None
    if wrong:
        raise Fault(
            f"the first node names {wrong[0]!r}, which is no path below the directory. Nothing was written. "
            "Check whether somebody else has access to the first node"
        )
    return entries
