# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the scalars in TensorBoard event files.

A file lists records: length (u64), a checksum of it (u32), data, a checksum of the data (u32), all little-endian.
The data is the protocol buffer `Event`: 1 wall_time (double), 2 step (varint), 5 summary; in it 1 value, with 1 tag,
2 simple_value (float), 8 tensor. SummaryWriter of torch writes simple_value, or with new_style=True a tensor of one
element, as TensorFlow 2 does.

The checksums (CRC-32C) are not checked, as lengths suffice: the last record of a stopped job is usually truncated, and
nothing is read after a wrong length.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import IO, NamedTuple

MAX_RECORD = 1 << 20  # bytes; a scalar takes about 60, and larger records contain a picture or a graph and are skipped
SKIP_SIZE = 1 << 20
FLOAT, DOUBLE = 1, 2  # a tensor's DataType
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types


class Scalar(NamedTuple):
    """A value: its name, the step, the time it was written (seconds since 1970), and the number."""

    tag: str
    step: int
    time: float
    value: float


class MalformedEventError(Exception):
    """The bytes are not a valid protocol buffer."""


def read_scalars(stream: IO[bytes]) -> Iterator[Scalar]:
    """Yield the scalars in an event file in the order in which they were written, as far as the file can be read."""
    for data in read_records(stream):
        try:
            yield from event_scalars(data)
        except MalformedEventError:
            continue


def read_records(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the data of each record, skipping oversized records, until the end or a truncated record."""
    while len(head := stream.read(12)) == 12:
        (length,) = struct.unpack_from("<Q", head)
        if length > MAX_RECORD:
            if not skip_bytes(stream, length + 4):
                return
            continue
        body = stream.read(length + 4)
        if len(body) < length + 4:
            return
        yield body[:length]


def skip_bytes(stream: IO[bytes], size: int) -> bool:
    """Skip a number of bytes; return False if the stream ends before that."""
    while size > 0:
        count = len(stream.read(min(size, SKIP_SIZE)))
        if count == 0:
            return False
        size -= count
    return True


def read_varint(data: bytes, offset: int) -> tuple[int, int]:
    """Return a varint (seven bits per byte), and the offset of the next field."""
    value = shift = 0
    while offset < len(data) and shift < 70:
        byte = data[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, offset
        shift += 7
    raise MalformedEventError


def read_fields(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Yield the fields in a message: the number, the wire type, and the value of a varint or the bytes of any other
    type.
    """
    offset = 0
    while offset < len(data):
        key = data[offset]  # nearly always a single byte, as are lengths
        offset += 1
        if key >= 0x80:
            key, offset = read_varint(data, offset - 1)
        wire_type, number, content = key & 7, 0, b""
        if wire_type == VARINT:
            number, offset = read_varint(data, offset)
        elif wire_type in (FIXED64, FIXED32, BYTES):
            if wire_type == BYTES:
                length, offset = read_varint(data, offset)
            else:
                length = 8 if wire_type == FIXED64 else 4
            end = offset + length
            if end > len(data):
                raise MalformedEventError
            content = data[offset:end]
            offset = end
        else:
            raise MalformedEventError
        yield key >> 3, wire_type, number, content


def event_scalars(data: bytes) -> Iterator[Scalar]:
    """Yield the scalars of one Event."""
    time, step, summaries = 0.0, 0, []
    for field, wire_type, number, content in read_fields(data):
        if field == 1 and wire_type == FIXED64:
            (time,) = struct.unpack("<d", content)
        elif field == 2 and wire_type == VARINT:
            step = number if number < 1 << 63 else number - (1 << 64)
        elif field == 5 and wire_type == BYTES:
            summaries.append(content)
    for summary in summaries:
        for field, wire_type, _number, content in read_fields(summary):
            if field == 1 and wire_type == BYTES:
                tag, value = parse_value(content)
                if value is not None:
                    yield Scalar(tag, step, time, value)


def parse_value(data: bytes) -> tuple[str, float | None]:
    """Return the tag and number in a Summary.Value; the number is None if the value is not a scalar."""
    tag, value = "", None
    for field, wire_type, _number, content in read_fields(data):
        if field == 1 and wire_type == BYTES:
            tag = content.decode("utf-8", "replace")
        elif field == 2 and wire_type == FIXED32:
            (value,) = struct.unpack("<f", content)
        elif field == 8 and wire_type == BYTES:
            value = parse_tensor(content)
    return tag, value


def parse_tensor(data: bytes) -> float | None:
    """Return the number in a TensorProto that has one element: dtype 1, tensor_content 4, float_val 5, double_val 6."""
    dtype, element = 0, b""
    for field, wire_type, number, content in read_fields(data):
        if field == 1 and wire_type == VARINT:
            dtype = number
        elif field in (4, 5, 6) and wire_type in (BYTES, FIXED32, FIXED64) and content:
            element = content
    struct_format, size = {FLOAT: ("<f", 4), DOUBLE: ("<d", 8)}.get(dtype, ("", -1))
    return float(struct.unpack(struct_format, element)[0]) if len(element) == size else None
