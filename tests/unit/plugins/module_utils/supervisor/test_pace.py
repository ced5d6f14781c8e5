# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs and ranks that are slower than the others, according to figures as nodes send them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._run.timeouts import HEALTH_CHECK_INTERVAL, PACE_WINDOW
from ansible_collections.muster.training.plugins.module_utils._supervisor.health.pace import PaceWatch
from ansible_collections.muster.training.plugins.module_utils._supervisor.health.step_times import step_times

BUSY = {"power": 650.0, "power_limit": 700.0, "utilization": 99.0, "throttling": 4}


def watch(prices: tuple[float | None, ...] = (2.0, 2.0, 2.0, 2.0)) -> PaceWatch:
    return PaceWatch({"nodes": [{"price_per_hour": price} for price in prices], "currency": "USD"})


def figures(clock: float, steps: dict[str, float] | None = None, **values: Any) -> str:
    gpus = [{"index": index, "clock": clock, **BUSY, **values} for index in range(2)]
    return json.dumps({"gpus": gpus, "steps": steps or {}})


def feed(pace: PaceWatch, texts: dict[str, str], start: float = 0.0, span: float = PACE_WINDOW) -> float:
    """Supply figures for all nodes for some time; return when that ended."""
    now = start
    while now <= start + span:
        for node, text in texts.items():
            pace.take(node, text, now)
        now += HEALTH_CHECK_INTERVAL
    return now


def test_slow_gpu_is_named_with_its_reason_and_cost() -> None:
    pace = watch()
    texts = {f"gpu{number}": figures(1900) for number in range(4)}
    texts["gpu2"] = json.dumps(
        {
            "gpus": [
                {"index": 0, "clock": 1900, **BUSY},
                {"index": 1, "clock": 1140, **BUSY, "power": 400, "throttling": 0x44},
            ]
        }
    )
    now = feed(pace, texts)
    assert pace.take_news() == [
        "GPU 1 of gpu2 is running at 1140 MHz, the others at 1900 MHz (400 W, the others 650 W; hardware thermal "
        "slowdown); the run is limited to its pace: up to 40 % of the time, 3.20 USD an hour"
    ]
    assert len(pace.texts()) == 1
    feed(pace, texts, now)
    assert pace.take_news() == [], "told once"
    feed(pace, {**texts, "gpu2": figures(1880)}, now + PACE_WINDOW)
    assert pace.take_news() == ["GPU 1 of gpu2 is as fast as the others again"]
    assert pace.texts() == []


@pytest.mark.parametrize(
    "texts",
    [
        {"gpu0": figures(1900), "gpu1": figures(1800)},  # GPUs of the same model differ by this much
        {"gpu0": figures(1900), "gpu1": figures(345, utilization=0.0)},  # an idle GPU saves power
        {"gpu0": json.dumps({"gpus": [{"index": 0, "clock": 345, **BUSY}]})},  # nothing to compare it with
        {"gpu0": figures(1900), "gpu1": "nonsense"},
        {"gpu0": figures(1900), "gpu1": json.dumps({"gpus": [{"index": 0, "clock": -1}], "steps": [1]})},
        {"gpu0": figures(1900), "gpu1": json.dumps({"gpus": {"index": 0}, "steps": {"1": "fast", "x": 1.0}})},
    ],
)
def test_run_with_equal_parts_has_no_slow_parts(texts: dict[str, str]) -> None:
    pace = watch()
    feed(pace, texts)
    assert pace.take_news() == []


def test_nothing_is_judged_before_five_minutes() -> None:
    pace = watch()
    feed(pace, {"gpu0": figures(1900), "gpu1": figures(900)}, span=PACE_WINDOW - HEALTH_CHECK_INTERVAL)
    assert pace.take_news() == []


def test_lower_power_limit_is_named_even_if_prices_are_unknown() -> None:
    pace = watch((None, 2.0, 2.0))
    feed(pace, {"a": figures(1900), "b": figures(1900), "c": figures(1300, power=400.0, power_limit=400.0)})
    assert pace.take_news()[0] == (
        "GPU 0 of c is running at 1300 MHz, the others at 1900 MHz (400 W, the others 650 W; its power limit is 400 W, "
        "the others' 700 W; power limit reached); the run is limited to its pace: up to 32 % of the time"
    )


def test_slow_rank_is_identified_by_its_printed_step_times() -> None:
    pace = watch()
    texts = {f"gpu{rank}": figures(1900, {str(rank): 2.5 if rank == 3 else 2.0}) for rank in range(4)}
    feed(pace, texts)
    assert pace.take_news() == [
        "rank 3 on gpu3 takes 2.5 s per step, the others 2 s; the run is limited to its pace: up to "
        "20 % of the time, 1.60 USD an hour"
    ]


@pytest.mark.parametrize(
    ("text", "times"),
    [
        (" 12%|█▏        | 12/100 [00:22<02:43,  1.85s/it]", [1.85]),
        ("Epoch 1:  40%|████      | 40/100 [00:10<00:15,  4.00it/s, loss=0.3]", [0.25]),
        (" iteration 100/ 1000 | elapsed time per iteration (ms): 1234.5 | learning rate: 1e-4", [1.2345]),
        ("step 7 loss 0.31 step_time: 0.53", [0.53]),
        ("{'step': 7, 'step_time': 530 ms}", [0.53]),
        ("step 7, 0.53 s/step", [0.53]),
        ("loss 0.53, 12 items", []),
        ("0.0it/s", []),
    ],
)
def test_step_times_printed_by_programs_are_recognized(text: str, times: list[float]) -> None:
    assert step_times(text) == pytest.approx(times)
