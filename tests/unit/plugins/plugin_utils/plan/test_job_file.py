# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A job file: its keys are defaults of variables, and no key is silently ignored."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.muster.training.plugins.plugin_utils._plan.job_file import (
    describe_replaced_settings,
    find_unknown_keys,
    read_job_keys,
    settings_of_job,
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

    # in a job, `code` is a directory; with -e, it says whether to copy the code
    assert reading("job.") == reading(" launch_") & set(KEYS) - {"code"}


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ({"scirpt": "train.py"}, "job has scirpt, but nothing reads it; did you mean script?"),
        ({"xyz": 1}, "job has xyz, but nothing reads it; valid keys: accelerate_config, args, checkpoints, "),
        ({4: 1}, "job has 4, but nothing reads it; valid keys: "),
        (
            "train.py",
            "job is 'train.py', but must be a dictionary. Write a file that contains `job:` with `script: train.py` "
            "and so on indented below it",
        ),
        (None, "job is None, but must be a dictionary"),
    ],
)
def test_invalid_job_is_refused(job: object, message: str) -> None:
    (result,) = find_unknown_keys(job, KEYS)
    assert result.startswith(message)


@pytest.mark.parametrize("requirements", [3, True, {"numpy": 2}, ["numpy", {"torch": 2}]])
def test_requirements_of_a_wrong_type_are_refused(requirements: object) -> None:
    (result,) = find_unknown_keys({"requirements": requirements}, KEYS)
    assert (
        result.startswith("job has requirements: ") and "must be `auto` or a list of strings in pip's syntax" in result
    )


@pytest.mark.parametrize("requirements", ["auto", "numpy", "{{ names }}", ["numpy", "torch>=2"], [], None])
def test_requirements_as_text_or_list_are_accepted(requirements: object) -> None:
    assert find_unknown_keys({"requirements": requirements}, KEYS) == []


def test_all_known_keys_are_accepted() -> None:
    assert find_unknown_keys({key: None for key in KEYS}, KEYS) == [] == find_unknown_keys({}, KEYS)


JOB = {"script": "train.py", "nnodes": 4, "environment": {"A": "b"}}


@pytest.mark.parametrize(
    ("job", "extra", "project", "variables"),
    [
        (JOB, (), {}, {}),
        (JOB, (), {"launch_script": "other.py"}, {"launch_script": "train.py"}),
        (JOB, (), {"launch_script": "train.py", "launch_nnodes": "4"}, {}),
        (JOB, ("launch_script",), {"launch_script": "other.py"}, {}),
        (JOB, ("nnodes",), {"launch_nnodes": "2"}, {}),
        (
            JOB,
            (),
            {"launch_module": "a", "launch_args": ["--old"], "launch_no_python": False},
            {"launch_module": "", "launch_args": []},
        ),
        (JOB, ("launch_args",), {"launch_args": ["--old"]}, {}),
        ({"script": "a", "args": "--new"}, (), {"launch_args": ["--old"]}, {"launch_args": "--new"}),
        ({"module": "a"}, (), {"launch_script": "train.py"}, {"launch_script": ""}),
        ({"module": "a"}, ("launch_script",), {}, {}),
        ({"args": "--new"}, (), {"launch_args": ["--old"]}, {"launch_args": "--new"}),
        ({"code": "a"}, (), {}, {"code_source": "/jobs/a"}),
        ({"code": "a"}, (), {"code_source": "/jobs/a", "code_directory": "x"}, {"code_source": "/jobs/a"}),
        ({"code": ""}, (), {"code_source": "/jobs/a"}, {"code_source": ""}),
        ({"code": "a"}, ("code_source",), {"code_directory": "x"}, {}),
        (
            {"code": "a"},
            (),
            {"code_source": "b", "code_directory": "x", "launch_working_directory": "~/b", "code_repository": ""},
            {"code_source": "/jobs/a", "code_directory": "", "launch_working_directory": "a"},
        ),
        (
            {"code": "a", "working_directory": "a/b"},
            (),
            {"launch_working_directory": "~/b"},
            {"code_source": "/jobs/a", "launch_working_directory": "a/b"},
        ),
        (
            {"code": "a"},
            (),
            {"python_env_requirements": ["x"], "python_env_editable": ["~/b[train]"]},
            {"code_source": "/jobs/a", "python_env_requirements": "auto", "python_env_editable": []},
        ),
    ],
)
def test_job_replaces_settings_of_the_project_but_not_those_typed(
    job: dict[str, Any], extra: tuple[str, ...], project: dict[str, Any], variables: dict[str, Any]
) -> None:
    settings = settings_of_job(job, KEYS, extra, project, lambda path: f"/jobs/{path}".replace("/jobs//", "/"))
    assert settings.variables == variables
    assert settings.replaced == {
        name: project[name] for name in variables if project.get(name, "") not in (variables[name], "")
    }


def test_line_lists_replaced_settings_without_secrets() -> None:
    replaced = {"launch_script": "other.py", "launch_environment": {"KEY": "s3cr3t"}, "launch_args": ""}
    assert describe_replaced_settings("job.yml", replaced) == (
        "job.yml overrides these project settings: launch_args, launch_environment, launch_script: other.py"
    )
    assert describe_replaced_settings("job.yml", {}) == ""


def test_example_job_file_is_valid() -> None:
    """The commented-out keys are valid, too."""
    text = (CHECKOUT / "examples/job.yml").read_text()
    assert find_unknown_keys(yaml.safe_load(text)["job"], KEYS) == []
    commented = re.findall(r"^  # (\w+): \S+$|^  # (\w+): \[.*\]$", text, re.MULTILINE)
    assert len(commented) >= 4 and {"".join(names) for names in commented} <= set(KEYS)
