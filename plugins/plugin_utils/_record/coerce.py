# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Convert values of a record to the requested type. Nodes and jobs wrote them, so they may be anything. Pure.

Private to this collection, controller only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._text.printable import printable

LONGEST = 2000  # characters of a text for a person
LARGEST = 1e100  # no measurement is larger, and sums and products of such numbers stay finite
EARLIEST, LATEST = 1e6, 1e11  # seconds since 1970: January 1970, and 3000 years later
# A terminal's escape sequences for colours, title and the like: CSI, OSC, and the short ones.
ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])")
# Characters that reverse the direction of text or have no width: a page would look different from its text.
UNSEEN = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")


def clean(value: Any, longest: int = LONGEST) -> str:
    """A text as one line without control characters, safe for a terminal or page. longest: characters.

    Empty for anything but a string or number. A longer text is cut and ends with "…".
    """
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return ""
    if not isinstance(value, str):
        try:
            value = str(value)
        except ValueError:  # an integer of thousands of digits
            return ""
    # four times the length, since escapes are removed; but never a megabyte
    text = printable(UNSEEN.sub("", ESCAPE.sub("", value[: 4 * longest]))).strip()
    return text if len(text) <= longest and len(value) <= 4 * longest else text[: longest - 1] + "…"


def number(value: Any) -> float | None:
    """A number of at most LARGEST in magnitude, None for anything else, including nan and booleans."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if abs(found) <= LARGEST else None  # false for nan, too


def moment(value: Any) -> float | None:
    """A time in seconds since 1970, None for anything else: no run was before EARLIEST or will be after LATEST.

    In this range, two times are equal or differ by enough to divide by the difference.
    """
    found = number(value)
    return found if found is not None and EARLIEST <= found <= LATEST else None


def whole(value: Any, most: int = 1_000_000_000) -> int:
    """A number from 0 to most, rounded down to an integer; 0 for anything else."""
    found = number(value)
    return int(found) if found is not None and 0 <= found <= most else 0


def mapping(value: Any) -> Mapping[str, Any]:
    """A mapping, empty for anything else."""
    return value if isinstance(value, Mapping) else {}


def listed(value: Any, most: int = 10_000) -> list[Any]:
    """The first entries of a list, empty for anything else. most: number of entries."""
    return value[:most] if isinstance(value, list) else []


def mappings(value: Any, most: int = 10_000) -> list[Mapping[str, Any]]:
    """The mappings of a list."""
    return [one for one in listed(value, most) if isinstance(one, Mapping)]


def parsed(text: str) -> Any:
    """Parsed JSON, None if it is invalid: truncated, nested too deeply, or with integers of too many digits."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
