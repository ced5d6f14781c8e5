# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: project_requirements
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Read the requirements that a project declares
description:
  - Reads C(requirements.txt) in a directory on the controller, with the files it includes, or if it is missing, the
    C(dependencies) in C(pyproject.toml).
  - A line that refers to the project itself, such as C(-e .), stands for these dependencies.
options:
  _terms:
    description: Directories of projects. An empty name means no requirements.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Show which file of a project lists its requirements
  ansible.builtin.debug:
    msg: "{{ lookup('muster.training.project_requirements', '~/project').file | default('none') }}"
"""

RETURN = r"""
_value:
  description:
    - For each directory, the C(file) that declares the requirements, the C(texts) of the requirements files for pip,
      the name of the C(main) one, and a C(digest). Empty if there are no requirements.
  type: list
  elements: dict
  sample:
    - file: requirements.txt
      main: requirements.txt
      texts: {requirements.txt: "transformers>=4.50\n"}
      digest: 2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae
"""

from typing import Any

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ansible_collections.muster.training.plugins.plugin_utils._project.requirements import read_project


class LookupModule(LookupBase):
    """Lookup plugin that reads the requirements of projects from files on the controller."""

    def run(self, terms: list[Any], variables: dict[str, Any] | None = None, **kwargs: Any) -> list[dict[str, Any]]:
        """Return the requirements of each project."""
        self.set_options(var_options=variables, direct=kwargs)
        try:
            return [dict(read_project(str(term)) or {}) for term in terms]
        except ValueError as error:
            raise AnsibleLookupError(str(error)) from error
