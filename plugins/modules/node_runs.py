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
  - Lists the runs that lie on a node, in one call, the newest first.
  - Removes the directories of runs that are over. All that lies there goes with them, also logs, and checkpoints that
    the job has saved below its run directory.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.node
  - muster.training._runs
options:
  remove:
    description: Names of runs whose directories are removed. A run that is alive on this node is left as it is.
    type: list
    elements: str
    default: []
  user:
    description: User who runs the jobs. If empty, the one who is logged in.
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
runs:
  description: The runs of this node, the newest first, without those that were removed.
  returned: success
  type: list
  elements: dict
  contains:
    run_id:
      description: Name of the run.
      type: str
      sample: train-20261121-040152-d06f
    nodes:
      description: Names of all nodes of the run, in the order of their ranks.
      type: list
      elements: str
      sample: [gpu1, gpu2]
    state:
      description:
        - How it ended, where this node knows that, else its state on this node, as
          RV(muster.training.training_run#module:run.state).
      type: str
      sample: succeeded
    alive:
      description: Whether its supervisor runs on this node.
      type: bool
      sample: false
    started:
      description: When it was started, in seconds since 1970 by the node's clock.
      type: float
      sample: 1795234086.7
    directory:
      description: Its directory on the node.
      type: str
      sample: /home/ubuntu/.muster/runs/train-20261121-040152-d06f/node0
    size:
      description: Bytes of all files in the directory.
      type: int
      sample: 1048576
removed:
  description: Names of the runs that were removed, or would be in check mode.
  returned: success
  type: list
  elements: str
  sample: []
"""
