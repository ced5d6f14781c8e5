# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: declared_requirements
author: muster contributors (@muster)
version_added: 0.1.0
short_description: List all requirements of a project that can be read on the controller
description:
  - Lists the requirements of the role P(muster.training.python_env#role) before anything is installed, to choose a
    torch that matches them. Requirements files on the nodes are not read.
options:
  _terms:
    description: Directories of projects. An empty name means that there is none.
    type: list
    elements: str
    required: true
  use_project:
    description: Whether to read C(requirements.txt), or else the C(dependencies) in C(pyproject.toml).
    type: bool
    default: true
  requirements:
    description: Further requirements in pip's format.
    type: list
    elements: str
    default: []
  editable:
    description:
      - Source trees on the nodes, with extras in brackets. The C(pyproject.toml) of one that has the name of the
        project is read.
    type: list
    elements: str
    default: []
seealso:
  - plugin: muster.training.project_requirements
    plugin_type: lookup
  - plugin: muster.training.software_choice
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Show all requirements of a project
  ansible.builtin.debug:
    msg: "{{ lookup('muster.training.declared_requirements', '', requirements=['transformers>=4.50']) }}"
"""

RETURN = r"""
_value:
  description: For each directory, lists of requirements, by the file or setting that has them.
  type: list
  elements: dict
  sample:
    - requirements.txt: [torch==2.0.1, torchvision==0.15.2]
      "pyproject.toml (~/project[train])": [wandb]
"""

from typing import Any

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ansible_collections.muster.training.plugins.plugin_utils._project.requirements import read_declared


class LookupModule(LookupBase):
    """Reads files on the controller."""

    def run(
        self, terms: list[Any], variables: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[dict[str, list[str]]]:
        """Return each project's requirements."""
        self.set_options(var_options=variables, direct=kwargs)
        use_project = self.get_option("use_project")
        requirements, editable = self.get_option("requirements"), self.get_option("editable")
        try:
            return [read_declared(str(term), use_project, requirements, editable) for term in terms]
        except ValueError as error:
            raise AnsibleLookupError(str(error)) from error
