# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""torch.save: a zip archive whose entry data.pkl is never unpickled; before torch 1.6, a series of pickles."""

from __future__ import annotations

import os

from ansible_collections.muster.training.plugins.module_utils._checkpoints.pickle_tokens import MAX_BYTES, read_numbers
from ansible_collections.muster.training.plugins.module_utils._checkpoints.zip_directory import (
    ZipError,
    read_entries,
    read_stored,
)
from ansible_collections.muster.training.plugins.module_utils._files.bounded import open_regular

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing would cost each node a few milliseconds
    from typing import BinaryIO

    from ansible_collections.muster.training.plugins.module_utils._checkpoints.documents import CheckpointPart

NO_NAMES: frozenset[str] = frozenset()
PICKLE = b"\x80"  # the first byte of a pickle


def read_torch(path: str, names: frozenset[str] = NO_NAMES) -> CheckpointPart:
    """Check one file; names: the names of the integers to look up in its pickle."""
    with open(path, "rb", opener=open_regular) as stream:
        size = os.fstat(stream.fileno()).st_size
        start = stream.read(4)
        if start[:2] == b"PK":
            return read_archive(stream, size, names)
        if size == 0:
            return {"problem": "it is empty"}
        if not start.startswith(PICKLE):
            return {"problem": "it is neither a torch.save archive nor a pickle"}
        if size < 2**20:  # in a large file, the tensors follow the pickles
            stream.seek(size - 1)
            return {} if stream.read(1) == b"." or size > 4096 else {"problem": "it is truncated"}
    return {}


def read_archive(stream: BinaryIO, size: int, names: frozenset[str]) -> CheckpointPart:
    """Check a torch.save archive."""
    try:
        entries = read_entries(stream, size)
        pickle = next((entry for entry in entries if entry.name.endswith("data.pkl")), None)
        if pickle is None:
            return {"problem": "it has no data.pkl, so torch.save did not write it"}
        recorded = read_numbers(read_stored(stream, pickle, MAX_BYTES), names) if names else {}
    except ZipError as error:
        return {"problem": f"it is truncated or damaged: {error}"}
    return {"recorded": recorded} if recorded else {}
