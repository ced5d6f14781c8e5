# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Synthetic measurements of clusters, in the format of the benchmark job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.schedule import pairing_rounds

MODEL = "NVIDIA A100-SXM4-40GB"


def names_of(nodes: int) -> list[str]:
    return [f"gpu{rank}" for rank in range(nodes)]


def document(
    nodes: int,
    gpus: int = 1,
    rate: Callable[[int, int], float] = lambda _a, _b: 10.0,
    tflops: Callable[[int], float] = lambda _rank: 250.0,
    model: str = MODEL,
    **more: Any,
) -> dict[str, Any]:
    """Return measured/benchmark.json for nodes with this bandwidth in Gb/s between each other, and ranks with this many
    TFLOP/s.
    """
    ranks = [
        {"rank": rank, "node": rank // gpus, "local_rank": rank % gpus, "device": model} for rank in range(nodes * gpus)
    ]
    return {
        "version": 1,
        "backend": "nccl",
        "torch": "2.6.0",
        "nccl": "2.21.5",
        "complete": True,
        "ranks": ranks,
        "matmul": [
            {"rank": rank, "dtype": "bfloat16", "median": tflops(rank), "best": tflops(rank), "correct": True}
            for rank in range(nodes * gpus)
        ],
        "copies": [{"rank": rank, "kind": "device", "gbytes": 600.0, "correct": True} for rank in range(nodes * gpus)],
        "collectives": [
            {
                "scope": "all",
                "node": -1,
                "op": "all_reduce",
                "bytes": size,
                "ranks": nodes * gpus,
                "median_us": 100.0 + size / 1000,
                "p95_us": 120.0 + size / 1000,
                "wrong_ranks": [],
            }
            for size in (1 << 10, 1 << 20, 64 << 20)
        ],
        "pairs": [
            {"a": item, "b": peer, "gbps": rate(item, peer), "us": 30.0, "correct": True}
            for pairs in pairing_rounds(nodes)
            for item, peer in pairs
        ],
        "left_out": [],
        **more,
    }
