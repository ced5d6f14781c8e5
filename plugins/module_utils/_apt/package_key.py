# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Download the keys of a package source, and keep only trusted keys. Needs root.

A key is trusted only by its fingerprint. Only trusted keys are written to the keyring, in the binary format that apt
reads directly.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
import urllib.request

BLOCK = re.compile(rb"-----BEGIN PGP PUBLIC KEY BLOCK-----(.*?)-----END PGP PUBLIC KEY BLOCK-----", re.DOTALL)
PUBLIC_KEY = 6  # tag of a key's first packet
MAX_BYTES = 2**20  # largest key file in bytes
TIMEOUT = 60  # seconds of silence from the server


class PackageKeyError(Exception):
    """The keys cannot be downloaded or used; the message explains why."""


def without_armor(text: bytes) -> bytes:
    """Return the packets of a key file, armored or binary. Armor headers end with an empty line."""
    blocks = BLOCK.findall(text.replace(b"\r", b""))
    if not blocks:
        return text
    packets = b""
    for block in blocks:
        lines = block.partition(b"\n\n")[2].split()
        packets += base64.b64decode(b"".join(line for line in lines if not line.startswith(b"=")), validate=True)
    return packets


def parse_packets(data: bytes) -> list[tuple[int, bytes, bytes]]:
    """Parse OpenPGP data into packets (RFC 9580, 4.2): tag, body, and the whole packet. Raise ValueError."""
    packets, position = [], 0
    while position < len(data):
        start, tag_byte = position, data[position]
        if not tag_byte & 0x80:
            raise ValueError("invalid packet header")
        first = data[position + 1] if position + 1 < len(data) else 255
        if tag_byte & 0x40:
            tag = tag_byte & 0x3F
            size = 1 if first < 192 else 2 if first < 224 else 5
            lengths = data[position + 1 : position + 1 + size]
            if 224 <= first < 255 or len(lengths) < size:
                raise ValueError("truncated packet length")
            length = (
                first if size == 1 else ((first - 192) << 8) + lengths[1] + 192 if size == 2 else to_int(lengths[1:])
            )
        else:
            tag, size = tag_byte >> 2 & 0x0F, {0: 1, 1: 2, 2: 4}.get(tag_byte & 3, 0)
            lengths = data[position + 1 : position + 1 + size]
            if not size or len(lengths) < size:
                raise ValueError("truncated packet length")
            length = to_int(lengths)
        position += 1 + size + length
        if position > len(data):
            raise ValueError("truncated packet")
        packets.append((tag, data[position - length : position], data[start:position]))
    return packets


def to_int(data: bytes) -> int:
    """Return big-endian bytes as an integer."""
    return int.from_bytes(data, "big")


def fingerprint(body: bytes) -> str:
    """Return the fingerprint of a version 4 key (RFC 9580, 5.5.4.2). Raise ValueError for other versions."""
    if body[:1] != b"\x04":
        raise ValueError(f"unsupported key version {body[0] if body else '?'}")
    return hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body).hexdigest().upper()


def parse_keys(data: bytes) -> dict[str, bytes]:
    """Return all keys by fingerprint, each with its packets. Raise ValueError if the data is invalid."""
    packets_by_fingerprint: dict[str, bytes] = {}
    current = ""
    for tag, body, packet in parse_packets(data):
        if tag == PUBLIC_KEY:
            current = fingerprint(body)
        if not current:
            raise ValueError("the first packet is not a key")
        packets_by_fingerprint[current] = packets_by_fingerprint.get(current, b"") + packet
    return packets_by_fingerprint


def select_trusted(text: bytes, trusted: set[str]) -> bytes:
    """Return the trusted keys. Raise PackageKeyError if there are none."""
    try:
        keys = parse_keys(without_armor(text))
    except (ValueError, binascii.Error) as error:
        raise PackageKeyError(f"the downloaded file is not a key file ({error})") from None
    ring = b"".join(packets for name, packets in keys.items() if name in trusted)
    if not ring:
        raise PackageKeyError(f"its fingerprint is {', '.join(keys) or 'none, the file is empty'}")
    return ring


def fetch(url: str) -> bytes:
    """Return the content of a URL, or of a file on this machine. Raise PackageKeyError."""
    try:
        with urllib.request.build_opener().open(
            f"file://{url}" if url.startswith("/") else url, timeout=TIMEOUT
        ) as response:
            text: bytes = response.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise PackageKeyError(f"it cannot be downloaded: {error}") from None
    if len(text) > MAX_BYTES:
        raise PackageKeyError(f"the downloaded file has more than {MAX_BYTES} bytes, and is not a key file")
    return text


def normalize(fingerprint: str) -> str:
    """Return a fingerprint in fingerprint()'s format: no blanks, upper case."""
    return re.sub(r"\s", "", fingerprint).upper()


def read_keyring(path: str) -> bytes:
    """Return the existing keyring, or b"" if there is none."""
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except FileNotFoundError:
        return b""


def ensure_keyring(ring: bytes, path: str, check: bool = False) -> bool:
    """Write the keyring atomically; return whether it changes, also in check mode."""
    if read_keyring(path) == ring:
        return False
    if not check:
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        with open(f"{path}.new", "wb") as stream:
            stream.write(ring)
        os.chmod(f"{path}.new", 0o644)
        os.replace(f"{path}.new", path)
    return True
