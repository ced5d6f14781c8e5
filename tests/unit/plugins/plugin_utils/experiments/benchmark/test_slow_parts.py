# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Detection of slow components in measurements with known ground truth."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.documents import Benchmark
from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.read import read_measurements
from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.slow_parts import (
    find_suspects,
    judge,
)
from tests.unit.plugins.plugin_utils.experiments.benchmark.measurements import document, names_of


def judged(first: dict[str, Any], again: dict[str, Any] | None, nodes: int, gbps: float | None = None) -> Benchmark:
    measured = read_measurements(first, names_of(nodes), gbps)
    return judge(measured, read_measurements(again, names_of(nodes)) if again is not None else None, "b")


def blamed_parts(benchmark: Benchmark, kind: str) -> list[list[str]]:
    return [item["about"] for item in benchmark["findings"] if item["id"] == kind]


@st.composite
def clusters(draw: st.DrawFn) -> tuple[int, set[int], int]:
    """Generate a number of nodes, fewer than half of which are slow, and a seed for the noise."""
    nodes = draw(st.integers(3, 24))
    slow = draw(st.sets(st.integers(0, nodes - 1), max_size=(nodes - 1) // 2))
    return nodes, slow, draw(st.integers(0, 2**32))


@given(clusters())
def test_slow_nodes_are_named_and_no_others(cluster: tuple[int, set[int], int]) -> None:
    """Slow nodes have half the speed, with 6 % of noise; most nodes are healthy."""
    nodes, slow, seed = cluster
    noise = random.Random(seed)

    def rate(item: int, peer: int) -> float:
        return 10.0 * (0.5 if {item, peer} & slow else 1.0) * noise.uniform(0.94, 1.06)

    first = document(nodes, rate=rate)
    benchmark = judged(first, document(nodes, rate=rate), nodes)
    assert sorted(blamed_parts(benchmark, "benchmark-node-slow")) == sorted([f"gpu{node}"] for node in slow)
    assert blamed_parts(benchmark, "benchmark-link-slow") == []
    suspects = {node for pair in find_suspects(read_measurements(first, names_of(nodes)))["pairs"] for node in pair}
    assert slow <= suspects and (slow or not suspects)


@given(st.integers(4, 20), st.data())
def test_slow_link_is_named_but_not_its_nodes(nodes: int, data: st.DataObject) -> None:
    link = data.draw(st.sets(st.integers(0, nodes - 1), min_size=2, max_size=2))

    def rate(item: int, peer: int) -> float:
        return 4.0 if {item, peer} == link else 10.0

    benchmark = judged(document(nodes, rate=rate), document(nodes, rate=rate), nodes)
    assert [set(about) for about in blamed_parts(benchmark, "benchmark-link-slow")] == [{f"gpu{node}" for node in link}]
    assert blamed_parts(benchmark, "benchmark-node-slow") == []


def test_slowness_is_a_problem_only_if_a_second_pass_confirms_it() -> None:
    first = document(
        4, rate=lambda item, peer: 3.0 if 2 in (item, peer) else 10.0, tflops=lambda rank: 250.0 - 50 * (rank == 1)
    )
    assert find_suspects(read_measurements(first, names_of(4)))["pairs"] != []
    for again in (None, document(4)):
        benchmark = judged(first, again, 4)
        assert [item for item in benchmark["findings"] if item["severity"] == "problem"] == [], again
        assert benchmark["verdict"] == "nothing is slow among these nodes"
    assert blamed_parts(benchmark, "benchmark-gpu-crowded") == [["gpu1 GPU 0"]], "well by itself, and not among others"


def test_slow_gpu_is_detected_by_comparison_with_gpus_of_the_same_model() -> None:
    def tflops(rank: int) -> float:
        return 200.0 if rank == 5 else 250.0

    first = document(2, gpus=4, tflops=tflops)
    alone = find_suspects(read_measurements(first, names_of(2)))["ranks"]
    assert alone[-1] == 5 and len(alone) == 3, "with others of its kind to compare it with"
    benchmark = judged(first, document(2, gpus=4, tflops=tflops), 2)
    assert blamed_parts(benchmark, "benchmark-gpu-slow") == [["gpu1 GPU 1"]]
    assert "gpu1 GPU 1 is slow: 200 TFLOP/s, compared with 250" in benchmark["verdict"]


@pytest.mark.parametrize(("rate", "slow"), [(0.8, []), (0.6, [["gpu1 rank 0"]])])
def test_cpus_may_differ_more_before_they_are_considered_slow(rate: float, slow: list[list[str]]) -> None:
    first = document(3, model="cpu", tflops=lambda rank: rate if rank == 1 else 1.0)
    assert (1 in find_suspects(read_measurements(first, names_of(3)))["ranks"]) is bool(slow)
    assert blamed_parts(judged(first, first, 3), "benchmark-gpu-slow") == slow


def test_different_gpu_models_are_not_compared_with_each_other() -> None:
    first = document(2, tflops=lambda rank: 250.0 if rank == 0 else 30.0)
    first["ranks"][1]["device"] = "Tesla T4"
    first["matmul"][1]["dtype"] = "float16"
    benchmark = judged(first, None, 2)
    assert blamed_parts(benchmark, "benchmark-gpus-differ") == [["NVIDIA A100-SXM4-40GB", "Tesla T4"]]
    assert find_suspects(read_measurements(first, names_of(2)))["ranks"] == []
    assert blamed_parts(benchmark, "benchmark-gpu-slow") == []


def test_gpus_below_expected_speed_are_reported_with_its_source() -> None:
    benchmark = judged(document(2, tflops=lambda _rank: 150.0), None, 2)
    text = next(item for item in benchmark["findings"] if item["id"] == "benchmark-gpus-below")
    assert text["severity"] == "problem" and "150 TFLOP/s" in text["problem"] and "271 is expected" in text["problem"]
    assert "MAMF" in text["problem"]
    # unmeasured parts are never blamed
    benchmark = judged(document(2, tflops=lambda _rank: 1.0, model="Quadro P4000", matmul=[
        {"rank": rank, "dtype": "float32", "median": 1.0} for rank in range(2)
    ]), None, 2)  # fmt: skip
    assert [item["severity"] for item in benchmark["findings"]] == ["hint"]


def test_two_nodes_are_judged_by_expected_speed_without_blaming_either() -> None:
    benchmark = judged(document(2, rate=lambda _a, _b: 4.0), None, 2, gbps=10.0)
    below = next(item for item in benchmark["findings"] if item["id"] == "benchmark-network-below")
    assert (
        below["about"] == ["gpu0", "gpu1"] and "a single pair cannot show which of the two is slow" in below["problem"]
    )
    assert "benchmark_network_gbps" in below["problem"]
    assert judged(document(2, rate=lambda _a, _b: 9.0), None, 2, gbps=10.0)["findings"] == []


@pytest.mark.parametrize(
    ("phase", "index", "change", "expected_text"),
    [
        ("collectives", 1, {"wrong_ranks": [1]}, "all_reduce gives wrong results on gpu1, with 1048576 bytes"),
        ("matmul", 1, {"correct": False}, "gpu1 GPU 0 computes a wrong matrix product"),
        ("copies", 0, {"correct": False}, "gpu0 rank 0: a copy (device) does not match its source"),
        ("pairs", 0, {"correct": False}, "data sent between gpu0 and gpu1 arrives corrupted"),
    ],
)
def test_wrong_results_are_reported_at_any_speed(
    phase: str, index: int, change: dict[str, Any], expected_text: str
) -> None:
    first = document(2)
    first[phase][index].update(change)
    assert expected_text in judged(first, None, 2)["verdict"]


def test_bandwidth_is_calculated_as_in_nccl_tests() -> None:
    measured = read_measurements(
        {
            "ranks": [],
            "collectives": [
                {"scope": "all", "op": operation, "bytes": 4_000_000, "ranks": 4, "median_us": 1000.0}
                for operation in ("all_reduce", "all_gather", "broadcast")
            ],
        },
        names_of(2),
    )
    assert [item["algbw_gbytes"] for item in measured.collectives] == pytest.approx([4.0, 4.0, 4.0])
    assert [item["busbw_gbytes"] for item in measured.collectives] == pytest.approx([6.0, 3.0, 4.0])
