# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: deepspeed_proof
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Verify that DeepSpeed works on a node
description:
  - Compares its release and its built ops with the expected ones, and takes an optimizer step with a known result on
    two processes.
  - Runs with the environment's interpreter, as the user of the task, and independently of the connection. If the play
    is interrupted, it continues, and the next run of the same task follows it to its end.
  - Not run in check mode.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.long
  - muster.training._environment
  - muster.training._environment.key
options:
  version:
    description: Expected release of DeepSpeed.
    type: str
    required: true
  built:
    description: Build variables of the expected ops, such as V(DS_BUILD_FUSED_ADAM).
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Verify that DeepSpeed works
  muster.training.deepspeed_proof:
    directory: /opt/muster
    key: "{{ lock.key }}"
    version: 0.17.5
    built: [DS_BUILD_CPU_ADAM]
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
  sample: DeepSpeed 0.17.5, 1 op built; training step correct on two ranks
"""
