# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Transformers Trainer: checkpoint-N with trainer_state.json, which is written last; Accelerate's save_state."""

from __future__ import annotations

import re

from ansible_collections.muster.training.plugins.module_utils._files.bounded import MAX_JSON_BYTES, read_json

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing would cost each node a few milliseconds
    from typing import Mapping

    from ansible_collections.muster.training.plugins.module_utils._checkpoints.documents import CheckpointPart

STATE = "trainer_state.json"
UNFINISHED = "checkpoint-is-incomplete.txt"  # the marker file of enable_jit_checkpoint
DIRECTORY = re.compile(r"checkpoint-[0-9]+\Z")
FILES = re.compile(
    r"(trainer_state\.json|training_args\.bin|(model|adapter_model|pytorch_model)[^/]*\.(safetensors|bin)|"
    r"optimizer\.(pt|bin)|scheduler\.pt|rng_state(_[0-9]+)?\.pth)\Z"
)
WEIGHTS = re.compile(
    r"(.*/)?((model|adapter_model|pytorch_model|diffusion_pytorch_model|tf_model)[^/]*\.(safetensors|bin|h5)"
    r"|.*\.distcp|[^/]*_model_states\.pt)\Z"
)
OPTIMIZER = re.compile(
    r"(optimizer\.(pt|bin)|optimizer_[0-9]+/.*|.*_optim_states\.pt|.*mp_rank_[0-9]+_model_states\.pt)\Z"
)
RNG = re.compile(r"rng_state_([0-9]{1,6})\.pth\Z")
RANDOM = re.compile(r"random_states_([0-9]{1,6})\.pkl\Z")  # Accelerate's
MAX_STATE_BYTES = 8 * MAX_JSON_BYTES  # bytes; the file contains log_history, which grows with the run


def recognizes(name: str, names: set[str]) -> bool:
    """Return whether a directory with this name and these entries was written by the Trainer."""
    return STATE in names or (DIRECTORY.match(name) is not None and (not names or any(map(FILES.match, names))))


def recognizes_accelerate(names: set[str]) -> bool:
    """Return whether a directory with these entries was written by Accelerate's save_state."""
    return any(map(RANDOM.match, names))


def read_state(path: str) -> CheckpointPart:
    """Check trainer_state.json."""
    state = read_json(path, MAX_STATE_BYTES)
    step = state.get("global_step") if isinstance(state, dict) else None
    if not isinstance(step, int) or isinstance(step, bool) or step < 0:
        return {"problem": "it is truncated or damaged"}
    return {"recorded": {"global_step": step}}


def ranks_of(parts: Mapping[str, int]) -> set[int]:
    """Return the ranks whose random state has been saved."""
    return {int(match[1]) for part in parts for match in (RNG.match(part), RANDOM.match(part)) if match}


def world_size(parts: Mapping[str, int]) -> int | None:
    """Return how many ranks saved a checkpoint, or None if that is not recorded."""
    ranks = ranks_of(parts)
    if ranks:
        return max(ranks) + 1
    return 1 if "rng_state.pth" in parts else None


def judge(parts: Mapping[str, int]) -> str:
    """Return why a Trainer checkpoint with these files is incomplete, or "" if it is complete."""
    if UNFINISHED in parts:
        return f"{UNFINISHED} marks it as unfinished"
    if STATE not in parts:
        return f"{STATE}, which is written last, is missing"
    if not any(map(WEIGHTS.match, parts)):
        return "the model is missing"
    return judge_optimizer(parts) or judge_ranks(parts)


def judge_optimizer(parts: Mapping[str, int]) -> str:
    """Return what is missing apart from the model, or "" if nothing is missing or only the model was meant to be
    saved.
    """
    random = "rng_state.pth" in parts or any(map(RNG.match, parts))
    optimizer, scheduler = any(map(OPTIMIZER.match, parts)), "scheduler.pt" in parts
    if not (random or optimizer or scheduler):
        return ""  # save_only_model
    if not optimizer:
        return "optimizer.pt is missing"
    if not scheduler and "optimizer.pt" in parts:
        return "scheduler.pt is missing"
    return "" if random else "rng_state is missing"


def judge_ranks(parts: Mapping[str, int]) -> str:
    """Return a message that names the rank whose random state is missing, or "" if there is none."""
    ranks = ranks_of(parts)
    missing = next((rank for rank in range(max(ranks, default=-1) + 1) if rank not in ranks), None)
    return "" if missing is None else f"the RNG state of rank {missing} is missing"


def judge_accelerate(parts: Mapping[str, int]) -> str:
    """Return why a directory written by Accelerate's save_state is incomplete, or "" if it is complete."""
    if not any(map(WEIGHTS.match, parts)):
        return "the model is missing"
    return judge_ranks(parts)
