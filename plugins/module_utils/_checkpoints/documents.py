# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Types for checkpoints as a node describes them. No node imports this file: its imports are behind TYPE_CHECKING."""

from __future__ import annotations

from typing import TypedDict


class CheckpointPart(TypedDict, total=False):
    """The relevant content of one checkpoint file."""

    problem: str  # reason why the file is damaged; "" if it is intact
    required: dict[str, int]  # files that it refers to, relative to its directory, with their minimum sizes in bytes
    recorded: dict[str, int]  # numbers that it records: global_step, dp_world_size, mp_world_size, zero_stage


class Checkpoint(TypedDict):
    """One checkpoint on one node, or the union of its parts on several nodes."""

    name: str  # relative to the checkpoint directory; "." for the directory itself
    path: str
    format: str
    step: int | None
    unit: str  # unit of the step: "step" or "epoch"
    saved: float  # time of the newest file, seconds since 1970
    seconds: float  # seconds between the oldest and the newest file: saving took at most this long
    size: int  # bytes
    parts: dict[str, int]  # sizes by relative path; "" if the checkpoint is a file
    damaged: dict[str, str]  # reasons why files are damaged, by relative path
    required: dict[str, int]  # minimum sizes of the files that others refer to
    recorded: dict[str, dict[str, int]]  # numbers that its files record, by relative path
    world_size: int | None  # number of ranks that saved it
    fixed_world: bool  # whether it can only be loaded by this number of ranks
    complete: bool
    reason: str  # reason why it is not complete


class Choice(TypedDict):
    """The checkpoint to resume from, for several nodes."""

    checkpoint: Checkpoint | None  # the union of its parts on all nodes; None if no checkpoint is complete
    missing: dict[str, dict[str, str]]  # for each node: its missing parts, and for each part a node that has it
    torn: list[Checkpoint]  # newer checkpoints that are not complete, newest first
