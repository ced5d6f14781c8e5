# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: training_watch
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Show a run while it is running
description:
  - Shows the output of a rank, events of the run, and periodic progress lines on the terminal, until the run ends.
  - Needs only one connection to one node, whatever the number of nodes, since the supervisor of rank 0 knows the state
    of all nodes. Delegate the task to that node.
  - Ending the playbook does not end the run.
  - Nothing is shown in check mode.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.node
  - muster.training._runs
  - muster.training._runs.run_id
attributes:
  delegation: {support: full}
options:
  node:
    description: Name of the node to watch, as in the run's plan.
    type: str
    required: true
  local_rank:
    description: Local rank on the node whose output is shown.
    type: int
    default: 0
  attempt:
    description:
      - The first attempt of the run whose output is shown. If it is not V(0), events that another node has reported
        before are not shown either.
    type: int
    default: 0
  progress_interval:
    description: Seconds between two progress lines.
    type: int
    default: 30
  reply_timeout:
    description: Seconds without a reply from the node after which watching ends.
    type: int
    default: 30
  control_sequences:
    description:
      - Whether to pass on the job's terminal control sequences, such as colors. They can also move the cursor, change
        the window's title and write to the clipboard.
    type: bool
    default: false
  debugger:
    description:
      - The rank that waits for a debugger, from the plan. Shows how to attach one, and keeps a tunnel to its node open.
    type: dict
notes:
  - A line C(MUSTER_RESULT {"accuracy":0.97}) from the job, with a JSON object, is not shown, but returned as
    RV(job_results). A line of more than 64 KiB, or with more than 20 levels of nested objects and lists, is treated as
    ordinary output.
  - If more than 2 MiB of output are pending, only the end is shown, with the amount that was skipped and the file on
    the node that has all of it.
seealso:
  - module: muster.training.training_run
  - module: muster.training.run_record
"""

EXAMPLES = r"""
# `planned` is the registered result of muster.training.launch_plan.
- name: Show the run's output
  muster.training.training_watch:
    run_id: "{{ planned.run_id }}"
    node: "{{ planned.master }}"
  delegate_to: "{{ planned.master }}"
  register: watched
  run_once: true
"""

RETURN = r"""
contact_lost:
  description: Whether contact with the node was lost before the run's end was seen.
  returned: always, except in check mode
  type: bool
  sample: false
result:
  description: How the run ended, according to the supervisor that leads it. V(null) if that is not available.
  returned: always, except in check mode
  type: dict
  sample: {run_id: first-try, state: succeeded, reason: "", world_size: 16, nnodes: 2}
status:
  description: The last status of the node, with the states of all nodes if it is the rank 0 node.
  returned: when the run's end was seen
  type: dict
  sample: {run_id: first-try, node_rank: 0, state: succeeded, message: ""}
attempt:
  description: The newest attempt of the run that was seen.
  returned: always, except in check mode
  type: int
  sample: 0
job_results:
  description: Results that the job reported by C(MUSTER_RESULT).
  returned: always, except in check mode
  type: dict
  sample: {accuracy: 0.9778}
"""
