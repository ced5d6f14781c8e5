# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options of modules that check a cluster before a job starts."""

from __future__ import annotations


class ModuleDocFragment:
    """Checks to run, and findings to report."""

    DOCUMENTATION = r"""
options:
  code:
    description:
      - The code on the controller, as RV(muster.training.list_code#module:code) returns it and as it was passed to
        M(muster.training.node_facts). A copy that differs is a finding.
    type: dict
    default: {}
  code_skip_reason:
    description:
      - Why differing code was not copied. Empty if it was copied and the facts of all nodes were read again.
      - V(as_is) means at the user's request, V(later) that a check never copies code, V(refused) that a node does not
        respond or is busy, V(in_use) that a run on other GPUs of a node works in that directory, which prevents the
        start.
      - With V(later) and V(refused), files that the copy will add, such as the script, count as present.
    type: str
    choices: ["", as_is, later, refused, in_use]
    default: ""
  facts_from:
    description: Name of the host variable in which each of O(nodes) registered this result. Replaces O(facts).
    type: str
    default: ""
  nproc_per_node:
    description:
      - Number of processes on each node. Defaults to the node's C(slots) in O(nodes), otherwise to one per GPU.
    type: int
  skip:
    description:
      - IDs of checks whose findings are not reported. Fails on an unknown ID, naming the closest valid one, and on a
        check that planning a run requires.
    type: list
    elements: str
    default: []
  thresholds:
    description: Limits. A value beyond its limit is a finding.
    type: dict
    suboptions:
      clock_skew:
        description: Maximum difference between a node's clock and the others', in seconds.
        type: float
        default: 1.0
      disk_gib:
        description: Minimum free space for runs and checkpoints, in GiB. Less than 0.25 GiB is an error.
        type: float
        default: 5.0
      shm_gib:
        description:
          - Minimum size of C(/dev/shm), in GiB. Containers default to 0.06, too little for data loaders and NCCL.
        type: float
        default: 1.0
      memlock_mib:
        description:
          - Minimum limit of locked memory on a node without RDMA, in MiB. The default is the kernel's since Linux 5.16.
        type: float
        default: 8.0
      nofile:
        description: Minimum limit of open files of a run. The default is the kernel's.
        type: int
        default: 1024
"""
