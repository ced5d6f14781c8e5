# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: run_profile
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Profile some steps of a running job with torch.profiler
description:
  - Without O(results_by_node), has the ranks on a node profile their next steps, and fetches their traces into the
    record. The job needs no changes, and continues.
  - With O(results_by_node), merges the traces of all nodes into one timeline, and shows how long each rank waited for
    the others in collectives, and which operations took longest. Connects to nothing then.
  - A step ends when a torch optimizer steps. Requires torch 2.0 or newer.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.node
  - muster.training._runs
options:
  run_id:
    description: Name of the run. Defaults to the newest run on the node.
    type: str
    default: ""
  steps:
    description: Number of steps to profile.
    type: int
    default: 5
  ranks:
    description: Ranks to profile, such as V(0,3) or V(0-7). If empty, profile all ranks.
    type: str
    default: ""
  timeout:
    description: Seconds after which the ranks end the profile with the steps so far.
    type: int
    default: 300
  record:
    description: Directory of the run's record, into which C(profile.json) and C(profiles) are written.
    type: path
    default: ""
  results_by_node:
    description: Registered results of this module by node name, to merge and show.
    type: dict
seealso:
  - module: muster.training.run_stacks
"""

EXAMPLES = r"""
- name: Profile five steps of all ranks
  muster.training.run_profile:
    run_id: first-try
    steps: 5
    record: runs/first-try
  register: node
  ignore_unreachable: true

- name: Show the profile
  muster.training.run_profile:
    run_id: first-try
    record: runs/first-try
    results_by_node: >-
      {{ dict(ansible_play_hosts_all | zip(ansible_play_hosts_all | map('extract', hostvars, 'node'))) }}
  run_once: true
"""

RETURN = r"""
profile:
  description: The summary, as in C(profile.json).
  returned: if O(results_by_node) is set
  type: dict
  contains:
    ranks:
      description: Step time, time in collectives and time waiting for other ranks, by rank, in seconds per step.
      type: list
      elements: dict
    operations:
      description: The operations that took longest per step, averaged over the ranks.
      type: list
      elements: dict
    late:
      description: The ranks that the others wait for.
      type: list
      elements: int
    missing:
      description: Which ranks were not profiled, and why.
      type: list
      elements: str
timeline:
  description: Path of the timeline of all ranks.
  returned: if O(results_by_node) is set
  type: str
  sample: runs/first-try/profiles/timeline.json.gz
ranks:
  description: The analysis of each rank of the node.
  returned: if O(results_by_node) is not set
  type: list
  elements: dict
node:
  description: The node, with its ranks.
  returned: if O(results_by_node) is not set
  type: dict
  sample: {name: node2, first_rank: 2, slots: 2}
id:
  description: Identifier of the profile. Empty if the node has none of the ranks.
  returned: if O(results_by_node) is not set
  type: str
"""
