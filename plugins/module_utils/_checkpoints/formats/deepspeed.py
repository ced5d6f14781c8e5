# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""DeepSpeed: one directory per tag with all ranks' files and, next to it, `latest`, which is written last."""

from __future__ import annotations

import os
import re

from ansible_collections.muster.training.plugins.module_utils._checkpoints.formats.torch_zip import read_torch
from ansible_collections.muster.training.plugins.module_utils._files.bounded import read_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing would cost each node a few milliseconds
    from typing import Mapping

    from ansible_collections.muster.training.plugins.module_utils._checkpoints.documents import CheckpointPart

LATEST = "latest"
MAX_LATEST_BYTES = 512
UNIVERSAL = "zero"  # the directory of a universal checkpoint, with one subdirectory for each parameter
MODEL = re.compile(r"mp_rank_([0-9]{2,6})_model_states\.pt\Z")
SHARD = re.compile(r"(?:[a-z0-9]+_)?zero_pp_rank_([0-9]{1,6})_mp_rank_([0-9]{2,6})_(optim|model)_states\.pt\Z")
STATES = re.compile(r".*_states\.pt\Z")
RECORDED = frozenset(("dp_world_size", "mp_world_size", "stage"))
MAX_RANKS = 20_000
TAG = re.compile(r"[^/\0\n]{1,255}\Z")


def recognizes(names: set[str]) -> bool:
    """Return whether a directory with these entries is a checkpoint tag directory."""
    return any(MODEL.match(name) or SHARD.match(name) for name in names)


def is_universal(parts: Mapping[str, int], directory: str) -> bool:
    """Return whether a checkpoint directory was written by ds_to_universal, so that any number of ranks can load it."""
    prefix = f"{directory}/{UNIVERSAL}/" if directory else f"{UNIVERSAL}/"
    return any(path.startswith(prefix) and path.endswith("/fp32.pt") for path in parts)


def read_states(path: str) -> CheckpointPart:
    """Check a rank's file; if it contains the first rank's model state, read the recorded number of ranks."""
    name = os.path.basename(path)
    shard = SHARD.match(name)
    first = int(shard[1]) == 0 and shard[3] == "model" if shard else MODEL.match(name) is not None
    return read_torch(path, RECORDED if first else frozenset())


def read_latest(path: str) -> str:
    """Return the tag that `latest` names, or "" if there is none."""
    try:
        tag = read_bytes(path, MAX_LATEST_BYTES).decode("utf-8").strip()
    except (OSError, ValueError):
        return ""
    return tag if TAG.match(tag) and tag not in (".", "..") else ""


class SavedRanks:
    """The ranks whose files a directory contains, and the number of ranks that saved it."""

    def __init__(self, names: list[str], recorded: Mapping[str, int]) -> None:
        self.models = {int(match[1]) for match in map(MODEL.match, names) if match}
        shards = [match for match in map(SHARD.match, names) if match]
        self.optim = {(int(match[1]), int(match[2])) for match in shards if match[3] == "optim"}
        self.sharded_models = {(int(match[1]), int(match[2])) for match in shards if match[3] == "model"}
        every = self.optim | self.sharded_models
        self.data = max(recorded.get("dp_world_size", 0), 1 + max((data for data, _model in every), default=0))
        highest = max([*self.models, *(model for _data, model in every)], default=0)
        self.model = max(recorded.get("mp_world_size", 0), 1 + highest)
        self.zero = bool(every) or recorded.get("stage", 0) > 0
        self.optimizer = bool(self.optim) or recorded.get("stage", 0) > 0

    @property
    def world_size(self) -> int | None:
        """Return how many ranks saved the checkpoint, or None if the number is implausible."""
        size = self.data * self.model
        return size if size <= MAX_RANKS else None

    def missing(self) -> str:
        """Return the files missing for one rank, or "" if there are none."""
        for model in range(self.model):
            if model not in self.models and not self.sharded_models:
                return f"mp_rank_{model:02}_model_states.pt"
            for data in range(self.data) if self.zero else ():
                if self.optimizer and (data, model) not in self.optim:
                    return f"zero_pp_rank_{data}_mp_rank_{model:02}_optim_states.pt"
                if self.sharded_models and (data, model) not in self.sharded_models:
                    return f"zero_pp_rank_{data}_mp_rank_{model:02}_model_states.pt"
        return ""


def ranks_of(parts: Mapping[str, int], recorded: Mapping[str, Mapping[str, int]]) -> SavedRanks:
    """Return the ranks whose files are in a directory with these files."""
    merged: dict[str, int] = {}
    for values in recorded.values():
        merged.update(values)
    return SavedRanks(list(parts), merged)


def judge(parts: Mapping[str, int], recorded: Mapping[str, Mapping[str, int]]) -> str:
    """Return why a tag directory with these files is incomplete, or "" if it is complete."""
    ranks = ranks_of(parts, recorded)
    if ranks.world_size is None:
        return "its file names imply an impossible number of ranks"
    missing = ranks.missing()
    return f"{missing} is missing (saved by {ranks.world_size} ranks)" if missing else ""
