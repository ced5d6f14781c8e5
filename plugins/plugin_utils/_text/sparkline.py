# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Draw a curve within a line of text."""

from __future__ import annotations

from typing import Any

from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import Between, conforms

BARS = "▁▂▃▄▅▆▇█"
MAX_BARS = 60


def sparkline(values: Any, low: float = 0.0, high: float = 100.0) -> str:
    """Return a bar for each of the last MAX_BARS values, on a scale from low to high.

    Return "" for anything other than a list of at least two numbers.
    """
    if not conforms(values, [Between(-1e15, 1e15)]) or len(values) < 2:
        return ""
    span = high - low
    shares = [(value - low) / span if span > 0 else 0.0 for value in values[-MAX_BARS:]]
    return "".join(BARS[max(0, min(len(BARS) - 1, int(len(BARS) * share)))] for share in shares)
