# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: python_environments
author: muster contributors (@muster)
version_added: 0.1.0
short_description: List the Python environments of a node, and remove one
description:
  - Lists the environments that the role P(muster.training.python_env#role) has created on a node, in one call.
  - Removes one with its wheels and locks, with the rights of its owner. An environment that a process uses is not
    removed.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.node
options:
  directory:
    description: Directory of all environments, C(python_env_directory) of the role.
    type: str
    required: true
  remove:
    description: Name of an environment to remove. Nothing is changed on a node that does not have it.
    type: str
    default: ""
seealso:
  - module: muster.training.show_environments
  - module: muster.training.python_layer
"""

EXAMPLES = r"""
- name: List the environments of each node
  muster.training.python_environments:
    directory: /opt/muster
  become: true
  register: listed
"""

RETURN = r"""
environments:
  description: The environments on this node, without the one that was removed.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Its name; V(env) is the one without a project.
      type: str
      sample: project
    path:
      description: Its directory.
      type: str
      sample: /opt/muster/envs/project/env
    python:
      description: Minor release of Python.
      type: str
      sample: "3.12"
    torch:
      description: Version of torch, empty if there is none.
      type: str
      sample: 2.8.0+cu126
    size:
      description: Size of all its files, in bytes, including those that it shares with others.
      type: int
      sample: 7516192768
    freed:
      description: Space that a removal frees, in bytes.
      type: int
      sample: 314572800
    used:
      description: When its interpreter was last started, in seconds since 1970. Accurate to a day.
      type: float
      sample: 1795234086.7
    processes:
      description: Numbers of the processes that use it.
      type: list
      elements: int
      sample: []
    runs:
      description: Names of the runs of these processes.
      type: list
      elements: str
      sample: []
removed:
  description: Whether the environment was removed, or in check mode would be.
  returned: success
  type: bool
  sample: false
freed:
  description: Space that was freed, in bytes.
  returned: if an environment was removed
  type: int
  sample: 314572800
"""
