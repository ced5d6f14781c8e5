# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Order nodes by their location in the network, so that neighboring ranks are on neighboring machines. Pure.

An NCCL ring then crosses each link between two racks once per direction instead of once per rank.
"""

from __future__ import annotations

from collections.abc import Sequence


def parse_location(value: object) -> tuple[str, ...]:
    """Parse a location into names, from the outermost to the innermost part of the network, or () if it is unknown.

    value: text such as "spine1/rack7", a number, a list of them, or None. Raise ValueError for anything else.
    """
    if value is None:
        return ()
    items = value if isinstance(value, (list, tuple)) else str(value).split("/")
    if isinstance(value, (bool, dict)) or not all(isinstance(item, (str, int)) for item in items):
        raise ValueError("a name such as rack7, a path such as spine1/rack7, or a list of names")
    return tuple(name for name in (str(item).strip() for item in items) if name)


def order_by_location(locations: Sequence[tuple[str, ...]]) -> list[int]:
    """Return the indexes of the nodes, ordered so that nodes in the same part of the network are adjacent.

    Parts, and nodes within the innermost part, keep the order in which they are first listed, so the first node stays
    first. A node without a location keeps its position among the parts.
    """
    first: dict[tuple[str, ...], int] = {}
    for index, location in enumerate(locations):
        for length in range(1, len(location) + 1):
            first.setdefault(location[:length], index)

    def key(index: int) -> tuple[int, ...]:
        location = locations[index]
        return (*(first[location[:length]] for length in range(1, len(location) + 1)), index)

    return sorted(range(len(locations)), key=key)
