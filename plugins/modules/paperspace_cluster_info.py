# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: paperspace_cluster_info
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Show the clusters of a Paperspace account, and what they cost
description:
  - Shows a table of all clusters that M(muster.training.paperspace_cluster) has made in the account, and one line for
    the machines that belong to none.
  - What a cluster has cost so far is the most that it can be, as if its machines had been on ever since they were made.
    Paperspace does not tell since when a machine is on.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.controller
  - muster.training._paperspace
options:
  cluster:
    description: Name of the only cluster to be shown. If empty, all.
    type: str
    default: ""
  ttl:
    description:
      - How old a cluster may become, for example V(24h) or V(2d). One that is older is named in a line of its own.
      - V(off), none is too old.
    type: str
    default: 24h
  jmespath:
    description:
      - Question in JMESPath to what is returned. Its answer is shown as JSON, in place of the table.
    type: str
    default: ""
  retries:
    description: How often a request is sent again after a passing failure.
    type: int
    default: 4
seealso:
  - module: muster.training.paperspace_cluster
"""

EXAMPLES = r"""
- name: Show what runs and what it costs
  muster.training.paperspace_cluster_info:
"""

RETURN = r"""
clusters:
  description:
    - Each cluster with C(cluster), C(network) (id), C(region), C(types) (of its machines), C(on) and C(off) (how many),
      C(age) (seconds since its oldest machine was made), C(per_hour), C(so_far), C(stopped_per_month) (US dollars,
      V(null) where a price is not known) and C(besides) (what costs as well, at a price that is not known).
  returned: success
  type: list
  elements: dict
others:
  description: How many machines of the account belong to no cluster.
  returned: success
  type: int
  sample: 0
"""
