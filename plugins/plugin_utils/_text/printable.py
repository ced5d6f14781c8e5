# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Make external text safe for terminals and messages."""

from __future__ import annotations

import re

# A terminal's escape sequence: CSI (a color, a cursor movement), OSC (a window title), or a short one. Bounded, so that
# hostile text is searched in linear time.
ESCAPE = re.compile(r"\x1b(?:\[[0-?]{0,32}[ -/]{0,4}[@-~]|\][^\x07\x1b\n]{0,200}(?:\x07|\x1b\\)|[ -/]{0,4}[0-~])")


def strip_control_sequences(text: str) -> str:
    """Return text without terminal control sequences; other control characters except tabs become spaces."""
    plain = ESCAPE.sub("", text)
    return "".join(character if character.isprintable() or character == "\t" else " " for character in plain)


def visible_text(line: str, control_sequences: bool = False) -> str:
    """Return a line as a terminal shows it: the text after the last carriage return.

    Without `control_sequences`, the job cannot color its output, set a window's title or write to the clipboard.
    """
    text = line.rstrip("\r").rpartition("\r")[2]
    return text if control_sequences else strip_control_sequences(text)


def printable(text: str) -> str:
    """Replace control and format characters and lone surrogates with spaces, so that a terminal can show the text."""
    return "".join(character if character.isprintable() else " " for character in text)


def single_line(text: object, limit: int = 300) -> str:
    """Return printable text of at most `limit` characters on one line."""
    line = " ".join(printable(str(text)[: 10 * limit]).split())
    return line if len(line) <= limit else line[: limit - 3] + "..."


def describe_skipped_output(size: int, node: str, log: str) -> str:
    """Return the message that replaces output a node does not send. size: in bytes; log: the path of the full log."""
    return f"{size / 1e6:.0f} MB of output skipped; full log: {node}:{log}"
