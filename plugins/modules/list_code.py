# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: list_code
author: muster contributors (@muster)
version_added: 0.1.0
short_description: List a directory of code that is to be on the nodes
description:
  - Lists what the role code would copy of a directory of the controller, with sizes, times, permissions, and hashes of
    files up to 1 MiB, so that M(muster.training.node_facts) can compare it with the nodes' copies.
  - Needs rsync on the controller, which judges what is left out. Connects to nothing and changes nothing.
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
    description: What of it is not copied, in the notation of rsync.
    type: list
    elements: str
    default: []
  directory:
    description: Where it belongs on the nodes, absolute or below the home of O(user).
    type: str
    required: true
  user:
    description: Whose it is on the nodes. If empty, of the one who logs in.
    type: str
    default: ""
  requirements:
    description: Whether what the project requires is told, to be compared with what was installed.
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
  register: here
  run_once: true

- name: Compare the nodes' copies with it
  muster.training.node_facts:
    code: "{{ here.code }}"
  register: node
"""

RETURN = r"""
code:
  description: The code, as O(muster.training.node_facts#module:code) takes it.
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
      description: All names with what is known of each, compressed. Empty where that is longer than 64 KiB.
      type: str
      sample: eJyrVkrOz0tVslIyVKoFABxxA+g=
    digest:
      description: One hash of all names, sizes, times and permissions.
      type: str
      sample: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
    files:
      description: How many files and links there are.
      type: int
      sample: 12
    problem:
      description: Why it cannot be read, empty where it can.
      type: str
      sample: ""
    requirements:
      description: The file of it that says what the project requires, empty where there is none.
      type: str
      sample: requirements.txt
    required:
      description: Hash of what the project requires, empty where it requires nothing.
      type: str
      sample: 2c26b46b68ffc68ff99b453c1d304134
"""
