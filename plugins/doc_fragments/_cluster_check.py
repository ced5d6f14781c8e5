# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options of modules that check a cluster before a job starts."""

from __future__ import annotations


class ModuleDocFragment:
    """What is checked, and which findings are reported."""

    DOCUMENTATION = r"""
options:
  code:
    description:
      - The code on the controller, as RV(muster.training.list_code#module:code) gives it and as it was given to
        M(muster.training.node_facts). A node whose copy differs is a finding.
    type: dict
    default: {}
  code_left:
    description:
      - Why code that differs was left as it is. Empty if it was copied and all nodes were asked again.
      - V(as_is) at the user's request, V(later) by a check that copies nothing, V(refused) because a node does not
        answer or is busy.
      - With V(later) and V(refused), whatever the copy will bring, such as the script, counts as present.
    type: str
    choices: ["", as_is, later, refused]
    default: ""
  facts_from:
    description: Name of the variable that holds this result for each of O(nodes), instead of O(facts).
    type: str
    default: ""
  nproc_per_node:
    description: Number of processes on each node, instead of what O(nodes) or the GPUs say.
    type: int
  skip:
    description:
      - IDs of checks whose findings are not reported. Fails on an unknown ID, naming the closest valid one, and on a
        check without which no run can be planned.
    type: list
    elements: str
    default: []
  thresholds:
    description: Limits beyond which a number is a finding.
    type: dict
    suboptions:
      clock_skew:
        description: Seconds by which a node's clock may differ from the others'.
        type: float
        default: 1.0
      disk_gib:
        description: GiB free for runs and checkpoints. Less than 0.25 GiB is an error.
        type: float
        default: 5.0
      shm_gib:
        description: Size of C(/dev/shm) in GiB. Containers come with 0.06, too little for data loaders and NCCL.
        type: float
        default: 1.0
      memlock_mib:
        description: MiB of memory that a run may lock on a node without RDMA. The default is the kernel's since 5.16.
        type: float
        default: 8.0
      nofile:
        description: Number of files that a run may open. The default is the kernel's.
        type: int
        default: 1024
"""
