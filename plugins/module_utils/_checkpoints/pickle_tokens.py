# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find names and numbers in a pickle without executing it.

Only the opcodes are walked: nothing is imported, called or built, and the memo holds nothing but short texts and
integers.
"""

from __future__ import annotations

import struct

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing would cost each node a few milliseconds
    from collections.abc import Iterator
    from typing import Union

    Token = Union[str, int, None]

MAX_BYTES = 4 * 2**20  # bytes of a pickle to walk through; this takes about a second
MAX_TEXT = 512  # bytes of a string; longer ones are not names
# Opcodes by the form of their argument: a fixed number of bytes, a length prefix, or lines.
FIXED = {
    **dict.fromkeys(b"(.012NQRabde}l]oste)u\x81\x85\x86\x87\x88\x89\x8f\x90\x91\x92\x93\x94\x97\x98", 0),
    **dict.fromkeys(b"Khq\x80\x82", 1),
    **dict.fromkeys(b"M\x83", 2),
    **dict.fromkeys(b"Jjr\x84", 4),
    **dict.fromkeys(b"G\x95", 8),
}
PREFIXED = {
    **dict.fromkeys(b"UC\x8a\x8c", 1),
    **dict.fromkeys(b"TXB\x8b", 4),
    **dict.fromkeys(b"\x8d\x8e\x96", 8),
}
LINES = {**dict.fromkeys(b"FILPSVgp", 1), **dict.fromkeys(b"ci", 2)}
TEXT = frozenset(b"X\x8c\x8dUT")
MARKS = frozenset(b"(\x80\x95")  # push no value


class Walk:
    """A pickle's opcodes, as (opcode, argument)."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        data, size = self.data, min(len(self.data), MAX_BYTES)
        while self.position < size:
            opcode = data[self.position]
            self.position += 1
            if opcode in FIXED:
                yield opcode, self.take(FIXED[opcode])
            elif opcode in PREFIXED:
                yield opcode, self.take(int.from_bytes(self.take(PREFIXED[opcode]), "little"))
            elif opcode in LINES:
                yield opcode, b"".join(self.take_line() for _number in range(LINES[opcode]))
            else:
                return
            if opcode == ord("."):
                return

    def take(self, length: int) -> bytes:
        start = self.position
        self.position += length
        return self.data[start : self.position]

    def take_line(self) -> bytes:
        end = self.data.find(b"\n", self.position)
        line = self.take((end if end >= 0 else len(self.data)) - self.position)
        self.position += 1
        return line


def parse_operand(opcode: int, argument: bytes) -> Token:
    """Return the string or integer that an opcode pushes, or None for anything else."""
    if opcode in TEXT:
        return argument.decode("utf-8", "replace") if len(argument) <= MAX_TEXT else None
    if opcode in b"KM":
        return int.from_bytes(argument, "little")
    if opcode == ord("J") and len(argument) == 4:
        return int(struct.unpack("<i", argument)[0])
    if opcode == 0x8A and len(argument) <= 8:
        return int.from_bytes(argument, "little", signed=True)
    return None


def tokens(data: bytes) -> Iterator[Token]:
    """Yield a pickle's strings and integers in order, or None for each other opcode that pushes or builds.

    Strings and integers that the pickle refers to again are yielded again.
    """
    memo: dict[int, Token] = {}
    size, last = 0, None
    for opcode, argument in Walk(data):
        if opcode == 0x94:  # MEMOIZE
            memo[size] = last
            size += 1
        elif opcode in b"qr":  # BINPUT, LONG_BINPUT
            memo[int.from_bytes(argument, "little")] = last
            size += 1
        elif opcode in b"hj":  # BINGET, LONG_BINGET
            last = memo.get(int.from_bytes(argument, "little"))
            yield last
        elif opcode not in MARKS:
            last = parse_operand(opcode, argument)
            yield last


def read_numbers(data: bytes, names: frozenset[str]) -> dict[str, int]:
    """Return the first integer that directly follows each of these names, as in a dictionary."""
    values: dict[str, int] = {}
    name: Token = None
    for token in tokens(data):
        if isinstance(name, str) and isinstance(token, int) and name in names:
            values.setdefault(name, token)
        name = token
    return values
