# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: run_stacks
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Show the source line at which each rank of a run is
description:
  - Without O(results_by_node), reads the Python stacks of the ranks on a node from the run's supervisor. The job
    continues.
  - With O(results_by_node), shows those of all nodes, as groups of ranks with the same activity, and names the ranks
    for which the others wait. Connects to nothing then.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.node
  - muster.training._runs
options:
  run_id:
    description: Name of the run. If empty, defaults to the newest on the node.
    type: str
    default: ""
  results_by_node:
    description: Registered results of this module by node name, to be shown.
    type: dict
  rank:
    description: Show only the stack of this rank. If empty, those of all ranks.
    type: str
    default: ""
  record:
    description: Directory of the run's record, into which C(stacks.json) is written. If empty, nothing is written.
    type: path
    default: ""
seealso:
  - module: muster.training.run_status
"""

EXAMPLES = r"""
- name: Read the stacks of each node's ranks
  muster.training.run_stacks:
    run_id: first-try
  register: node
  ignore_unreachable: true

- name: Show the stacks
  muster.training.run_stacks:
    results_by_node: >-
      {{ dict(ansible_play_hosts_all | zip(ansible_play_hosts_all | map('extract', hostvars, 'node'))) }}
  run_once: true
"""

RETURN = r"""
text:
  description: What the ranks do, in one sentence.
  returned: if O(results_by_node) is set
  type: str
  sample: 3 of 4 ranks wait in all_reduce (train.py:88); rank 3 on node2 is in load (data.py:41)
awaited_ranks:
  description: The ranks for which the others wait. Empty if that is unknown.
  returned: if O(results_by_node) is set
  type: list
  elements: int
  sample: [3]
missing:
  description: The nodes that did not reply, and why.
  returned: if O(results_by_node) is set
  type: list
  elements: str
  sample: []
groups:
  description: Groups of ranks with the same activity.
  returned: success
  type: list
  elements: dict
  contains:
    ranks:
      description: The ranks.
      type: list
      elements: int
      sample: [3]
    kind:
      description: >-
        What they do: V(collective), V(backward) and V(gpu) may be waits for other ranks; V(code) is anything else;
        V(stopped) is a process that was stopped; V(none) has no Python stack.
      type: str
      sample: code
    call:
      description: The function of a library that the user's code has called.
      type: str
      sample: ""
    function:
      description: The innermost function of the user's code.
      type: str
      sample: load
    file:
      description: Its file.
      type: str
      sample: /home/ubuntu/project/data.py
    line:
      description: The line in it.
      type: int
      sample: 41
    text:
      description: The text of that line.
      type: str
      sample: batch = queue.get()
    state:
      description: State of the process, as in C(/proc/PID/stat).
      type: str
      sample: S
    cpu:
      description: Whether the main thread used CPU time since the previous request. V(moving), V(still), or empty.
      type: str
      sample: still
    frames:
      description: The innermost frames of the stack.
      type: list
      elements: str
      sample: ["load (data.py:41)", "train (train.py:85)"]
    workers:
      description: Where the rank's worker processes are, such as those of a data loader.
      type: list
      elements: str
      sample: []
node:
  description: The node, with its ranks.
  returned: if O(results_by_node) is not set
  type: dict
  sample: {name: node2, first_rank: 2, slots: 2}
"""
