# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: run_status
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Show the status of a run as a table of its nodes
description:
  - Shows the status that M(muster.training.training_run) read on each node, and writes it as JSON on request. Connects
    to nothing.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.controller
options:
  results_by_node:
    description:
      - Registered result of M(muster.training.training_run), called without a state, for each node, by node name.
    type: dict
    required: true
  run_id:
    description: Name of the requested run. If empty, defaults to the newest on each node.
    type: str
    default: ""
  json_file:
    description: File on the controller to which the status is written as JSON. If empty, no file is written.
    type: path
    default: ""
  jmespath:
    description:
      - JMESPath query on the return values. Its result is shown as JSON instead of the table, and written to
        O(json_file). Empty means no query.
    type: str
    default: ""
seealso:
  - module: muster.training.training_run
"""

EXAMPLES = r"""
- name: Read the run's state on each node
  muster.training.training_run:
    run_id: first-try
  register: node
  ignore_unreachable: true

- name: Show the status of the run
  muster.training.run_status:
    run_id: first-try
    results_by_node: >-
      {{ dict(ansible_play_hosts_all | zip(ansible_play_hosts_all | map('extract', hostvars, 'node'))) }}
  run_once: true
"""

RETURN = r"""
run_ids:
  description: Names of the runs that the nodes reported.
  returned: success
  type: list
  elements: str
  sample: [first-try]
nodes:
  description: One entry per node, in rank order.
  returned: success
  type: list
  elements: dict
  contains:
    node:
      description: Name of the node.
      type: str
      sample: node1
    state:
      description:
        - As in RV(muster.training.training_run#module:run.state).
        - V(no run) if the node does not have the run. V(unreachable) if the node does not respond. V(not read) if the
          state could not be read or was not requested.
      type: str
      sample: running
    ranks:
      description: Global ranks of its processes.
      type: list
      elements: int
      sample: [8, 9, 10, 11, 12, 13, 14, 15]
    since:
      description: When it entered this state, in seconds since 1970. V(null) if unknown.
      type: float
      sample: 1795234086.7
    message:
      description: Why it is in this state, or why the node could not be queried.
      type: str
      sample: ""
    last_line:
      description: The last line written by the first rank of the node.
      type: str
      sample: step 120 loss 0.31
    seconds_since_output:
      description: As in RV(muster.training.training_run#module:run.seconds_since_output).
      type: float
      sample: 2.5
    gpus:
      description: As in RV(muster.training.training_run#module:run.gpus).
      type: dict
      sample: {age: 4.2, devices: [{index: 0, utilization_percent: 97}]}
    metrics:
      description:
        - The metrics at the end of the first rank's output, with the last value, its step and recent values. Empty on
          nodes that do not lead the run.
      type: list
      elements: dict
      sample: [{name: loss, last: 0.31, step: 120, recent: [0.5, 0.4, 0.31]}]
    job:
      description: As in RV(muster.training.training_run#module:run.job).
      type: str
      sample: train.py --epochs 3 in /home/ubuntu/project
    hang:
      description: As in RV(muster.training.training_run#module:run.hang).
      type: dict
    ended_ranks:
      description: As in RV(muster.training.training_run#module:run.ended_ranks).
      type: dict
      sample: {"0": 184.2}
    missing:
      description:
        - As in RV(muster.training.training_run#module:run.missing). M(muster.training.run_join) replaces these nodes.
      type: list
      elements: dict
      sample: [{node_rank: 2, name: gpu3, excluded: false}]
"""
