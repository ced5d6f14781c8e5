# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: sweep
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Compare variants of a job by launching one after another
description:
  - Launches each variant by the playbook C(muster.training.launch), with the inventory and the variables that the
    present playbook was called with, and those of the variant over them. Each launch is a run with a record.
  - A variant that fails is told and passed over.
  - At the end there is a table of the variants with the arguments as they are, which should mean the same global batch
    for all, and with O(fit) another one with the largest batch of each. They are shown, and written as Markdown into
    C(sweep.md). The numbers are in C(sweep.json).
  - Throughput, batch and memory are what the job reports in lines C(MUSTER_RESULT), as C(samples_per_second),
    C(batch_size) and C(peak_memory_mib). Memory is else that of samples of the GPUs.
  - Called again after it was cut off, it goes on. What has succeeded with the same settings, job and nodes is not
    launched again, what has failed is.
  - Options by which Ansible asks something, such as C(--ask-become-pass), are refused, for each launch would ask.
  - Interrupted, it stops the present run on all nodes before it ends.
  - Needs the Python package C(ansible-runner) on the controller.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.controller
  - muster.training._group
  - muster.training._records
options:
  variants:
    description:
      - What is compared, a list of mappings. Each has a C(name), and settings of the launch by the short names of a job
        file, such as C(nnodes), C(launcher), C(args) and C(environment), or as variables C(launch_*).
      - C(args) stand behind O(args). All other settings take the place of those of the job.
    type: raw
    default: []
  args:
    description:
      - Arguments of all variants, before their own, a list or a text.
      - If empty, and without C(args) of a variant, those of the job.
    type: raw
    default: []
  repeats:
    description: How often each variant is launched. More than once, the tables have medians and ranges.
    type: int
    default: 1
  timeout:
    description: Seconds after which a launch is stopped, and its variant passed over. V(0), never.
    type: float
    default: 0.0
  fit:
    description: Whether to find the largest batch of each variant, too, and to launch it with that.
    type: bool
    default: false
  fit_args:
    description:
      - The same as O(args) for this search, with C({batch_size}) where a batch belongs, which may stand in C(args) of
        the variants' own as well.
    type: raw
    default: []
  start:
    description: The first batch that is tried, as O(muster.training.fit#module:start).
    type: int
    default: 8
  multiple:
    description: Of what the largest batch is a multiple, as O(muster.training.fit#module:multiple).
    type: int
    default: 8
  max:
    description: Largest batch size to try.
    type: int
    default: 4096
  margin:
    description: Share of the largest batch that is taken off.
    type: float
    default: 0.05
  probe_timeout:
    description: Seconds after which a launch of the search is stopped, which ends it for this variant.
    type: float
    default: 600.0
  run_id:
    description: Name of the sweep. Its launches have it before theirs.
    type: str
    default: sweep
seealso:
  - module: muster.training.fit
  - module: muster.training.run_report
"""

EXAMPLES = r"""
- name: Compare two strategies, on one node and on two
  muster.training.sweep:
    args: [--steps, "50"]
    variants:
      - {name: ddp-1, nnodes: 1, args: [--strategy, ddp]}
      - {name: ddp-2, nnodes: 2, args: [--strategy, ddp]}
      - {name: fsdp-1, nnodes: 1, args: [--strategy, fsdp]}
      - {name: fsdp-2, nnodes: 2, args: [--strategy, fsdp]}
    repeats: 3
    run_id: strategies
  run_once: true
"""

RETURN = r"""
tables:
  description:
    - One with the same global batch, and with O(fit) one with the largest batch of each.
    - C(rows) has a mapping for each variant, the fastest first, with C(variant), C(succeeded), C(why), C(run_ids),
      C(nnodes), C(ranks), C(batch_size), C(global_batch_size), C(samples_per_second), C(least), C(most), C(per_rank),
      C(efficiency), C(memory_mib), C(run_seconds), C(cost), C(per_1000_samples) and C(currency).
  returned: success
  type: list
  elements: dict
"""
