# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: attempt_output
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Show the output of a rank in one attempt of a run
description:
  - Shows the output of a rank in one attempt of a run that restarts automatically. If the attempt is the current one,
    its
    output is followed until it ends.
  - Run it on all nodes of the run. The node that had the rank in this attempt shows the output, the others show
    nothing. It may be a spare, or a different node from that in the first attempt.
  - Nothing is shown in check mode.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.node
  - muster.training._runs
  - muster.training._runs.run_id
options:
  attempt:
    description: Number of the attempt, starting at V(0).
    type: int
    required: true
  rank:
    description: Global rank in this attempt.
    type: int
    default: 0
  control_sequences:
    description: Whether to pass on the job's terminal control sequences, such as colors.
    type: bool
    default: false
seealso:
  - module: muster.training.training_watch
"""

EXAMPLES = r"""
- name: Show what rank 3 printed after the first restart
  muster.training.attempt_output:
    run_id: first-try
    attempt: 1
    rank: 3
"""

RETURN = r"""
has_rank:
  description: Whether this node had the rank in this attempt.
  returned: always, except in check mode
  type: bool
  sample: true
newest:
  description: The newest attempt known to this node. V(null) if it has no such run.
  returned: always, except in check mode
  type: int
  sample: 1
"""
