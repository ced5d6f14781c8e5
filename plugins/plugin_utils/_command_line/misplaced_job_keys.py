# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the settings of a job that a file after -e does not have below `job:`, where nothing would read them."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from ansible_collections.muster.training.plugins.plugin_utils._command_line.extra_vars import read_yaml
from ansible_collections.muster.training.plugins.plugin_utils._command_line.muster_command import path_as_typed

JOB = "job"
SIMILARITY = 0.6  # cutoff for names like `job`: jobs, Job and jbo


def read_variable_files(texts: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the variables of the files in the texts after -e, by path as typed. Encrypted files are omitted."""
    files = {}
    for path in (Path(text[1:]).expanduser() for text in texts if text.startswith("@")):
        if not path.is_file():  # a pipe can be read only once, by Ansible
            continue
        try:
            variables = read_yaml(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, yaml.YAMLError):
            continue  # Ansible has already read it in another way, or reports the error
        if isinstance(variables, Mapping):
            files[path_as_typed(str(path.absolute()))] = {str(name): value for name, value in variables.items()}
    return files


def find_misplaced_job_keys(
    files: Mapping[str, Mapping[str, Any]], job_keys: Collection[str], read_names: Collection[str], has_job: bool
) -> list[str]:
    """Return one sentence for each file with settings of a job that nothing reads, as they are not below `job:`.

    Args:
        files: the variables of each file, by its path.
        job_keys: the valid keys of a job.
        read_names: the variables that the playbook, its roles or the user's templates read.
        has_job: whether a job is set on the command line or in one of the files.
    """
    messages = []
    for file, variables in files.items():
        unread_names = [name for name in variables if name not in read_names]
        misspelled_names = [
            name for name in unread_names if not has_job and is_like_job(name) and has_keys(variables[name], job_keys)
        ]
        messages += [f"{file} has {name}, but nothing reads it; did you mean {JOB}?" for name in misspelled_names]
        if not misspelled_names and set(unread_names) & set(job_keys):
            is_partial = variables.get(JOB) is not None
            # names that are variables, too, such as nnodes, most likely belong to a job that is missing or empty
            names = ", ".join(
                name for name in variables if name in job_keys and (name in unread_names or not is_partial)
            )
            remedy = (
                f"Indent it below `{JOB}:`" if JOB in variables else f"Write `{JOB}:` and indent the lines below it"
            )
            messages.append(
                f"{file} has {names} at the top level, but a job consists of what is below `{JOB}:`. {remedy}"
            )
    return messages


def is_like_job(name: str) -> bool:
    """Return whether a name may be a misspelling of `job`."""
    name = name.lower()
    return JOB in name or bool(difflib.get_close_matches(name, [JOB], n=1, cutoff=SIMILARITY))


def has_keys(value: object, job_keys: Collection[str]) -> bool:
    """Return whether a value contains job settings, or is empty, as `job:` is if its settings are not indented."""
    if isinstance(value, list):
        return any(has_keys(item, job_keys) for item in value if item is not None)
    return value is None or (isinstance(value, Mapping) and any(key in job_keys for key in value))
