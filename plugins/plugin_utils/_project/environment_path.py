# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The location of a project's Python environment on the nodes.

Each project has its own, named after the directory of its code on the nodes. Without code it is DEFAULT_NAME, whose
directory is that of all environments, as it was before environments had names.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

DEFAULT_NAME = "env"
DEFAULT_DIRECTORY = "/opt/muster"
AUTO = "auto"
FIXED_NAME = "__python_env_fixed_name"  # set by roles with their own environment, which -e must not rename
VARIABLES = (FIXED_NAME, "python_env_name", "python_env_directory", "code_directory", "code_source", "code_repository")
"""Variables that find_environment() reads, in addition to the code set in a job file."""
VALID_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


class ProjectEnvironment(NamedTuple):
    """The name of an environment, and its directory, which contains the interpreter env/bin/python."""

    name: str
    home: str


def code_name(variables: Mapping[str, Any]) -> str:
    """Return the name of the code directory on the nodes, derived as in the code role; empty if there is no code."""
    directory = str(variables.get("code_directory") or "")
    if directory:
        return posixpath.basename(directory.rstrip("/"))
    job = variables.get("job")
    source = str(variables.get("code_source") or (job.get("code") if isinstance(job, Mapping) else "") or "")
    if source:  # a link keeps its name, as in roles/code/vars/main.yml
        return os.path.basename(os.path.normpath(os.path.join(os.getcwd(), os.path.expanduser(source))))
    repository = str(variables.get("code_repository") or "").rstrip("/").removesuffix(".git")
    return re.split("[/:]", repository)[-1]


def find_environment(variables: Mapping[str, Any]) -> ProjectEnvironment:
    """Return the environment that these variables of a node define. Raise ValueError for an invalid name."""
    name = str(variables.get(FIXED_NAME) or variables.get("python_env_name") or AUTO)
    if name == AUTO:
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", code_name(variables)).lstrip("-.") or DEFAULT_NAME
    elif not VALID_NAME.fullmatch(name):
        raise ValueError(
            f"python_env_name is {name!r}. Use letters, digits, dots, hyphens and underscores, and do not begin "
            "with a dot or hyphen, such as my-project"
        )
    directory = str(variables.get("python_env_directory") or DEFAULT_DIRECTORY)
    return ProjectEnvironment(name, directory if name == DEFAULT_NAME else posixpath.join(directory, "envs", name))


def list_interpreters(environment: ProjectEnvironment, directory: str) -> list[str]:
    """Return the interpreters for a job, preferred one first: a project without an environment shares DEFAULT_NAME."""
    homes = dict.fromkeys([environment.home, directory])
    return [*(posixpath.join(home, "env", "bin", "python") for home in homes), "python3"]
