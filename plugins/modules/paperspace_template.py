# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: paperspace_template
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Create a Paperspace template from a cluster's machine
description:
  - Stops the machine, has Paperspace create a template of its disk, waits until it is listed, and starts the machine
    again. An existing template of this name and machine is not changed.
  - M(muster.training.cluster) creates machines from it if
    O(muster.training.cluster#module:template) is its name.
  - The template contains the whole disk. Run M(muster.training.image_cleanup) on the machine first, as the playbook
    C(muster.training.image) does.
  - A template is billed monthly as long as it exists, even after its machine was removed.
  - Each request is first written to the journal C(.muster/clusters/CLUSTER.json). After an interruption at any point,
    the next run continues and does not create a second template.
  - Tested against a server that follows the API's documentation, never against Paperspace itself.
extends_documentation_fragment:
  - muster.training._attributes.paperspace
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.controller
  - muster.training._cluster_record
  - muster.training._paperspace
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
    description: Name of the machine. If empty, defaults to C(CLUSTER-0).
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
    description: Start the machine again afterwards.
    type: bool
    default: true
  force:
    description: Stop the machine even if a run may still be running on it.
    type: bool
    default: false
  network_id:
    description: ID of the cluster's network. Required only if several have its name.
    type: str
    default: ""
  retries:
    description:
      - Number of retries of a request after a temporary failure. Requests that may have taken effect are not repeated.
    type: int
    default: 4
seealso:
  - module: muster.training.cluster
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
  description: ID of the template. Empty if there is none.
  returned: success
  type: str
  sample: tkni3aa4
msg:
  description: Summary of the resulting state.
  returned: success
  type: str
"""
