# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: torch_build
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Choose the build of torch that all nodes can run
description:
  - Chooses the CUDA version for which torch is to be built, by its release and the NVIDIA drivers of the nodes.
  - A pair of torch and CUDA that does not exist, and a driver that is too old, are errors that name what would do.
positional: _input
options:
  _input:
    description: What C(gpus) of M(muster.training.node_facts) holds, by the names of the nodes.
    type: dict
    required: true
  version:
    description: Release of torch.
    type: str
    required: true
  cuda:
    description:
      - Version of CUDA, such as V(12.4), or V(cpu).
      - With V(auto) the newest that all drivers run, and V(cpu) where no node has a GPU.
    type: str
    default: auto
  packages:
    description: What else is to be installed from the same index, such as C(torchvision).
    type: list
    elements: str
    default: []
seealso:
  - module: muster.training.node_facts
"""

EXAMPLES = r"""
- name: Show what would be installed
  ansible.builtin.debug:
    msg: "{{ gpus | muster.training.torch_build('2.5.1', '12.4', ['torchvision']) }}"
  vars:
    gpus: {node1: {pci: 2, driver: {loaded: 550.54.15}}}
"""

RETURN = r"""
_value:
  description: C(build), the name of the index, C(cuda), empty for the CPU, and C(requirements) as pip takes them.
  type: dict
  sample: {build: cu124, cuda: "12.4", requirements: [torch==2.5.1, torchvision==0.20.*]}
"""

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.muster.training.plugins.module_utils import _torch_builds as torch_builds


def torch_build(
    gpus: Mapping[str, Mapping[str, Any]], version: str, cuda: str = "auto", packages: list[str] | None = None
) -> dict[str, Any]:
    """The build of torch for these nodes."""
    nodes = {name: {"gpus": one["pci"], "driver": one["driver"]["loaded"]} for name, one in gpus.items()}
    try:
        build = torch_builds.choose_build(str(version), str(cuda), nodes)
    except torch_builds.NoSuchBuild as problem:
        raise AnsibleFilterError(str(problem)) from problem
    return {
        "build": build,
        "cuda": "" if build == torch_builds.CPU else torch_builds.dotted(int(build[2:])),
        "requirements": torch_builds.requirements(str(version), list(packages or [])),
    }


class FilterModule:
    """The filter as Ansible finds it."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"torch_build": torch_build}
