# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: list_code
author: muster contributors (@muster)
version_added: 0.1.0
short_description: List a code directory that will be copied to the nodes
description:
  - Lists the files that the role C(code) would copy from a directory on the controller, with sizes, times, permissions,
    and hashes of files up to 1 MiB, so that M(muster.training.node_facts) can compare it with the nodes' copies.
  - Needs rsync on the controller, which decides what is excluded. Connects to nothing and changes nothing.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.controller
options:
  source:
    description: Directory on the controller.
    type: path
    required: true
  exclude:
    description: Files that are not copied, as rsync patterns.
    type: list
    elements: str
    default: []
  directory:
    description: Directory on the nodes, absolute or relative to the home of O(user).
    type: str
    required: true
  user:
    description: Its owner on the nodes. If empty, defaults to the login user.
    type: str
    default: ""
  requirements:
    description: Also return the project's requirements, to compare them with the installed ones.
    type: bool
    default: false
seealso:
  - module: muster.training.node_facts
  - module: muster.training.compare_code
"""

EXAMPLES = r"""
- name: List the local code
  muster.training.list_code:
    source: ~/project
    exclude: [.git/, "*.pyc"]
    directory: project
  register: local
  run_once: true

- name: Compare the nodes' copies with the local code
  muster.training.node_facts:
    code: "{{ local.code }}"
  register: node
"""

RETURN = r"""
code:
  description: The code, as O(muster.training.node_facts#module:code) expects it.
  returned: success
  type: dict
  contains:
    source:
      description: O(source).
      type: str
      sample: /home/me/project
    directory:
      description: O(directory), without a leading C(~/).
      type: str
      sample: project
    user:
      description: O(user).
      type: str
      sample: ""
    listing:
      description: All names with their attributes, compressed. Empty if it would exceed 64 KiB.
      type: str
      sample: eJyrVkrOz0tVslIyVKoFABxxA+g=
    digest:
      description: One hash of all names, sizes, times and permissions.
      type: str
      sample: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
    files:
      description: Number of files and links.
      type: int
      sample: 12
    problem:
      description: Why it cannot be read. Empty if it can.
      type: str
      sample: ""
    requirements:
      description: Name of the project's requirements file. Empty if there is none.
      type: str
      sample: requirements.txt
    required:
      description: Hash of the project's requirements. Empty if there are none.
      type: str
      sample: 2c26b46b68ffc68ff99b453c1d304134
recorded:
  description:
    - O(source) and all files and links in it, with a fingerprint each, for O(muster.training.run_record#module:code).
  returned: success
  type: dict
  sample: {source: /home/me/project, files: {train.py: 9f86d081884c7d65}}
"""
