# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Schedule which nodes exchange data, and determine the duration of each measurement."""

from __future__ import annotations

from collections.abc import Sequence

from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.documents import (
    BenchmarkTask,
    Suspects,
)

OPERATIONS = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"]
SHARES = {"matmul": 0.15, "copies": 0.05, "node": 0.2, "all": 0.3, "pairs": 0.3}  # fractions of the total time
MATMUL_SECONDS = 5.0  # seconds per rank: long enough to see clock speeds drop
MAX_REMEASURED = 48  # number of ranks, and of pairs, to measure again


def pairing_rounds(count: int) -> list[list[list[int]]]:
    """Return every pair of `count` nodes once, in rounds in which no node appears twice, using the circle method.

    count even: count - 1 rounds of count / 2 pairs; odd: count rounds, with one node idle in each.
    """
    seats: list[int] = [*range(count), *([-1] if count % 2 else [])]
    rounds = []
    for _round in range(len(seats) - 1):
        half = len(seats) // 2
        pairs = zip(seats[:half], reversed(seats[half:]), strict=True)
        rounds.append([sorted(pair) for pair in pairs if -1 not in pair])
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return rounds


def plan_task(count: int, seconds: float, collectives: Sequence[str], max_buffer_bytes: int = 0) -> BenchmarkTask:
    """Plan the first measurements on `count` nodes, which take at most `seconds`."""
    shares = {phase: share for phase, share in SHARES.items() if count > 1 or phase != "pairs"}
    total = sum(shares.values())
    return {
        "seconds": {phase: seconds * share / total for phase, share in shares.items()},
        "matmul_seconds": min(MATMUL_SECONDS, seconds * SHARES["matmul"] / 2),
        "matmul_size": 0,
        "collectives": list(collectives),
        "max_buffer_bytes": max_buffer_bytes,
        "rounds": pairing_rounds(count),
        "pair_bytes": 0,
    }


def plan_remeasurement(suspects: Suspects, seconds: float) -> BenchmarkTask:
    """Plan the repeated measurements, which measure the suspects one after another while all others are idle."""
    phases = [phase for phase, suspected in (("matmul", suspects["ranks"]), ("pairs", suspects["pairs"])) if suspected]
    phase_seconds = {phase: seconds / len(phases) for phase in phases}
    # half of the time is for preparation: creating matrices and warming up the device
    rank_seconds = phase_seconds.get("matmul", 0.0) / 2 / max(1, len(suspects["ranks"]))
    return {
        "seconds": phase_seconds,
        "matmul_seconds": min(MATMUL_SECONDS, rank_seconds),
        "matmul_size": 0,
        "matmul_alone": suspects["ranks"],
        "collectives": [],
        "max_buffer_bytes": 0,
        "rounds": [[pair] for pair in suspects["pairs"]],
        "pair_bytes": 0,
    }
