# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: torch_proof
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Verify that torch works on a node
description:
  - Compares the torch build with the expected one, calls torchvision and torchaudio if they are installed, multiplies
    matrices on each GPU, and runs an all-reduce of two processes with NCCL, or with Gloo on fewer than two GPUs.
  - The verification runs again when the version of Python, of the driver or of one of these packages has changed.
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
  version:
    description: Expected release of torch.
    type: str
    required: true
  build:
    description: Expected build, by the name of its wheel index, such as V(cu126), V(rocm6.4) or V(cpu).
    type: str
    required: true
  cuda:
    description: Expected CUDA version of the build. Empty means a build without CUDA.
    type: str
    default: ""
  gpus:
    description: Number of GPUs that torch must see on the node.
    type: int
    default: 0
"""

EXAMPLES = r"""
- name: Verify that torch works
  muster.training.torch_proof:
    directory: /opt/muster
    version: 2.8.0
    build: cu126
    cuda: "12.6"
    gpus: 8
  register: proof

- name: Show the result
  ansible.builtin.debug:
    var: proof.summary
"""

RETURN = r"""
summary:
  description: One-line summary of what was verified.
  returned: when not in check mode
  type: str
  sample: 2.8.0+cu126 True 12.6; matrix product correct on 8 GPUs, sum of two ranks by nccl
"""
