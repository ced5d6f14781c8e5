# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Text from outside as one short line of a message. Private to this collection."""

from __future__ import annotations


def one_line(text: object, limit: int = 300) -> str:
    """Text of at most `limit` characters on one line: no control or format characters, no lone surrogates."""
    printable = "".join(char if char.isprintable() else " " for char in str(text)[: 10 * limit])
    line = " ".join(printable.split())
    return line if len(line) <= limit else line[: limit - 3] + "..."
