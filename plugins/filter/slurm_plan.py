# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: slurm_plan
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Plan a Slurm cluster from the states of its nodes
description:
  - Returns what each node needs to be part of a Slurm cluster, and which nodes differ from that. The first node of the
    rank table becomes the controller; names and addresses are those of the inventory.
positional: _input, nodes
options:
  _input:
    description: RV(muster.training.node_state#module:slurm) of each node, by name.
    type: dict
    required: true
  nodes:
    description: RV(muster.training.choose_nodes#module:nodes).
    type: list
    elements: dict
    required: true
  cluster_name:
    description: Name of the cluster.
    type: str
    default: muster
  partition:
    description: Name of the partition, which contains all nodes.
    type: str
    default: training
  max_time:
    description: Time limit of a job in this partition, in Slurm's format.
    type: str
    default: INFINITE
  exclusive:
    description: Whether a node runs one job at a time.
    type: bool
    default: true
  node_timeout:
    description: Seconds after which a silent node is down, and its jobs end.
    type: int
    default: 30
  accounting:
    description: Whether finished jobs are recorded in a database.
    type: bool
    default: false
  database_memory:
    description: Memory for this database, in MiB.
    type: int
    default: 256
  health_interval:
    description: Interval between health checks of the nodes, in seconds. V(0) disables them.
    type: int
    default: 0
  health_skip:
    description: IDs of health check findings to skip.
    type: list
    elements: str
    default: []
  program:
    description: Directories and files of the health check, from P(muster.training.program_files#lookup).
    type: dict
    default: {}
  adopt_logins:
    description: Whether only users with a job on a node may log in to it.
    type: bool
    default: false
  adopt_admins:
    description: Accounts that may always log in, in addition to root and the nodes' login users.
    type: list
    elements: str
    default: []
  settings:
    description: Further settings of C(slurm.conf), which replace those of the same name.
    type: dict
    default: {}
  managed:
    description: First line of each file.
    type: str
    default: Ansible managed
seealso:
  - module: muster.training.node_state
"""

EXAMPLES = r"""
- name: Show the files of the controller
  ansible.builtin.debug:
    msg: "{{ (states | muster.training.slurm_plan([{'name': 'gpu1', 'address': '10.0.0.11'}])).files.gpu1 }}"
  vars:
    states:
      gpu1:
        hostname: gpu1
        systemd: true
        debian: true
        user: {name: ubuntu, uid: 1000, gid: 1000}
        missing: []
        version: {installed: 22.05.8, available: ""}
        cpus: {sockets: 2, cores: 32, threads: 2}
        memory: 515000
        gpus: {files: [/dev/nvidia0], model: NVIDIA H100 80GB HBM3}
        cgroups: v2
        units: {}
        munge_key: ""
        files: {}
        pam: ""
        verification: ""
"""

RETURN = r"""
_value:
  description:
    - The C(controller), and for each node its name in Slurm (C(names)), C(directories), C(files), C(packages) and
      C(services).
      Further, lines of sshd's PAM rules (C(pam)), a hash of the whole configuration (C(verification)), C(errors) and
      C(notices) as messages, and the nodes that are C(incomplete).
  type: dict
  sample:
    controller: gpu1
    names: {gpu1: gpu1}
    directories: {gpu1: [{path: /etc/default, mode: "0755", only_root: true}]}
    files: {gpu1: [{path: /etc/default/slurmd, mode: "0644", content: "SLURMD_OPTIONS=\"-N gpu1\"\n"}]}
    packages: {gpu1: [slurmd, slurm-client, munge, dbus, slurmctld]}
    services: {gpu1: [munge, slurmctld, slurmd]}
    pam: []
    verification: 2c8b08da5ce60398e1f19af0e5dccc744df274b826abe585eaba68c525434806
    errors: []
    notices: []
    incomplete: [gpu1]
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._slurm.cluster import SlurmOptions
from ansible_collections.muster.training.plugins.plugin_utils._slurm.cluster_plan import SlurmPlan, plan_cluster


def slurm_plan(states: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]], **options: Any) -> SlurmPlan:
    """Return the cluster's plan."""
    return plan_cluster(nodes, {node["name"]: states[node["name"]] for node in nodes}, SlurmOptions(**options))


class FilterModule:
    """Registers the filter."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"slurm_plan": slurm_plan}
