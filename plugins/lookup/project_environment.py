# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: project_environment
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Name the Python environment of a project on the nodes
description:
  - Each project has its own environment, which the role P(muster.training.python_env#role) creates. Its name is
    C(python_env_name), or if that is V(auto) or undefined, the name of the code's directory on the nodes, from
    C(code_directory), C(code_source), C(job.code) or C(code_repository). Without code it is V(env).
  - The environment V(env) is in C(python_env_directory), any other in C(envs/NAME) below it.
  - Takes no terms; reads these variables.
"""

EXAMPLES = r"""
- name: Show the interpreter of the project
  ansible.builtin.debug:
    msg: "{{ lookup('muster.training.project_environment').home }}/env/bin/python"
  vars:
    code_source: ~/project
"""

RETURN = r"""
_value:
  description:
    - A list with one dictionary. C(name) of the environment; C(home), its directory, with the environment itself in
      C(env), its wheels and locks; C(interpreters) for a job, the preferred one first, separated by colons; C(project),
      the name of the code's directory on the nodes, empty without code.
  type: list
  elements: dict
  sample:
    - name: project
      home: /opt/muster/envs/project
      interpreters: /opt/muster/envs/project/env/bin/python:/opt/muster/env/bin/python:python3
      project: project
"""

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ansible_collections.muster.training.plugins.plugin_utils._project.environment_path import (
    DEFAULT_DIRECTORY,
    VARIABLES,
    code_name,
    find_environment,
    list_interpreters,
)


class LookupModule(LookupBase):
    """Reads variables only."""

    def run(self, terms: list[Any], variables: dict[str, Any] | None = None, **kwargs: Any) -> list[dict[str, str]]:
        """Return a list with one dictionary."""
        self.set_options(var_options=variables, direct=kwargs)
        variables = variables or {}
        known = {name: self._templar.template(variables[name]) for name in VARIABLES if name in variables}
        job = variables.get("job")
        if isinstance(job, Mapping) and "code" in job:  # other values of a job may not be defined yet
            known["job"] = {"code": self._templar.template(job["code"])}
        try:
            environment = find_environment(known)
        except ValueError as error:
            raise AnsibleLookupError(str(error)) from error
        directory = str(known.get("python_env_directory") or DEFAULT_DIRECTORY)
        interpreters = ":".join(list_interpreters(environment, directory))
        return [{**environment._asdict(), "interpreters": interpreters, "project": code_name(known)}]
