# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Types for the state of a rehearsal, which is stored in rehearsal.json.

A number's unit is the last part of its name; None means unknown.
"""

from __future__ import annotations

from typing import TypedDict

VERSION = 1  # incremented when a key changes its meaning or is removed
# the launches: on two nodes, on all nodes, and on all nodes again from the checkpoint
TWO_NODES, ALL_NODES, RESUMED = "two", "all", "resumed"


class RehearsalJob(TypedDict):
    """The rehearsed job.

    resume_args: arguments of the launch that resumes, empty to skip it. nnodes: count of all nodes, 0 if not set;
    timeout: seconds that a launch may take; total_steps, checkpoint_steps: steps of the whole job and between its
    checkpoints, 0 if unknown; checkpoints_kept: those on the disk at a time; loss: name of the curve to follow.
    """

    args: list[str]
    resume_args: list[str]
    steps: int
    nnodes: int
    timeout: float
    total_steps: int
    checkpoint_steps: int
    checkpoints_kept: int
    loss: str


class RehearsalLaunch(TypedDict):
    """A successful launch. steps, loss: the points of the loss curve that the rehearsal follows.

    broken: the first step at which the loss was not finite; node: that of rank 0; checkpoint: an absolute path on
    it, "" if the job reported none.
    """

    kind: str
    run_id: str
    nnodes: int
    node: str
    run_seconds: float | None
    step_seconds: float | None
    memory_mib: float | None
    checkpoint: str
    checkpoint_seconds: float | None
    per_hour: float | None
    currency: str
    steps: list[float]
    loss: list[float]
    broken: float | None


class ForecastFinding(TypedDict):
    """A reason not to run the whole job (problem), or something that is unknown or slow (hint), with a remedy."""

    severity: str
    problem: str
    remedy: str


class Rehearsal(TypedDict):
    """The contents of rehearsal.json. starts: successful launches; the forecast is None until all launches have run.

    common: salted hash of the job and its nodes, to detect a rehearsal with a different job or nodes.
    """

    version: int
    salt: str
    common: str
    job: RehearsalJob
    starts: list[RehearsalLaunch]
    running: str  # run_id of the launch that was in progress when this was written
    checkpoint_bytes: int | None
    free_bytes: int | None
    resumed: bool | None
    total_seconds: float | None
    total_cost: float | None
    findings: list[ForecastFinding]
    go: bool | None
