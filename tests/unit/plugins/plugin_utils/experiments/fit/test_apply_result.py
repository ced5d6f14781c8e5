# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Launches with the batch size of a search, and searches without a usable result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._experiments.fit.apply_result import apply_fit
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.resumable import ExperimentError


def search(runs: Path, name: str = "fit", **more: Any) -> None:
    state = {
        "version": 1,
        "salt": "",
        "common": "",
        "job": {"args": ["--batch", "{batch_size}", "--steps", 20], "confirm_args": [], "timeout": 60.0},
        "search": {"start": 8, "multiple": 8, "max_batch": 4096, "margin": 0.05},
        "program": "train.py",
        "nnodes": 2,
        "history": [{}, {}, {}],
        "running": "",
        "result": 40,
        "fastest": None,
        **more,
    }
    (runs / name).mkdir(parents=True)
    (runs / name / "fit.json").write_text(json.dumps(state))


def test_batch_is_substituted_into_launch_arguments(tmp_path: Path) -> None:
    search(tmp_path)
    arguments = ["--epochs=3", "--batch={batch_size}", "{batch_size}"]
    assert apply_fit(tmp_path, "fit", "train.py", arguments) == (["--epochs=3", "--batch=40", "40"], 40, 2)


@pytest.mark.parametrize(
    ("search_args", "expected"),
    [
        (["--batch", "{batch_size}", "--steps", 20], ["--batch", "40", "--steps", "20"]),
        ("--batch {batch_size}", "--batch 40"),
    ],
)
def test_launch_without_arguments_uses_those_of_the_search(tmp_path: Path, search_args: Any, expected: Any) -> None:
    search(tmp_path, job={"args": search_args, "confirm_args": [], "timeout": 60.0})
    assert apply_fit(tmp_path, "fit", "train.py", []).args == expected


@pytest.mark.parametrize(
    ("state", "program", "args", "message"),
    [
        (
            {"result": None},
            "train.py",
            [],
            "fit is an unfinished search, after 3 launches: continue it with the command",
        ),
        ({"result": 0}, "train.py", [], "fit is a search that found no batch size: make the model smaller"),
        (
            {},
            "other.py",
            [],
            "fit is a search with train.py, but this run starts other.py: run a search with the same program, or",
        ),
        ({}, "", [], "this run starts nothing"),
        (
            {},
            "train.py",
            ["--batch", "8"],
            r"launch_args does not contain \{batch_size\}: .* which are --batch .* --steps 20",
        ),
    ],
)
def test_search_without_a_usable_batch_is_refused(
    tmp_path: Path, state: dict[str, Any], program: str, args: list[str], message: str
) -> None:
    search(tmp_path, **state)
    with pytest.raises(ExperimentError, match=message):
        apply_fit(tmp_path, "fit", program, args)


def test_unknown_search_name_is_refused_with_the_existing_names(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match=r"has no search with this name \(it contains no searches\): "):
        apply_fit(tmp_path / "runs", "fit", "train.py", [])
    search(tmp_path, "fit-bert")
    (tmp_path / "training").mkdir()
    for name in ("fit", "training"):
        with pytest.raises(
            ExperimentError, match=f"fitted is {name}, but .* with this name .it has fit-bert.: run ansible-play"
        ):
            apply_fit(tmp_path, name, "train.py", [])
    with pytest.raises(ExperimentError, match=r"fitted is '\.\./fit', which is not a valid search name"):
        apply_fit(tmp_path, "../fit", "train.py", [])
