# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: fit
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Find the largest batch size with which a job fits in memory
description:
  - Launches the job with one batch size after another through the playbook C(muster.training.launch), with the
    inventory and variables of the current playbook. Each launch is a run with a record, on all its ranks.
  - A batch size is too large if any rank runs out of memory. A launch that fails for another reason ends the search
    with its error message.
  - A final launch confirms the result, reduced by O(margin).
  - Progress is kept in C(fit.json). Called again after an interruption, it continues from there. A different job or
    different nodes require a new search with another O(run_id).
  - Options that make Ansible prompt, such as C(--ask-become-pass), are refused, since each launch would prompt.
  - If interrupted, stops the current run on all nodes before exiting.
  - Needs the Python package C(ansible-runner) on the controller.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.controller
  - muster.training._group
  - muster.training._records
options:
  state:
    description:
      - V(searched) searches for the batch size.
      - V(taken) puts the batch size found by the search O(run_id) into O(args), and launches nothing. Fails if the
        search does not exist, is not finished, found no batch size, or was for another O(program).
    type: str
    choices: [searched, taken]
    default: searched
  program:
    description: With O(state=taken), the script or module to launch.
    type: str
    default: ""
  nnodes:
    description: With O(state=taken), the number of nodes. Warns if the search used another number.
    type: int
    default: 0
  args:
    description:
      - Arguments of the job, a list or a string as in O(muster.training.launch_plan#module:args), with C({batch_size})
        as the placeholder of the batch size.
      - They should make the job end after a few steps, at least three.
      - With O(state=taken), the arguments of the launch. If empty, defaults to those of the search.
    type: raw
    default: []
  confirm_args:
    description: The same for the final, longer launch. If empty, defaults to O(args).
    type: raw
    default: []
  start:
    description: First batch size to try, as the script counts it.
    type: int
    default: 8
  multiple:
    description: Round the result down to a multiple of this, unless it is smaller.
    type: int
    default: 8
  max:
    description: Largest batch size to try.
    type: int
    default: 4096
  margin:
    description:
      - Fraction by which the largest batch size is reduced, as a reserve for samples longer than those of the search.
    type: float
    default: 0.05
  probe_timeout:
    description: Timeout of a launch, in seconds. A launch that exceeds it is stopped, which ends the search.
    type: float
    default: 600.0
  run_id:
    description: Name of the search, and prefix of the names of its launches.
    type: str
    default: fit
seealso:
  - module: muster.training.run_report
"""

EXAMPLES = r"""
- name: Find the largest batch
  muster.training.fit:
    args: [--batch_size, "{batch_size}", --max_steps, "20"]
    run_id: fit-bert
  run_once: true

- name: Read the batch size that the search found
  muster.training.fit:
    state: taken
    run_id: fit-bert
    program: train.py
    args: [--batch_size, "{batch_size}", --epochs, "3"]
  register: batch
  run_once: true
"""

RETURN = r"""
batch_size:
  description: Largest confirmed batch size.
  returned: success
  type: int
  sample: 96
launch_args:
  description: The arguments with the batch size filled in, in the form of O(args).
  returned: O(state=taken)
  type: raw
  sample: [--batch_size, "96", --epochs, "3"]
history:
  description:
    - The launches in order, each with C(batch), C(fits), C(confirms), C(run_id), C(why), C(seconds), C(memory_mib),
      C(total_mib) and C(samples_per_second).
  returned: O(state=searched)
  type: list
  elements: dict
"""
