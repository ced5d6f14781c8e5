# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A job file: its keys are defaults of variables, and none of them is silently ignored."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.muster.training.plugins.plugin_utils._plan.job_file import (
    find_overridden_keys,
    find_unknown_keys,
    read_job_keys,
)

CHECKOUT = Path(__file__).resolve().parents[5]
KEYS = read_job_keys(CHECKOUT / "roles")


def test_job_keys_are_variable_names_without_prefix() -> None:
    assert KEYS["script"] == "launch_script" and KEYS["image"] == "launch_image"
    assert {key: name for key, name in KEYS.items() if name != f"launch_{key}"} == {
        "code": "code_source",
        "requirements": "python_env_requirements",
    }


def test_preflight_reads_the_same_job_keys_as_launch() -> None:
    defaults = yaml.safe_load((CHECKOUT / "roles/preflight/defaults/main.yml").read_text())

    def reading(word: str) -> set[str]:
        return {name.removeprefix("preflight_") for name, value in defaults.items() if word in str(value)}

    # what `code` names in a job is a directory, and behind -e whether it is brought
    assert reading("job.") == reading(" launch_") & set(KEYS) - {"code"}


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ({"scirpt": "train.py"}, "job has scirpt, but nothing reads it; did you mean script?"),
        ({"xyz": 1}, "job has xyz, but nothing reads it; valid keys: accelerate_config, args, code, "),
        ({4: 1}, "job has 4, but nothing reads it; valid keys: "),
        ("train.py", "job is 'train.py', but must be a dictionary. Write a file with `job:` and below it"),
        (None, "job is None, but must be a dictionary"),
    ],
)
def test_invalid_job_is_refused(job: object, said: str) -> None:
    (found,) = find_unknown_keys(job, KEYS)
    assert found.startswith(said)


def test_all_known_keys_are_accepted() -> None:
    assert find_unknown_keys({key: None for key in KEYS}, KEYS) == [] == find_unknown_keys({}, KEYS)


@pytest.mark.parametrize(
    ("typed", "there", "said"),
    [
        ((), {"launch_script": "other.py"}, ["job has script, but launch_script is set to 'other.py' for the nodes"]),
        ((), {"launch_script": "train.py", "launch_nnodes": "4"}, []),
        ((), {"launch_environment": {"KEY": "s3cr3t"}}, ["job has environment, but launch_environment is set for the"]),
        (("launch_script",), {"launch_script": "other.py"}, []),
        (("nnodes",), {"launch_nnodes": "2"}, []),
    ],
)
def test_job_key_overridden_by_the_inventory_is_refused(
    typed: tuple[str, ...], there: dict[str, Any], said: list[str]
) -> None:
    job = {"script": "train.py", "nnodes": 4, "environment": {"A": "b"}}
    found = find_overridden_keys(job, KEYS, typed, there.get)
    assert len(found) == len(said) and all(map(str.startswith, found, said)), found
    assert "s3cr3t" not in str(found)


def test_example_job_file_is_valid() -> None:
    """Its commented-out keys, too."""
    text = (CHECKOUT / "examples/job.yml").read_text()
    assert find_unknown_keys(yaml.safe_load(text)["job"], KEYS) == []
    commented = re.findall(r"^  # (\w+): \S+$|^  # (\w+): \[.*\]$", text, re.MULTILINE)
    assert len(commented) >= 4 and {"".join(names) for names in commented} <= set(KEYS)
