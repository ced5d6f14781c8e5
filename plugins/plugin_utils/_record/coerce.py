# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Convert values from a record to the expected types. Nodes and jobs wrote them, so they may be anything."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._files import bounded
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import ESCAPE, printable

MAX_TEXT = 2000  # number of characters of a human-readable text
MAX_NUMBER = 1e100  # no measurement is larger, and sums and products of such numbers stay finite
EARLIEST, LATEST = 1e6, 1e11  # seconds since 1970: January 1970, and 3000 years later
# Characters that reverse the text direction or have no width: a page would look different from its text.
INVISIBLE = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")


def clean_text(value: Any, limit: int = MAX_TEXT) -> str:
    """Return a value as one line without control characters or surrounding whitespace, safe for a terminal or web page.

    Return an empty string for anything but a string or number. Text of more than `limit` characters is cut and ends
    with "…".
    """
    return clean_line(value.strip() if isinstance(value, str) else value, limit).strip()


def clean_line(value: Any, limit: int = MAX_TEXT) -> str:
    """Return a value like clean_text, but keep its indentation, which a traceback needs."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return ""
    if not isinstance(value, str):
        try:
            value = str(value)
        except ValueError:  # an integer with thousands of digits
            return ""
    # four times the length, since escape sequences are removed; but never more than a megabyte
    text = printable(INVISIBLE.sub("", ESCAPE.sub("", value[: 4 * limit]))).rstrip()
    return text if len(text) <= limit and len(value) <= 4 * limit else text[: limit - 1] + "…"


def to_number(value: Any) -> float | None:
    """Return a number of at most MAX_NUMBER in magnitude, or None for anything else, including nan and booleans."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        result = float(value)
    except OverflowError:
        return None
    return result if abs(result) <= MAX_NUMBER else None  # false for nan, too


def to_timestamp(value: Any) -> float | None:
    """Return a time in seconds since 1970, or None if it is not a number between EARLIEST and LATEST.

    In this range, two times are equal or differ by enough to divide by the difference.
    """
    seconds = to_number(value)
    return seconds if seconds is not None and EARLIEST <= seconds <= LATEST else None


def to_int(value: Any, limit: int = 1_000_000_000) -> int:
    """Return a number from 0 to `limit`, rounded down to an integer; 0 for anything else."""
    result = to_number(value)
    return int(result) if result is not None and 0 <= result <= limit else 0


def to_mapping(value: Any) -> Mapping[str, Any]:
    """Return a mapping unchanged; an empty one for anything else."""
    return value if isinstance(value, Mapping) else {}


def to_list(value: Any, limit: int = 10_000) -> list[Any]:
    """Return the first `limit` entries of a list; an empty list for anything else."""
    return value[:limit] if isinstance(value, list) else []


def to_mappings(value: Any, limit: int = 10_000) -> list[Mapping[str, Any]]:
    """Return the mappings among the first `limit` entries of a list."""
    return [entry for entry in to_list(value, limit) if isinstance(entry, Mapping)]


def parse_json(text: str) -> Any:
    """Parse JSON; return None if it is truncated, nested too deeply, has integers with too many digits, or is otherwise
    invalid.
    """
    try:
        return bounded.parse_json(text)
    except ValueError:
        return None
