# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: bad_nodes
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Manage the machines that no run uses because their hardware failed
description:
  - Shows and changes C(bad-nodes.json) next to the inventory. M(muster.training.run_record) adds a machine to it when a
    run failed because of its hardware, M(muster.training.launch_plan) and M(muster.training.check_cluster) refuse it.
  - A machine is recognized by its GPUs, its serial number or its machine id, even under another name.
  - Runs on the controller, and connects to nothing.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.controller
options:
  state:
    description:
      - V(listed) shows a table of the machines.
      - V(added) records O(node) as bad, for O(reason).
      - V(forgiven) removes O(node) from the file.
    type: str
    choices: [listed, added, forgiven]
    required: true
  node:
    description: Name of the node in the inventory.
    type: str
    default: ""
  reason:
    description: Why the node must not be used.
    type: str
    default: ""
  facts:
    description:
      - Registered result of M(muster.training.node_facts) with the part V(health) for O(node). Without it, the machine
        is recognized only by its name.
    type: dict
  group:
    description: Inventory group of the nodes.
    type: str
    default: training
seealso:
  - module: muster.training.node_facts
  - module: muster.training.check_cluster
"""

EXAMPLES = r"""
- name: Show the machines that no run uses
  muster.training.bad_nodes:
    state: listed

- name: Use a repaired machine again
  muster.training.bad_nodes:
    state: forgiven
    node: gpu3
"""

RETURN = r"""
file:
  description: Path of the file.
  returned: success
  type: str
  sample: /home/me/project/bad-nodes.json
nodes:
  description: The machines in the file.
  returned: success
  type: list
  elements: dict
  contains:
    node:
      description: Its name in the inventory when it was recorded.
      type: str
      sample: gpu3
    reason:
      description: Why it must not be used.
      type: str
      sample: "Xid 79 on GPU 2 (GPU has fallen off the bus)"
    time:
      description: When it was recorded, in seconds since 1970.
      type: float
      sample: 1764236400.0
    run:
      description: The run in which it failed. Empty if a person recorded it.
      type: str
      sample: bert-3
    serial:
      description: Its serial number. Empty if unknown.
      type: str
      sample: ""
    asset:
      description: Its asset tag, on EC2 the id of the instance. Empty if unknown.
      type: str
      sample: i-0abcdef1234567890
    machine_id:
      description: Its machine id. Empty if unknown.
      type: str
      sample: 4ac3b7d1e0f54a7c8f0d2b1a6c5e9d83
    gpus:
      description: UUIDs of its GPUs.
      type: list
      elements: str
      sample: [GPU-c7d2f5a1-1e8b-49c6-a4d3-0b9e6f18d200]
    failed_gpus:
      description: UUIDs of the GPUs that failed, if known.
      type: list
      elements: str
      sample: [GPU-c7d2f5a1-1e8b-49c6-a4d3-0b9e6f18d200]
"""
