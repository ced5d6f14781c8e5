# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: paperspace_template
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Make a template of a cluster's machine at Paperspace, to create others from
description:
  - Stops the machine, has Paperspace make a template of its disk, waits until it is listed, and starts the machine
    again. An existing template of this name and machine is left as it is.
  - M(muster.training.paperspace_cluster) creates machines from it, given its name in
    O(muster.training.paperspace_cluster#module:template).
  - The template contains the whole disk. Run M(muster.training.image_cleanup) on the machine first, as the playbook
    C(muster.training.image) does.
  - A template is charged monthly as long as it is kept, even if its machine is gone.
  - Each request is recorded beforehand in C(.muster/clusters/CLUSTER.json). Interrupted at any moment and run again, it
    continues and makes no second one.
  - Tested against a server that follows the API's documentation, never against Paperspace itself.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.controller
  - muster.training._cluster_record
options:
  cluster:
    description: Name of the cluster.
    type: str
    required: true
  name:
    description: Name of the template.
    type: str
    required: true
  node:
    description: Name of the machine. If empty, C(CLUSTER-0).
    type: str
    default: ""
  state:
    description:
      - V(present) ensures that the template exists.
      - V(absent) removes it, if it was made from a machine of the cluster.
    type: str
    choices: [present, absent]
    default: present
  start:
    description: Start the machine again.
    type: bool
    default: true
  force:
    description: Stop the machine even if a run may still be running on it.
    type: bool
    default: false
  network_id:
    description: ID of the cluster's network, if several have its name.
    type: str
    default: ""
  api_key:
    description:
      - API key of the team. Best left out; it is then taken from E(PAPERSPACE_API_KEY) or from the files that
        P(muster.training.paperspace#inventory) reads.
    type: str
  api_url:
    description: Address of the API. If empty, E(PAPERSPACE_API_URL), else U(https://api.paperspace.com/v1).
    type: str
    default: ""
  timeout:
    description: Seconds that one request may take.
    type: float
    default: 30.0
  retries:
    description: Number of retries after a temporary failure that leaves nothing in doubt.
    type: int
    default: 4
seealso:
  - module: muster.training.paperspace_cluster
  - module: muster.training.image_cleanup
"""

EXAMPLES = r"""
- name: Ensure a template of the first machine
  muster.training.paperspace_template:
    cluster: bert
    name: bert-with-data

- name: Remove the template
  muster.training.paperspace_template:
    cluster: bert
    name: bert-with-data
    state: absent
"""

RETURN = r"""
template:
  description: ID of the template, empty if there is none.
  returned: success
  type: str
  sample: tkni3aa4
msg:
  description: What exists now.
  returned: success
  type: str
"""
