# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: show_environments
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Show the Python environments of all nodes
description:
  - Shows one table of the environments on the nodes.
  - Fails if O(remove) is in use on any node, so that it is removed from all nodes or from none.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.controller
attributes:
  platform: {platforms: all}
options:
  results_by_node:
    description: Registered results of M(muster.training.python_environments), by node name.
    type: dict
    required: true
  remove:
    description: Name of an environment that is about to be removed.
    type: str
    default: ""
seealso:
  - module: muster.training.python_environments
"""

EXAMPLES = r"""
- name: List the environments of each node
  muster.training.python_environments:
    directory: /opt/muster
  become: true
  register: listed

- name: Show the environments
  muster.training.show_environments:
    results_by_node: >-
      {{ dict(ansible_play_hosts_all | zip(ansible_play_hosts_all | map('extract', hostvars, 'listed'))) }}
  run_once: true
"""

RETURN = r"""
nodes:
  description: Names of the nodes that have O(remove).
  returned: success
  type: list
  elements: str
  sample: []
"""
