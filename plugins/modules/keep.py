# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: keep
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Replace nodes that a run loses, until the run ends
description:
  - Polls the state of the run. If it has lost nodes, has the provider create machines, sets them
    up, and adds them to the run, each with the playbook of this collection that a user would run.
  - Can be killed and restarted at any time. It records its progress in C(keep.json) in the run's record.
  - Needs C(ansible-runner) on the controller. The provider's credentials stay there, and never reach the nodes.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.controller
  - muster.training._group
options:
  run_id:
    description: Name of the run.
    type: str
    required: true
  record:
    description: Directory of its record.
    type: path
    required: true
  provider:
    description: Provider that creates machines. If empty, that of the inventory; a static inventory has none.
    type: str
    default: ""
  max_usd_per_hour:
    description: Maximum cost of all machines of the cluster together. Without it, no machine is created.
    type: float
  interval:
    description: Interval between polls of the run's state, in seconds.
    type: float
    default: 20.0
seealso:
  - module: muster.training.run_join
  - module: muster.training.cluster
"""

EXAMPLES = r"""
- name: Keep the nodes of a run complete
  muster.training.keep:
    run_id: first-try
    record: runs/first-try
    max_usd_per_hour: 16
"""

RETURN = r"""
changed:
  description: Always true once the run has ended.
  returned: success
  type: bool
  sample: true
"""
