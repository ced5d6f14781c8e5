# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Types for a benchmark's plan, measurements and findings.

Rates are in TFLOP/s (10**12), GB/s (10**9 bytes) or Gb/s (10**9 bits); times in microseconds; sizes in bytes. None
means unknown.
"""

from __future__ import annotations

from typing import TypedDict

from ansible_collections.muster.training.plugins.plugin_utils._report.documents import ReportFinding

VERSION = 1  # version of benchmark.json in the record; incremented when a key is removed or changes its meaning


class BenchmarkTask(TypedDict, total=False):
    """The job's input: the phases with their durations in seconds, and which ranks measure what."""

    seconds: dict[str, float]  # phase: matmul, copies, node, all or pairs
    matmul_seconds: float
    matmul_size: int  # number of rows of a matrix; 0: chosen based on the device's memory
    matmul_alone: list[int]  # ranks that compute one after another instead of all at once
    collectives: list[str]
    max_buffer_bytes: int  # size of the largest buffer in bytes; 0: chosen based on the device's memory
    rounds: list[list[list[int]]]  # pairs of node ranks that exchange data at the same time
    pair_bytes: int  # 0: chosen by the backend


class GpuRate(TypedDict):
    """A rank's compute rate: while all ranks compute and, if that rate was low, while it computes alone."""

    node: str
    local_rank: int
    rank: int
    model: str
    dtype: str
    tflops: float
    best: float
    first_quarter: float
    last_quarter: float
    alone_tflops: float | None
    correct: bool


class CopyRate(TypedDict):
    """A rank's rate for one kind of memory copy."""

    node: str
    local_rank: int
    kind: str
    gbytes: float
    correct: bool


class CollectiveRate(TypedDict):
    """The rate for one operation and size. node: the node whose ranks took part, "" for all nodes."""

    scope: str
    node: str
    op: str
    bytes: int
    ranks: int
    us: float
    p95_us: float
    algbw_gbytes: float
    busbw_gbytes: float
    wrong_ranks: list[str]  # nodes that returned a wrong result


class PairRate(TypedDict):
    """The rate in each direction between two nodes that send to each other at the same time."""

    a: str
    b: str
    gbps: float
    us: float
    alone_gbps: float | None
    correct: bool


class ExpectedRate(TypedDict):
    """An expected value, and its source."""

    value: float
    source: str
    sure: bool  # False: estimated from similar machines, so never reported as a problem


class Suspects(TypedDict):
    """Ranks and pairs of node ranks to remeasure alone: those that seem slow, and some for comparison."""

    ranks: list[int]
    pairs: list[list[int]]


class Benchmark(TypedDict):
    """The contents of benchmark.json."""

    version: int
    run_id: str
    backend: str
    torch: str
    nccl: str
    complete: bool
    nodes: list[str]
    gpus: list[GpuRate]
    copies: list[CopyRate]
    collectives: list[CollectiveRate]
    pairs: list[PairRate]
    expected_tflops: dict[str, ExpectedRate]  # expected rates by "model, type"
    expected_network: ExpectedRate | None  # Gb/s per node in each direction
    findings: list[ReportFinding]
    left_out: list[str]
    compared_with: str  # the baseline run; "" if there was none
    verdict: str
