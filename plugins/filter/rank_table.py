# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: rank_table
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Put the hosts of a group in rank order
description:
  - Checks the hosts of a cluster, orders them and numbers them, in the same way as the rest of this collection.
  - Reports all problems at once, each with the cause, the host and the remedy.
positional: _input, hostvars
options:
  _input:
    description:
      - Names of hosts, whose C(node_address), C(node_slots) and C(node_rank) are looked up in O(hostvars).
      - Or a list of dictionaries with C(name), C(address) (an IP address), C(slots) (processes to start on the host)
        and, on all of them or on none, C(rank).
    type: list
    elements: raw
    required: true
  hostvars:
    description: Variables of all hosts, by name. Required if O(_input) contains names.
    type: dict
  default_slots:
    description:
      - Number of processes to start on a host of O(hostvars) without C(node_slots).
      - If omitted, such a host is an error.
    type: int
  nnodes:
    description:
      - Number of nodes to take, from the start of the order.
      - If omitted, all hosts are taken.
    type: int
  order:
    description:
      - Order of hosts that have no rank.
      - V(inventory) keeps the order in which they are given. V(name) sorts by name, C(node2) before C(node10).
    type: str
    choices: [inventory, name]
    default: inventory
  rank0:
    description: Name of the host that gets rank 0, whatever its position. The others keep their order.
    type: str
seealso:
  - plugin: muster.training.ranks
    plugin_type: inventory
"""

EXAMPLES = r"""
- name: Show which ranks the first four nodes run
  ansible.builtin.debug:
    msg: "{{ groups['training'] | muster.training.rank_table(hostvars, nnodes=4) }}"

- name: Show the ranks of hosts that are in no inventory
  ansible.builtin.debug:
    msg: "{{ hosts | muster.training.rank_table(rank0='node1') }}"
  vars:
    hosts:
      - {name: node0, address: 10.0.0.10, slots: 4}
      - {name: node1, address: 10.0.0.11, slots: 8}
"""

RETURN = r"""
_value:
  description: The nodes in rank order.
  type: list
  elements: dict
  contains:
    name:
      description: Name of the host.
      type: str
    address:
      description: Address at which the other nodes reach it, in its canonical form.
      type: str
    slots:
      description: Number of processes on this node.
      type: int
    node_rank:
      description: Rank of the node, from 0.
      type: int
    first_rank:
      description: Global rank of the first process on this node.
      type: int
  sample:
    - {name: node1, address: 10.0.0.11, slots: 8, node_rank: 0, first_rank: 0}
    - {name: node0, address: 10.0.0.10, slots: 4, node_rank: 1, first_rank: 8}
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import (
    RankTableError,
    build_rank_table,
    format_value,
)


def rank_table(  # noqa: PLR0913
    hosts: Iterable[Any],
    hostvars: Mapping[str, Mapping[str, Any]] | None = None,
    default_slots: int | None = None,
    nnodes: int | None = None,
    order: str = "inventory",
    rank0: str | None = None,
) -> list[dict[str, Any]]:
    """Return the nodes of a run as plain data, in rank order."""
    if hostvars is not None and not isinstance(hosts, (str, Mapping)):
        hosts = [_host(name, hostvars, default_slots) for name in hosts]
    try:
        return build_rank_table(hosts, nnodes=nnodes, order=order, rank0=rank0).as_dicts()
    except RankTableError as exc:
        raise AnsibleFilterError(f"These hosts do not form a valid cluster.\n{exc}") from exc


def _host(name: str, hostvars: Mapping[str, Mapping[str, Any]], default_slots: int | None) -> dict[str, Any]:
    if not isinstance(name, str) or name not in hostvars:
        raise AnsibleFilterError(f"hostvars has no host named {format_value(name)}. Pass names of inventory hosts.")
    variables = hostvars[name]
    return {
        "name": name,
        "address": variables.get("node_address"),
        "slots": variables.get("node_slots", default_slots),
        "rank": variables.get("node_rank"),
    }


class FilterModule:
    """Expose the filter to Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"rank_table": rank_table}
