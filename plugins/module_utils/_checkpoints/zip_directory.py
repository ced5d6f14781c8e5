# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read a zip archive's directory, which is at its end, so a truncated archive has none. Nothing is decompressed."""

from __future__ import annotations

import collections
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing would cost each node a few milliseconds
    from typing import BinaryIO

MAX_DIRECTORY_BYTES = 64 * 2**20
MAX_ENTRIES = 500_000
END = struct.Struct("<4s4H2LH")
END64_LOCATOR = struct.Struct("<4sLQL")
END64 = struct.Struct("<4sQ2H2L4Q")
ENTRY = struct.Struct("<4s6H3L5H2L")
LOCAL_HEADER = struct.Struct("<4s5H3L2H")
STORED = 0
UNKNOWN_32, UNKNOWN_16 = 0xFFFFFFFF, 0xFFFF

# header: position of the entry's local header; size: bytes in the archive; method: compression method
Entry = collections.namedtuple("Entry", "name header size method")
# where the central directory begins and ends, and how many entries it has
Location = collections.namedtuple("Location", "start end entries")


class ZipError(ValueError):
    """A file is not a complete zip archive."""


def read_at(stream: BinaryIO, position: int, size: int) -> bytes:
    """Return exactly `size` bytes. Raise ZipError if the file has fewer bytes."""
    if position < 0:
        raise ZipError("it is too short")
    stream.seek(position)
    data = stream.read(size)
    if len(data) != size:
        raise ZipError("it is too short")
    return data


def locate(stream: BinaryIO, size: int) -> Location:
    """Return the directory's position. Raise ZipError if the archive does not end with a directory."""
    end = size - END.size
    fields = END.unpack(read_at(stream, end, END.size))
    if fields[0] != b"PK\x05\x06":
        raise ZipError("its end is missing")
    entries, length, start = fields[4], fields[5], fields[6]
    locator = end - END64_LOCATOR.size
    if locator >= END64.size:
        mark, _disk, position, _disks = END64_LOCATOR.unpack(read_at(stream, locator, END64_LOCATOR.size))
        if mark == b"PK\x06\x07" and position + END64.size <= locator:
            fields64 = END64.unpack(read_at(stream, position, END64.size))
            if fields64[0] != b"PK\x06\x06":
                raise ZipError("its end is damaged")
            return (
                Location(fields64[9], position, fields64[7])
                if fields64[9] + fields64[8] == position
                else raise_damaged()
            )
    if entries == UNKNOWN_16 or start == UNKNOWN_32 or start + length != end:
        return raise_damaged()
    return Location(start, end, entries)


def raise_damaged() -> Location:
    """Raise ZipError because the directory is not at the recorded offset."""
    raise ZipError("its directory is damaged")


def zip64_sizes(extra: bytes, size: int, original_size: int, header: int) -> tuple[int, int]:
    """Return an entry's size and header offset, from its zip64 field if they do not fit into 32 bits."""
    position = 0
    while position + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, position)
        if kind == 1:
            values = iter(struct.unpack_from(f"<{length // 8}Q", extra[position + 4 : position + 4 + length // 8 * 8]))
            _original = next(values, 0) if original_size == UNKNOWN_32 else original_size
            size = next(values, 0) if size == UNKNOWN_32 else size
            header = next(values, 0) if header == UNKNOWN_32 else header
            break
        position += 4 + length
    return size, header


def read_entries(stream: BinaryIO, size: int) -> list[Entry]:
    """Return the entries of an archive of `size` bytes. Raise ZipError if it is not complete."""
    location = locate(stream, size)
    if location.end - location.start > MAX_DIRECTORY_BYTES or location.entries > MAX_ENTRIES:
        raise ZipError("its directory is too large to be read")
    data = read_at(stream, location.start, location.end - location.start)
    entries, position = [], 0
    while position + ENTRY.size <= len(data) and data[position : position + 4] == b"PK\x01\x02":
        fields = ENTRY.unpack_from(data, position)
        method, packed, original, header = fields[4], fields[8], fields[9], fields[16]
        name_length, extra_length, comment_length = fields[10], fields[11], fields[12]
        names = position + ENTRY.size
        extra = data[names + name_length : names + name_length + extra_length]
        try:
            packed, header = zip64_sizes(extra, packed, original, header)
        except struct.error:
            raise_damaged()
        if header + LOCAL_HEADER.size + packed > location.start:
            raise_damaged()
        name = data[names : names + name_length].decode("utf-8", "replace")
        entries.append(Entry(name, header, packed, method))
        position = names + name_length + extra_length + comment_length
    if len(entries) != location.entries or not entries:
        raise_damaged()
    return entries


def read_stored(stream: BinaryIO, entry: Entry, limit: int) -> bytes:
    """Return the first `limit` bytes of an uncompressed entry, or b"" for a compressed entry. Raise ZipError."""
    if entry.method != STORED:
        return b""
    fields = LOCAL_HEADER.unpack(read_at(stream, entry.header, LOCAL_HEADER.size))
    if fields[0] != b"PK\x03\x04":
        raise ZipError("an entry is damaged")
    start = entry.header + LOCAL_HEADER.size + fields[9] + fields[10]
    return read_at(stream, start, min(entry.size, limit))


def ends_with_directory(stream: BinaryIO, size: int) -> bool:
    """Return whether a file ends like a zip archive, wherever the archive begins."""
    try:
        return read_at(stream, size - END.size, 4) == b"PK\x05\x06"
    except ZipError:
        return False
