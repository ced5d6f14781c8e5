# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: hostfile
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Render the nodes of a run as a hostfile
description:
  - Produces the text of a file that lists the nodes, one line per node in rank order.
  - The formats are not interchangeable. DeepSpeed and Open MPI read C(host slots=N), MPICH and Intel MPI C(host:N).
positional: _input, format
options:
  _input:
    description:
      - The hosts, as P(muster.training.rank_table#filter) returns them.
      - A list of dictionaries with C(name), C(address), C(slots) and, on all of them or on none, C(rank) also works;
        without ranks, the order of the list is the order of the nodes.
    type: list
    elements: dict
    required: true
  format:
    description:
      - V(deepspeed) for C(deepspeed --hostfile). Writes only lines that DeepSpeed and Open MPI read in the same way;
        anything
        else is an error that names the hosts.
      - V(openmpi) for C(mpirun --hostfile) of Open MPI. Start it on the first node. Version 4 gives the first ranks to
        the host it runs on, wherever that host is listed.
      - V(mpich) for C(mpiexec -f) of MPICH and Intel MPI.
      - V(etc_hosts) for lines of C(/etc/hosts), with the address, the name and, if the name has a domain, the short
        name. A host whose name is an address gets no line. Slots are optional and ignored.
    type: str
    choices: [deepspeed, openmpi, mpich, etc_hosts]
    default: deepspeed
  use:
    description:
      - Whether the launcher reaches the hosts by name or address. Names must resolve on the node that runs the
        launcher.
      - IPv6 addresses cannot be listed, since hostfile parsers split them at the colons.
      - Not used with O(format=etc_hosts), which contains both.
    type: str
    choices: [name, address]
    default: name
seealso:
  - plugin: muster.training.from_hostfile
    plugin_type: filter
  - plugin: muster.training.rank_table
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Write the hostfile of DeepSpeed on the node that runs the launcher
  ansible.builtin.copy:
    content: "{{ nodes | muster.training.hostfile }}"
    dest: /etc/deepspeed/hostfile
    mode: "0644"
  vars:
    nodes: "{{ groups['training'] | muster.training.rank_table(hostvars) }}"

- name: Write the hostfile of MPICH with addresses instead of names
  ansible.builtin.copy:
    content: "{{ nodes | muster.training.hostfile('mpich', use='address') }}"
    dest: /etc/mpich/hostfile
    mode: "0644"
  vars:
    nodes: "{{ groups['training'] | muster.training.rank_table(hostvars) }}"

- name: Ensure every node resolves its peers by name
  ansible.builtin.blockinfile:
    path: /etc/hosts
    block: "{{ nodes | muster.training.hostfile('etc_hosts') }}"
    mode: "0644"
  vars:
    nodes: "{{ groups['training'] | muster.training.rank_table(hostvars, default_slots=1) }}"
"""

RETURN = r"""
_value:
  description: The content of the hostfile.
  type: str
  sample: "node0 slots=8\nnode1 slots=8\n"
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.muster.training.plugins.plugin_utils._cluster.hostfile_formats import (
    render_deepspeed,
    render_hosts_entries,
    render_mpich,
    render_openmpi,
)
from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import (
    RankTableError,
    build_rank_table,
    format_value,
)

RENDERERS: dict[str, Callable[..., str]] = {
    "deepspeed": render_deepspeed,
    "openmpi": render_openmpi,
    "mpich": render_mpich,
    "etc_hosts": lambda table, _use: render_hosts_entries(table),
}


def hostfile(hosts: Iterable[Mapping[str, Any]], format: str = "deepspeed", use: str = "name") -> str:  # noqa: A002
    """Render a hostfile."""
    render = RENDERERS.get(format)
    if render is None:
        valid_formats = ", ".join(map(repr, RENDERERS))
        raise AnsibleFilterError(f"Unknown hostfile format {format_value(format)}. Use one of {valid_formats}.")
    if format == "etc_hosts" and not isinstance(hosts, (str, Mapping)):
        hosts = [{"slots": 1, **host} if isinstance(host, Mapping) else host for host in hosts]
    try:
        return render(build_rank_table(hosts), use)
    except RankTableError as exc:
        raise AnsibleFilterError(f"Cannot render a hostfile for these hosts.\n{exc}") from exc


class FilterModule:
    """Expose the filter to Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"hostfile": hostfile}
