# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Convert a benchmark job's output, which comes from a node and may contain anything, to rows with node names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.documents import (
    CollectiveRate,
    CopyRate,
    ExpectedRate,
    GpuRate,
    PairRate,
)
from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.expected import (
    expected_network_rate,
)
from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.schedule import OPERATIONS
from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import (
    clean_text,
    to_int,
    to_list,
    to_mapping,
    to_mappings,
    to_number,
)

MAX_ROWS = 20_000


@dataclass
class BenchmarkMeasurements:
    """The measurements from one run of the job."""

    nodes: list[str]
    backend: str = ""
    torch: str = ""
    nccl: str = ""
    complete: bool = False
    gpus: list[GpuRate] = field(default_factory=list)
    copies: list[CopyRate] = field(default_factory=list)
    collectives: list[CollectiveRate] = field(default_factory=list)
    pairs: list[PairRate] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    network: ExpectedRate | None = None


def positive_number(row: Mapping[str, Any], name: str) -> float | None:
    """Return the value of a key if it is a number greater than 0, otherwise None."""
    value = to_number(row.get(name))
    return value if value is not None and value > 0 else None


def bus_share(operation: str, ranks: int) -> float:
    """Return the fraction of the buffer that each rank's link carries, as in nccl-tests (its doc/PERFORMANCE.md)."""
    if operation == "all_reduce":
        return 2.0 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if operation in ("all_gather", "reduce_scatter", "all_to_all") else 1.0


def read_measurements(document: Any, nodes: Sequence[str], network_gbps: float | None = None) -> BenchmarkMeasurements:
    """Read a job's measurements. nodes: names by node rank; network_gbps: the rate per node, set by the user."""
    job_output = to_mapping(document)
    measurements = BenchmarkMeasurements(list(nodes))
    measurements.backend = clean_text(job_output.get("backend"), 20)
    measurements.torch, measurements.nccl = (
        clean_text(job_output.get("torch"), 40),
        clean_text(job_output.get("nccl"), 40),
    )
    measurements.complete = job_output.get("complete") is True
    measurements.left_out = [
        clean_text(text, 200) for text in to_list(job_output.get("left_out"), 100) if clean_text(text, 200)
    ]
    ranks = {to_int(row.get("rank")): row for row in to_mappings(job_output.get("ranks"))}
    measurements.network = slowest_network(ranks, network_gbps)
    for row in to_mappings(job_output.get("matmul"), MAX_ROWS):
        gpu = read_gpu(row, ranks, nodes)
        if gpu is not None:
            measurements.gpus.append(gpu)
    for row in to_mappings(job_output.get("copies"), MAX_ROWS):
        rate, rank_row = positive_number(row, "gbytes"), ranks.get(to_int(row.get("rank")))
        node = node_name(nodes, rank_row)
        if rate is not None and rank_row is not None and node:
            measurements.copies.append(
                {
                    "node": node,
                    "local_rank": to_int(rank_row.get("local_rank")),
                    "kind": clean_text(row.get("kind"), 40),
                    "gbytes": rate,
                    "correct": row.get("correct") is not False,
                }
            )
    for row in to_mappings(job_output.get("collectives"), MAX_ROWS):
        operation = read_collective(row, ranks, nodes)
        if operation is not None:
            measurements.collectives.append(operation)
    for row in to_mappings(job_output.get("pairs"), MAX_ROWS):
        rate, ends = positive_number(row, "gbps"), [to_number(row.get("a")), to_number(row.get("b"))]
        names = [nodes[int(end)] for end in ends if end is not None and 0 <= end < len(nodes)]
        if rate is not None and len(set(names)) == 2:
            measurements.pairs.append(
                {
                    "a": names[0],
                    "b": names[1],
                    "gbps": rate,
                    "us": positive_number(row, "us") or 0.0,
                    "alone_gbps": None,
                    "correct": row.get("correct") is not False,
                }
            )
    return measurements


def node_name(nodes: Sequence[str], row: Mapping[str, Any] | None) -> str:
    """Return the name of a rank's node, or an empty string if the rank has no valid node."""
    index = to_number(to_mapping(row).get("node"))
    return nodes[int(index)] if index is not None and 0 <= index < len(nodes) else ""


def read_gpu(row: Mapping[str, Any], ranks: Mapping[int, Mapping[str, Any]], nodes: Sequence[str]) -> GpuRate | None:
    """Read a rank's compute rate; return None if the rate is invalid."""
    rank = to_int(row.get("rank"))
    node, rate = node_name(nodes, ranks.get(rank)), positive_number(row, "median")
    if not node or rate is None:
        return None
    return {
        "node": node,
        "local_rank": to_int(ranks[rank].get("local_rank")),
        "rank": rank,
        "model": clean_text(ranks[rank].get("device"), 100),
        "dtype": clean_text(row.get("dtype"), 20),
        "tflops": rate,
        "best": positive_number(row, "best") or rate,
        "first_quarter": positive_number(row, "first_quarter") or rate,
        "last_quarter": positive_number(row, "last_quarter") or rate,
        "alone_tflops": None,
        "correct": row.get("correct") is not False,
    }


def read_collective(
    row: Mapping[str, Any], ranks: Mapping[int, Mapping[str, Any]], nodes: Sequence[str]
) -> CollectiveRate | None:
    """Read the rate for one operation and size; return None if the rate is invalid."""
    scope, operation = clean_text(row.get("scope"), 10), clean_text(row.get("op"), 20)
    size, members, elapsed_us = (
        to_int(row.get("bytes"), 1 << 40),
        to_int(row.get("ranks")),
        positive_number(row, "median_us"),
    )
    node = node_name(nodes, row) if scope == "node" else ""
    is_known = scope in ("node", "all") and operation in OPERATIONS and (scope == "all" or node)
    if not is_known or not size or not members or elapsed_us is None:
        return None
    rate = size / elapsed_us / 1000.0  # bytes per microsecond are the same as MB/s
    wrong_nodes = [node_name(nodes, ranks.get(to_int(rank))) for rank in to_list(row.get("wrong_ranks"))]
    return {
        "scope": scope,
        "node": node,
        "op": operation,
        "bytes": size,
        "ranks": members,
        "us": elapsed_us,
        "p95_us": positive_number(row, "p95_us") or elapsed_us,
        "algbw_gbytes": rate,
        "busbw_gbytes": rate * bus_share(operation, members),
        "wrong_ranks": sorted({name for name in wrong_nodes if name}),
    }


def slowest_network(ranks: Mapping[int, Mapping[str, Any]], configured_gbps: float | None) -> ExpectedRate | None:
    """Return the network's expected rate, which is the slowest node's rate, as a ring runs at that node's pace."""
    expectations = []
    for row in ranks.values():
        ports = [
            rate for rate in map(to_number, to_list(row.get("infiniband_gbps"), 64)) if rate is not None and rate > 0
        ]
        name = clean_text(row.get("interface"), 40)
        expectations.append(expected_network_rate(configured_gbps, ports, positive_number(row, "interface_mbps"), name))
    known_rates = [expected for expected in expectations if expected is not None]
    return (
        min(known_rates, key=lambda expected: expected["value"])
        if known_rates and len(known_rates) == len(expectations)
        else None
    )
