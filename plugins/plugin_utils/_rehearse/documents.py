# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a rehearsal knows, and rehearsal.json. Private to this collection, controller only.

Numbers are in the unit that their name ends with; None stands for what is not known.
"""

from __future__ import annotations

from typing import TypedDict

VERSION = 1  # raised when a key changes its meaning or goes
TWO, ALL, RESUMED = "two", "all", "resumed"  # the launches: on two nodes, on all, and on all again from the checkpoint


class Job(TypedDict):
    """What is rehearsed. resume_args: of the second start, empty if none is tried.

    nnodes: all nodes, 0 if nobody said; patience: seconds of a launch; total_steps, checkpoint_steps: of the whole
    job, 0 if they are not known; kept: checkpoints that lie on the disk at a time; loss: the curve that is followed.
    """

    args: list[str]
    resume_args: list[str]
    steps: int
    nnodes: int
    patience: float
    total_steps: int
    checkpoint_steps: int
    kept: int
    loss: str


class Start(TypedDict):
    """One launch that has succeeded. steps, loss: the points of the curve that is followed.

    broken: the first step at which the loss was no number; node: that of rank 0; checkpoint: an absolute path there, ""
    where the job has told none.
    """

    what: str
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


class Finding(TypedDict):
    """What speaks against the whole job (problem), or is not known (hint), and what to do."""

    severity: str
    found: str
    remedy: str


class Rehearsal(TypedDict):
    """rehearsal.json. starts: those that have succeeded; the rest is None until all has run.

    common: tells whether it was a rehearsal with another job or other nodes, and shows nothing of them.
    """

    version: int
    salt: str
    common: str
    job: Job
    starts: list[Start]
    under_way: str  # the run that was not over when this was written
    checkpoint_bytes: int | None
    free_bytes: int | None
    resumed: bool | None
    total_seconds: float | None
    total_cost: float | None
    findings: list[Finding]
    go: bool | None
