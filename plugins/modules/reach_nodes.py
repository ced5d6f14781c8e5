# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: reach_nodes
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Fail once if nodes cannot be reached by SSH
description:
  - Logs in to nodes from one task on one host of the play, and shows failures, grouping nodes with the same cause.
  - Distinguishes an unknown name, no route, a closed port, a timeout, a refused login (user, key, password), an unknown
    or changed host key, and sudo that is missing, refused or asks for a password.
  - The connections stay open for the following tasks if C(ssh_args) enable connection sharing. Hosts with a connection
    other than C(ssh) count as reached.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.controller
options:
  nodes:
    description: Names of inventory hosts. Either this or O(group) is required.
    type: list
    elements: str
  group:
    description: Inventory group whose hosts to check, instead of O(nodes). Fails with instructions if it has no hosts.
    type: str
  need:
    description:
      - With V(one), one reachable node is enough. If the first node can be reached, no other is tried.
      - With V(all), each node is tried, and each must be reachable.
    type: str
    choices: [one, all]
    default: one
  root:
    description: Also require that the login user can become root.
    type: bool
    default: false
seealso:
  - module: muster.training.show_nodes
"""

EXAMPLES = r"""
- name: Check that all nodes can be reached and allow root
  muster.training.reach_nodes:
    nodes: "{{ ansible_play_hosts_all }}"
    need: all
    root: true
  run_once: true

- name: Check that a node of the group can be reached
  muster.training.reach_nodes:
    group: training
"""

RETURN = r"""
msg:
  description: Summary with the number of nodes that cannot be reached.
  returned: failure
  type: str
  sample: none of the 64 nodes can be reached
"""
