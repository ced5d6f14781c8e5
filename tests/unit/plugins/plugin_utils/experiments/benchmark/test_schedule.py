# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The schedule of node pairs: each pair once, each node at most once per round, within the time limit."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.schedule import (
    OPERATIONS,
    pairing_rounds,
    plan_remeasurement,
    plan_task,
)


@given(st.integers(2, 70))
def test_every_pair_is_scheduled_once_and_no_node_twice_per_round(count: int) -> None:
    rounds = pairing_rounds(count)
    assert len(rounds) == count - 1 + count % 2
    met = [tuple(pair) for pairs in rounds for pair in pairs]
    assert sorted(met) == list(itertools.combinations(range(count), 2))
    for pairs in rounds:
        ends = [end for pair in pairs for end in pair]
        assert len(set(ends)) == len(ends) and len(pairs) == count // 2


@given(st.integers(1, 70), st.floats(5, 400))
def test_phases_share_exactly_the_available_seconds(count: int, seconds: float) -> None:
    work = plan_task(count, seconds, OPERATIONS)
    assert sum(work["seconds"].values()) == pytest.approx(seconds)
    assert ("pairs" in work["seconds"]) == (count > 1)
    assert work["matmul_seconds"] <= work["seconds"]["matmul"]


def test_second_pass_measures_only_suspects_and_one_at_a_time() -> None:
    work = plan_remeasurement({"ranks": [3], "pairs": [[0, 2], [1, 2]]}, 60)
    assert work["matmul_alone"] == [3] and work["rounds"] == [[[0, 2]], [[1, 2]]]
    assert sum(work["seconds"].values()) <= 60
    assert list(plan_remeasurement({"ranks": [], "pairs": [[0, 2]]}, 60)["seconds"]) == ["pairs"]
