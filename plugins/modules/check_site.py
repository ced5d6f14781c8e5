# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: check_site
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Refuse what has no effect, before the roles of a play change anything
description:
  - Compares the roles of this collection in the play with what was asked for by C(--tags), C(--skip-tags) and C(-e).
  - Fails where a variable is misspelt, as M(muster.training.known_variables) does, for all roles at once, also for
    those that are switched off.
  - Fails where a tag of C(--tags) leads only to roles that are off, where C(-e) switches a role on that the tags leave
    out, and where no role is left.
  - Where the playbook holds nothing else, also fails where no role has a tag, and where nothing reads a variable that
    was typed behind C(-e). Variables of a file (C(-e @FILE)) may serve other playbooks and are not compared.
  - Fails where the directory C(code_source) does not exist on this machine, and where a collection is not installed
    whose modules the roles use.
  - All that is wrong is told at once. One task with C(run_once) and the tag C(always) does. Connects to nothing.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.controller
seealso:
  - module: muster.training.known_variables
"""

EXAMPLES = r"""
- name: Check tags, variables, paths and collections
  muster.training.check_site:
  run_once: true
  tags: always
"""

RETURN = r"""#"""
