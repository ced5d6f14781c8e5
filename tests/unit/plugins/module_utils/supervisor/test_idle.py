# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes whose ranks are idle while others work: synthetic samples, and real supervisors and processes."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._run import status as run_status
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import GPU_SAMPLE_INTERVAL, PACE_WINDOW
from ansible_collections.muster.training.plugins.module_utils._supervisor.health.idle import IdleWatch, JobCpu
from ansible_collections.muster.training.plugins.module_utils._supervisor.notifications.messages import EVENTS
from tests.unit.supervised import end_by_force, eventually, free_port, make_run

BUSY = [sys.executable, "-c", "while True: pass"]
SLEEPS = ["/bin/sleep", "600"]
TEXT = "its ranks have used neither CPU nor GPU for"


def sample(cores: float | None, *utilization: float | None) -> dict[str, Any]:
    return {"job_cores": cores, "gpus": [{"utilization_percent": percent} for percent in utilization]}


def watch(nodes: int = 4, price: float | None = 2.0, **fields: Any) -> IdleWatch:
    entries = [{"name": f"gpu{number}", "slots": 2, "price_per_hour": price} for number in range(nodes)]
    return IdleWatch({"nodes": entries, "currency": "USD", "timeouts": {"sample": GPU_SAMPLE_INTERVAL}, **fields})


def feed(idle: IdleWatch, samples: Mapping[str, Any], start: float = 0.0, span: float = PACE_WINDOW) -> list[str]:
    """Take samples of all nodes for some time; return the news."""
    news = []
    now = start
    while now <= start + span:
        for name, node_sample in samples.items():
            idle.take(name, node_sample, now)
        news += idle.news(now)
        now += GPU_SAMPLE_INTERVAL
    return news


WORKS, IDLE = sample(2.0, 90.0, 95.0), sample(0.02, 0.0, 0.0)


def test_idle_node_is_named_once_with_its_cost_until_it_works_again() -> None:
    idle = watch()
    samples = {"gpu0": WORKS, "gpu1": WORKS, "gpu2": IDLE, "gpu3": WORKS}
    text = f"gpu2 is idle: {TEXT} 5 min, while others are working; it costs 2.00 USD an hour"
    assert feed(idle, samples) == [text]
    assert idle.texts() == [text]
    assert feed(idle, samples, 400.0) == []
    assert feed(idle, {**samples, "gpu2": WORKS}, 800.0) == ["gpu2 works again"]
    assert idle.texts() == []


def test_several_nodes_share_one_text_and_prices_may_be_unknown() -> None:
    samples = {f"gpu{number}": IDLE for number in range(1, 10)}
    (text,) = feed(watch(10, price=None), {**samples, "gpu0": WORKS})
    assert text == (
        "gpu1, gpu2, gpu3, gpu4, gpu5, gpu6 and 3 more are idle: their ranks have used neither CPU nor GPU for 5 min, "
        "while others are working"
    )


@pytest.mark.parametrize(
    "samples",
    [
        {"gpu0": IDLE, "gpu1": IDLE},  # no node is working: a hang, or its end
        {"gpu0": WORKS, "gpu1": sample(0.0, 0.0, 60.0)},  # one GPU works
        {"gpu0": WORKS, "gpu1": sample(0.7, 0.0, 0.0)},  # reads data
        {"gpu0": WORKS, "gpu1": sample(0.3, 0.0, 0.0)},  # a little
        {"gpu0": WORKS, "gpu1": sample(None, 0.0, 0.0)},  # CPU use is unknown in a container
        {"gpu0": WORKS, "gpu1": sample(0.0, None)},  # the driver does not report it
        {"gpu0": sample(0.4, 10.0), "gpu1": IDLE},  # the other one is hardly working, either
        {"gpu0": WORKS, "stranger": IDLE},
    ],
)
def test_busy_run_has_no_idle_nodes(samples: dict[str, Any]) -> None:
    assert feed(watch(), samples) == []


def test_node_is_not_idle_before_the_window_ends_or_without_current_samples() -> None:
    samples = {"gpu0": WORKS, "gpu1": IDLE}
    assert feed(watch(), samples, span=PACE_WINDOW - GPU_SAMPLE_INTERVAL) == []
    idle = watch()
    assert feed(idle, {"gpu1": IDLE}, span=PACE_WINDOW - GPU_SAMPLE_INTERVAL) == []
    assert feed(idle, {"gpu0": WORKS}, PACE_WINDOW + 4 * GPU_SAMPLE_INTERVAL) == [], "its last sample is old"


def test_node_whose_gpus_are_no_longer_listed_is_not_idle() -> None:
    idle = watch()
    idle.take("gpu1", sample(3.0, 99.0), -15.0)
    assert feed(idle, {"gpu0": WORKS, "gpu1": sample(0.0)}) == []


def test_ranks_that_wait_for_a_debugger_are_not_idle() -> None:
    assert feed(watch(debugger={"rank": 0}), {"gpu0": WORKS, "gpu1": IDLE}) == []


def test_idle_nodes_cause_a_separate_notification() -> None:
    assert EVENTS["idle"] == "idle"


def test_job_cpu_usage_is_the_sum_of_all_its_processes() -> None:
    cpu, seconds = JobCpu(), itertools.count()
    plan: Any = {}
    command = ["/bin/sh", "-c", f'"{sys.executable}" -c "while True: pass"; :']
    with subprocess.Popen(command, start_new_session=True) as process:
        try:
            assert cpu.cores(float(next(seconds)), plan) is None, "the first reading says nothing"
            eventually(lambda: (cpu.cores(float(next(seconds)), plan) or 0) > 0)
            assert len(cpu.ticks) >= 2
            plan["wrap"] = ["docker"]
            assert cpu.cores(float(next(seconds)), plan) is None
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_idle_node_in_a_run_is_named(tmp_path: Path) -> None:
    ports: Any = {"lifeline_port": free_port(), "master_port": free_port()}
    run = make_run(tmp_path, [BUSY, SLEEPS], first_address=175, **ports)
    for plan in run.plans:
        plan["currency"] = "USD"
        for node in plan["nodes"]:
            node["price_per_hour"] = 3.5
    run.set_constant("PACE_WINDOW", 2.0)
    run.set_constant("WORKING_CORES", 0.01)  # regardless of other load on this machine
    run.set_constant("IDLE_CORES", 0.005)
    text = f"node1 is idle: {TEXT} 2 s, while others are working; it costs 3.50 USD an hour"
    try:
        run.start()
        run.wait_for("running")
        eventually(lambda: text in run.events())
        eventually(lambda: text in run_status.read(run.request(0, wait=0))["run"]["health"])
        assert run.events().count(text) == 1
        run.stop()
        run.wait_until_gone()
    finally:
        end_by_force(run)
