# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: run_outputs
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Fetch the files that a run's job wrote on a node
description:
  - Lists the files that a run's job wrote on a node, hashes some to compare their content, and fetches them to the
    controller in chunks of 16 MiB.
  - These are the files in the run directory, except logs and this collection's own files, and those selected by
    O(muster.training.launch_plan#module:outputs) and O(outputs). Links are not followed.
  - A file that exists on the controller with the same size and modification time is not fetched again. A partly fetched
    file is resumed, unless it has changed on the node.
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
      - V(listed) returns the list of files.
      - V(compared) returns the SHA-256 of the files O(names).
      - V(fetched) fetches O(files) into O(directory). Fails if the controller does not have enough space. A file that
        cannot be fetched, or changes meanwhile, is reported by a warning and in RV(failures).
    type: str
    choices: [listed, compared, fetched]
    required: true
  outputs:
    description:
      - Paths or patterns of files that the job wrote outside its run directory, in addition to those set at its launch.
        Relative paths are resolved against its working directory.
    type: list
    elements: str
    default: []
  names:
    description: Names of files to hash, as in RV(files). Required for O(state=compared).
    type: list
    elements: str
    default: []
  files:
    description: Files to fetch, as in RV(files). Required for O(state=fetched).
    type: list
    elements: dict
    default: []
  directory:
    description: Directory on the controller for the files. Created if missing. Required for O(state=fetched).
    type: path
    default: ""
  progress_interval:
    description: Seconds between two progress lines.
    type: int
    default: 30
seealso:
  - module: muster.training.choose_outputs
  - module: muster.training.run_logs
"""

EXAMPLES = r"""
- name: List the files that the job wrote
  muster.training.run_outputs:
    state: listed
    run_id: first-try
  register: listed

- name: Fetch the files
  muster.training.run_outputs:
    state: fetched
    run_id: first-try
    files: "{{ listed.files }}"
    directory: outputs/{{ inventory_hostname }}
"""

RETURN = r"""
files:
  description:
    - Files that the job wrote. The name of a file is C(run/PATH) in the run directory, C(work/PATH) in the job's
      working directory, and C(root/PATH) elsewhere.
  returned: when O(state=listed)
  type: list
  elements: dict
  contains:
    name:
      description: Name of the file.
      type: str
      sample: run/checkpoints/last.pt
    size:
      description: Size in bytes.
      type: int
      sample: 2471000000
    mtime:
      description: Modification time, in nanoseconds since 1970.
      type: int
      sample: 1795234086700000000
incomplete:
  description: Whether there are files that are not listed, because their names are not UTF-8 or there are too many.
  returned: when O(state=listed)
  type: bool
  sample: false
unlisted:
  description: Numbers of files in the job's working directory that changed during the run and are not outputs, by the
    name of their directory in it.
  returned: when O(state=listed)
  type: dict
  sample: {logs: 5}
node_unreachable:
  description: Whether the node could not be reached, in a task with C(ignore_unreachable).
  returned: if the node could not be reached
  type: bool
  sample: true
hashes:
  description: The SHA-256 hash of each of O(names). V(null) if the file cannot be read.
  returned: when O(state=compared)
  type: dict
directory:
  description: Directory on the controller with the files.
  returned: when O(state=fetched)
  type: str
  sample: runs/first-try/outputs/node0
failures:
  description: Why a file was not fetched, by file name.
  returned: when O(state=fetched)
  type: dict
  sample: {}
"""
