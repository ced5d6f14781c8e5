# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The forecast of a rehearsal: continuity of the curve, disk space, time and cost."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._experiments.rehearse.documents import (
    ALL_NODES,
    RESUMED,
    TWO_NODES,
    Rehearsal,
    RehearsalJob,
    RehearsalLaunch,
)
from ansible_collections.muster.training.plugins.plugin_utils._experiments.rehearse.forecast import judge, render

GB = 10**9


def start(what: str, steps: list[float], loss: list[float], **more: Any) -> RehearsalLaunch:
    usual: RehearsalLaunch = {
        "kind": what,
        "run_id": f"r-{what}",
        "nnodes": 4,
        "node": "gpu0",
        "run_seconds": 50.0,
        "step_seconds": 2.0,
        "memory_mib": 2048.0,
        "checkpoint": "/data/c",
        "checkpoint_seconds": 10.0,
        "per_hour": 36.0,
        "currency": "USD",
        "steps": steps,
        "loss": loss,
        "broken": None,
    }
    return {**usual, **more}  # type: ignore[typeddict-item]


FIRST = start(ALL_NODES, [1, 10, 20], [4.0, 3.0, 2.0])


def judged(*starts: RehearsalLaunch, size: int | None = GB, free: int | None = 100 * GB, **more: Any) -> Rehearsal:
    job: RehearsalJob = {
        "args": [],
        "resume_args": ["--resume"],
        "steps": 20,
        "nnodes": 4,
        "timeout": 60.0,
        "total_steps": 1000,
        "checkpoint_steps": 100,
        "checkpoints_kept": 3,
        "loss": "",
    }
    rehearsal: Any = {"version": 1, "job": {**job, **more}, "starts": list(starts), "running": ""}
    return judge(rehearsal, size, free)


def test_continued_curve_is_approved_with_total_time_and_cost() -> None:
    rehearsal = judged(FIRST, start(RESUMED, [21, 40], [2.1, 1.5]))
    assert rehearsal["resumed"] is True and rehearsal["findings"] == [] and rehearsal["go"] is True
    assert rehearsal["total_seconds"] == 10 + 2000 + 100, "the start, the steps, ten checkpoints"
    assert rehearsal["total_cost"] == pytest.approx(21.1)
    text = render(rehearsal, "r")
    assert "a checkpoint: 1 GB in 10 s, 100 GB is free" in text and text.endswith("rehearsal r: go")
    assert "the whole job, 1000 steps: about 0:35:10, 21.10 USD" in text


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (start(RESUMED, [1, 40], [4.0, 1.5]), "the second start did not load the checkpoint: loss 4 at step 1"),
        (start(RESUMED, [1, 40], [2.0, 1.5]), "the second start restarts its step count"),
        (start(RESUMED, [21, 40], [3.9, 1.5]), "the second start did not continue the curve: loss 3.9 at step 21"),
    ],
)
def test_curve_that_does_not_continue_is_a_problem(second: RehearsalLaunch, message: str) -> None:
    rehearsal = judged(FIRST, second)
    assert rehearsal["resumed"] is False and rehearsal["go"] is False
    assert [item["problem"].startswith(message) for item in rehearsal["findings"]] == [True], rehearsal["findings"]
    assert "what to do: load the model, optimizer and step" in render(rehearsal, "r")


@given(st.floats(-1e6, 1e6), st.floats(0.1, 1e6), st.floats(0, 1))
def test_first_loss_of_the_second_start_decides_whether_it_resumed(ended: float, fell: float, share: float) -> None:
    """share: 0 for the last loss of the first start, 1 for its first loss."""
    began = ended + fell
    rehearsal = judged(start(ALL_NODES, [1, 20], [began, ended]), start(RESUMED, [21], [ended + share * fell]))
    if share > 0.51 and fell > 0.06 * abs(began):
        assert rehearsal["resumed"] is False
    if share < 0.49:
        assert rehearsal["resumed"] is not False


@pytest.mark.parametrize(
    ("starts", "more", "message"),
    [
        ([FIRST], {"resume_args": []}, "resuming was not tested"),
        ([start(ALL_NODES, [], []), start(RESUMED, [], [])], {}, "whether the second start resumed is unknown"),
        ([start(ALL_NODES, [1, 20], [4, 3.99]), start(RESUMED, [21], [4])], {}, "the loss fell too little to tell"),
        ([start(ALL_NODES, [], [], step_seconds=None)], {"resume_args": ["a"]}, "the time per step is unknown"),
        ([FIRST], {"total_steps": 0}, "the total time is unknown"),
        ([start(ALL_NODES, [], [], checkpoint="")], {}, "the job reported no checkpoint"),
        (
            [start(TWO_NODES, [], [], step_seconds=1.0, nnodes=2), FIRST],
            {},
            "a step takes 2 s on 4 nodes, but 1 s on 2",
        ),
    ],
)
def test_unknown_or_unexpected_figures_are_only_hints(
    starts: list[RehearsalLaunch], more: dict[str, Any], message: str
) -> None:
    rehearsal = judged(*starts, **more)
    assert [item["problem"].startswith(message) for item in rehearsal["findings"]] == [True], rehearsal["findings"]
    assert rehearsal["go"] is True and rehearsal["findings"][0]["severity"] == "hint"


def test_rehearsal_without_measurements_is_not_approved() -> None:
    silent = {"step_seconds": None, "checkpoint": ""}
    launches = (start(ALL_NODES, [], [], **silent), start(RESUMED, [], [], **silent))
    rehearsal = judged(*launches, size=None, free=None)
    assert rehearsal["go"] is False
    text = render(rehearsal, "r")
    assert text.splitlines()[-3].startswith("problem: the job ran, but nothing in its output could be judged: no loss")
    assert "what to do: print MUSTER_RESULT {" in text and text.endswith("rehearsal r: not yet")


@pytest.mark.parametrize("what", [TWO_NODES, ALL_NODES, RESUMED])
def test_non_numeric_loss_is_the_only_finding(what: str) -> None:
    rehearsal = judged(
        *(start(item, [], [], broken=7.0 if item == what else None) for item in (TWO_NODES, ALL_NODES, RESUMED))
    )
    assert [item["problem"] for item in rehearsal["findings"]] == [f"the loss is not a number at step 7 of r-{what}"]
    assert rehearsal["go"] is False and rehearsal["resumed"] is None


@pytest.mark.parametrize(
    ("size", "free", "message"),
    [
        (GB, 2 * GB, "gpu0 has 3 GB for checkpoints, but 3 of them take 3.3 GB"),
        (None, None, "the checkpoint /data/c does not exist"),
    ],
)
def test_missing_space_or_checkpoint_is_a_problem(size: int | None, free: int | None, message: str) -> None:
    rehearsal = judged(FIRST, start(RESUMED, [21], [2.0]), size=size, free=free)
    assert [item["problem"].startswith(message) for item in rehearsal["findings"]] == [True] and rehearsal[
        "go"
    ] is False
