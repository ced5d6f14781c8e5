# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options of modules that judge a cluster before a job starts."""

from __future__ import annotations


class ModuleDocFragment:
    """What is looked at, and what of it is told."""

    DOCUMENTATION = r"""
options:
  code:
    description:
      - The code on the controller, as RV(muster.training.list_code#module:code) gives it and as it was given to
        M(muster.training.node_facts). Where a node's differs that is a finding.
    type: dict
    default: {}
  code_left:
    description:
      - Why code that differs was left as it is. If empty, it was brought, and all nodes were asked again.
      - V(as_is) by a person's wish, V(later) by a check, V(refused) since a node does not answer or is busy.
      - With V(later) and V(refused) what the code is going to bring, such as the script, is taken to be there.
    type: str
    choices: ["", as_is, later, refused]
    default: ""
  facts_from:
    description: Name of the variable in which each of O(nodes) has that result, instead of O(facts).
    type: str
    default: ""
  nproc_per_node:
    description: Processes on each node, instead of what O(nodes) or the GPUs say.
    type: int
  skip:
    description:
      - Checks whose findings are not told, by their ids. One that there is not is refused, with the nearest right one,
        and so is one without which no run can be planned.
    type: list
    elements: str
    default: []
  thresholds:
    description: Where a number begins to be a finding.
    type: dict
    suboptions:
      clock_skew:
        description: Seconds between a node's clock and the others'.
        type: float
        default: 1.0
      disk_gib:
        description: GiB free for runs and checkpoints. Below 0.25 GiB it is an error.
        type: float
        default: 5.0
      shm_gib:
        description: Size of C(/dev/shm) in GiB. Containers come with 0.06, too little for data loaders and NCCL.
        type: float
        default: 1.0
      memlock_mib:
        description: MiB that a run may lock, where there is no RDMA. The default is the kernel's own since 5.16.
        type: float
        default: 8.0
      nofile:
        description: Files that a run may open. The default is the kernel's own.
        type: int
        default: 1024
"""
