# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The work lost in each attempt of a run: the steps its ranks took since the newest checkpoint when it ended."""

from __future__ import annotations

import collections
import re

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Any, Mapping, Sequence

# The step or epoch that a line of a job's output mentions: "step 40", "global_step=40", {"epoch": 3}, "step: 40/100".
STEP = re.compile(
    r"(?<![A-Za-z])(?:global_?)?(step|iteration|iter|epoch)s?[\"']?\s{0,3}[:=]?\s{0,3}\[?([0-9]{1,15})(?![0-9.])", re.I
)
SUCCEEDED = "succeeded"

# What an attempt lost. steps: None if unknown; unit: unit of the steps; seconds: the job's time, None if unknown.
Loss = collections.namedtuple("Loss", "steps unit seconds")


def last_step(text: str, unit: str) -> int | None:
    """Return the last step or epoch at the end of a job's output, or None if there is none."""
    last = None
    for match in STEP.finditer(text):
        if (match[1].lower() == "epoch") == (unit == "epoch"):
            last = int(match[2])
    return last


def loss_of(record: Mapping[str, Any], knows_checkpoints: bool) -> Loss:
    """Return an attempt's loss. knows_checkpoints: whether the supervisors knew where the checkpoints are."""
    unit = str(record.get("unit") or "step")
    if record.get("end_class") == SUCCEEDED:
        return Loss(0, unit, 0.0)
    duration = max(0.0, record["ended"] - record["started"])
    reached, step = record.get("last_step"), record.get("step")
    if not record.get("checkpoint"):
        return Loss(reached, unit, duration) if knows_checkpoints else Loss(None, unit, None)
    saved = record.get("saved")
    seconds = None if saved is None else min(duration, max(0.0, record["ended"] - saved))
    steps = max(0, reached - step) if reached is not None and step is not None else None
    return Loss(steps, unit, seconds)


def losses(records: Sequence[Mapping[str, Any]], knows_checkpoints: bool) -> list[Loss]:
    """Return the loss of each attempt that has ended."""
    return [loss_of(record, knows_checkpoints) for record in records]


def format_loss(loss: Loss) -> str:
    """Format a loss, such as "40 steps"; "unknown" if neither steps nor time are known."""
    if loss.steps is not None:
        return f"{loss.steps} {loss.unit}{'' if loss.steps == 1 else 's'}"
    return "unknown" if loss.seconds is None else f"{loss.seconds:.0f} s of work"


def total_loss(lost: Sequence[Loss]) -> Loss:
    """Return the sum of losses, which is unknown if any loss is unknown."""
    steps = None if any(loss.steps is None for loss in lost) else sum(loss.steps for loss in lost)
    seconds = None if any(loss.seconds is None for loss in lost) else sum(loss.seconds for loss in lost)
    return Loss(steps, lost[0].unit if lost else "step", seconds)
