# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Job files: the description of a job, under the key `job`, with short names."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ansible.module_utils.common.yaml import yaml_load

ROLES = ("launch", "code", "python_env")
"""The roles whose defaults use values from a job file."""
JOB_KEY = re.compile(r"\bjob\.(\w+)")
CODE = "code_source"
SECRET_SETTINGS = ("launch_notify",)
"""Settings that are read directly from the job, because Ansible would print the facts that replace them."""
PROGRAM_SETTINGS: dict[str, dict[str, Any]] = {
    "launch_script": {"launch_module": "", "launch_args": [], "launch_no_python": False},
    "launch_module": {"launch_script": "", "launch_args": [], "launch_no_python": False},
}
"""Settings that belong to a program: the project's values are not used for a program set by the job."""
CODE_SETTINGS: dict[str, Any] = {
    "code_repository": "",
    "code_directory": "",
    "launch_working_directory": "",
    "python_env_requirements": "auto",
    "python_env_requirements_files": [],
    "python_env_editable": [],
}
"""Settings that belong to a code directory: the project's values are not used for one set by the job."""
RELATED_SETTINGS = {*CODE_SETTINGS, *(name for settings in PROGRAM_SETTINGS.values() for name in settings)}


class JobSettings(NamedTuple):
    """Variables to set on all nodes, and the values that the project had set for some of these variables."""

    variables: dict[str, Any]
    replaced: dict[str, Any]


@functools.cache
def read_job_keys(roles: Path) -> dict[str, str]:
    """Return the valid keys of a job file, each with the variable it sets. roles: the directory of the roles."""
    keys = {}
    for role in ROLES:
        defaults = yaml_load((roles / role / "defaults" / "main.yml").read_text(encoding="utf-8"))
        for name, value in defaults.items():
            match = JOB_KEY.search(str(value))
            if match:
                keys[match[1]] = name
    return keys


def find_unknown_keys(job: object, keys: Mapping[str, str]) -> list[str]:
    """Return one sentence for each key of a job that is not used, or a single one if job is not a dictionary.

    Also return one if its requirements are of a wrong type.
    """
    if not isinstance(job, Mapping):
        return [
            (
                f"job is {ascii(job)[:80]}, but must be a dictionary. Write a file that contains `job:` with `script: "
                "train.py` and so on indented below it, and pass it as -e @job.yml"
            )
        ]
    messages = []
    for key in job:
        if key not in keys:
            close_keys = difflib.get_close_matches(str(key), keys, n=1)
            hint = f"did you mean {close_keys[0]}?" if close_keys else f"valid keys: {', '.join(sorted(keys))}"
            messages.append(f"job has {ascii(str(key))[1:-1]}, but nothing reads it; {hint}")
    return messages + find_wrong_requirements(job.get("requirements"))


def find_wrong_requirements(requirements: object) -> list[str]:
    """Return one sentence if a job's requirements are of a wrong type.

    Their variable accepts a word or a list, so the documentation of its role cannot tell the type.
    """
    items = requirements if isinstance(requirements, list) else [requirements]
    wrong_items = [item for item in items if item is not None and not isinstance(item, str)]
    if not wrong_items:
        return []
    return [
        f"job has requirements: {ascii(wrong_items[0])[:80]}, but they must be `auto` or a list of strings in pip's "
        'syntax, such as requirements: [transformers, "datasets>=3"]'
    ]


def settings_of_job(
    job: Mapping[str, Any],
    keys: Mapping[str, str],
    extra_vars: Container[str],
    project: Mapping[str, Any],
    code_directory: Callable[[str], str] = str,
) -> JobSettings:
    """Return the variables by which a job overrides a project's settings.

    Args:
        job: the values below the key `job`.
        keys: from read_job_keys().
        extra_vars: names of the variables passed with -e, which take precedence over the job.
        project: the variables that the inventory sets, by name.
        code_directory: returns the absolute path of a directory of code.
    """
    values = {
        name: job[key]
        for key, name in keys.items()
        if key in job and not {key, name} & {*SECRET_SETTINGS} and key not in extra_vars and name not in extra_vars
    }
    variables = {name: value for name, value in values.items() if name in project}
    if values.get(CODE):
        variables[CODE] = code_directory(str(values[CODE]))
        if CODE in project and code_directory(str(project[CODE])) == variables[CODE]:
            project = {**project, CODE: variables[CODE]}
    resets: dict[str, Any] = {}
    for name in (*PROGRAM_SETTINGS, CODE):
        if name in extra_vars or values.get(name):
            is_other_code = name == CODE and name in variables and project.get(CODE) != variables[CODE]
            resets.update(PROGRAM_SETTINGS.get(name, CODE_SETTINGS if is_other_code else {}))
    if "launch_working_directory" in resets:
        resets["launch_working_directory"] = Path(variables[CODE]).name
    variables.update(
        {
            name: value
            for name, value in resets.items()
            if name in project and name not in values and name not in extra_vars
        }
    )
    replaced = {
        name: project[name]
        for name, value in variables.items()
        if name in project and project[name] != value and str(project[name]) != str(value)
    }
    return JobSettings({name: variables[name] for name in variables if name in replaced or name == CODE}, replaced)


def describe_replaced_settings(source: str, replaced: Mapping[str, Any]) -> str:
    """Return one sentence about the project settings that a job overrides, or an empty string."""
    texts = [
        f"{name}: {ascii(value)[1:-1][:60]}" if isinstance(value, str) and value else name
        for name, value in sorted(replaced.items())
    ]
    return f"{source} overrides these project settings: {', '.join(texts)}" if texts else ""
