# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: run_logs
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Fetch the logs of a run from a node
description:
  - Packs the launcher's log, the logs of all ranks, the events, the status of a run and what the GPUs did meanwhile
    (C(gpus.csv)) on the node, and unpacks them on the controller.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
attributes:
  action: {support: full}
  async: {support: none}
  become: {support: full}
  bypass_host_loop: {support: none}
  check_mode: {support: full}
  connection: {support: full}
  delegation: {support: none}
  diff_mode: {support: none}
  platform: {platforms: linux}
options:
  run_id:
    description: Name of the run.
    type: str
    required: true
  directory:
    description:
      - Directory on the controller that takes the logs, C(nodeRANK) below it for each node. It is made where it is
        missing.
    type: path
    required: true
  runs_directory:
    description: Where the runs lie on the node.
    type: str
    default: ~/.muster/runs
  user:
    description: User who runs the job. Empty, the one who is logged in.
    type: str
    default: ""
seealso:
  - module: muster.training.training_watch
"""

EXAMPLES = r"""
- name: Fetch the logs of all nodes
  muster.training.run_logs:
    run_id: first-try
    directory: logs/first-try
"""

RETURN = r"""
directory:
  description: The directory that has taken the logs, V(null) where the node knows of no such run.
  returned: success
  type: str
  sample: logs/first-try
"""
