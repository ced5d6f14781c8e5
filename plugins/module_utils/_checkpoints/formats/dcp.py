# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""torch.distributed.checkpoint (DCP): .metadata, written last, and the ranks' files."""

from __future__ import annotations

import os
import re

from ansible_collections.muster.training.plugins.module_utils._checkpoints.pickle_tokens import MAX_BYTES, tokens
from ansible_collections.muster.training.plugins.module_utils._checkpoints.zip_directory import ends_with_directory
from ansible_collections.muster.training.plugins.module_utils._files.bounded import open_regular, read_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing would cost each node a few milliseconds
    from typing import Mapping

    from ansible_collections.muster.training.plugins.module_utils._checkpoints.documents import CheckpointPart

METADATA = ".metadata"
SHARD = re.compile(r"__[0-9]+_[0-9]+\.distcp\Z")
SHARD_IN_METADATA = re.compile(rb"__[0-9]{1,9}_[0-9]{1,9}\.distcp")
MAX_METADATA_BYTES = 64 * 2**20
MAX_SHARDS = 20_000


def recognizes(names: set[str]) -> bool:
    """Return whether a directory with these entries is a DCP checkpoint."""
    return METADATA in names or any(SHARD.match(name) for name in names)


def read_metadata(path: str) -> CheckpointPart:
    """Return the files that .metadata refers to, with the minimum size that their items require."""
    data = read_bytes(path, MAX_METADATA_BYTES)
    if not data.startswith(b"\x80") or not data.endswith(b"."):
        return {"problem": "it is truncated" if data else "it is empty"}
    required = dict.fromkeys(sorted(name.decode() for name in set(SHARD_IN_METADATA.findall(data))), 1)
    if len(required) > MAX_SHARDS:
        return {"problem": f"it refers to more than {MAX_SHARDS} files"}
    if len(data) <= MAX_BYTES:
        for name, size in item_ends(data).items():
            if name in required:
                required[name] = max(required[name], size)
    return {"required": required}


def item_ends(data: bytes) -> dict[str, int]:
    """Return the offset in bytes at which each file's last item ends, from the storage data in .metadata."""
    ends: dict[str, int] = {}
    path, offset, name = "", -1, None
    for token in tokens(data):
        if name == "relative_path" and isinstance(token, str):
            path, offset = token, -1
        elif name == "offset" and isinstance(token, int) and path:
            offset = token
        elif name == "length" and isinstance(token, int) and path and offset >= 0:
            ends[path] = max(ends.get(path, 0), offset + token)
            path, offset = "", -1
        name = token
    return ends


def read_shard(path: str) -> CheckpointPart:
    """Check the end of a rank's file: its last item is a torch.save archive, as is the first."""
    with open(path, "rb", opener=open_regular) as stream:
        size = os.fstat(stream.fileno()).st_size
        if size == 0:
            return {"problem": "it is empty"}
        if stream.read(2) == b"PK" and not ends_with_directory(stream, size):
            return {"problem": "it is truncated"}
    return {}


def judge(parts: Mapping[str, int]) -> str:
    """Return why a DCP directory with these files is incomplete, or "" if it is complete."""
    if METADATA not in parts:
        return f"{METADATA}, which is written last, is missing"
    return ""
