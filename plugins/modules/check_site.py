# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: check_site
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Reject options without effect before the roles of a play change anything
description:
  - Compares the roles of this collection in the play with C(--tags), C(--skip-tags) and C(-e).
  - Fails if a variable is misspelt, as M(muster.training.known_variables) does, for all roles at once, including
    disabled ones.
  - Fails if a tag in C(--tags) selects only disabled roles, if C(-e) enables a role that the tags exclude, or if no
    role remains.
  - If the playbook contains nothing else, also fails if no role has a tag, or if nothing reads a variable set with
    C(-e). Variables from a file (C(-e @FILE)) may serve other playbooks and are not checked.
  - Fails if a value on any node violates the argument specification of a role. This is checked for roles that the play
    imports with C(rolespec_validate=false), which saves a process per role and node; all other roles check their values
    themselves.
  - Fails if the directory C(code_source) does not exist on the controller, or if a collection whose modules the roles
    use is not installed.
  - Reports all problems at once. One task with C(run_once) and the tag C(always) is enough. Connects to nothing.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.controller
seealso:
  - module: muster.training.known_variables
"""

EXAMPLES = r"""
- name: Set up the nodes
  hosts: training
  gather_facts: false
  any_errors_fatal: true
  pre_tasks:
    - name: Check tags, variables, paths and collections
      muster.training.check_site:
      run_once: true
      tags: always
  tasks:
    - name: Run firewall
      ansible.builtin.import_role: {name: muster.training.firewall, rolespec_validate: false}
      tags: firewall
"""

RETURN = r"""#"""
