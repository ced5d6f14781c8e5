# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: run_repeat
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Record what determines the result of a run, and repeat a recorded run
description:
  - Writes C(snapshot.json) into the record of a run (its settings, environment with lock, nodes, inputs, initial
    checkpoint and code), and C(code.patch) with the changes of the code that are not committed. Reads them to repeat
    the run.
  - Keeps the values of only those environment variables that cannot hold a secret, no patch in which a line may be a
    secret, and no values of arguments and settings whose names mark them as secret.
  - Runs on the controller and connects to nothing.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.controller
  - muster.training._group
options:
  state:
    description:
      - V(nodes) returns the nodes of the run to repeat.
      - V(settings) returns its settings, and restores its code if that has changed on this machine.
      - V(environment) returns the environment that the nodes lack.
      - V(compared) compares the run that is about to start with it.
      - V(recorded) writes the snapshot of the run that is about to start.
      - All but V(recorded) fail if the run cannot be repeated exactly, unless O(allow_differences).
    type: str
    choices: [nodes, settings, environment, compared, recorded]
    required: true
  like:
    description: Name of the run to repeat. A unique prefix is enough.
    type: str
    default: ""
  directory:
    description:
      - Directory of the records on the controller.
      - If empty, defaults to C(launch_runs_directory) of the first host of O(group), otherwise C(runs).
    type: path
    default: ""
  run_id:
    description: Name of the run that is about to start.
    type: str
    default: ""
  nodes:
    description: Nodes of the run, as M(muster.training.choose_nodes) returns them.
    type: list
    elements: dict
    default: []
  facts:
    description: Registered result of M(muster.training.node_facts) with the part V(provenance) for each node, by name.
    type: dict
    default: {}
  facts_from:
    description: Instead of O(facts), the name of the variable with this result on each node.
    type: str
    default: ""
  plan:
    description: Plan of the first node.
    type: dict
    default: {}
  args:
    description: Arguments of the job, as in O(muster.training.launch_plan#module:args).
    type: raw
    default: []
  environment:
    description: Environment variables of the job.
    type: dict
    default: {}
  notify:
    description: URLs to report events of the run to. They are secrets, and no patch contains them.
    type: raw
    default: []
  code:
    description: Code of the run, as RV(muster.training.list_code#module:recorded) returns it.
    type: dict
    default: {}
  code_directory:
    description: Directory of the code on the nodes.
    type: str
    default: ""
  code_exclude:
    description: Patterns of files that do not belong to the code.
    type: list
    elements: str
    default: []
  repositories:
    description: Models and datasets that the role hugging_face downloads.
    type: raw
    default: []
  allow_differences:
    description: Show differences instead of failing.
    type: bool
    default: false
seealso:
  - module: muster.training.run_record
  - module: muster.training.run_diff
"""

EXAMPLES = r"""
- name: Read the nodes of a run to repeat
  muster.training.run_repeat:
    state: nodes
    like: first-try
  register: repeated
"""

RETURN = r"""
run_id:
  description: Full name of the run to repeat.
  returned: with O(state=nodes) and O(state=settings)
  type: str
  sample: first-try
nnodes:
  description: Number of nodes, or MIN:MAX, as the run had it.
  returned: with O(state=nodes)
  type: raw
  sample: 2
spares:
  description: Number of spare nodes.
  returned: with O(state=nodes)
  type: int
names:
  description: Names of its nodes. Empty if one of them is no longer in the inventory.
  returned: with O(state=nodes)
  type: list
  elements: str
variables:
  description: Role variables of the repeated run.
  returned: with O(state=settings)
  type: dict
restore:
  description: Whether nodes lack the environment of the run.
  returned: with O(state=environment)
  type: bool
home:
  description: Directory of the environment to restore on the nodes. Empty if none is needed.
  returned: with O(state=environment)
  type: str
interpreter:
  description: Its interpreter. Empty if it is the one that the run had.
  returned: with O(state=environment)
  type: str
layers:
  description: Its layers, as the role python_env takes them.
  returned: with O(state=environment)
  type: list
  elements: dict
differences:
  description: Differences from the run to repeat, each with C(part), C(name), C(before), C(after) and C(is_material).
  returned: with O(state=compared)
  type: list
  elements: dict
snapshot:
  description: Path of the snapshot.
  returned: with O(state=recorded)
  type: str
  sample: /home/me/cluster/runs/first-try/snapshot.json
"""
