# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: paperspace_template
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Make a template of a cluster's machine at Paperspace, from which others are made
description:
  - Stops the machine, has Paperspace make a template of its disk, waits until it is listed, and starts the machine
    again. A template of this name and machine that is there already is left as it is.
  - M(muster.training.paperspace_cluster) makes machines from it, with its name in
    O(muster.training.paperspace_cluster#module:template).
  - The template holds the whole disk. Run M(muster.training.image_cleanup) on the machine first, as the playbook
    C(muster.training.image) does.
  - A template costs by the month as long as it is kept, also when its machine is gone.
  - What is asked for is recorded before the request in C(.muster/clusters/CLUSTER.json). Interrupted at any moment and
    run again, it goes on, and makes no second one.
  - Was tested against a server that does as the API's document says, and never against Paperspace itself.
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
      - V(present), the template is there.
      - V(absent), it is removed, if it was made of a machine of the cluster.
    type: str
    choices: [present, absent]
    default: present
  start:
    description: Whether the machine is started again.
    type: bool
    default: true
  force:
    description: Whether the machine may be stopped while a run may be alive on it.
    type: bool
    default: false
  network_id:
    description: Id of the cluster's network, where several have its name.
    type: str
    default: ""
  api_key:
    description:
      - The API key of the team. Best left out. It is taken from E(PAPERSPACE_API_KEY) then, or from the files that
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
    description: How often a request is sent again after a passing failure that leaves nothing in doubt.
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
  description: Id of the template, empty where there is none.
  returned: success
  type: str
  sample: tkni3aa4
msg:
  description: What is there.
  returned: success
  type: str
"""
