# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Process files in chunks: read them, compute their checksums and format their sizes."""

from __future__ import annotations

import hashlib
from typing import Iterator

MIB = 2**20
CHUNK = MIB


def format_size(size: float) -> str:
    """Return a number of bytes as text, such as "1.5 MB"."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.2f} TB"


def read_pieces(path: str, size: int) -> Iterator[bytes]:
    """Yield a file's content in chunks of `size` bytes; yield at least one chunk, even if the file is empty."""
    with open(path, "rb") as stream:
        piece = stream.read(size)
        yield piece
        while len(piece) == size:
            piece = stream.read(size)
            if piece:
                yield piece


def compute_sha256(path: str) -> str:
    """Return the SHA-256 of a file, in hex."""
    digest = hashlib.sha256()
    for piece in read_pieces(path, CHUNK):
        digest.update(piece)
    return digest.hexdigest()
