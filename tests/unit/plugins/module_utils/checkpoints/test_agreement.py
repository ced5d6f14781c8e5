# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Validation of checkpoint descriptions from other nodes, and the choice of files to copy."""

from __future__ import annotations

import json
import math
import zipfile
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._checkpoints import resume
from ansible_collections.muster.training.plugins.module_utils._checkpoints.agreement import (
    agree_on_checkpoint,
    is_listed_checkpoint,
)
from ansible_collections.muster.training.plugins.module_utils._checkpoints.find import find_checkpoints
from ansible_collections.muster.training.plugins.module_utils._checkpoints.resume import newest_local


def listing_of(directory: Path, *names: str) -> list[Any]:
    """Write files as torch.save does; return the listing of their checkpoints."""
    for name in names:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(directory / name, "w") as archive:
            archive.writestr("archive/data.pkl", b"weights" * 10)
    return list(find_checkpoints(str(directory)))


def test_listing_of_a_node_is_accepted(tmp_path: Path) -> None:
    listing = listing_of(tmp_path, "step-4/model_rank_0.pt", "step-6/model_rank_0.pt")
    assert len(listing) == 2 and all(map(is_listed_checkpoint, json.loads(json.dumps(listing))))


@pytest.mark.parametrize(
    "change",
    [
        {"saved": math.inf},
        {"saved": math.nan},
        {"saved": 1e300},
        {"saved": True},
        {"saved": None},
        {"seconds": -1},
        {"seconds": math.inf},
        {"seconds": False},
        {"parts": {"model_rank_0.pt": -1}},
        {"parts": {"model_rank_0.pt": True}},
        {"parts": {"model_rank_0.pt": 2**62}},
        {"parts": {"../latest": 6, "model_rank_0.pt": 100}},
        {"required": {"model_rank_0.pt": -1}},
        {"recorded": {"model_rank_0.pt": {"global_step": True}}},
        {"recorded": {"model_rank_0.pt": {"global_step": 2**62}}},
    ],
)
def test_impossible_values_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    (checkpoint,) = listing_of(tmp_path, "step-4/model_rank_0.pt")
    assert is_listed_checkpoint(checkpoint) and not is_listed_checkpoint({**checkpoint, **change})


def test_file_from_the_distant_future_does_not_enter_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not every file system supports such times."""
    newer, older = listing_of(tmp_path, "step-4.pt", "step-5.pt")
    listing = [{**newer, "saved": 2e11}, older]
    monkeypatch.setattr(resume, "local_checkpoints", lambda directory: listing)
    plan: Any = {"checkpoints": str(tmp_path), "world_size": 1}
    newest = newest_local(plan)
    assert newest is not None and newest["name"] == "step-4.pt"


def test_directory_that_is_a_checkpoint_itself_is_used_but_not_copied(tmp_path: Path) -> None:
    listing = listing_of(tmp_path / "step-4", "model_rank_0.pt")
    assert [checkpoint["name"] for checkpoint in listing] == ["."]
    complete = agree_on_checkpoint({"a": listing, "b": listing}, ["a", "b"], 1)
    assert complete.checkpoint == listing[0] and complete.missing == {}
    partial = agree_on_checkpoint({"a": listing, "b": []}, ["a", "b"], 1)
    assert partial.checkpoint is None
    assert partial.torn[0]["reason"] == "not every node has it, and it is the whole directory"


def test_each_node_copies_only_the_files_it_lacks(tmp_path: Path) -> None:
    a = listing_of(tmp_path / "a", "step-4/model_rank_0.pt", "step-4/model_rank_1.pt")
    b = listing_of(tmp_path / "b", "step-4/model_rank_0.pt")
    assert agree_on_checkpoint({"a": a, "b": b}, ["a", "b"], 2).missing == {"b": {"model_rank_1.pt": "a"}}
