# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: benchmark
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Say what a benchmark measures, and judge what it has measured
description:
  - With O(state=planned) it says what the job of the role P(muster.training.benchmark#role) is to measure, and refuses
    what cannot be.
  - With O(state=suspected) it says what of a benchmark looks slow, so that it can be measured again by itself.
  - With O(state=judged) it names slow GPUs, nodes and links, shows all figures beside what is to be expected, compares
    them with an earlier benchmark, and writes C(benchmark.json) into the record. What was not measured again by itself
    is not accused.
  - Connects to nothing.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.controller
options:
  state:
    description: What to do.
    type: str
    choices: [planned, suspected, judged]
    required: true
  nodes:
    description: Names of the nodes that take part, with O(state=planned).
    type: list
    elements: str
    default: []
  seconds:
    description:
      - How many seconds all phases of the first look have together, from 5 to 400.
      - The second look has a quarter of it.
    type: float
    default: 300.0
  collectives:
    description: Which operations of torch.distributed are measured.
    type: list
    elements: str
    default: [all_reduce, all_gather, reduce_scatter, all_to_all, broadcast]
  largest:
    description:
      - Bytes of the largest buffer of a collective.
      - V(0), 1 GiB or an eighth of a GPU's free memory; 64 MiB without GPUs.
    type: int
    default: 0
  run_id:
    description:
      - The run that has measured, with O(state=suspected) and O(state=judged).
      - With O(state=planned) the name that it is to have. If empty, one is made of the time. Fails where there is a run
        of this name, unless it is a benchmark of the same nodes that was cut off.
    type: str
    default: ""
  again_run_id:
    description: The run that has measured again what was suspected. If empty, there was none.
    type: str
    default: ""
  baseline:
    description: An earlier benchmark to compare with; the beginning of its name will do. If empty, none.
    type: str
    default: ""
  network_gbps:
    description: What all network cards of a node do together in one direction, in Gb/s. Without it the nodes are asked.
    type: float
  fail_on_slow:
    description: Whether the task fails where there is a problem.
    type: bool
    default: false
  directory:
    description:
      - Where the records lie on the controller.
      - If empty, what C(launch_runs_directory) of the first host of O(group) says, else C(runs).
    type: path
    default: ""
  group:
    description: Group of the inventory that holds the machines.
    type: str
    default: training
seealso:
  - module: muster.training.run_report
"""

EXAMPLES = r"""
- name: Plan the measurements
  muster.training.benchmark:
    state: planned
    nodes: "{{ ansible_play_hosts_all }}"
  register: plan
  run_once: true

- name: Judge what was measured, beside last month's
  muster.training.benchmark:
    state: judged
    run_id: benchmark-20261125
    baseline: benchmark-20261025
  run_once: true
"""

RETURN = r"""
work:
  description: What the job is to measure, as JSON. Empty where nothing is suspected.
  returned: O(state=planned) or O(state=suspected)
  type: str
  sample: '{"seconds": {"matmul": 45.0}, "rounds": [[[0, 1]]]}'
run_id:
  description: Name of the run.
  returned: O(state=planned)
  type: str
  sample: benchmark-20261125-094640
begun:
  description: Whether there is such a run already, which was cut off, or which nobody watches any more.
  returned: O(state=planned) or O(state=suspected)
  type: bool
findings:
  description:
    - What is worth knowing, each with C(id), C(severity) (V(problem) or V(hint)), C(about), C(found), C(remedy) and
      C(numbers).
  returned: O(state=judged)
  type: list
  elements: dict
verdict:
  description: What the benchmark says, in a line.
  returned: O(state=judged)
  type: str
  sample: nothing is slow among these nodes
"""
