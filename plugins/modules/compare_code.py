# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: compare_code
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Tell whether code must be copied to the nodes
description:
  - Evaluates what M(muster.training.node_facts) found of the nodes' copies of the code, and shows in a few lines what
    will be copied.
  - Code is not copied if a node does not answer, since no run can start then, or if a run that uses it is still
    running.
  - In check mode nothing is copied. Runs on the controller, connects to nothing and changes nothing.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.controller
options:
  nodes:
    description: The nodes of the run, as RV(muster.training.choose_nodes#module:nodes) gives them.
    type: list
    elements: dict
    required: true
  facts:
    description: What M(muster.training.node_facts) returned for each node, by node name.
    type: dict
    default: {}
  facts_from:
    description: Name of the variable that holds this for each node, instead of O(facts).
    type: str
    default: ""
  code:
    description: The code, as RV(muster.training.list_code#module:code) gives it.
    type: dict
    required: true
  wanted:
    description: V(as_is) leaves the nodes' copies as they are.
    type: str
    choices: [synced, as_is]
    default: synced
  busy_is_right:
    description: Copy code even if another run is running, because that run will be stopped or shares the node.
    type: bool
    default: false
seealso:
  - module: muster.training.list_code
  - module: muster.training.launch_plan
"""

EXAMPLES = r"""
- name: Compare the nodes' code with the one that is here
  muster.training.compare_code:
    nodes: "{{ chosen.nodes }}"
    facts_from: read
    code: "{{ here.code }}"
  register: compared
  run_once: true

- name: Copy the local code where it differs
  ansible.builtin.include_role:
    name: muster.training.code
  when: compared.bring
"""

RETURN = r"""
bring:
  description: Whether the code must be copied now.
  returned: success
  type: bool
  sample: true
left:
  description: Why it is not copied, as O(muster.training.launch_plan#module:code_left).
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
