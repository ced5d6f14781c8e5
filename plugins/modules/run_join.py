# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: run_join
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Add a node to an active run, in place of a missing node
description:
  - With O(state=requested), on each node of the run, requests that the run accept a new node. The reply
    has the values of the job's environment, so the task needs C(no_log).
  - With O(state=started), on the new node, starts its supervisor with a plan derived from the run's record.
  - The new node gets the number of a node that the run has lost, waits as a spare, and takes part in the next
    attempt. In an elastic run, it takes part immediately.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.node
  - muster.training._runs
options:
  state:
    description: Which step to perform.
    type: str
    choices: [requested, started]
    required: true
  run_id:
    description: Name of the run.
    type: str
    required: true
  name:
    description: Name of the new node.
    type: str
    required: true
  address:
    description: Its address for the connections between the nodes. Required for O(state=requested).
    type: str
    default: ""
  facts:
    description:
      - Facts of the new node, as M(muster.training.node_facts) returns them, with the parts C(gpus), C(storage) and
        C(health).
    type: dict
    required: true
  replies:
    description: Registered results of O(state=requested) by node name.
    type: dict
    default: {}
  record:
    description: Directory of the run's record, with the token. The new node is added to its plan.
    type: path
    default: ""
  notify:
    description: Where to report the state of the run, as for M(muster.training.training_run).
    type: raw
    default: []
seealso:
  - module: muster.training.training_run
"""

EXAMPLES = r"""
- name: Ask the run to take the node
  muster.training.run_join:
    state: requested
    run_id: first-try
    name: gpu5
    address: 10.0.0.5
    facts: "{{ hostvars['gpu5'].facts }}"
  register: reply
  no_log: true
"""

RETURN = r"""
is_hub:
  description: Whether this node leads the run and has accepted the new node.
  returned: with O(state=requested)
  type: bool
  sample: true
node_rank:
  description: Number of the new node in the run.
  returned: if the node has joined
  type: int
  sample: 2
nodes:
  description: Names and addresses of the nodes of the run.
  returned: with O(state=requested), by the node that leads the run
  type: list
  elements: dict
  sample: [{name: gpu1, address: 10.0.0.1, generation: 0}]
attempt:
  description: The current attempt and its nodes.
  returned: with O(state=requested), by the node that leads the run
  type: dict
  sample: {number: 1, hub: 0, members: [0, 2], checkpoint: ""}
environment:
  description: The job's environment variables. Secret.
  returned: with O(state=requested), by the node that leads the run
  type: dict
  sample: {}
directory:
  description: The run directory on the node.
  returned: if the node has joined
  type: str
  sample: /home/ubuntu/.muster/runs/first-try/node2
"""
