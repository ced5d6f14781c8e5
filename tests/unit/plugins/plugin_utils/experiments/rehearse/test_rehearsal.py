# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A rehearsal with simulated launches: the variables and the record of each start, and the next step."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._experiments.rehearse.documents import (
    Rehearsal,
    RehearsalJob,
)
from ansible_collections.muster.training.plugins.plugin_utils._experiments.rehearse.rehearsal import (
    RehearsalRunner,
    finish_rehearsal,
)
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.launches import PlaybookResult
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.resumable import ExperimentError
from tests.unit.plugins.plugin_utils.report.records import write_record

JOB: RehearsalJob = {
    "args": ["--steps={steps}", "--to", "/data/{name}"],
    "resume_args": ["--steps={steps}", "--to", "/data/{name}", "--from", "{checkpoint}"],
    "steps": 20,
    "nnodes": 4,
    "timeout": 60.0,
    "total_steps": 0,
    "checkpoint_steps": 0,
    "checkpoints_kept": 1,
    "loss": "",
}


class Cluster:
    """A simulated cluster, whose runs report a loss at each step, and a checkpoint."""

    def __init__(self, runs: Path) -> None:
        self.runs = runs
        self.interrupted = self.late = False
        self.fails_at = self.interrupt_at = self.refused = ""
        self.job_results: dict[str, Any] = {"samples_per_second": 64.0, "batch_size": 32, "checkpoint": "/data/c.pt"}
        self.losses: dict[int, float] = {}  # by step, instead of a falling loss
        self.launched: list[str] = []
        self.launch_variables: list[Mapping[str, Any]] = []
        self.stopped: list[str] = []

    def launch(self, run_id: str, variables: Mapping[str, Any], timeout: float) -> PlaybookResult:
        assert timeout == 60.0
        self.launched.append(run_id)
        unset = ("launch_restart_min_nodes", "launch_restart_wait", "launch_debug_rank")
        assert variables["launch_restarts"] == 0 and not any(variables[name] for name in unset)
        self.launch_variables.append(variables)
        self.interrupted = run_id == self.interrupt_at
        if self.refused:
            return PlaybookResult(2, [self.refused], 1.0, False)
        more: dict[str, Any] = {"job_results": self.job_results}
        if run_id == self.fails_at:
            more |= {"state": "failed", "first_failure": {"node": "gpu1", "rank": 1, "error": "NameError: modle"}}
        record = write_record(self.runs, run_id, nodes=variables.get("nnodes", 4), result=more)
        first = 21 if "resumed" in run_id else 1
        lines = [
            json.dumps({"step": step, "loss": self.losses.get(step, 100 - step)}) for step in range(first, first + 20)
        ]
        (record / "logs" / "node0" / "job_results.jsonl").write_text("\n".join(lines) + "\n")
        return PlaybookResult(0, [], 40.0, self.late)

    def stop(self, run_id: str) -> PlaybookResult:
        self.stopped.append(run_id)
        return PlaybookResult(0, [], 1.0, False)

    def play(self, name: str, log: str, variables: Mapping[str, Any]) -> PlaybookResult:
        return PlaybookResult(0, [], 1.0, False)


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path / "runs")


def play(cluster: Cluster, messages: list[str] | None = None, common: str = "", **more: Any) -> Rehearsal:
    notify = (messages if messages is not None else []).append
    rehearsing = RehearsalRunner(cluster.runs / "r", cluster.runs, cluster, notify, common)
    return rehearsing.run({**JOB, **more})  # type: ignore[typeddict-item]


def test_rehearsal_starts_two_nodes_then_all_then_resumes_on_all(cluster: Cluster) -> None:
    messages: list[str] = []
    play(cluster, messages)
    assert messages == [
        "start 1 of 3: a few steps on two nodes",
        "start 2 of 3: a few steps on all nodes, and a checkpoint",
        "start 3 of 3: on all nodes again, from the checkpoint",
    ]
    assert cluster.launched == ["r-two", "r-all", "r-resumed"]
    assert [item.get("nnodes") for item in cluster.launch_variables] == [2, None, None]
    assert [item["launch_args"] for item in cluster.launch_variables] == [
        ["--steps=20", "--to", "/data/r-two"],
        ["--steps=20", "--to", "/data/r-all"],
        ["--steps=40", "--to", "/data/r-all", "--from", "/data/c.pt"],
    ]
    rehearsal = finish_rehearsal(cluster.runs / "r", 10**9, 10**10)
    assert rehearsal["go"] is True and rehearsal["resumed"] is True
    assert rehearsal["starts"][1]["step_seconds"] == 2.0, "32 of each of 4 ranks, 64 a second"
    assert rehearsal["starts"][2]["steps"][0] == 21


def test_rehearsal_on_two_nodes_has_only_two_starts(cluster: Cluster) -> None:
    play(cluster, nnodes=2)
    assert cluster.launched == ["r-all", "r-resumed"]


def test_interrupted_rehearsal_resumes_and_finished_one_is_refused(cluster: Cluster) -> None:
    cluster.interrupt_at = "r-all"
    with pytest.raises(
        ExperimentError, match="interrupted: r-all was stopped on all nodes; run the same command again"
    ):
        play(cluster)
    play(cluster)
    assert cluster.stopped == ["r-all"] and cluster.launched == ["r-two", "r-all", "r-all-2", "r-resumed"]
    assert cluster.launch_variables[-1]["launch_args"][2] == "/data/r-all-2", "where the checkpoint was saved"
    finish_rehearsal(cluster.runs / "r", None, None)
    with pytest.raises(ExperimentError, match="r is a rehearsal that has ended: choose another name"):
        play(cluster)
    with pytest.raises(ExperimentError, match="r is a rehearsal that has different settings"):
        play(cluster, steps=3)
    with pytest.raises(ExperimentError, match="r is a rehearsal that has a different job or different nodes"):
        play(cluster, common="image two")


def test_interrupted_resume_is_repeated_from_a_fresh_checkpoint(cluster: Cluster) -> None:
    cluster.interrupt_at = "r-resumed"
    with pytest.raises(ExperimentError, match="interrupted: r-resumed was stopped on all nodes"):
        play(cluster)
    cluster.interrupt_at = ""
    play(cluster)
    assert cluster.stopped == ["r-resumed"]
    assert cluster.launched[2:] == ["r-resumed", "r-all-2", "r-resumed-2"], "the first one may have saved over it"
    assert cluster.launch_variables[-1]["launch_args"][2] == "/data/r-all-2"


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_non_finite_loss_is_rejected_unless_another_curve_is_chosen(cluster: Cluster, broken: float) -> None:
    cluster.losses = {11: broken, 12: broken}
    play(cluster, loss="accuracy")
    assert finish_rehearsal(cluster.runs / "r", 10**9, 10**10)["go"] is True, "another curve is the one that counts"
    second = Cluster(cluster.runs.parent / "other")
    second.losses = dict.fromkeys(range(1, 41), broken)
    play(second)
    rehearsal = finish_rehearsal(second.runs / "r", 10**9, 10**10)
    assert (
        rehearsal["findings"][0]["problem"] == "the loss is not a number at step 1 of r-two"
        and rehearsal["go"] is False
    )
    assert [start["broken"] for start in rehearsal["starts"]] == [1.0, 1.0, 21.0]


def test_failed_start_ends_the_rehearsal_with_its_error(cluster: Cluster) -> None:
    cluster.fails_at = "r-all"
    with pytest.raises(
        ExperimentError, match=r"not yet: r-all \(a few steps .*\) failed: gpu1, rank 1: NameError: modle"
    ):
        play(cluster)
    assert cluster.launched == ["r-two", "r-all"]
    cluster.fails_at = ""
    play(cluster)
    assert cluster.launched[2:] == ["r-all-2", "r-resumed"], "once the script is right it continues"


def test_launches_that_time_out_or_are_refused_end_the_rehearsal(cluster: Cluster) -> None:
    cluster.late = True
    with pytest.raises(ExperimentError, match="r-two ran for 60 s and was stopped: make the script end after"):
        play(cluster)
    cluster.late, cluster.refused = False, "nothing was started: busy on gpu1"
    with pytest.raises(ExperimentError, match="could not be launched: nothing was started: busy on gpu1"):
        play(cluster)


@pytest.mark.parametrize("checkpoint", [None, 7, "relative/path", "/data/\x1b[31mc", "/data/c\n"])
def test_invalid_checkpoint_path_is_refused(cluster: Cluster, checkpoint: Any) -> None:
    cluster.job_results["checkpoint"] = checkpoint
    with pytest.raises(
        ExperimentError, match=r"rehearse_resume_args contains \{checkpoint\}, but the job reported no checkpoint"
    ):
        play(cluster)
