# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: sweep
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Compare variants of a job by launching them one after another
description:
  - Launches each variant through the playbook C(muster.training.launch), with the inventory and variables of the
    current playbook, overridden by those of the variant. Each launch is a run with a record.
  - A failing variant is reported and skipped.
  - At the end, shows a table of the variants with their own arguments, which should use the same global batch size, and
    with O(fit) a second table with the largest batch size of each variant. Both are also written as Markdown to
    C(sweep.md), and the numbers to C(sweep.json).
  - The job reports throughput, batch size and memory in C(MUSTER_RESULT) lines, as C(samples_per_second), C(batch_size)
    and C(peak_memory_mib). If it does not, memory is taken from GPU samples.
  - Called again after an interruption, it continues. Variants that succeeded with the same settings, job and nodes are
    not launched again; failed ones are.
  - Options that make Ansible prompt, such as C(--ask-become-pass), are refused, since each launch would prompt.
  - If interrupted, stops the current runs on all nodes before exiting.
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
      - Variants to compare, a list of mappings. Each has a C(name), and settings of the launch by the short names of a
        job file, such as C(nnodes), C(launcher), C(args) and C(environment), or as C(launch_*) variables.
      - C(args) are appended to O(args). Other settings replace those of the job.
    type: raw
    default: []
  args:
    description:
      - Arguments of all variants, before their own, a list or a string.
      - If this is empty and a variant has no C(args), those of the job are used.
    type: raw
    default: []
  repeats:
    description: Number of launches of each variant. If greater than 1, the tables show medians and ranges.
    type: int
    default: 1
  timeout:
    description:
      - Seconds after which a launch is stopped and its variant skipped. V(0) means never.
      - With O(queued), the time limit of its job, in whole minutes.
    type: float
    default: 0.0
  parallel:
    description: Number of variants in the queue at a time. More than 1 requires O(queued).
    type: int
    default: 1
  queued:
    description: Whether the launches wait in Slurm's queue, and Slurm chooses their nodes.
    type: bool
    default: false
  fit:
    description: Also find the largest batch size of each variant, and launch the variant with it.
    type: bool
    default: false
  fit_args:
    description:
      - Replaces O(args) in this search, with C({batch_size}) as the placeholder of the batch size. The variants'
        C(args) may also contain it.
    type: raw
    default: []
  start:
    description: First batch size to try, as in O(muster.training.fit#module:start).
    type: int
    default: 8
  multiple:
    description: Round the largest batch size down to a multiple of this, as in O(muster.training.fit#module:multiple).
    type: int
    default: 8
  max:
    description: Largest batch size to try.
    type: int
    default: 4096
  margin:
    description: Fraction by which the largest batch size is reduced.
    type: float
    default: 0.05
  probe_timeout:
    description:
      - Timeout of a launch of the search, in seconds. A launch that exceeds it is stopped, which ends the search for
        this variant.
    type: float
    default: 600.0
  run_id:
    description: Name of the sweep, and prefix of the names of its launches.
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
    - One table with the same global batch size, and with O(fit) one with the largest batch size of each variant.
    - C(rows) has a mapping for each variant, fastest first, with C(variant), C(succeeded), C(reason), C(run_ids),
      C(nnodes), C(ranks), C(batch_size), C(global_batch_size), C(samples_per_second), C(min), C(max), C(per_rank),
      C(efficiency), C(memory_mib), C(run_seconds), C(cost), C(per_1000_samples) and C(currency).
  returned: success
  type: list
  elements: dict
"""
