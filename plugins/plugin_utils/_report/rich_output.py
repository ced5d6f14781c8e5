# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Join and simplify the output of the rich library: a progress bar whose metrics continue on further lines, and tables.

Lightning's RichProgressBar wraps the metrics next to its bar into lines that begin below them, so that a name and its
number may be on two lines.
"""

from __future__ import annotations

import re

MAX_LINES = 40  # lines of a progress bar
INDENTATION = re.compile(r"\s{8,}\S")
BAR = re.compile(r"[\u2501\u2578\u257a\u2500]{3,}")
BORDER = re.compile(r"[\u2502\u2503]")
BORDERS_ONLY = re.compile(r"[\s\u2500-\u257f]*\Z")


class RichOutput:
    """Collects the lines of a progress bar."""

    def __init__(self) -> None:
        self.progress: list[str] = []

    def feed(self, text: str) -> list[str]:
        """Return the lines that are ready to be examined after this line."""
        if self.progress and INDENTATION.match(text) is not None and len(self.progress) < MAX_LINES:
            self.progress.append(text.strip())
            return []
        lines = self.flush()
        if BAR.search(text) is not None and BORDERS_ONLY.match(text) is None:
            self.progress.append(strip_borders(BAR.sub("|", text)).rstrip())
        else:
            lines.append(strip_borders(text))
        return lines

    def flush(self) -> list[str]:
        """Return the progress bar as a single line, if one was printed, and forget it."""
        lines = [" ".join(self.progress)] if self.progress else []
        self.progress = []
        return lines


def strip_borders(text: str) -> str:
    """Return a table row with plain separators, or any other line unchanged."""
    if "\u2502" not in text and "\u2503" not in text:
        return text
    return " | ".join(cell.strip() for cell in BORDER.split(text)).strip()
