# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run ends within 1 % of its time or cost limit, with a checkpoint, according to any clock, and with real
supervisors.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._supervisor.notices.hub_notices import HubNotices
from ansible_collections.muster.training.plugins.module_utils._supervisor.notices.limits import GRACE_SHARE
from tests.unit import supervised
from tests.unit.supervised import Run, free_port, make_run, own_network, started_runs

TOLERANCE = 0.01  # fraction of the limit
STOP_GRACE = 4.0  # seconds from SIGTERM to SIGKILL: launch_stop_grace
LIMIT = 20.0  # seconds, and with the test's prices also USD

# Trains until it must save; then it saves and either exits or does not.
TRAINS = """
import os, pathlib, signal, sys, time, zipfile
directory, received = pathlib.Path("checkpoints"), []
signal.signal(signal.SIGTERM, lambda *_: received.append(1))
step = 0
while not received:
    step += 1
    time.sleep(0.05)
if os.environ["NODE_RANK"] == "0":
    directory.mkdir(exist_ok=True)
    with zipfile.ZipFile(directory / "new.tmp", "w") as archive:
        archive.writestr("archive/data.pkl", "weights")
    os.replace(directory / "new.tmp", directory / f"step-{step}.pt")
while sys.argv[1] == "stubborn":
    time.sleep(1)
"""
Starter = Callable[..., Run]


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Starter]:
    """Start runs of two nodes that cost 1 USD per second."""
    monkeypatch.setattr(supervised, "NETWORK", own_network(40))
    with started_runs() as start:

        def launcher(behavior: str, **limits: float) -> Run:
            ports: dict[str, Any] = {"lifeline_port": free_port(), "master_port": free_port()}
            command = [sys.executable, "-c", TRAINS, behavior]
            run = make_run(tmp_path, [command] * 2, timeouts={"grace": STOP_GRACE}, **ports)
            for plan in run.plans:
                plan["working_directory"], plan["checkpoints"] = str(tmp_path), str(tmp_path / "checkpoints")
                plan["notices"].update(metadata={}, **limits)
                plan["currency"] = "USD"
                for node in plan["nodes"]:
                    node["price_per_hour"] = 1800.0
            return start(run)

        yield launcher


def started(run: Run) -> float:
    """Return the time at which the ranks were started: limits count from then on."""
    events = [json.loads(line) for line in (run.node(0) / "events.jsonl").read_text().splitlines()]
    return float(next(event["time"] for event in events if event["event"] == "go"))


@pytest.mark.parametrize(
    ("name", "text", "behavior"),
    [
        ("cost_limit", "launch_cost_limit (20 USD)", "obedient"),
        ("time_limit", "launch_time_limit (20 s)", "stubborn"),
        pytest.param("cost_limit", "launch_cost_limit (20 USD)", "stubborn", marks=pytest.mark.thorough),
        pytest.param("time_limit", "launch_time_limit (20 s)", "obedient", marks=pytest.mark.thorough),
    ],
)
def test_run_ends_at_its_limit_with_a_checkpoint(
    launch: Starter, tmp_path: Path, name: str, text: str, behavior: str
) -> None:
    run = launch(behavior, **{name: LIMIT})
    run.wait_for("interrupted")
    result = run.result()
    used = result["ended"] - started(run)
    assert result["reason"] == f"{text} has been reached"
    assert (1 - GRACE_SHARE) * LIMIT <= used <= (1 + TOLERANCE) * LIMIT + STOP_GRACE
    (warning,) = (event for event in run.events() if "has been used; the run will save and end in" in event)
    assert warning.startswith("8") and text in warning
    assert len(list((tmp_path / "checkpoints").glob("step-*.pt"))) == 1
    assert not list((tmp_path / "checkpoints").glob("*.tmp"))
    run.wait_until_gone()
    codes = {node["report"]["exit_code"] for node in result["nodes"]}
    assert codes == {0} if behavior == "obedient" else 0 not in codes


@given(
    limit=st.floats(60.0, 30 * 86400.0),
    grace=st.floats(1.0, 3600.0),
    stop_grace=st.floats(0.0, 60.0),
    late=st.floats(0.0, 0.25),
)
def test_ranks_that_never_end_by_themselves_are_ended_at_the_limit(
    limit: float, grace: float, stop_grace: float, late: float
) -> None:
    """SIGKILL follows at the limit, or after the stop grace period if that is longer than half of the time for saving.

    late: the interval between two checks of the supervisor.
    """
    settings = {"grace": grace, "time_limit": limit}
    plan: Any = {"nodes": [], "timeouts": {"grace": stop_grace}, "notices": settings}
    notices = HubNotices(plan)
    notices.started = 0.0
    begin = limit - min(grace, GRACE_SHARE * limit)
    assert notices.due(begin - 0.001) == []
    now = begin + late
    (notice,) = notices.due(now)
    notices.accept(notice, now)
    assert notices.deadline is not None
    killed = notices.deadline + late + stop_grace
    assert begin <= notices.deadline
    slack = stop_grace if stop_grace > min(grace, GRACE_SHARE * limit) / 2 else 0.0
    assert killed <= (1 + TOLERANCE) * limit + slack + 2.0
