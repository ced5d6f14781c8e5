# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a record says, as values of the requested type. Nodes and jobs wrote it, so it may be anything. Pure.

Private to this collection, controller only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

LONGEST = 2000  # characters of a text that a person is to read
LARGEST = 1e100  # nothing that is measured is larger, and sums and products of it are still numbers
EARLIEST, LATEST = 1e6, 1e11  # seconds since 1970: of January of that year, and 3000 years on
# What turns a terminal's colours on, sets its title and the like: CSI, OSC, and the short ones.
ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])")
# What turns the direction of all that follows, or takes no room: a page would read otherwise than it is.
UNSEEN = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")


def clean(value: Any, longest: int = LONGEST) -> str:
    """A text in one line that neither a terminal nor a page can misread, at most so many characters.

    Empty for what is neither a text nor a number. What is longer ends with "…".
    """
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return ""
    if not isinstance(value, str):
        try:
            value = str(value)
        except ValueError:  # an integer of thousands of digits
            return ""
    # four times as much, since escapes fall out; never a megabyte
    text = UNSEEN.sub("", ESCAPE.sub("", value[: 4 * longest]))
    text = "".join(character if character.isprintable() else " " for character in text).strip()
    return text if len(text) <= longest and len(value) <= 4 * longest else text[: longest - 1] + "…"


def number(value: Any) -> float | None:
    """A number that nothing reckoned with it makes infinite, None for all else. True and False are none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if abs(found) <= LARGEST else None  # nan is not, either


def moment(value: Any) -> float | None:
    """A time in seconds since 1970, None for all else: no run was before EARLIEST or will be after LATEST.

    So two of them are equal, or differ by enough to divide by.
    """
    found = number(value)
    return found if found is not None and EARLIEST <= found <= LATEST else None


def whole(value: Any, most: int = 1_000_000_000) -> int:
    """A whole number from 0 to the most, 0 for all else."""
    found = number(value)
    return int(found) if found is not None and 0 <= found <= most else 0


def mapping(value: Any) -> Mapping[str, Any]:
    """A mapping, empty for all else."""
    return value if isinstance(value, Mapping) else {}


def listed(value: Any, most: int = 10_000) -> list[Any]:
    """A list, with as many entries as are wanted at most, empty for all else."""
    return value[:most] if isinstance(value, list) else []


def mappings(value: Any, most: int = 10_000) -> list[Mapping[str, Any]]:
    """The mappings of a list."""
    return [one for one in listed(value, most) if isinstance(one, Mapping)]


def parsed(text: str) -> Any:
    """JSON, None if it is none: cut in half, too deep, or with numbers that no machine can hold."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
