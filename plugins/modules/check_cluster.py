# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: check_cluster
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Name what would keep a job from running on some nodes
description:
  - Judges the facts of all nodes together, names, addresses, routes, connections between each two nodes, versions, GPUs
    and drivers, mounts, space, limits and clocks, and shows all that is wrong as a table, worst first.
  - Runs on the controller, connects to nothing and changes nothing. Does not fail for what it finds. See
    RV(error_count).
  - M(muster.training.launch_plan) makes the same checks for a job.
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
      - The nodes in the order of their ranks, as RV(muster.training.choose_nodes#module:nodes) gives them.
    type: list
    elements: dict
    required: true
  facts:
    description:
      - For each name of a node the registered result of M(muster.training.node_facts). A node without facts counts as
        unreachable. Parts that were not read are not judged.
    type: dict
    default: {}
  names:
    description:
      - Whether each node must know each node by name, and its own name must not mean its loopback. Runs that
        M(muster.training.launch_plan) plans for torchrun do without names.
    type: bool
    default: true
  json_file:
    description: File on the controller that takes the nodes and what is returned here as JSON.
    type: path
  jmespath:
    description:
      - Question in JMESPath to what O(json_file) has. Its answer is shown as JSON, in place of the table, and written
        there in place of all.
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
    facts_from: read
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
  description: Number of findings with which a run cannot start.
  returned: success
  type: int
  sample: 1
warning_count:
  description: Number of findings with which a run can start, but perhaps not as it was meant.
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
      description: V(error) or V(warning).
      type: str
      sample: error
    id:
      description: The check that has found it.
      type: str
      sample: own-name-loopback
    nodes:
      description: Names of the nodes that have it, none where it is the whole cluster's.
      type: list
      elements: str
      sample: [node3]
    found:
      description: What was found.
      type: str
      sample: its own name means 127.0.1.1
    needed:
      description: What is needed.
      type: str
      sample: only its node_address, so that the address it gives its peers reaches it
    todo:
      description: What to do.
      type: str
      sample: >-
        remove the line of 127.0.1.1 for it from /etc/hosts: run the role hosts_file (ansible-playbook site.yml --tags
        hosts_file)
"""
