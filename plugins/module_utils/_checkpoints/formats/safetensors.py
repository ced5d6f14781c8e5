# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The safetensors format: the header length, the header, and the tensors at the offsets given in the header."""

from __future__ import annotations

import os
import re

from ansible_collections.muster.training.plugins.module_utils._files.bounded import open_regular, parse_json, read_json
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import is_a

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing would cost each node a few milliseconds
    from typing import Any

    from ansible_collections.muster.training.plugins.module_utils._checkpoints.documents import CheckpointPart

MAX_HEADER = 100_000_000  # bytes; the library's own limit
MAX_PARSED_HEADER = 32 * 2**20  # bytes; if a header is larger, only its length is checked
PREFIX = 8  # number of bytes that encode the header's length
MAX_SHARDS = 20_000
FILE_NAME = re.compile(r"[^/\0]{1,255}\Z")


def last_offset(header: Any) -> int | None:
    """Return the offset of the last tensor's end relative to the end of the header, or None if the header is
    invalid.
    """
    if not isinstance(header, dict):
        return None
    last = 0
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
        if not isinstance(offsets, list) or len(offsets) != 2 or not all(is_a(int, offset) for offset in offsets):
            return None
        last = max(last, *offsets)
    return last


def read_safetensors(path: str) -> CheckpointPart:
    """Check one file: its size must match its header exactly."""
    with open(path, "rb", opener=open_regular) as stream:
        size = os.fstat(stream.fileno()).st_size
        length = int.from_bytes(stream.read(PREFIX), "little")
        if not size:
            return {"problem": "it is empty"}
        if size < PREFIX or length > MAX_HEADER or length + PREFIX > size:
            return {"problem": f"it is truncated or not a safetensors file: {size} bytes, shorter than its header"}
        if length > MAX_PARSED_HEADER:
            return {}
        try:
            header = parse_json(stream.read(length).decode("utf-8"))
        except (ValueError, RecursionError):
            return {"problem": "its header is damaged"}
    last = last_offset(header)
    if last is None:
        return {"problem": "its header is damaged"}
    expected = PREFIX + length + last
    if size != expected:
        return {"problem": f"it has {size} bytes, but its header describes {expected}"}
    return {}


def read_index(path: str) -> CheckpointPart:
    """Check a shard index: model.safetensors.index.json or pytorch_model.bin.index.json."""
    index = read_json(path, MAX_PARSED_HEADER)
    shards = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(shards, dict) or not shards:
        return {"problem": "it is not a valid shard index"}
    names = {name for name in shards.values() if isinstance(name, str) and FILE_NAME.match(name)}
    if len(names) > MAX_SHARDS or not names:
        return {"problem": "it is not a valid shard index"}
    return {"required": dict.fromkeys(sorted(names), 1)}
