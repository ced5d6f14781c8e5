# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: flash_attention
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Find the flash-attention wheel that fits an environment, and verify that it works
description:
  - Runs the steps that the role P(muster.training.flash_attention#role) needs on the nodes. Installs nothing.
  - Runs with the environment's interpreter, as the user of the task, and independently of the connection. If the play
    is interrupted, it continues, and the next run of the same task follows it to its end.
  - Not run in check mode.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.long
  - muster.training._environment
options:
  step:
    description:
      - V(gpus) reads the compute capabilities of the node's GPUs, and fails if FlashAttention 2 does not support one of
        them.
      - V(choose) finds the matching wheel, or the settings of a build, and records it in the environment.
      - V(prove) imports flash-attention and, on a GPU, compares its attention with that of torch.
    type: str
    choices: [gpus, choose, prove]
    required: true
  version:
    description: Release of flash-attention, or V(auto) for the newest with a wheel. For O(step=choose).
    type: str
    default: auto
  wheels:
    description: URL of the wheels, with C(VERSION) in it. For O(step=choose).
    type: str
    default: https://github.com/Dao-AILab/flash-attention/releases/download/vVERSION
  sha256:
    description: SHA-256 hash of the matching wheel. If empty, it is not checked. For O(step=choose).
    type: str
    default: ""
  build:
    description: Build flash-attention if there is no wheel. For O(step=choose).
    type: bool
    default: false
  max_jobs:
    description: Number of parallel build jobs. V(0) means as many as free memory allows. For O(step=choose).
    type: int
    default: 0
  cuda_home:
    description: Directory of the CUDA toolkit to build with. If empty, it is detected. For O(step=choose).
    type: str
    default: ""
  capabilities:
    description:
      - Compute capabilities to build for. If empty, defaults to those of flash-attention's build. For O(step=choose).
    type: list
    elements: str
    default: []
  key:
    description:
      - Key that identifies the installed packages. When it changes, the verification runs again. Required for
        O(step=prove).
    type: str
"""

EXAMPLES = r"""
- name: Find a matching wheel
  muster.training.flash_attention:
    step: choose
    directory: /opt/muster
    version: 2.8.3
  register: choice

- name: Show the requirements
  ansible.builtin.debug:
    var: choice.requirements
"""

RETURN = r"""
capabilities:
  description: Compute capabilities of the node's GPUs. Empty if it has no GPU.
  returned: for O(step=gpus)
  type: list
  elements: str
  sample: ["9.0"]
requirements:
  description: Requirements to install with pip.
  returned: for O(step=choose)
  type: list
  elements: str
  sample: [flash-attn==2.8.3]
environment:
  description: Environment variables for a build.
  returned: for O(step=choose)
  type: dict
  sample: {MAX_JOBS: "4"}
options:
  description: pip options for a build.
  returned: for O(step=choose)
  type: list
  elements: str
  sample: [--no-build-isolation, --no-cache-dir]
summary:
  description: One-line summary of what was chosen or verified.
  returned: for O(step=choose) and O(step=prove)
  type: str
  sample: flash-attention 2.8.3 imported, differs by 0.0039 from torch's attention
"""
