# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: known_variables
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Refuse misspelt variables of a role
description:
  - Fails where a variable begins with the role's name and an underscore, but is none that the role documents in
    C(meta/argument_specs.yml). The nearest right name is shown. Ansible itself passes over such a variable in silence.
  - What is given with C(-e) is refused as well where the beginning is misspelt, as in C(sh_mesh_port).
  - Fails too where words stand alone behind C(-e), as C(--epochs 1) in C(-e launch_args="--resume --epochs 1"). Ansible
    ends a value at its first blank, and drops the rest in silence. The right form is shown.
  - Fails too where the variable C(job), which a job file sets, is no dictionary, has a key that is the default of no
    variable of the roles C(launch), C(code) and C(python_env), or has a value without effect, since the inventory sets
    its variable to another one. What is given with C(-e) counts before both.
  - Looks at the variables of all hosts of the play at once, so one task with C(run_once) does. Connects to nothing.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.controller
options:
  role_path:
    description:
      - The role's directory, C(role_path) within the role. Its last part is the role's name.
      - If omitted, only what is given with C(-e) is looked at.
    type: path
  short_names:
    description:
      - Variables without the prefix that the role reads as well. They are meant for the command line, so only what is
        given with C(-e) is compared with them, and only what is very much alike is refused.
      - One that is given with C(-e), while the variable of that name with the prefix is set to something else, is
        refused too. It would have no effect.
    type: list
    elements: str
    default: []
  settled:
    description:
      - Those of O(short_names) that the playbook has read already, such as the beginning of a run's name. The variable
        with the prefix is what they were found to mean, so the two are not compared.
    type: list
    elements: str
    default: []
  values:
    description:
      - Whether to fail too where a value is none of those that the role documents for its entry point C(main).
      - Ansible's own check of a role does it on each host, which costs a launch 0.1 s a dozen nodes.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Check for misspelt variables
  muster.training.known_variables:
    role_path: "{{ role_path }}"
    short_names: [nnodes, nproc_per_node]
  run_once: true
"""

RETURN = r"""#"""
