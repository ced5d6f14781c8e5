# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: reach_nodes
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Fail once where nodes cannot be reached by SSH
description:
  - Logs in at nodes from one task on one host of the play, and shows what is wrong. Nodes with the same trouble stand
    together.
  - Told apart are a name that is not known, no route, a closed port, no answer in time, a refused login (user, key,
    password), a host key that is not known or has changed, and sudo that is missing, refused or wants a password.
  - The connections stay open for the tasks that follow, where C(ssh_args) say so. Hosts with another connection than
    C(ssh) count as reached.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.controller
options:
  nodes:
    description: Names of hosts of the inventory. Either these or O(group).
    type: list
    elements: str
  group:
    description: A group of the inventory, instead of O(nodes). One without hosts is refused, with what to do.
    type: str
  need:
    description:
      - With V(one) it is enough that one node can be reached. Where the first one can, no other is tried.
      - With V(all) each node is tried, and each is needed.
    type: str
    choices: [one, all]
    default: one
  root:
    description: Whether the user who logs in must become root as well.
    type: bool
    default: false
seealso:
  - module: muster.training.show_nodes
"""

EXAMPLES = r"""
- name: Check that root can be reached on all nodes
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
  description: How many nodes cannot be reached.
  returned: failure
  type: str
  sample: all 64 nodes cannot be reached
"""
