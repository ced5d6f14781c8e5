# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: etc_hosts
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Add the nodes of a cluster to the text of /etc/hosts
description:
  - Adds a block with one line per node at the top, and removes the names of the nodes from all other lines, including
    C(127.0.1.1). Everything else is kept.
  - Every name of the cluster then resolves to the C(node_address) of its node, even on the node itself.
  - The names of the cluster are those of the inventory. A machine's own hostname appears in its own file only.
  - Fails if the machine's hostname is C(localhost) or the name of another node.
positional: _input, nodes
options:
  _input:
    description: Current text of C(/etc/hosts). If empty, only the block is returned.
    type: str
    required: true
  nodes:
    description:
      - The nodes as M(muster.training.choose_nodes) returns them, a list of dictionaries with C(name) and C(address).
    type: list
    elements: dict
    required: true
  node_name:
    description: Name of the node to which the file belongs. If empty, only the names of the inventory are added.
    type: str
    default: ""
  hostname:
    description: Output of C(uname -n) on that node. This name is added after all others.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Show the new text of /etc/hosts
  ansible.builtin.debug:
    msg: "{{ present | muster.training.etc_hosts(nodes, node_name='node0', hostname='psucgene4') }}"
  vars:
    present: |
      127.0.0.1 localhost
      127.0.1.1 psucgene4
    nodes:
      - {name: node0, address: 10.0.0.10}
      - {name: node1, address: 10.0.0.11}
"""

RETURN = r"""
_value:
  description: The text of C(/etc/hosts).
  type: str
  sample: |
    # BEGIN muster: the nodes of the cluster
    10.0.0.10 node0
    10.0.0.11 node1
    10.0.0.10 psucgene4
    # END muster
    127.0.0.1 localhost
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.muster.training.plugins.plugin_utils._cluster.etc_hosts import merge_etc_hosts
from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import (
    RankTableError,
    build_rank_table,
)


def etc_hosts(text: str, nodes: Iterable[Mapping[str, Any]], node_name: str = "", hostname: str = "") -> str:
    """Return the text of /etc/hosts with the nodes added."""
    try:
        table = build_rank_table([{**node, "slots": 1} for node in nodes])  # slots do not matter here
        return merge_etc_hosts(text, table, node_name, hostname)
    except RankTableError as exc:
        raise AnsibleFilterError(f"These nodes cannot resolve each other by name.\n{exc}") from exc


class FilterModule:
    """Expose the filter to Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"etc_hosts": etc_hosts}
