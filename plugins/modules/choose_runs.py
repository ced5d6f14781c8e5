# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: choose_runs
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Show the runs of all nodes, and which of them are old
description:
  - Shows one table of the runs on the nodes, newest first, and returns those that are old enough to be removed.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.controller
attributes:
  platform: {platforms: all}
options:
  results_by_node:
    description: Registered results of M(muster.training.node_runs), by node name.
    type: dict
    required: true
  keep:
    description: Number of newest runs to keep. If empty, runs are not selected by number.
    type: str
    default: ""
  older_than:
    description:
      - Minimum age of a run to remove, such as V(30d), V(12h), V(90m) or V(2w). If empty, runs are not selected by age.
      - If O(keep) is also set, both conditions must hold.
    type: str
    default: ""
  grep:
    description:
      - Show only the runs with this text in their name, job, directory or outcome; case is ignored. Cannot be
        combined with O(keep) and O(older_than).
    type: str
    default: ""
  jmespath:
    description:
      - JMESPath query on the return values. Its result is shown as JSON instead of the table.
    type: str
    default: ""
seealso:
  - module: muster.training.node_runs
"""

EXAMPLES = r"""
- name: List the runs of each node
  muster.training.node_runs:
  register: listed

- name: Show the runs
  muster.training.choose_runs:
    results_by_node: >-
      {{ dict(ansible_play_hosts_all | zip(ansible_play_hosts_all | map('extract', hostvars, 'listed'))) }}
    keep: 20
  run_once: true
  register: chosen
"""

RETURN = r"""
runs:
  description: The runs, newest first.
  returned: success
  type: list
  elements: dict
  contains:
    run_id:
      description: Name of the run.
      type: str
      sample: train-20261121-040152-d06f
    nodes:
      description: Names of all nodes of the run, in rank order.
      type: list
      elements: str
      sample: [gpu1, gpu2]
    stored_on:
      description: Names of the nodes that still have a directory of it.
      type: list
      elements: str
      sample: [gpu1, gpu2]
    state:
      description: V(running) while it runs on any node, otherwise how it ended, according to its first node.
      type: str
      sample: succeeded
    alive:
      description: Whether one of its supervisors is running on any node.
      type: bool
      sample: false
    started:
      description: Start time, in seconds since 1970.
      type: float
      sample: 1795234086.7
    job:
      description: Its program with the arguments.
      type: str
      sample: train.py --epochs 3
    project:
      description: The directory in which it started.
      type: str
      sample: /home/ubuntu/project
    outcome:
      description: The first line of the error that ended it, or the last numbers it reported.
      type: str
      sample: "ValueError: boom"
    size:
      description: Size of its directories on all nodes, in bytes.
      type: int
      sample: 1048576
old:
  description:
    - Names of the runs to remove. Empty if neither O(keep) nor O(older_than) is set. Never includes a run that is still
      running, or one of whose nodes did not respond or sent an invalid reply.
  returned: success
  type: list
  elements: str
  sample: []
"""
