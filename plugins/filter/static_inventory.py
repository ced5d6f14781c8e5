# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: static_inventory
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Create an inventory from a hostfile or a list of addresses
description:
  - Reads the hostfiles of DeepSpeed and Open MPI (C(host slots=N)), of MPICH (C(host:N)), and lists of hosts without
    slots. Comments start with C(#). A single line C(localhost slots=2) means this machine.
  - Returns the text of an inventory with the group C(training), to be used together with one of
    P(muster.training.ranks#inventory). Names are resolved on the controller; you must add addresses that cannot be
    resolved.
  - Fails with the number of each line that cannot be read.
positional: _input
options:
  _input:
    description: The content of the hostfile, or a list of names and addresses.
    type: raw
    required: true
  source:
    description: Origin of the machines, which is written to the inventory as a comment.
    type: str
    default: -e machines
  check:
    description: Whether to return the errors, or an empty string, instead of the inventory.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Write an inventory of two machines
  ansible.builtin.copy:
    content: "{{ ['10.0.0.10', '10.0.0.11'] | muster.training.static_inventory }}"
    dest: static.yml
    mode: "0644"
"""

RETURN = r"""
_value:
  description: The text of the inventory, in YAML, or the errors.
  type: str
"""

import ipaddress
import socket
from collections.abc import Callable

from ansible.errors import AnsibleFilterError

from ansible_collections.muster.training.plugins.plugin_utils._cluster.static_hosts import read_hosts, render_inventory


def resolve_address(name: str) -> str:
    """Return the address that a name resolves to here, preferably IPv4, or "" if other machines could not use it."""
    try:
        entries = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ""
    address = min(entries, key=lambda entry: entry[0] != socket.AF_INET)[4][0]
    parsed = ipaddress.ip_address(address)
    return "" if parsed.is_loopback or (parsed.version == 6 and parsed.is_link_local) else str(address)


def static_inventory(machines: str | list[str], source: str = "-e machines", check: bool = False) -> str:
    """Render an inventory from a hostfile or a list of hosts. check: whether to return only errors."""
    lines, item_name = (machines.splitlines(), "line") if isinstance(machines, str) else (map(str, machines), "host")
    try:
        hosts = read_hosts(lines, item_name)
        return "" if check else render_inventory(hosts, source, resolve_address)
    except ValueError as error:
        if check:
            return f"{source}: {error}"
        raise AnsibleFilterError(f"{source}: {error}") from error


class FilterModule:
    """Expose the filter to Ansible."""

    def filters(self) -> dict[str, Callable[..., str]]:
        return {"static_inventory": static_inventory}
