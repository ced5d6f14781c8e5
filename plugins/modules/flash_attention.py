# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: flash_attention
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Find the wheel of flash-attention that fits an environment, and prove that it works
description:
  - What the role P(muster.training.flash_attention#role) asks of the nodes, a step each. It installs nothing.
  - Runs with the interpreter of the environment, as the user of the task. It does not depend on the connection. If the
    play is interrupted it goes on, and the next run of the same task follows it to its end.
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
      - V(gpus) reads the compute capabilities of the node's GPUs, and fails where FlashAttention 2 does not run on one.
      - V(choose) finds the wheel that fits, or the settings of a build, and notes it in the environment.
      - V(prove) imports flash-attention, and compares its attention with torch's own where there is a GPU.
    type: str
    choices: [gpus, choose, prove]
    required: true
  version:
    description: The release, or V(auto), the newest that has a wheel. For O(step=choose).
    type: str
    default: auto
  wheels:
    description: Where the wheels are, with C(VERSION) in it. For O(step=choose).
    type: str
    default: https://github.com/Dao-AILab/flash-attention/releases/download/vVERSION
  sha256:
    description: Hash of the wheel that fits. If empty, it is not compared. For O(step=choose).
    type: str
    default: ""
  build:
    description: Whether it may be built where there is no wheel. For O(step=choose).
    type: bool
    default: false
  max_jobs:
    description: How many jobs a build has at once. V(0), as many as the free memory allows. For O(step=choose).
    type: int
    default: 0
  cuda_home:
    description: Directory of the CUDA by which it is built. If empty, it is looked for. For O(step=choose).
    type: str
    default: ""
  capabilities:
    description: Compute capabilities for which it is built. If empty, as its own build has them. For O(step=choose).
    type: list
    elements: str
    default: []
  key:
    description: What stands for all that is installed. Another one, and it is proved again. Needed for O(step=prove).
    type: str
"""

EXAMPLES = r"""
- name: Find a matching wheel
  muster.training.flash_attention:
    step: choose
    directory: /opt/muster
    version: 2.8.3
  register: choice

- name: Show it
  ansible.builtin.debug:
    var: choice.requirements
"""

RETURN = r"""
capabilities:
  description: Compute capabilities of the node's GPUs. Empty where it has none.
  returned: for O(step=gpus)
  type: list
  elements: str
  sample: ["9.0"]
requirements:
  description: What pip is to install.
  returned: for O(step=choose)
  type: list
  elements: str
  sample: [flash-attn==2.8.3]
environment:
  description: Environment variables of a build.
  returned: for O(step=choose)
  type: dict
  sample: {MAX_JOBS: "4"}
options:
  description: Options of pip for a build.
  returned: for O(step=choose)
  type: list
  elements: str
  sample: [--no-build-isolation, --no-cache-dir]
shown:
  description: What was chosen, or proved, in a few words.
  returned: for O(step=choose) and O(step=prove)
  type: str
  sample: flash-attention 2.8.3 can be imported, and its attention is torch's within 0.0039
"""
