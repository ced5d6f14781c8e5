# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Turn a benchmark job's output into rows with node names. It comes from a node, so it may be anything.

Pure. Private to this collection, controller only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.documents import (
    Collective,
    Copy,
    Expected,
    Gpu,
    Pair,
)
from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.expected import of_network
from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.schedule import OPERATIONS
from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import (
    clean,
    listed,
    mapping,
    mappings,
    number,
    whole,
)

MOST_ROWS = 20_000


@dataclass
class Measured:
    """The measurements of one run of the job."""

    nodes: list[str]
    backend: str = ""
    torch: str = ""
    nccl: str = ""
    complete: bool = False
    gpus: list[Gpu] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)
    collectives: list[Collective] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    network: Expected | None = None


def positive(row: Mapping[str, Any], name: str) -> float | None:
    """The value of a key if it is a number above 0."""
    value = number(row.get(name))
    return value if value is not None and value > 0 else None


def bus_share(operation: str, ranks: int) -> float:
    """The share of the buffer that each rank's link carries, as in nccl-tests (its doc/PERFORMANCE.md)."""
    if operation == "all_reduce":
        return 2.0 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if operation in ("all_gather", "reduce_scatter", "all_to_all") else 1.0


def read_measured(document: Any, nodes: Sequence[str], network_gbps: float | None = None) -> Measured:
    """A job's measurements. nodes: names by node rank; network_gbps: per node, the user's value."""
    whole_document = mapping(document)
    found = Measured(list(nodes))
    found.backend = clean(whole_document.get("backend"), 20)
    found.torch, found.nccl = clean(whole_document.get("torch"), 40), clean(whole_document.get("nccl"), 40)
    found.complete = whole_document.get("complete") is True
    found.left_out = [clean(one, 200) for one in listed(whole_document.get("left_out"), 100) if clean(one, 200)]
    ranks = {whole(row.get("rank")): row for row in mappings(whole_document.get("ranks"))}
    found.network = network_of(ranks, network_gbps)
    for row in mappings(whole_document.get("matmul"), MOST_ROWS):
        gpu = gpu_of(row, ranks, nodes)
        if gpu is not None:
            found.gpus.append(gpu)
    for row in mappings(whole_document.get("copies"), MOST_ROWS):
        rate, of = positive(row, "gbytes"), ranks.get(whole(row.get("rank")))
        node = name_of(nodes, of)
        if rate is not None and of is not None and node:
            found.copies.append(
                {
                    "node": node,
                    "local_rank": whole(of.get("local_rank")),
                    "kind": clean(row.get("kind"), 40),
                    "gbytes": rate,
                    "right": row.get("right") is not False,
                }
            )
    for row in mappings(whole_document.get("collectives"), MOST_ROWS):
        operation = collective_of(row, ranks, nodes)
        if operation is not None:
            found.collectives.append(operation)
    for row in mappings(whole_document.get("pairs"), MOST_ROWS):
        rate, ends = positive(row, "gbps"), [number(row.get("a")), number(row.get("b"))]
        names = [nodes[int(end)] for end in ends if end is not None and 0 <= end < len(nodes)]
        if rate is not None and len(set(names)) == 2:
            found.pairs.append(
                {
                    "a": names[0],
                    "b": names[1],
                    "gbps": rate,
                    "us": positive(row, "us") or 0.0,
                    "alone_gbps": None,
                    "right": row.get("right") is not False,
                }
            )
    return found


def name_of(nodes: Sequence[str], row: Mapping[str, Any] | None) -> str:
    """The name of a rank's node, "" if it gives no existing one."""
    place = number(mapping(row).get("node"))
    return nodes[int(place)] if place is not None and 0 <= place < len(nodes) else ""


def gpu_of(row: Mapping[str, Any], ranks: Mapping[int, Mapping[str, Any]], nodes: Sequence[str]) -> Gpu | None:
    """One rank's compute rate."""
    rank = whole(row.get("rank"))
    node, rate = name_of(nodes, ranks.get(rank)), positive(row, "median")
    if not node or rate is None:
        return None
    return {
        "node": node,
        "local_rank": whole(ranks[rank].get("local_rank")),
        "rank": rank,
        "model": clean(ranks[rank].get("device"), 100),
        "dtype": clean(row.get("dtype"), 20),
        "tflops": rate,
        "best": positive(row, "best") or rate,
        "first_quarter": positive(row, "first_quarter") or rate,
        "last_quarter": positive(row, "last_quarter") or rate,
        "alone_tflops": None,
        "right": row.get("right") is not False,
    }


def collective_of(
    row: Mapping[str, Any], ranks: Mapping[int, Mapping[str, Any]], nodes: Sequence[str]
) -> Collective | None:
    """One operation and size."""
    scope, operation = clean(row.get("scope"), 10), clean(row.get("op"), 20)
    size, members, spent = whole(row.get("bytes"), 1 << 40), whole(row.get("ranks")), positive(row, "median_us")
    node = name_of(nodes, row) if scope == "node" else ""
    known = scope in ("node", "all") and operation in OPERATIONS and (scope == "all" or node)
    if not known or not size or not members or spent is None:
        return None
    rate = size / spent / 1000.0  # bytes a microsecond are MB/s
    wrong = [name_of(nodes, ranks.get(whole(rank))) for rank in listed(row.get("wrong"))]
    return {
        "scope": scope,
        "node": node,
        "op": operation,
        "bytes": size,
        "ranks": members,
        "us": spent,
        "p95_us": positive(row, "p95_us") or spent,
        "algbw_gbytes": rate,
        "busbw_gbytes": rate * bus_share(operation, members),
        "wrong": sorted({name for name in wrong if name}),
    }


def network_of(ranks: Mapping[int, Mapping[str, Any]], given: float | None) -> Expected | None:
    """The expected rate of the network: the slowest node's, since a ring runs at its pace."""
    found = []
    for row in ranks.values():
        ports = [rate for rate in map(number, listed(row.get("infiniband_gbps"), 64)) if rate is not None and rate > 0]
        name = clean(row.get("interface"), 40)
        found.append(of_network(given, ports, positive(row, "interface_mbps"), name))
    known = [one for one in found if one is not None]
    return min(known, key=lambda one: one["value"]) if known and len(known) == len(found) else None
