# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: node_results
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Return the results of call_nodes by node
description:
  - Returns the results of M(muster.training.call_nodes) on all hosts of the play, whether it called the nodes from one
    process, or a second task with the same registered variable called each node from its own process.
options:
  _terms:
    description: The name of the registered variable.
    type: list
    elements: str
    required: true
seealso:
  - module: muster.training.call_nodes
"""

EXAMPLES = r"""
- name: Read the facts of all nodes
  muster.training.call_nodes:
    action: node_facts
    nodes: "{{ ansible_play_hosts }}"
    options:
      parts: [storage]
  register: facts
  run_once: true

- name: Read the facts of each node where that was not possible
  muster.training.call_nodes:
    action: node_facts
    options:
      parts: [storage]
    results: "{{ facts.by_node }}"
  when: not facts.complete
  register: facts

- name: Show the mounts of all nodes
  muster.training.show_mounts:
    facts: "{{ lookup('muster.training.node_results', 'facts') }}"
  run_once: true
"""

RETURN = r"""
_value:
  description: For each name, one dictionary with the result of each host of the play, or null if it has none.
  type: list
  elements: dict
  sample: [{node0: {changed: false, facts: {}}, node1: null}]
"""

from collections.abc import Mapping
from typing import Any

from ansible.plugins.lookup import LookupBase


def results_by_node(name: str, variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the results that a variable holds: on any host, of all nodes, or on each host, of this host."""
    hosts, registered = variables["ansible_play_hosts_all"], variables.get(name)
    results = registered.get("by_node") if isinstance(registered, Mapping) and registered.get("complete") else None
    if isinstance(results, Mapping):
        return {host: results.get(host) for host in hosts}
    return {host: variables["hostvars"][host].get(name) for host in hosts}


class LookupModule(LookupBase):
    """Lookup plugin that collects the results of a registered variable from all hosts."""

    def run(self, terms: list[Any], variables: dict[str, Any] | None = None, **kwargs: Any) -> list[dict[str, Any]]:
        """Return a list with a dictionary for each name."""
        self.set_options(var_options=variables, direct=kwargs)
        return [results_by_node(name, variables or {}) for name in terms]
