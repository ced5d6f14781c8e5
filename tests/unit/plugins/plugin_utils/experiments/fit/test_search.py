# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The search for the largest batch size, with random limits."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._experiments.fit.search import (
    Probe,
    SearchSettings,
    choose_next,
    fastest_probe,
)


def probe(batch: int, fits: bool, confirms: bool = False, memory: float | None = None, **more: float) -> Probe:
    return {
        "batch": batch,
        "fits": fits,
        "confirms": confirms,
        "run_id": f"fit-b{batch}",
        "reason": "",
        "seconds": 40.0,
        "memory_mib": memory,
        "total_mib": 40960.0 if memory is not None else None,
        "samples_per_second": more.get("rate"),
    }


def searched(limit: int, search: SearchSettings, noise: random.Random | None) -> list[Probe]:
    """Return all probes of a search in which this batch size fits, but no larger one; with noise, memory is reported,
    too.
    """
    history: list[Probe] = []
    while not (following := choose_next(history, search))["finished"]:
        batch = following["batch"]
        memory = None
        if noise is not None:
            memory = (3000 + (40960 - 3000) * batch / (limit + 0.5)) * noise.uniform(0.985, 1.015)
        history.append(probe(batch, batch <= limit, following["confirms"], memory))
        assert len(history) < 60
    return history


searches = st.builds(
    lambda start, multiple, most, margin: SearchSettings(start=start, multiple=multiple, max_batch=most, margin=margin),
    st.integers(1, 64),
    st.sampled_from([1, 2, 4, 8, 16]),
    st.integers(64, 4096),
    st.sampled_from([0.0, 0.05, 0.2]),
)


@given(st.integers(0, 5000), searches, st.none() | st.integers(0, 999))
def test_result_fits_but_the_next_multiple_does_not(limit: int, search: SearchSettings, seed: int | None) -> None:
    history = searched(limit, search, random.Random(seed) if seed is not None else None)
    result = choose_next(history, search)["result"]
    if limit == 0:
        assert result == 0 and [item["batch"] for item in history][-1] == 1
        return
    assert 1 <= result <= limit and history[-1]["confirms"]
    largest = max(item["batch"] for item in history if item["fits"] and not item["confirms"])
    assert largest + search["multiple"] > limit or largest == search["max_batch"]
    assert result <= max(1, largest * (1 - search["margin"]))
    tried = [item["batch"] for item in history if not item["confirms"]]
    assert len(set(tried)) == len(tried), "nothing is tried twice"


def test_search_takes_at_most_seven_probes_on_average() -> None:
    draw = random.Random(7)
    search = SearchSettings(start=8, multiple=8, max_batch=4096, margin=0.05)
    counts = [len(searched(draw.randint(8, 1024), search, draw)) for _limit in range(1000)]
    assert sum(counts) / len(counts) <= 7.0, "the longer run that confirms the result among them"


def test_number_of_probes_is_estimated_early() -> None:
    # memory of a transformer on an H200, from launches by fit.yml
    memory = {8: 22886.0, 16: 32636.0, 104: 131374.0, 112: 141006.0, 120: None}
    history: list[Probe] = []
    about = []
    while not (following := choose_next(history, SearchSettings(start=8, multiple=8, max_batch=4096, margin=0.05)))[
        "finished"
    ]:
        batch, confirms = following["batch"], following["confirms"]
        about.append(len(history) + following["remaining"] + (not confirms))
        history.append({**probe(batch, memory[batch] is not None, confirms, memory[batch]), "total_mib": 143156.0})
    assert [item["batch"] for item in history] == [*memory, 104]
    assert about == [6, 6, 5, 6, 6, 6]


def test_failed_confirmations_shrink_the_batch_then_end_the_search() -> None:
    search = SearchSettings(start=64, multiple=8, max_batch=64, margin=0.0)
    history = [probe(64, True)]
    batches = []
    while not (following := choose_next(history, search))["finished"]:
        batches.append(following["batch"])
        history.append(probe(following["batch"], False, confirms=True))
    assert batches == [64, 56, 48, 40] and following["result"] == 0


def test_fastest_is_smallest_batch_close_to_top_speed() -> None:
    history = [probe(8, True, rate=50.0), probe(16, True, rate=99.0), probe(32, True, rate=100.0), probe(64, False)]
    result = fastest_probe(history)
    assert result is not None and result["batch"] == 16
    assert fastest_probe([probe(8, True)]) is None
