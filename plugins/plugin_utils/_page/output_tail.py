# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The last lines that a rank has printed, numbered, in limited memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._text.printable import strip_control_sequences

MAX_LINES = 3000
MAX_CHARACTERS = 1_000_000  # total number of characters of all lines
MAX_LINE = 2000  # number of characters of a line; a longer line is cut and ends with an ellipsis
MAX_REPLY_LINES = 1000
CUT = 100 * MAX_LINE  # number of characters before control sequences are removed


def visible_line(line: str) -> str:
    """Return a line as a terminal shows it: after the last carriage return, without control sequences."""
    text = strip_control_sequences(line[-CUT:].rstrip("\r").rpartition("\r")[2])
    return text if len(text) <= MAX_LINE else text[: MAX_LINE - 1] + "…"


class OutputTail:
    """The last lines of a rank. A line's number is the count of all lines before it."""

    def __init__(self) -> None:
        self.lines: deque[str] = deque()
        self.first = 0  # number of the first line that is retained
        self.characters = 0
        self.unfinished = ""

    def add(self, lines: list[str]) -> None:
        """Append lines, and drop the oldest ones that exceed the limits."""
        for line in lines:
            self.lines.append(line)
            self.characters += len(line)
        while len(self.lines) > MAX_LINES or self.characters > MAX_CHARACTERS:
            self.characters -= len(self.lines.popleft())
            self.first += 1

    def take(self, reply: Mapping[str, Any], keep: Any = None) -> None:
        """Append the output in a node's reply. keep: a function that returns whether to show a line."""
        for log, size in reply["left_out"].items():
            self.add([visible_line(f"[{size / 1e6:.0f} MB of output skipped; full log: {log}]")])
        for text in reply["outputs"].values():
            lines = text.split("\n")
            lines = lines[:-1] if lines[-1] == "" else lines
            self.add([visible_line(line) for line in lines if keep is None or keep(line)])
        self.unfinished = visible_line(reply["unfinished"])

    def after(self, number: int) -> dict[str, Any]:
        """Return at most MAX_REPLY_LINES lines, starting at a line number, and the number of the next line."""
        end = self.first + len(self.lines)
        start = min(max(number, self.first, end - MAX_REPLY_LINES), end)
        return {
            "from": start,
            "next": end,
            "missed": start > number,
            "lines": list(self.lines)[start - self.first :],
            "unfinished": self.unfinished,
        }
