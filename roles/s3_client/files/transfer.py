"""Shared by a node's programs that move files: faults, sizes in words, rate limits, and reading files.

Standard library of Python >= 3.8.
"""

from __future__ import annotations

import hashlib
import threading
import time
from typing import Iterator

MIB = 2**20
CHUNK = MIB


class TransferError(Exception):
    """What was found, what is needed and what to do, in one line."""


def format_size(size: float) -> str:
    """A number of bytes for a person."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.2f} TB"


class RateLimiter:
    """Limits the bytes per second, 0: unlimited. Thread-safe."""

    def __init__(self, bytes_per_second: float) -> None:
        self.rate = bytes_per_second
        self.free_at = 0.0
        self.lock = threading.Lock()

    def acquire(self, size: int) -> None:
        """Wait until this many bytes may pass."""
        if self.rate <= 0:
            return
        with self.lock:
            now = time.monotonic()
            start = max(now, self.free_at)
            self.free_at = start + size / self.rate
        time.sleep(start - now)


def read_pieces(path: str, size: int) -> Iterator[bytes]:
    """The content of a file in pieces of `size` bytes; at least one piece."""
    with open(path, "rb") as stream:
        piece = stream.read(size)
        yield piece
        while len(piece) == size:
            piece = stream.read(size)
            if piece:
                yield piece


def compute_sha256(path: str) -> str:
    """The SHA-256 of a file."""
    digest = hashlib.sha256()
    for piece in read_pieces(path, CHUNK):
        digest.update(piece)
    return digest.hexdigest()
