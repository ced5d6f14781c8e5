# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: benchmark
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Plan the measurements of a benchmark and evaluate the results
description:
  - O(state=planned) returns what the job of the role P(muster.training.benchmark#role) must measure, and rejects
    impossible requests.
  - O(state=suspected) returns the GPUs, nodes and links that look slow, so that they can be measured again in
    isolation.
  - O(state=judged) names slow GPUs, nodes and links, shows all figures next to the expected ones, compares them with an
    earlier benchmark, and writes C(benchmark.json) into the record. Only a result confirmed by the second measurement
    counts as slow.
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
    description: Names of the participating nodes, with O(state=planned).
    type: list
    elements: str
    default: []
  seconds:
    description:
      - Duration of all phases of the first pass together, in seconds, from 5 to 400.
      - The second pass gets a quarter of it.
    type: float
    default: 300.0
  collectives:
    description: The torch.distributed operations to measure.
    type: list
    elements: str
    default: [all_reduce, all_gather, reduce_scatter, all_to_all, broadcast]
  max_buffer_bytes:
    description:
      - Size in bytes of the largest buffer of a collective.
      - V(0) means 1 GiB or an eighth of a GPU's free memory, or 64 MiB without GPUs.
    type: int
    default: 0
  run_id:
    description:
      - With O(state=suspected) and O(state=judged), the run that took the measurements.
      - With O(state=planned), the name of the new run. If empty, a name is generated from the time. Fails if a run of
        this name exists, unless it is an interrupted benchmark of the same nodes.
    type: str
    default: ""
  again_run_id:
    description: The run of the second measurement. Empty means that there was none.
    type: str
    default: ""
  baseline:
    description: Earlier benchmark to compare with; a unique prefix of its name is enough. Empty means none.
    type: str
    default: ""
  network_gbps:
    description:
      - Combined bandwidth of all network cards of a node in one direction, in Gb/s. If omitted, it is read from the
        nodes.
    type: float
  fail_on_slow:
    description: Fail if there is a finding of severity V(problem).
    type: bool
    default: false
  diagnostics:
    description: Results of M(muster.training.dcgm_diagnostic) by node. Failed tests become findings.
    type: dict
    default: {}
  directory:
    description:
      - Directory of the records on the controller.
      - If empty, defaults to C(launch_runs_directory) of the first host of O(group), otherwise C(runs).
    type: path
    default: ""
  group:
    description: Inventory group that holds the machines.
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

- name: Evaluate the measurements and compare them with last month's
  muster.training.benchmark:
    state: judged
    run_id: benchmark-20261125
    baseline: benchmark-20261025
  run_once: true
"""

RETURN = r"""
work:
  description: What the job must measure, as JSON. Empty if nothing looks slow.
  returned: O(state=planned) or O(state=suspected)
  type: str
  sample: '{"seconds": {"matmul": 45.0}, "rounds": [[[0, 1]]]}'
run_id:
  description: Name of the run.
  returned: O(state=planned)
  type: str
  sample: benchmark-20261125-094640
run_exists:
  description: Whether this run already exists, interrupted or no longer watched.
  returned: O(state=planned) or O(state=suspected)
  type: bool
findings:
  description:
    - The findings, each with C(id), C(severity) (V(problem) or V(hint)), C(about), C(problem), C(remedy) and
      C(numbers).
  returned: O(state=judged)
  type: list
  elements: dict
verdict:
  description: The result of the benchmark, in one line.
  returned: O(state=judged)
  type: str
  sample: nothing is slow among these nodes
"""
