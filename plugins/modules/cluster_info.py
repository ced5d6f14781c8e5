# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_info
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Show the clusters at Paperspace or EC2 and what they cost
description:
  - Shows a table of all clusters created by M(muster.training.cluster) in the account, at EC2 in one region, and one
    line for machines that belong to no cluster.
  - The cost so far is an upper limit, which assumes that the machines were never off. Paperspace does not report how
    long a machine has been on. At EC2, the hourly price is that of the day on which a machine was created, as noted in
    its tags.
requirements:
  - for EC2, boto3 in the Python of C(ansible-playbook)
extends_documentation_fragment:
  - muster.training._attributes.cloud
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.controller
  - muster.training._paperspace
options:
  provider:
    description: Provider of the machines, V(ec2) or V(paperspace). Others are refused.
    type: str
    required: true
  cluster:
    description: Name of a single cluster to show. If empty, all are shown.
    type: str
    default: ""
  region:
    description:
      - AWS region. If empty, taken from the environment (E(AWS_DEFAULT_REGION)) or the profile. Of a Paperspace
        account, all regions are shown.
    type: str
    default: ""
  ttl:
    description:
      - Maximum age of a cluster, for example V(24h) or V(2d). Each older cluster is reported on an extra line.
      - V(off) disables this.
    type: str
    default: 24h
  jmespath:
    description:
      - JMESPath query on the return values. Its result is shown as JSON instead of the table. Empty means no query.
    type: str
    default: ""
  retries:
    description: Number of retries of a request to Paperspace after a temporary failure.
    type: int
    default: 4
seealso:
  - module: muster.training.cluster
"""

EXAMPLES = r"""
- name: Show the clusters and their cost
  muster.training.cluster_info:
    provider: paperspace
"""

RETURN = r"""
clusters:
  description:
    - Each cluster with C(cluster), C(network) (ID), C(region), C(types) (of its machines), C(running) and C(stopped)
      (numbers of machines), C(age) (seconds since its oldest machine was created), C(per_hour), C(cost_to_date),
      C(stopped_per_month) (US dollars, V(null) if a price is not known) and C(other_costs) (other items that cost
      money).
  returned: success
  type: list
  elements: dict
other_machines:
  description: Number of machines in the account that belong to no cluster.
  returned: success
  type: int
  sample: 0
"""
