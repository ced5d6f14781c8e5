# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: check_cluster
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Check whether a job can run on a set of nodes
description:
  - Checks the facts of all nodes together (names, addresses, routes, connections between each pair of nodes, versions,
    GPUs and drivers, mounts, space, limits and clocks) and shows all problems as a table, worst first.
  - Runs on the controller, connects to nothing and changes nothing. Does not fail on findings; see RV(error_count).
  - M(muster.training.launch_plan) runs the same checks for a job.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.controller
  - muster.training._cluster_check
  - muster.training._job
  - muster.training._job.container_options
options:
  nodes:
    description:
      - The nodes in rank order, as RV(muster.training.choose_nodes#module:nodes) returns them.
    type: list
    elements: dict
    required: true
  facts:
    description:
      - Registered result of M(muster.training.node_facts) for each node, by node name. A node without facts counts as
        unreachable. Parts that were not read are not checked.
    type: dict
    default: {}
  names:
    description:
      - Require that each node resolves the names of all nodes, and its own name not to a loopback address. Runs that
        M(muster.training.launch_plan) plans for torchrun do not need names.
    type: bool
    default: true
  group:
    description: Inventory group of the nodes, next to whose inventory bad nodes are recorded.
    type: str
    default: training
  json_file:
    description:
      - File on the controller to which the nodes and the return values are written as JSON. If omitted, no file is
        written.
    type: path
  jmespath:
    description:
      - JMESPath query on the content of O(json_file). Its result replaces the table on the terminal and the content of
        the file, both as JSON. Empty means no query.
    type: str
    default: ""
seealso:
  - module: muster.training.choose_nodes
  - module: muster.training.node_facts
  - module: muster.training.launch_plan
"""

EXAMPLES = r"""
- name: Check the cluster
  muster.training.check_cluster:
    nodes: "{{ chosen.nodes }}"
    facts_from: node
    skip: [skew-kernel]
    json_file: preflight.json
  register: checked
  run_once: true

- name: Check for errors
  ansible.builtin.assert:
    that: checked.error_count == 0
    fail_msg: The table above says what is wrong and what to do.
  run_once: true
"""

RETURN = r"""
error_count:
  description: Number of findings that prevent a run from starting.
  returned: success
  type: int
  sample: 1
warning_count:
  description: Number of findings that do not prevent a run from starting, but may affect it.
  returned: success
  type: int
  sample: 0
findings:
  description: All findings, worst first.
  returned: success
  type: list
  elements: dict
  contains:
    severity:
      description: V(error), V(warning), or V(note), which is merely informative.
      type: str
      sample: error
    id:
      description: ID of the check.
      type: str
      sample: own-name-loopback
    nodes:
      description: Names of the affected nodes. Empty if the whole cluster is affected.
      type: list
      elements: str
      sample: [node3]
    problem:
      description: What was found.
      type: str
      sample: its own name means 127.0.1.1
    requirement:
      description: The expected state.
      type: str
      sample: only its node_address, so that the address it gives its peers reaches it
    remedy:
      description: The remedy.
      type: str
      sample: >-
        remove the line of 127.0.1.1 for it from /etc/hosts: ansible-playbook site.yml --tags hosts_file
"""
