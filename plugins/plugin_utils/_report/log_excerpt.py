# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Choose the lines in a failed rank's log that explain how it ended: the last traceback in full, and what follows
it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ansible_collections.muster.training.plugins.module_utils._run.output_formats import TRACEBACK

LAST_LINES = 20  # shown if there is no traceback
MAX_LINES = 200  # number of lines of a traceback and what follows it
# Lines between the tracebacks of a chain of exceptions
CHAINED = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)


def choose_lines(lines: Sequence[str]) -> list[str]:
    """Return the lines from the last traceback onward, with the exceptions that led to it; at least the last 20 lines.

    Of more than MAX_LINES, the middle is left out.
    """
    start = max(0, len(lines) - LAST_LINES)
    tracebacks = [index for index, line in enumerate(lines) if TRACEBACK in line]
    while tracebacks:
        index = tracebacks.pop()
        start = min(start, index)
        if not any(sentence in line for line in lines[max(0, index - 3) : index] for sentence in CHAINED):
            break
    chosen = list(lines[start:])
    if len(chosen) <= MAX_LINES:
        return chosen
    half = MAX_LINES // 2
    return [*chosen[:half], f"... ({len(chosen) - MAX_LINES} lines) ...", *chosen[-half:]]
