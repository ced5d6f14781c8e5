# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: software_choice
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Choose matching versions of Python, torch, CUDA and flash-attention
description:
  - Chooses the newest release of torch that the nodes can run, given their Python versions, drivers, GPUs, processors
    and C libraries, with the matching Python and build for CUDA or ROCm.
  - Explicit choices are kept and only checked. If they cannot work, C(refusal) has the reason and a working choice.
positional: _input
options:
  _input:
    description:
      - The C(facts) that M(muster.training.node_facts) returns with the parts C(gpus) and C(software), by node name.
    type: dict
    required: true
  version:
    description: Release of torch, or V(auto) for the newest that the nodes can run.
    type: str
    default: auto
  cuda:
    description:
      - CUDA version, such as V(12.4), ROCm version, such as V(rocm6.4), or V(cpu).
      - V(auto) selects the newest version that all drivers support and that has kernels for all GPUs, or V(cpu) if no
        node has a GPU.
    type: str
    default: auto
  python:
    description:
      - Name, path or version of an interpreter.
      - V(auto) selects the nodes' own interpreter, or one that O(manager) provides if that is too old or too new.
    type: str
    default: auto
  manager:
    description: Tool that creates the environment.
    type: str
    choices: [uv, venv, conda]
    default: uv
  directory:
    description: Directory of the environment. An existing environment keeps its Python.
    type: str
    default: /opt/muster
  name:
    description: Name of the environment, for messages.
    type: str
    default: env
  project:
    description:
      - Lists of requirements in pip's format, by the file or setting that has them. V(auto) chooses a torch that they
        allow, according to their versions of torch, torchvision and torchaudio.
    type: dict
    default: {}
  flash_attention:
    description:
      - Release of flash-attention for which a wheel must exist. V(auto) means any release, empty means that it is not
        required.
    type: str
    default: ""
  packages:
    description: Further packages to install from torch's index, such as C(torchvision).
    type: list
    elements: str
    default: []
seealso:
  - module: muster.training.node_facts
"""

EXAMPLES = r"""
- name: Show what would be installed
  ansible.builtin.debug:
    msg: "{{ {'node1': facts} | muster.training.software_choice(cuda='12.6', packages=['torchvision']) }}"
  vars:
    facts:
      glibc: "2.35"
      interpreter: /usr/bin/python3
      software: {python: 3.10.12}
      gpus: {pci: 1, driver: {loaded: 580.65.06}, devices: [{name: Tesla T4, compute_capability: [7, 5]}]}
"""

RETURN = r"""
_value:
  description:
    - The name of the interpreter (C(python)), the release of torch (C(version)), the name of its index (C(build)), its
      CUDA version (C(cuda)), empty for the CPU, the C(requirements) in pip's format, the release of C(flash_attention),
      and the C(reasons), one line each.
    - If nothing fits, only the C(refusal), which is empty otherwise.
  type: dict
  sample:
    refusal: ""
    python: python3
    version: 2.13.0
    build: cu126
    cuda: "12.6"
    requirements: [torch==2.13.0, torchvision==0.28.*]
    flash_attention: ""
    reasons:
      - "Python 3.10: python3 of the nodes"
      - "torch 2.13.0: the newest compatible release"
      - "CUDA 12.6: set by pytorch_cuda"
"""

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ansible_collections.muster.training.plugins.plugin_utils._software import choose

# choose is imported where it is used: Ansible loads all filters of a collection in each process that looks one up.


def read_node_software(name: str, facts: Mapping[str, Any], directory: str) -> choose.NodeSoftware:
    """Return the relevant part of a node's facts."""
    from ansible_collections.muster.training.plugins.plugin_utils._plan.gpu_vendors import vendor_name
    from ansible_collections.muster.training.plugins.plugin_utils._software import choose

    gpus, software = facts["gpus"], facts.get("software") or {}
    devices = tuple(
        (device["name"], (device["compute_capability"][0], device["compute_capability"][1]))
        for device in gpus["devices"]
        if device.get("compute_capability")
    )
    python = software.get("python") or ""
    return choose.NodeSoftware(
        name=name,
        gpus=gpus["pci"],
        driver=gpus["driver"]["loaded"] or next((device["driver"] for device in gpus["devices"]), ""),
        devices=devices,
        python=python,
        has_environment=bool(python)
        and os.path.normpath(facts["interpreter"]) == os.path.normpath(f"{directory}/env/bin/python"),
        glibc=facts.get("glibc") or "",
        architecture=facts.get("architecture") or "",
        vendor=vendor_name(gpus),
        targets=tuple((device["name"], device["target"]) for device in gpus["devices"] if device.get("target")),
    )


def software_choice(  # noqa: PLR0913
    facts: Mapping[str, Mapping[str, Any]],
    version: str = "auto",
    cuda: str = "auto",
    python: str = "auto",
    manager: str = "uv",
    directory: str = "/opt/muster",
    flash_attention: str = "",
    packages: list[str] | None = None,
    name: str = "env",
    project: Mapping[str, list[str]] | None = None,
) -> dict[str, Any]:
    """Return the software to use on these nodes."""
    from ansible_collections.muster.training.plugins.plugin_utils._software import choose, torch_pins

    nodes = {node: read_node_software(node, node_facts, directory) for node, node_facts in facts.items()}
    machine = next((node.architecture for node in nodes.values() if node.architecture), torch_pins.X86)
    pins = tuple(torch_pins.read_pins(project or {}, machine))
    request = choose.SoftwareRequest(
        str(version), str(cuda), str(python), str(flash_attention), manager, directory, name, pins
    )
    try:
        choice = choose.choose(nodes, request)
    except choose.SoftwareChoiceError as error:
        return {"refusal": str(error)}
    return {
        "refusal": "",
        "python": choice.python,
        "version": choice.torch,
        "build": choice.build,
        "cuda": choice.cuda,
        "requirements": choose.pip_requirements(choice.torch, list(packages or [])),
        "flash_attention": choice.flash,
        "reasons": choice.reasons,
    }


class FilterModule:
    """Registers the filter."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"software_choice": software_choice}
