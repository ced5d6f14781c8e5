# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: node_runs
author: muster contributors (@muster)
version_added: 0.1.0
short_description: List the runs of a node, and remove old ones
description:
  - Lists the runs on a node in one call, newest first.
  - Removes the directories of finished runs with everything in them, including logs and checkpoints that the job saved
    below its run directory.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.node
  - muster.training._runs
options:
  active:
    description: Only return which runs have a supervisor on this node's machine, of any user.
    type: bool
    default: false
  remove:
    description: Names of runs whose directories to remove. A run that is still running on this node is not removed.
    type: list
    elements: str
    default: []
  user:
    description: User who runs the jobs. If empty, defaults to the login user.
seealso:
  - module: muster.training.choose_runs
  - module: muster.training.training_run
"""

EXAMPLES = r"""
- name: List the runs of each node
  muster.training.node_runs:
  register: listed
"""

RETURN = r"""
active:
  description: Names of the runs that have a supervisor.
  returned: when O(active=true)
  type: list
  elements: str
  sample: [train-20261121-040152-d06f]
runs:
  description: The runs on this node, newest first, without those that were removed.
  returned: success, unless O(active=true)
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
    state:
      description:
        - How it ended, if this node knows, otherwise its state on this node, as in
          RV(muster.training.training_run#module:run.state).
      type: str
      sample: succeeded
    alive:
      description: Whether its supervisor runs on this node.
      type: bool
      sample: false
    started:
      description: Start time, in seconds since 1970 by the node's clock.
      type: float
      sample: 1795234086.7
    directory:
      description: Its directory on the node.
      type: str
      sample: /home/ubuntu/.muster/runs/train-20261121-040152-d06f/node0
    job:
      description: Its program with the arguments.
      type: str
      sample: train.py --epochs 3
    project:
      description: The directory in which it started.
      type: str
      sample: /home/ubuntu/project
    outcome:
      description: The first line of the error that ended it, or the last numbers it reported, if this node knows.
      type: str
      sample: "ValueError: boom"
    size:
      description: Size of all files in the directory, in bytes.
      type: int
      sample: 1048576
removed:
  description: Names of the runs that were removed, or in check mode would be.
  returned: success, unless O(active=true)
  type: list
  elements: str
  sample: []
"""
