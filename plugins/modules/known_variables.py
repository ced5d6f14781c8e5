# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: known_variables
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Fail on misspelt variables of a role
description:
  - Fails if a variable starts with the role's name and an underscore, but is not documented in the role's
    C(meta/argument_specs.yml). Shows the closest valid name. Ansible itself silently ignores such a variable.
  - For variables given with C(-e), also fails if the prefix is misspelt, as in C(sh_mesh_port).
  - Also fails if C(-e) has stray words, such as C(--epochs 1) in C(-e launch_args="--resume --epochs 1"). Ansible ends
    a value at its first space and silently drops the rest. Shows the correct form.
  - Also fails if the variable C(job), which a job file sets, is not a dictionary, or has a key that none of the
    variables of the roles C(launch), C(code) and C(python_env) uses as its default.
  - Checks the variables of all hosts of the play at once, so one task with C(run_once) is enough. Connects to nothing.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.controller
options:
  role_path:
    description:
      - Directory of the role, which is C(role_path) within the role. Its last component is the role's name.
      - If omitted, only variables given with C(-e) are checked.
    type: path
  short_names:
    description:
      - Variables without the prefix that the role also reads. They are meant for the command line, so only variables
        set with C(-e) are compared with them, and only very similar names are rejected.
      - A short name set with C(-e) is also rejected if the prefixed variable has another value, since it would have no
        effect.
    type: list
    elements: str
    default: []
  settled:
    description:
      - Those of O(short_names) that the playbook has already resolved, such as an abbreviated name of a run. The
        prefixed variable has the result, so the two are not compared.
    type: list
    elements: str
    default: []
  values:
    description:
      - Also fail if a value is not one of the choices that the role documents for O(entry_point).
      - Ansible's own validation of a role runs on each host, which costs a launch 0.1 s per dozen nodes.
    type: bool
    default: false
  entry_point:
    description: The tasks of the role whose values are checked with O(values).
    type: str
    default: main
"""

EXAMPLES = r"""
- name: Check for misspelt variables
  muster.training.known_variables:
    role_path: "{{ role_path }}"
    short_names: [nnodes, nproc_per_node]
  run_once: true
"""

RETURN = r"""#"""
