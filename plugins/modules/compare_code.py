# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: compare_code
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Decide whether code must be copied to the nodes
description:
  - Evaluates the comparison of the nodes' code by M(muster.training.node_facts), and shows in a few lines what will be
    copied.
  - Code is not copied if a node does not respond, since no run can start then, or if a run that uses it is still
    running.
  - In check mode nothing is copied. Runs on the controller, connects to nothing and changes nothing.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.controller
options:
  nodes:
    description: The nodes of the run, as RV(muster.training.choose_nodes#module:nodes) returns them.
    type: list
    elements: dict
    required: true
  facts:
    description: Registered result of M(muster.training.node_facts) for each node, by node name.
    type: dict
    default: {}
  facts_from:
    description: Name of the host variable in which each node registered this result. Replaces O(facts).
    type: str
    default: ""
  code:
    description: The code, as RV(muster.training.list_code#module:code) returns it.
    type: dict
    required: true
  sync_policy:
    description: V(synced) updates the nodes' copies. V(as_is) leaves them unchanged.
    type: str
    choices: [synced, as_is]
    default: synced
  gpus:
    description:
      - GPUs of each node that the job uses, by the numbers that C(nvidia-smi) shows. If empty, all.
      - A run on other GPUs does not prevent the copy, unless it works in the directory of the code.
    type: raw
    default: []
  allow_busy:
    description: Copy code even if another run is running, because that run will be stopped or shares the node.
    type: bool
    default: false
seealso:
  - module: muster.training.list_code
  - module: muster.training.launch_plan
"""

EXAMPLES = r"""
- name: Compare the nodes' code with the local code
  muster.training.compare_code:
    nodes: "{{ chosen.nodes }}"
    facts_from: node
    code: "{{ local.code }}"
  register: compared
  run_once: true

- name: Copy the local code where it differs
  ansible.builtin.include_role:
    name: muster.training.code
  when: compared.must_copy
"""

RETURN = r"""
must_copy:
  description: Whether the code must be copied now.
  returned: success
  type: bool
  sample: true
reason_not_copied:
  description: Why it is not copied, one of the values of O(muster.training.launch_plan#module:code_skip_reason).
  returned: success
  type: str
  sample: ""
differing:
  description: Names of the nodes whose copies differ.
  returned: success
  type: list
  elements: str
  sample: [node2]
"""
