# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Text from outside, as a terminal or a message can show it. Private to this collection."""

from __future__ import annotations


def printable(text: str) -> str:
    """A text of the same length without control and format characters and lone surrogates: made safe for a terminal."""
    return "".join(character if character.isprintable() else " " for character in text)


def one_line(text: object, limit: int = 300) -> str:
    """Printable text of at most `limit` characters on one line."""
    line = " ".join(printable(str(text)[: 10 * limit]).split())
    return line if len(line) <= limit else line[: limit - 3] + "..."
