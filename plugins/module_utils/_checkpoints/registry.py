# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checkpoint formats: how each is recognized, and the reader for each kind of file."""

from __future__ import annotations

import collections
import os
import re

from ansible_collections.muster.training.plugins.module_utils._checkpoints.formats import (
    dcp,
    deepspeed,
    lightning,
    safetensors,
    torch_zip,
    transformers,
)
from ansible_collections.muster.training.plugins.module_utils._checkpoints.steps import step_of_name

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing would cost each node a few milliseconds
    from typing import Callable, Mapping

    from ansible_collections.muster.training.plugins.module_utils._checkpoints.documents import CheckpointPart

# recognizes: whether it accepts a directory, based on the directory's name and the names in it. judge: why its parts
# are not complete, or ""; damaged files, files that others refer to, and shards are judged separately.
Format = collections.namedtuple("Format", "name recognizes judge")

WEIGHTS = re.compile(r".*\.(pt|pth|ckpt|bin|safetensors|distcp)\Z")
FILES = "files"


def complete(parts: Mapping[str, int]) -> str:
    """Return "" because the general rules suffice."""
    return ""


def is_step_directory(name: str, names: set[str]) -> bool:
    """Return whether a directory is named after a step and contains weights files."""
    return step_of_name(name)[0] is not None and any(map(WEIGHTS.match, names))


# The first format that recognizes a directory is used.
DIRECTORIES = (
    Format("transformers", transformers.recognizes, transformers.judge),
    Format("lightning", lightning.recognizes, lightning.judge),
    Format("deepspeed", lambda name, names: deepspeed.recognizes(names), complete),
    Format("dcp", lambda name, names: dcp.recognizes(names), complete),
    Format("accelerate", lambda name, names: transformers.recognizes_accelerate(names), transformers.judge_accelerate),
    Format(FILES, is_step_directory, complete),
)
# Single files, by suffix.
FILE_FORMATS = {".ckpt": "lightning", ".pt": "torch", ".pth": "torch", ".safetensors": "safetensors", ".bin": "torch"}
JUDGES: dict[str, Callable[[Mapping[str, int]], str]] = {
    **dict.fromkeys(FILE_FORMATS.values(), complete),
    **{form.name: form.judge for form in DIRECTORIES},
}

# The reader for a file, chosen by its name; the first pattern that matches is used.
READERS: tuple[tuple[re.Pattern[str], Callable[[str], CheckpointPart]], ...] = (
    (re.compile(r"\.metadata\Z"), dcp.read_metadata),
    (dcp.SHARD, dcp.read_shard),
    (re.compile(r"trainer_state\.json\Z"), transformers.read_state),
    (re.compile(r".+\.(safetensors|bin)\.index\.json\Z"), safetensors.read_index),
    (re.compile(r".+\.safetensors\Z"), safetensors.read_safetensors),
    (deepspeed.STATES, deepspeed.read_states),
    (re.compile(r".+\.ckpt\Z"), lightning.read_checkpoint),
    (re.compile(r".+\.(pt|pth|bin)\Z"), torch_zip.read_torch),
)


def directory_format(name: str, names: set[str]) -> str:
    """Return the format of a directory with these entries, or "" if it is not a checkpoint."""
    return next((form.name for form in DIRECTORIES if form.recognizes(name, names)), "")


def file_format(name: str) -> str:
    """Return the format of a file whose suffix marks it as a checkpoint, or "" for other files."""
    return FILE_FORMATS.get(os.path.splitext(name)[1], "")


def read_part(path: str) -> CheckpointPart:
    """Return the information in a file, or {} if no reader supports it. Never raises."""
    name = os.path.basename(path)
    reader = next((reader for pattern, reader in READERS if pattern.match(name)), None)
    if reader is None:
        return {}
    try:
        return reader(path)
    except OSError as error:
        return {"problem": f"it cannot be read: {error.strerror or error}"}
