# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lightning: a .ckpt file of torch.save, or a .ckpt directory with FSDP (DCP) or DeepSpeed shards."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.module_utils._checkpoints.formats.torch_zip import read_torch

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing would cost each node a few milliseconds
    from typing import Mapping

    from ansible_collections.muster.training.plugins.module_utils._checkpoints.documents import CheckpointPart

SUFFIX = ".ckpt"
META = "meta.pt"  # beside the FSDP shards, written last
RECORDED = frozenset(("global_step",))


def recognizes(name: str, names: set[str]) -> bool:
    """Return whether a directory with this name and these entries is a Lightning checkpoint."""
    return name.endswith(SUFFIX) or (META in names and ".metadata" in names)


def read_checkpoint(path: str) -> CheckpointPart:
    """Check a .ckpt file, and read its step."""
    return read_torch(path, RECORDED)


def judge(parts: Mapping[str, int]) -> str:
    """Return why a .ckpt file or directory with these files is incomplete, or "" if it is complete."""
    if "" in parts:
        return ""
    if ".metadata" in parts and META not in parts:
        return f"{META}, which is written last, is missing"
    if not any(part.endswith((".distcp", "_states.pt", ".pt", ".safetensors")) for part in parts):
        return "it has no model file"
    return ""
