# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tell the ranks of an attempt which checkpoint to resume from."""

from __future__ import annotations

import functools

from ansible_collections.muster.training.plugins.module_utils._run.timeouts import CHECKPOINT_RESUME_TIMEOUT

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers recognize; importing typing would cost each node a few milliseconds
    from typing import Sequence

    from ansible_collections.muster.training.plugins.module_utils._checkpoints.documents import Checkpoint
    from ansible_collections.muster.training.plugins.module_utils._run.documents import Plan

CHECKPOINT = "MUSTER_CHECKPOINT"
ATTEMPT = "MUSTER_ATTEMPT"
VARIABLES = (ATTEMPT, CHECKPOINT)
ATTEMPT_FILE = "attempt.json"  # file in the run directory with the variables and arguments that bin/muster-rank adds
PLACEHOLDER = "{checkpoint}"


def attempt_environment(attempt: int, checkpoint: str) -> dict[str, str]:
    """Return the environment variables for all ranks of an attempt. checkpoint: path, or "" to leave it unset."""
    return {ATTEMPT: str(attempt), **({CHECKPOINT: checkpoint} if checkpoint else {})}


def resume_arguments(arguments: Sequence[str], checkpoint: str) -> list[str]:
    """Return launch_resume_args for a checkpoint, or [] if there is none."""
    return [argument.replace(PLACEHOLDER, checkpoint) for argument in arguments] if checkpoint else []


def local_checkpoints(directory: str) -> list[Checkpoint]:
    """Return the checkpoints below a directory on this node, newest first. Raise TimeoutError.

    A child process reads them: a mount whose server is unavailable blocks every access.
    """
    from ansible_collections.muster.training.plugins.module_utils._checkpoints.find import find_checkpoints
    from ansible_collections.muster.training.plugins.module_utils._facts.commands import call_in_children

    calls = {directory: functools.partial(find_checkpoints, directory)}
    replies = call_in_children(calls, CHECKPOINT_RESUME_TIMEOUT)
    if directory not in replies:
        raise TimeoutError(directory)
    checkpoints: list[Checkpoint] = replies[directory]
    return checkpoints


def newest_local_checkpoint(plan: Plan) -> str:
    """Return the path of the newest checkpoint that the run's ranks can load, or ""; see newest_local."""
    checkpoint = newest_local(plan)
    return checkpoint["path"] if checkpoint is not None else ""


def newest_local(plan: Plan) -> Checkpoint | None:
    """Return the newest checkpoint that is complete on this node and that the run's ranks can load.

    None if there is none, or if the plan does not name a directory. Raise TimeoutError if the directory does not
    respond.
    """
    from ansible_collections.muster.training.plugins.module_utils._checkpoints.agreement import is_checkpoint
    from ansible_collections.muster.training.plugins.module_utils._checkpoints.choice import choose_checkpoint

    directory = plan.get("checkpoints", "")
    listing = local_checkpoints(directory) if directory.startswith("/") else []
    fitting = [
        checkpoint
        for checkpoint in listing
        if is_checkpoint(checkpoint)
        and (not checkpoint["fixed_world"] or checkpoint["world_size"] == plan.get("world_size"))
    ]
    return choose_checkpoint({"": fitting})["checkpoint"]
