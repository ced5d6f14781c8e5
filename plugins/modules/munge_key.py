# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: munge_key
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Give all nodes of a Slurm cluster the same MUNGE key
description:
  - Reads the key of a node, or replaces it with O(key). Needs root on the node, and the package C(munge).
  - Whoever has the key can act as any user on all nodes. It travels over the connection and stays in memory on this
    machine; set C(no_log) in both tasks.
  - C(munged) reads a new key when it is restarted.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.node
options:
  key:
    description: The key, in Base64. If empty, the node's key is returned.
    type: str
    default: ""
seealso:
  - module: muster.training.node_state
"""

EXAMPLES = r"""
- name: Read the key of the first node
  muster.training.munge_key:
  register: munge
  become: true
  no_log: true
  when: inventory_hostname == ansible_play_hosts[0]

- name: Ensure the same key on all nodes
  muster.training.munge_key:
    key: "{{ hostvars[ansible_play_hosts[0]].munge.key }}"
  become: true
  no_log: true
"""

RETURN = r"""
key:
  description: The node's key, in Base64.
  returned: if O(key) is empty
  type: str
  sample: VEhJUyBLRVkgSVMgTk9UIEEgU0VDUkVULCBCVVQgQU4gRVhBTVBMRQ==
"""
