# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: call_nodes
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Run another module of this collection on many nodes from one process
description:
  - For each node and task, Ansible starts a process that computes the variables of the node and renders the options of
    the task. This module does that once for all O(nodes) and calls them at the same time, as many as Ansible's setting
    C(forks) allows, through the connection that Ansible would use for each of them.
  - It calls no node, and RV(by_node) is empty, in check mode, if an option of the task depends on the node, or if the
    play, a role or the command line changes the connections of the inventory. Then, and if the module fails on a node,
    run the same task again without O(nodes) and RV(ignore:run_once), but with O(results). If both register the same
    variable, P(muster.training.node_results#lookup) returns the results by node either way.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.node
options:
  action:
    description: Name of the module.
    type: str
    choices: [node_facts, node_runs, run_join, run_logs, run_stacks, training_run]
    required: true
  options:
    description: Options of the module on all nodes.
    type: dict
    required: true
  options_by_node:
    description: Further options of the module, each with its value by the name of the node.
    type: dict
    default: {}
  nodes:
    description: Names of the inventory hosts to call. If omitted, the module is run on the task's host only.
    type: list
    elements: str
  results:
    description:
      - RV(by_node) of an earlier task. If it has the result of the task's host, that is the result of this task, or its
        error is raised again, and the node is not called.
    type: dict
    default: {}
seealso:
  - module: muster.training.node_facts
  - module: muster.training.training_run
  - plugin: muster.training.node_results
    plugin_type: lookup
"""

EXAMPLES = r"""
- name: Read the facts of all nodes
  muster.training.call_nodes:
    action: node_facts
    nodes: "{{ ansible_play_hosts }}"
    options:
      parts: [gpus]
  register: facts
  run_once: true

- name: Read the facts of each node where that was not possible
  muster.training.call_nodes:
    action: node_facts
    options:
      parts: [gpus]
    results: "{{ facts.by_node }}"
  when: not facts.complete
"""

RETURN = r"""
by_node:
  description: The module's result on each node, or its RV(ignore:error). Empty if the nodes were not called.
  returned: with O(nodes)
  type: dict
complete:
  description: Whether all nodes were called, and the module failed on none of them.
  returned: with O(nodes)
  type: bool
"""
