# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: run_outputs
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Bring what the job of a run has written on a node
description:
  - Tells which files the job of a run has written on a node, compares some by their content, and brings them to the
    controller in parts of 16 MiB.
  - These are the files in the run directory that are neither logs nor our own, and those that are told of by
    O(muster.training.launch_plan#module:outputs) and O(outputs). No link is followed.
  - A file that is here with the same size and the same time of its last change is not brought again. One of which a
    part is here goes on where it stopped, unless it was changed on the node.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.node
  - muster.training._runs
  - muster.training._runs.run_id
options:
  state:
    description:
      - V(listed) tells which files there are.
      - V(compared) tells the SHA-256 of the files O(names).
      - V(fetched) brings O(files) into O(directory). Fails where there is no room here. A file that cannot be had, or
        is changed meanwhile, is told with a warning and in RV(failures).
    type: str
    choices: [listed, compared, fetched]
    required: true
  outputs:
    description:
      - Paths or patterns of what the job has written elsewhere than in its run directory, besides those that its launch
        was given. Relative ones are in its working directory.
    type: list
    elements: str
    default: []
  names:
    description: Names of files as RV(files) has them.
    type: list
    elements: str
    default: []
  files:
    description: Files as RV(files) has them.
    type: list
    elements: dict
    default: []
  directory:
    description: Directory on the controller that takes the files. It is made where it is missing.
    type: path
    default: ""
  progress_interval:
    description: Seconds between two lines that tell how far it is.
    type: int
    default: 30
seealso:
  - module: muster.training.choose_outputs
  - module: muster.training.run_logs
"""

EXAMPLES = r"""
- name: List what the job has written
  muster.training.run_outputs:
    state: listed
    run_id: first-try
  register: told

- name: Copy the local code where it differs
  muster.training.run_outputs:
    state: fetched
    run_id: first-try
    files: "{{ told.files }}"
    directory: outputs/{{ inventory_hostname }}
"""

RETURN = r"""
files:
  description:
    - Files that the job has written. A name says where a file lies. That is C(run/PATH) in the run directory,
      C(work/PATH) in the working directory of the job, and C(root/PATH) elsewhere.
  returned: when O(state=listed)
  type: list
  elements: dict
  contains:
    name:
      description: Its name.
      type: str
      sample: run/checkpoints/last.pt
    size:
      description: Bytes.
      type: int
      sample: 2471000000
    mtime:
      description: When it was changed last, in nanoseconds since 1970.
      type: int
      sample: 1795234086700000000
more:
  description: Whether there are files that are not told of, as names that are no UTF-8, or very many.
  returned: when O(state=listed)
  type: bool
  sample: false
unreached:
  description: Whether the node could not be reached, in a task with C(ignore_unreachable).
  returned: when it could not
  type: bool
  sample: true
hashes:
  description: The SHA-256 of each of O(names), V(null) where a file cannot be read.
  returned: when O(state=compared)
  type: dict
directory:
  description: The directory that has taken the files.
  returned: when O(state=fetched)
  type: str
  sample: runs/first-try/outputs/node0
failures:
  description: Why a file is not here, by its name.
  returned: when O(state=fetched)
  type: dict
  sample: {}
"""
