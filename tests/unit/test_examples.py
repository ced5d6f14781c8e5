# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each example is a complete project: a job, its script and its requirements."""

from __future__ import annotations

import ast
import json
import re
import shlex
import sys
from pathlib import Path

import pytest
import yaml

from ansible_collections.muster.training.plugins.plugin_utils._plan.job_file import find_unknown_keys, read_job_keys
from ansible_collections.muster.training.plugins.plugin_utils._plan.plan import LAUNCHERS
from ansible_collections.muster.training.plugins.plugin_utils._project.requirements import read_project

CHECKOUT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted(path for path in (CHECKOUT / "examples").iterdir() if (path / "job.yml").is_file())
INSTALLED = {"torch", "deepspeed"}
"""Packages installed by separate roles, to match the machines' GPUs."""
PACKAGES = {"sklearn": "scikit-learn"}
"""Packages whose name differs from that of the imported module."""


def test_examples_cover_each_framework_once() -> None:
    assert [path.name for path in EXAMPLES] == ["ddp", "hugging_face_deepspeed", "lightning", "strategies"]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_job_file_has_known_keys_and_existing_files(example: Path) -> None:
    job = yaml.safe_load((example / "job.yml").read_text())["job"]
    assert find_unknown_keys(job, read_job_keys(CHECKOUT / "roles")) == []
    assert job["code"] == "." and job.get("launcher", "torchrun") in LAUNCHERS
    assert (example / job["script"]).is_file()
    for word in shlex.split(job["args"]):
        if word.endswith(".json"):
            assert json.loads((example / word).read_text())


def test_sweep_includes_each_strategy_on_one_and_two_nodes() -> None:
    example = CHECKOUT / "examples" / "strategies"
    settings = yaml.safe_load((example / "variants.yml").read_text())
    compared = {(item["nnodes"], item["args"].removeprefix("--strategy ")) for item in settings["sweep_variants"]}
    match = re.search(r"--strategy\", choices=(\[.*?\])", (example / "train.py").read_text())
    assert match is not None
    assert compared == {(nnodes, name) for nnodes in (1, 2) for name in json.loads(match[1])}
    assert [item["name"] for item in settings["sweep_variants"]] == [
        f"{name}-{nnodes}" for nnodes, name in sorted(compared, key=lambda item: item[::-1])
    ]
    assert "{batch_size}" in settings["fit_args"] and "{batch_size}" not in settings["sweep_args"]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_script_imports_are_in_requirements(example: Path) -> None:
    (script,) = example.glob("*.py")
    tree = ast.parse(script.read_text())
    compile(tree, str(script), "exec")
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    needed = {name.partition(".")[0] for name in imported} - set(sys.stdlib_module_names) - INSTALLED
    project = read_project(str(example))
    assert project
    lines = [line for line in project["texts"]["requirements.txt"].splitlines() if not line.startswith("#")]
    required = {line.partition(">")[0] for line in lines}
    assert {PACKAGES.get(name, name) for name in needed} <= required
    assert not required & INSTALLED, "they would be exchanged for those of the index"
