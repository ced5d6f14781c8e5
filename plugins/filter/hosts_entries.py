# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: hosts_entries
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Render the nodes of a cluster as lines of /etc/hosts
description:
  - Makes one line a node, in the order of the ranks, with the address, the name and, where the name has a domain, the
    short name.
  - A host whose name is an address gets no line. The text is empty if no host needs one.
  - C(slots) play no part here and may be left out.
positional: _input
options:
  _input:
    description:
      - The hosts, as P(muster.training.rank_table#filter) returns them.
      - A list of dictionaries with C(name), C(address), C(slots) and, on all of them or on none, C(rank) will do as
        well; without ranks the order of the list is the order of the nodes.
    type: list
    elements: dict
    required: true
seealso:
  - plugin: muster.training.rank_table
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Let every node know its peers by name
  ansible.builtin.blockinfile:
    path: /etc/hosts
    block: "{{ nodes | muster.training.hosts_entries }}"
    mode: "0644"
  vars:
    nodes: "{{ groups['training'] | muster.training.rank_table(hostvars, default_slots=1) }}"
"""

RETURN = r"""
_value:
  description: The lines.
  type: str
  sample: "10.0.0.10 node0.example.com node0\n10.0.0.11 node1.example.com node1\n"
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.muster.training.plugins.module_utils._hostfile import render_hosts_entries
from ansible_collections.muster.training.plugins.module_utils._rank_table import RankTableError, build_rank_table


def hosts_entries(hosts: Iterable[Mapping[str, Any]]) -> str:
    """Lines for /etc/hosts."""
    if not isinstance(hosts, (str, Mapping)):
        hosts = [{"slots": 1, **host} if isinstance(host, Mapping) else host for host in hosts]
    try:
        return render_hosts_entries(build_rank_table(hosts))
    except RankTableError as exc:
        raise AnsibleFilterError(f"These hosts make no entries of /etc/hosts.\n{exc}") from exc


class FilterModule:
    """The filter as Ansible finds it."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"hosts_entries": hosts_entries}
