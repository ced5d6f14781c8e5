# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: project_files
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Write the missing files of a project directory
description:
  - Writes files on the controller in one task. An existing file is left alone, whatever its content.
  - Connects to nothing. For files on nodes, see M(muster.training.user_files).
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.controller_diff
options:
  directory:
    description: Directory on the controller. Created if missing.
    type: path
    required: true
  files:
    description: The files, in order.
    type: list
    elements: dict
    required: true
    suboptions:
      path:
        description: Path below O(directory). Parent directories are created.
        type: str
        required: true
      content:
        description: Complete content.
        type: str
        required: true
      executable:
        description: Make it executable, with permissions V(0755) instead of V(0644).
        type: bool
        default: false
seealso:
  - module: muster.training.user_files
"""

EXAMPLES = r"""
- name: Write the files of a project
  muster.training.project_files:
    directory: ~/my-project
    files:
      - path: group_vars/training.yml
        content: "code_source: ~/project\n"
      - path: muster
        content: "{{ lookup('ansible.builtin.file', 'muster.py', rstrip=false) }}"
        executable: true
"""

RETURN = r"""
written:
  description: Paths of the files that were written, or in check mode would be, in order.
  returned: always
  type: list
  elements: str
  sample: [group_vars/training.yml, muster]
"""
