# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Determine whether a checkpoint is complete: pure functions over the parts on one or several nodes."""

from __future__ import annotations

import posixpath
import re

from ansible_collections.muster.training.plugins.module_utils._checkpoints.formats import dcp, deepspeed, transformers
from ansible_collections.muster.training.plugins.module_utils._checkpoints.registry import JUDGES
from ansible_collections.muster.training.plugins.module_utils._files.name_list import format_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing would cost each node a few milliseconds
    from typing import Mapping, TypeVar

    from ansible_collections.muster.training.plugins.module_utils._checkpoints.documents import Checkpoint

    Value = TypeVar("Value")

LOCAL_SHARD = re.compile(r"(?:.*/)?[^/]*_rank_?([0-9]{1,6})\.(?:bin|pt|pth)\Z")  # FSDP's LOCAL_STATE_DICT
MAX_NAMED = 3  # number of files named in a message


def entries_below(entries: Mapping[str, Value], directory: str) -> dict[str, Value]:
    """Return the entries directly in a checkpoint's subdirectory, by their names in it."""
    return {posixpath.basename(path): value for path, value in entries.items() if posixpath.dirname(path) == directory}


def judge_damage(checkpoint: Checkpoint) -> str:
    """Return a message about damaged files, or "" if there are none."""
    damaged = sorted(checkpoint["damaged"])
    if not damaged:
        return ""
    name = damaged[0] or posixpath.basename(checkpoint["path"])
    more = f" (and {len(damaged) - 1} more files are damaged)" if len(damaged) > 1 else ""
    return f"{name}: {checkpoint['damaged'][damaged[0]]}{more}"


def judge_required(checkpoint: Checkpoint) -> str:
    """Return a message about referenced files that are missing or too small, or "" if there are none."""
    parts = checkpoint["parts"]
    missing = [path for path in sorted(checkpoint["required"]) if path not in parts]
    if missing:
        return f"{format_names(missing, MAX_NAMED)} {'is' if len(missing) == 1 else 'are'} missing"
    for path, size in sorted(checkpoint["required"].items()):
        if parts[path] < size:
            return f"{path} is truncated: {parts[path]} of {size} bytes"
    return ""


def judge_shards(checkpoint: Checkpoint) -> str:
    """Return why a directory of DCP or DeepSpeed shards is incomplete, or "" if it is complete."""
    parts, recorded = checkpoint["parts"], checkpoint["recorded"]
    for directory in sorted({posixpath.dirname(path) for path in parts}):
        names = entries_below(parts, directory)
        reason = ""
        if dcp.recognizes(set(names)):
            reason = dcp.judge(names)
        elif deepspeed.recognizes(set(names)) and not deepspeed.is_universal(parts, directory):
            latest = posixpath.normpath(posixpath.join(directory or ".", "..", deepspeed.LATEST))
            reason = deepspeed.judge(names, entries_below(recorded, directory))
            reason = reason or ("" if latest in parts else f"{deepspeed.LATEST}, which is written last, is missing")
        if reason:
            return f"{directory}: {reason}" if directory else reason
    return judge_local_shards(parts)


def judge_local_shards(parts: Mapping[str, int]) -> str:
    """Return a message that names the rank whose shard is missing, or "" if there is none."""
    ranks = local_ranks(parts)
    missing = next((rank for rank in range(max(ranks, default=-1) + 1) if rank not in ranks), None)
    return "" if missing is None else f"the shard of rank {missing} is missing"


def local_ranks(parts: Mapping[str, int]) -> set[int]:
    """Return the ranks that saved their own shards, which a different number of ranks cannot load."""
    return {int(match[1]) for match in map(LOCAL_SHARD.match, parts) if match}


def world_size(checkpoint: Checkpoint) -> tuple[int | None, bool]:
    """Return how many ranks saved a checkpoint, or None if unknown, and whether only that many ranks can load it."""
    parts, recorded = checkpoint["parts"], checkpoint["recorded"]
    for directory in sorted({posixpath.dirname(path) for path in parts}):
        names = entries_below(parts, directory)
        if deepspeed.recognizes(set(names)) and not deepspeed.is_universal(parts, directory):
            ranks = deepspeed.ranks_of(names, entries_below(recorded, directory))
            return ranks.world_size, ranks.zero or ranks.model > 1
    ranks_with_shards = local_ranks(parts)
    if ranks_with_shards:
        return max(ranks_with_shards) + 1, True
    return transformers.world_size(parts), False


def judge(checkpoint: Checkpoint) -> Checkpoint:
    """Return a checkpoint with complete, reason, world_size and fixed_world filled in from its parts."""
    saved_by, fixed = world_size(checkpoint)
    reason = (
        judge_damage(checkpoint)
        or judge_shards(checkpoint)
        or judge_required(checkpoint)
        or JUDGES[checkpoint["format"]](checkpoint["parts"])
    )
    return {**checkpoint, "world_size": saved_by, "fixed_world": fixed, "complete": not reason, "reason": reason}
