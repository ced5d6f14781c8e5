"""Common functions of the node programs that move files: error type, size formatting, rate limit, reading files."""

from __future__ import annotations

import hashlib
import threading
import time
from typing import Iterator

MIB = 2**20
CHUNK = MIB


class TransferError(Exception):
    """A failed transfer; the message is one line that says what is wrong and what to do."""


def format_size(size: float) -> str:
    """Return a number of bytes as text, such as "1.5 MB"."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.2f} TB"


class RateLimiter:
    """A thread-safe limit in bytes per second; 0 means unlimited."""

    def __init__(self, bytes_per_second: float) -> None:
        self.rate = bytes_per_second
        self.free_at = 0.0
        self.lock = threading.Lock()

    def acquire(self, size: int) -> None:
        """Wait until this many bytes may be sent."""
        if self.rate <= 0:
            return
        with self.lock:
            now = time.monotonic()
            start = max(now, self.free_at)
            self.free_at = start + size / self.rate
        time.sleep(start - now)


def read_pieces(path: str, size: int) -> Iterator[bytes]:
    """Yield the content of a file in pieces of `size` bytes; at least one piece, even if the file is empty."""
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
