# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: fit
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Find the largest batch with which a job still fits into memory
description:
  - Launches the job with one batch after another by the playbook C(muster.training.launch), with the inventory and the
    variables that the present playbook was called with. Each launch is a run with a record, on all its ranks.
  - What ran out of memory on any rank was too large. A launch that fails for another reason ends the search with its
    words.
  - The result, with O(margin) taken off, is confirmed by a last launch.
  - What is known is kept in C(fit.json). Called again after it was cut off, it goes on from there.
    With another job or other nodes it is another search, and needs another O(run_id).
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
  state:
    description:
      - With V(searched) the batch is looked for.
      - With V(taken) the batch that the search O(run_id) has found is put into O(args), and nothing is launched. Fails
        where there is no such search, where it is not over or has found none, and where it was one with another
        O(program).
    type: str
    choices: [searched, taken]
    default: searched
  program:
    description: With O(state=taken), the script or module that is to be launched.
    type: str
    default: ""
  nnodes:
    description: With O(state=taken), on how many nodes. There is a warning where the search was on another number.
    type: int
    default: 0
  args:
    description:
      - Arguments of the job, a list or a text, as O(muster.training.launch_plan#module:args), with C({batch_size})
        where a batch belongs.
      - They should let the job end after some steps, at least three.
      - With O(state=taken) those of the launch. If empty, those of the search are taken.
    type: raw
    default: []
  confirm_args:
    description: The same for the last, longer launch. If empty, O(args).
    type: raw
    default: []
  start:
    description: First batch size to try, as the script counts it.
    type: int
    default: 8
  multiple:
    description: Of what the result is a multiple, where it is not smaller.
    type: int
    default: 8
  max:
    description: Largest batch size to try.
    type: int
    default: 4096
  margin:
    description: Share of the largest batch that is taken off, for samples that are longer than those of the probes.
    type: float
    default: 0.05
  probe_timeout:
    description: Seconds after which a launch is stopped that does not end, which ends the search.
    type: float
    default: 600.0
  run_id:
    description: Name of the search. Its launches have it before theirs.
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

- name: Take the batch that it has found
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
  description: The largest batch, confirmed.
  returned: success
  type: int
  sample: 96
launch_args:
  description: The arguments with the batch in them, as O(args) has them.
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
