# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: show_nodes
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Show which machines respond and which GPUs they have
description:
  - Shows a table of machines with their addresses, drivers, GPUs and users, and those that do not respond.
  - Runs on the controller, connects to nothing and changes nothing. Does not fail on missing machines; see RV(missing).
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.controller
options:
  facts:
    description:
      - Registered result of M(muster.training.node_facts) with the part V(gpus) for each machine, by name. A machine
        without facts counts as not responding.
    type: dict
    required: true
seealso:
  - module: muster.training.node_facts
"""

EXAMPLES = r"""
- name: Read the GPUs of the machines
  muster.training.node_facts:
    parts: [gpus]
  register: read
  ignore_unreachable: true

- name: Show the machines
  muster.training.show_nodes:
    facts: "{{ dict(ansible_play_hosts_all | zip(ansible_play_hosts_all | map('extract', hostvars, 'read'))) }}"
  run_once: true
"""

RETURN = r"""
missing:
  description: Names of the machines that do not respond.
  returned: success
  type: list
  elements: str
  sample: [node3]
nodes:
  description: The machines in the order of O(facts).
  returned: success
  type: list
  elements: dict
  contains:
    node:
      description: Name of the host in the inventory.
      type: str
      sample: node0
    address:
      description: C(node_address) of the host, or C(ansible_host) if unset. Empty if it has neither.
      type: str
      sample: 10.0.0.10
    reachable:
      description: Whether the machine responds.
      type: bool
      sample: true
    gpu_count:
      description: Number of its GPUs.
      type: int
      sample: 8
    driver:
      description: Version of its NVIDIA driver. Empty without a driver.
      type: str
      sample: 570.124.06
    gpus:
      description: Description of its GPUs and their faults.
      type: str
      sample: 8 x H100 80GB HBM3 80 GiB
    message:
      description: Why it does not respond. Empty if it does.
      type: str
      sample: ""
"""
