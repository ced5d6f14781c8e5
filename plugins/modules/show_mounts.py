# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: show_mounts
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Show the mounts of data on each node
description:
  - Shows a table of network mounts, and of mounts that should exist, with their state, source and free space.
  - Runs on the controller, connects to nothing and changes nothing. Does not fail on a broken mount; see RV(mounts).
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.controller
options:
  facts:
    description:
      - Registered result of M(muster.training.node_facts) with the part V(storage) for each node, by name. A node
        without facts counts as not responding.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Read the mounts
  muster.training.node_facts:
    parts: [storage]
  register: read

- name: Show the mounts
  muster.training.show_mounts:
    facts: "{{ dict(ansible_play_hosts_all | zip(ansible_play_hosts_all | map('extract', hostvars, 'read'))) }}"
  run_once: true
"""

RETURN = r"""
mounts:
  description: The rows of the table. A node without mounts, or without a reply, has one row with an empty C(mount).
  returned: always
  type: list
  elements: dict
  contains:
    node:
      description: Name of the node.
      returned: always
      type: str
      sample: node0
    mount:
      description: Where it is mounted.
      returned: always
      type: str
      sample: /data
    source:
      description: Type and source.
      returned: always
      type: str
      sample: "nfs4 10.0.0.5:/data"
    state:
      description: V(mounted), V(DEAD), V(HANGS), V(NOT READABLE), V(NOT MOUNTED), V(no mounts) or V(NO ANSWER).
      returned: always
      type: str
      sample: mounted
    free:
      description: Free space, V(-) if it is unknown or unlimited.
      returned: always
      type: str
      sample: 812.4 GiB
    message:
      description: Why it cannot be used; otherwise empty.
      returned: always
      type: str
      sample: ""
"""
