# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: choose_nodes
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Choose the nodes of a run from an inventory group
description:
  - Checks the hosts of a group as one cluster, orders them by C(node_rank), and takes the first O(nnodes) of them.
  - Reads C(node_address) (or C(ansible_host) if unset), C(node_slots) and C(node_rank) of each host, from the inventory
    or from P(muster.training.ranks#inventory). Connects to nothing.
  - Reports all problems of the group at once, host by host, such as duplicate addresses, loopback addresses on several
    machines, a gap in C(node_rank), and more nodes requested than exist.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.controller
  - muster.training._group
options:
  nnodes:
    description:
      - Number of nodes to take, such as V(4), or a range such as V(2:4) for an elastic run, which takes the upper
        number.
      - If empty or omitted, all of O(nodes) or of the group are taken.
      - Quote a range, since YAML reads C(2:4) without quotes as the number 124.
    type: raw
  spares:
    description: Number of nodes to take in addition to O(nnodes), which wait until a node is lost.
    type: int
    default: 0
  nodes:
    description:
      - Names of the hosts to choose from, all members of O(group). They keep the order of their C(node_rank).
      - If empty, all hosts of the group are chosen from.
      - With C(--limit), all of them must be taken, so that the limit determines exactly which nodes a run has.
    type: list
    elements: str
    default: []
  ports:
    description: TCP ports that a run needs on the rank 0 node.
    type: list
    elements: int
    default: []
  job:
    description:
      - Arguments about the job for a later task on each node, returned unchanged as RV(job). Ansible thus evaluates
        their templates once instead of once per node.
    type: dict
    default: {}
seealso:
  - module: muster.training.launch_plan
  - plugin: muster.training.ranks
    plugin_type: inventory
"""

EXAMPLES = r"""
- name: Take the first four nodes
  muster.training.choose_nodes:
    nnodes: 4
  register: chosen
  run_once: true

- name: Take two nodes by name
  muster.training.choose_nodes:
    nodes: [node3, node5]
  register: chosen
  run_once: true
"""

RETURN = r"""
names:
  description: Names of the chosen hosts, in rank order.
  returned: success
  type: list
  elements: str
  sample: [node0, node1]
addresses:
  description: Address of each chosen host among the nodes.
  returned: success
  type: dict
  sample: {node0: 10.0.0.10, node1: 10.0.0.11}
prices:
  description: C(node_price_per_hour) of each chosen host. V(null) if unset.
  returned: success
  type: dict
  sample: {node0: 2.49, node1: null}
ports:
  description:
    - O(ports) for each chosen host that may get rank 0, and an empty list for the others. With torchrun's c10d, rank 0
      goes to the node whose address sorts first.
  returned: success
  type: dict
  sample: {node0: [29500, 29499], node1: []}
nodes:
  description: The chosen hosts, as O(muster.training.launch_plan#module:nodes) expects them.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Name of the host in the inventory.
      type: str
      sample: node0
    address:
      description: Its address among the nodes.
      type: str
      sample: 10.0.0.10
    slots:
      description: C(node_slots) from the inventory. V(null) if unset.
      type: raw
      sample: 8
    node_rank:
      description: Its position among the chosen hosts, from 0. Present only if the inventory sets C(node_rank) for it.
      type: int
      sample: 0
probe:
  description:
    - A new secret and ports for connection tests between the nodes, as O(muster.training.node_facts#module:probe)
      expects them.
  returned: success
  type: dict
  contains:
    token_file:
      description:
        - File on the controller with the secret that authenticates a peer. It is deleted when the process of the play
          ends.
      type: str
      sample: /home/me/.ansible/tmp/ansible-local-4711x/muster-probe-a1b2
    candidates:
      description: Ephemeral TCP ports. Each node listens on the first free one.
      type: list
      elements: int
      sample: [41234, 52345, 33456]
job:
  description: O(job).
  returned: success
  type: dict
  sample: {run_id: first, parts: [gpus, storage]}
"""
