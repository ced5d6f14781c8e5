# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the ranks of an attempt learn about the checkpoint to resume from."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node some milliseconds
    from typing import Sequence

    from ansible_collections.muster.training.plugins.module_utils._checkpoints.documents import Checkpoint
    from ansible_collections.muster.training.plugins.module_utils._run.documents import Plan

CHECKPOINT = "MUSTER_CHECKPOINT"
ATTEMPT = "MUSTER_ATTEMPT"
VARIABLES = (ATTEMPT, CHECKPOINT)
ATTEMPT_FILE = "attempt.json"  # in the run directory: the variables and arguments that bin/muster-rank adds
PLACEHOLDER = "{checkpoint}"


def attempt_environment(attempt: int, checkpoint: str) -> dict[str, str]:
    """Return the variables of all ranks of an attempt. checkpoint: path, "" if there is none: it is then not set."""
    return {ATTEMPT: str(attempt), **({CHECKPOINT: checkpoint} if checkpoint else {})}


def resume_arguments(arguments: Sequence[str], checkpoint: str) -> list[str]:
    """Return launch_resume_args for a checkpoint, [] if there is none."""
    return [argument.replace(PLACEHOLDER, checkpoint) for argument in arguments] if checkpoint else []


def local_checkpoints(plan: Plan) -> list[Checkpoint]:
    """Return the checkpoints of a run on this node, newest first; [] if their directory is unknown or missing.

    Reads only the newest, within limits, but hangs where a mount hangs: call it in a child process.
    """
    from ansible_collections.muster.training.plugins.module_utils._checkpoints.find import find_checkpoints

    directory = plan.get("checkpoints", "")
    return find_checkpoints(directory) if directory else []


def newest_local_checkpoint(plan: Plan) -> str:
    """Return the path of the newest checkpoint that is complete on this node, "" if there is none."""
    from ansible_collections.muster.training.plugins.module_utils._checkpoints.choice import choose_checkpoint

    checkpoint = choose_checkpoint({"": local_checkpoints(plan)})["checkpoint"]
    return checkpoint["path"] if checkpoint is not None else ""
