# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Match the collectives of several ranks to find how far their clocks differ and how long each rank waited for the
others.

A collective ends on all ranks at about the same moment, and the last rank to arrive waits least. Profiles start at
different steps, and clocks differ, so the sequences are shifted relative to each other.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

MAX_SHIFT_SHARE = 0.5  # maximum shift, as a fraction of a sequence
MIN_MATCHES = 2
MIN_EQUAL_SHARE = 0.9  # fraction of matched collectives whose names must be equal
MAX_SHIFTS = 400
MAX_CLOCK_OFFSET = 30.0  # seconds; a larger difference means that the sequences do not match


class SequenceMatch(NamedTuple):
    """How a rank's sequence matches the reference: the offset between the first indexes, and how far its clock is
    ahead.
    """

    shift: int
    offset: float


def end_of(collective: Mapping[str, Any]) -> float:
    """Return the time at which a collective ended, in seconds since 1970 according to the rank's clock."""
    return float(collective["start"]) + float(collective["seconds"])


def match_sequences(reference: Sequence[Mapping[str, Any]], other: Sequence[Mapping[str, Any]]) -> SequenceMatch | None:
    """Return how the collectives of two ranks match, or None if the ranks are in different groups."""
    most = min(MAX_SHIFTS, int(MAX_SHIFT_SHARE * max(len(reference), len(other))))
    best: SequenceMatch | None = None
    for shift in sorted(range(-most, most + 1), key=abs):
        pairs = [
            (first, other[index + shift]) for index, first in enumerate(reference) if 0 <= index + shift < len(other)
        ]
        if len(pairs) < MIN_MATCHES:
            continue
        equal = sum(first["name"] == second["name"] for first, second in pairs)
        if equal < MIN_EQUAL_SHARE * len(pairs):
            continue
        offset = statistics.median(end_of(second) - end_of(first) for first, second in pairs)
        if abs(offset) <= MAX_CLOCK_OFFSET and (best is None or abs(offset) < abs(best.offset)):
            best = SequenceMatch(shift, offset)
    return best


def match_ranks(ranks: Mapping[int, Sequence[Mapping[str, Any]]]) -> dict[int, SequenceMatch]:
    """Return each rank's match with the first rank, omitting ranks that do not match."""
    if not ranks:
        return {}
    reference = ranks[min(ranks)]
    matches = {rank: match_sequences(reference, collectives) for rank, collectives in ranks.items()}
    matches[min(ranks)] = SequenceMatch(0, 0.0)
    return {rank: match for rank, match in matches.items() if match is not None}


def waiting_seconds(
    ranks: Mapping[int, Sequence[Mapping[str, Any]]], matches: Mapping[int, SequenceMatch]
) -> dict[int, float]:
    """Return how long each matched rank waited in collectives in total, in excess of the rank that waited least."""
    if len(matches) < 2:
        return {}
    waits = dict.fromkeys(matches, 0.0)
    for index in range(len(ranks[min(ranks)])):
        durations = {
            rank: float(ranks[rank][index + match.shift]["seconds"])
            for rank, match in matches.items()
            if 0 <= index + match.shift < len(ranks[rank])
        }
        if len(durations) == len(matches):
            least = min(durations.values())
            for rank, seconds in durations.items():
                waits[rank] += seconds - least
    return waits
