# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: choose_outputs
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Choose which of a job's output files to fetch, and from which node
description:
  - If several nodes have a file with the same name, size and content, only the first node's is chosen.
  - Shows the total size, how much of it is already on the controller, and how much will be fetched.
  - Runs on the controller and connects to nothing.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.controller
options:
  nodes:
    description: Names of all nodes of the run, in rank order.
    type: list
    elements: str
    required: true
  listed:
    description:
      - Registered result of M(muster.training.run_outputs) with O(muster.training.run_outputs#module:state=listed) for
        each node, by node name.
    type: dict
    required: true
  compared:
    description:
      - The same, with O(muster.training.run_outputs#module:state=compared) for the files in RV(compare). If omitted,
        only RV(compare) is returned.
    type: dict
  directory:
    description: Directory on the controller for the files, with C(nodeRANK) below it for each node.
    type: path
    required: true
  confirm:
    description: Never ask for confirmation, whatever the size.
    type: bool
    default: false
seealso:
  - module: muster.training.run_outputs
"""

EXAMPLES = r"""
# `listed` and `compared` are the registered results of muster.training.run_outputs on each node.
- name: Choose the files to fetch
  muster.training.choose_outputs:
    nodes: [node0, node1]
    listed: "{{ dict(ansible_play_hosts_all | zip(ansible_play_hosts_all | map('extract', hostvars, 'listed'))) }}"
    compared: "{{ dict(ansible_play_hosts_all | zip(ansible_play_hosts_all | map('extract', hostvars, 'compared'))) }}"
    directory: runs/first-try/outputs
  register: chosen
  run_once: true
"""

RETURN = r"""
compare:
  description: For each node, the names of files that exist on other nodes with the same name and size.
  returned: without O(compared)
  type: dict
  sample: {node0: [run/last.pt], node1: [run/last.pt]}
selected:
  description:
    - For each node, the C(directory) for its files and its C(files) as O(muster.training.run_outputs#module:files)
      expects them.
  returned: with O(compared)
  type: dict
count:
  description: Number of files to fetch.
  returned: with O(compared)
  type: int
  sample: 3
size:
  description: Number of bytes to fetch.
  returned: with O(compared)
  type: int
  sample: 2471000000
needs_confirmation:
  description: Whether to ask for confirmation first, because RV(size) exceeds 1 GB and O(confirm) is not set.
  returned: with O(compared)
  type: bool
  sample: true
"""
