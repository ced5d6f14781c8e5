# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Measure the network between pairs of nodes."""

from __future__ import annotations

import contextlib
import statistics
import time
from typing import Any, Callable

with contextlib.suppress(ImportError):  # without torch, it can only be imported
    import torch
    import torch.distributed as dist

from ansible_collections.muster.training.plugins.module_utils._benchmark_job.collectives import make_pattern
from ansible_collections.muster.training.plugins.module_utils._benchmark_job.ranks import (
    MAX_OPERATION_SECONDS,
    JsonDict,
    PhaseClock,
    Ranks,
    measure_seconds,
)

PAIR_BYTES = {"nccl": 64 << 20, "gloo": 4 << 20}  # well above the burst that a token bucket lets through
PAIR_REPEATS, PAIR_PINGS = 5, 20


def exchange(input_tensor: torch.Tensor, output_tensor: torch.Tensor, peer: int) -> None:
    """Send and receive at the same time. Start the receive first, because gloo otherwise runs one after the other."""
    receive, send = dist.P2POp(dist.irecv, output_tensor, peer), dist.P2POp(dist.isend, input_tensor, peer)
    for request in dist.batch_isend_irecv([receive, send]):
        request.wait()


def run_p2p(tensor: torch.Tensor, operation: Callable[..., Any], peer: int) -> None:
    """Run one point-to-point operation to completion."""
    for request in dist.batch_isend_irecv([dist.P2POp(operation, tensor, peer)]):
        request.wait()


def measure_pair(ranks: Ranks, peer: int, size: int) -> JsonDict:
    """Measure an exchange with another node, in seconds, and the latency of a short message, in µs."""
    count = size // 4
    input_tensor = make_pattern(count, ranks.device) + ranks.rank
    output_tensor = torch.empty(count, device=ranks.device)
    exchange(input_tensor, output_tensor, peer)
    is_correct = bool(torch.equal(output_tensor, make_pattern(count, ranks.device) + peer))
    first = measure_seconds(ranks, lambda: exchange(input_tensor, output_tensor, peer))
    own_duration, peer_duration = torch.tensor([first], device=ranks.device), torch.zeros(1, device=ranks.device)
    exchange(own_duration, peer_duration, peer)  # both need the same number of repetitions
    repeats = int(max(2.0, min(PAIR_REPEATS, MAX_OPERATION_SECONDS / max(first, float(peer_duration[0]), 1e-6))))
    times = [measure_seconds(ranks, lambda: exchange(input_tensor, output_tensor, peer)) for _repeat in range(repeats)]
    token, pings = torch.zeros(2, device=ranks.device), []
    directions = (dist.isend, dist.irecv) if ranks.rank < peer else (dist.irecv, dist.isend)

    def round_trip() -> None:
        for direction in directions:
            run_p2p(token, direction, peer)

    round_trip()
    for _ping in range(PAIR_PINGS):
        pings.append(measure_seconds(ranks, round_trip))
    return {"times": times, "us": 1e6 * statistics.median(pings) / 2.0, "correct": is_correct}


def measure_pairs(ranks: Ranks, work: JsonDict, seconds: float) -> tuple[list[JsonDict], list[str]]:
    """Measure rounds of disjoint node pairs with one rank per node; the other ranks wait."""
    rows: list[JsonDict] = []
    left_out: list[str] = []
    if ranks.rank in ranks.leaders:
        size = work.get("pair_bytes") or PAIR_BYTES[ranks.backend]
        rounds = work["rounds"]
        clock, longest, own_results = PhaseClock(ranks, seconds, ranks.leader_group), 0.0, {}
        for index, pairs in enumerate(rounds):
            if not clock.has_time(longest):
                left_out.append(f"{len(rounds) - index} of {len(rounds)} node-pair rounds: no time left")
                break
            started = time.monotonic()
            for node_a, node_b in pairs:
                if ranks.node in (node_a, node_b):
                    peer = ranks.leaders[ranks.nodes.index(node_b if ranks.node == node_a else node_a)]
                    own_results[f"{node_a} {node_b}"] = measure_pair(ranks, peer, size)
            longest = ranks.reduce_max([time.monotonic() - started], ranks.leader_group)[0]
        results: list[Any] = [None] * len(ranks.leaders)
        dist.all_gather_object(results, own_results, group=ranks.leader_group)
        for pairs in rounds:
            for node_a, node_b in pairs:
                ends = [result[f"{node_a} {node_b}"] for result in results if f"{node_a} {node_b}" in result]
                if len(ends) == 2:
                    rows.append(summarize_pair(node_a, node_b, size, ends))
    ranks.barrier()
    return rows, left_out


def summarize_pair(node_a: int, node_b: int, size: int, ends: list[JsonDict]) -> JsonDict:
    """Return the row for a pair of nodes."""
    duration = statistics.median(max(durations) for durations in zip(*(end["times"] for end in ends)))
    return {
        "a": node_a,
        "b": node_b,
        "bytes": size,
        "gbps": 8.0 * size / duration / 1e9,
        "us": max(end["us"] for end in ends),
        # wrong data may come from the sender or the path: report both ends
        "correct": all(end["correct"] for end in ends),
    }
