# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compare the lengths of the loops that two ranks were in, according to their progress bars."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ansible_collections.muster.training.plugins.module_utils._run.error_text import PROGRESS
from ansible_collections.muster.training.plugins.plugin_utils._failures.activity import REPORT
from ansible_collections.muster.training.plugins.plugin_utils._failures.explanation import clean_line

# "80/83" in a progress bar, or in "step 80/83".
COUNT = re.compile(r"(?<![\d/.])(?P<done>\d{1,9})/(?P<total>\d{1,9})(?![\d/.])")
MAX_LINE = 300
MAX_LINES = 12  # number of last lines that are searched for progress
MAX_RATIO = 1.25  # ratio of two lengths of a loop; if it is larger than this, they are different loops


def loop_of(lines: Iterable[str]) -> tuple[str, int] | None:
    """Return the label and length of the loop in a log's last progress bar, or None."""
    shown = [clean_line(line.rstrip("\r").rpartition("\r")[2])[:MAX_LINE] for line in lines]
    for line in reversed([line for line in shown if line.strip() and not REPORT.search(line)][-MAX_LINES:]):
        counts = list(COUNT.finditer(line)) if PROGRESS.search(line) else []
        if counts:
            label = " ".join(re.findall(r"[A-Za-z]{1,40}", line[: counts[-1].start()]))
            return label, int(counts[-1]["total"])
    return None


def describe_loops(own: tuple[int, Iterable[str]], other: tuple[int, Iterable[str]]) -> str:
    """Return a clause about the different lengths of the same loop on two ranks, or "".

    Args:
        own: A rank and the end of its log.
        other: The same of a rank that waited for it.
    """
    first, second = loop_of(own[1]), loop_of(other[1])
    if first is None or second is None or first[0] != second[0]:
        return ""
    short, long = sorted((first[1], second[1]))
    if short == long or short == 0 or long > MAX_RATIO * short:
        return ""
    return f", loops: {first[1]} steps on rank {own[0]}, {second[1]} on rank {other[0]}"
