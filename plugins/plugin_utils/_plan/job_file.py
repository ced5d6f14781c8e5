# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Job files: the description of a job, below the key `job`, with short names."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any

from ansible.module_utils.common.yaml import yaml_load

ROLES = ("launch", "code", "python_env")
"""The roles whose defaults take values from a job file."""
JOB_KEY = re.compile(r"\bjob\.(\w+)")


@functools.cache
def read_job_keys(roles: Path) -> dict[str, str]:
    """Return the valid keys of a job file, each with the variable it sets. roles: directory of the roles."""
    keys = {}
    for role in ROLES:
        defaults = yaml_load((roles / role / "defaults" / "main.yml").read_text(encoding="utf-8"))
        for name, value in defaults.items():
            match = JOB_KEY.search(str(value))
            if match:
                keys[match[1]] = name
    return keys


def find_unknown_keys(job: object, keys: Mapping[str, str]) -> list[str]:
    """Return one sentence for each key of a job that nothing reads, or a single one if job is not a dictionary."""
    if not isinstance(job, Mapping):
        return [
            f"job is {ascii(job)[:80]}, but must be a dictionary. Write a file with `job:` and below it, indented, "
            "`script: train.py` and so on, and pass it as -e @job.yml"
        ]
    messages = []
    for key in job:
        if key not in keys:
            close_keys = difflib.get_close_matches(str(key), keys, n=1)
            hint = f"did you mean {close_keys[0]}?" if close_keys else f"valid keys: {', '.join(sorted(keys))}"
            messages.append(f"job has {ascii(str(key))[1:-1]}, but nothing reads it; {hint}")
    return messages


def find_overridden_keys(
    job: Mapping[str, Any], keys: Mapping[str, str], extra_vars: Container[str], get_value: Callable[[str], Any]
) -> list[str]:
    """Return one sentence for each value of a job that the inventory overrides with another value.

    Args:
        job: the values below the key `job`.
        keys: from read_job_keys().
        extra_vars: names of the variables passed with -e, which override the job on purpose.
        get_value: returns the value of a variable, or None if it is undefined.
    """
    messages = []
    for key, name in keys.items():
        if key not in job or key in extra_vars or name in extra_vars:
            continue
        effective = get_value(name)
        if effective is not None and effective != job[key] and str(effective) != str(job[key]):
            value_text = "" if key == "environment" else f" to {ascii(effective)[:80]}"
            messages.append(
                f"job has {key}, but {name} is set{value_text} for the nodes, which takes precedence: remove it there, "
                f"or use -e {name}=VALUE, which overrides both"
            )
    return messages
