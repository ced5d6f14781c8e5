# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fetch the key of a package source, and keep only trusted keys.

Only a fingerprint makes a key trusted. Only trusted keys are written to the keyring, in the binary form that apt reads
directly. Private to this collection. Runs on the node as root, standard library only, Python >= 3.8.
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
MOST = 2**20  # largest key file in bytes
PATIENCE = 60  # seconds of silence from the server


class Problem(Exception):
    """A problem, described for a person."""


def without_armor(text: bytes) -> bytes:
    """The packets of a key file, armored or binary. Armor headers end with an empty line."""
    blocks = BLOCK.findall(text.replace(b"\r", b""))
    if not blocks:
        return text
    packets = b""
    for block in blocks:
        lines = block.partition(b"\n\n")[2].split()
        packets += base64.b64decode(b"".join(line for line in lines if not line.startswith(b"=")), validate=True)
    return packets


def split(data: bytes) -> list[tuple[int, bytes, bytes]]:
    """The packets of OpenPGP data (RFC 9580, 4.2): tag, body, and the whole packet. Raises ValueError."""
    packets, place = [], 0
    while place < len(data):
        start, head = place, data[place]
        if not head & 0x80:
            raise ValueError("no packet begins there")
        first = data[place + 1] if place + 1 < len(data) else 255
        if head & 0x40:
            tag = head & 0x3F
            size = 1 if first < 192 else 2 if first < 224 else 5
            lengths = data[place + 1 : place + 1 + size]
            if 224 <= first < 255 or len(lengths) < size:
                raise ValueError("its length is not told")
            length = (
                first if size == 1 else ((first - 192) << 8) + lengths[1] + 192 if size == 2 else number(lengths[1:])
            )
        else:
            tag, size = head >> 2 & 0x0F, {0: 1, 1: 2, 2: 4}.get(head & 3, 0)
            lengths = data[place + 1 : place + 1 + size]
            if not size or len(lengths) < size:
                raise ValueError("its length is not told")
            length = number(lengths)
        place += 1 + size + length
        if place > len(data):
            raise ValueError("it is cut off")
        packets.append((tag, data[place - length : place], data[start:place]))
    return packets


def number(data: bytes) -> int:
    """Big-endian bytes as a number."""
    return int.from_bytes(data, "big")


def fingerprint(body: bytes) -> str:
    """The fingerprint of a version 4 key (RFC 9580, 5.5.4.2). Raises ValueError for other versions."""
    if body[:1] != b"\x04":
        raise ValueError(f"it holds a key of version {body[0] if body else '?'}")
    return hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body).hexdigest().upper()


def keys(data: bytes) -> dict[str, bytes]:
    """All keys by fingerprint, each with its packets. Raises ValueError."""
    found: dict[str, bytes] = {}
    current = ""
    for tag, body, packet in split(data):
        if tag == PUBLIC_KEY:
            current = fingerprint(body)
        if not current:
            raise ValueError("it does not begin with a key")
        found[current] = found.get(current, b"") + packet
    return found


def chosen(text: bytes, known: set[str]) -> bytes:
    """The trusted keys. Raises Problem if there is none."""
    try:
        found = keys(without_armor(text))
    except (ValueError, binascii.Error) as error:
        raise Problem(f"what was fetched is no file of keys ({error})") from None
    ring = b"".join(packets for name, packets in found.items() if name in known)
    if not ring:
        raise Problem(f"its fingerprint is {', '.join(found) or 'none, the file is empty'}")
    return ring


def fetch(url: str) -> bytes:
    """The content of a URL, or of a file on this machine. Raises Problem."""
    try:
        with urllib.request.build_opener().open(
            f"file://{url}" if url.startswith("/") else url, timeout=PATIENCE
        ) as answer:
            text: bytes = answer.read(MOST + 1)
    except (OSError, ValueError) as error:
        raise Problem(f"it cannot be fetched: {error}") from None
    if len(text) > MOST:
        raise Problem(f"what was fetched has more than {MOST} bytes, and is no file of keys")
    return text


def plain(fingerprint: str) -> str:
    """A fingerprint in fingerprint()'s form: no blanks, upper case."""
    return re.sub(r"\s", "", fingerprint).upper()


def before(path: str) -> bytes:
    """The existing keyring, empty if there is none."""
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except FileNotFoundError:
        return b""


def keep(ring: bytes, path: str, check: bool = False) -> bool:
    """Write the keyring atomically; return whether it changes, also in check mode."""
    if before(path) == ring:
        return False
    if not check:
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        with open(f"{path}.new", "wb") as stream:
            stream.write(ring)
        os.chmod(f"{path}.new", 0o644)
        os.replace(f"{path}.new", path)
    return True
