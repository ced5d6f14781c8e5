# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: mpi_hostfile
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Render the nodes of a run as a hostfile of Open MPI or MPICH
description:
  - Makes the text of a hostfile, one line a node in the order of the ranks.
  - The two forms are not interchangeable. Open MPI reads C(host slots=N), MPICH and Intel MPI read C(host:N).
  - Start C(mpirun) of Open MPI on the first node. Version 4 gives the first ranks to the host on which it runs,
    wherever the file lists that.
positional: _input, form
options:
  _input:
    description:
      - The hosts, as P(muster.training.rank_table#filter) returns them.
      - A list of dictionaries with C(name), C(address), C(slots) and, on all of them or on none, C(rank) will do as
        well; without ranks the order of the list is the order of the nodes.
    type: list
    elements: dict
    required: true
  form:
    description:
      - V(openmpi) for C(mpirun --hostfile) of Open MPI.
      - V(mpich) for C(mpiexec -f) of MPICH and Intel MPI.
    type: str
    choices: [openmpi, mpich]
    default: openmpi
  use:
    description:
      - What the launcher is to reach the hosts by. Names must be known on the node that launches.
      - IPv6 addresses cannot be listed, since readers of a hostfile cut them at the colons.
    type: str
    choices: [name, address]
    default: name
seealso:
  - plugin: muster.training.rank_table
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Write the hostfile of Open MPI
  ansible.builtin.copy:
    content: "{{ nodes | muster.training.mpi_hostfile }}"
    dest: /etc/openmpi/hostfile
    mode: "0644"
  vars:
    nodes: "{{ groups['training'] | muster.training.rank_table(hostvars) }}"

- name: Write the hostfile of MPICH with addresses instead of names
  ansible.builtin.copy:
    content: "{{ nodes | muster.training.mpi_hostfile('mpich', use='address') }}"
    dest: /etc/mpich/hostfile
    mode: "0644"
  vars:
    nodes: "{{ groups['training'] | muster.training.rank_table(hostvars) }}"
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

from ansible_collections.muster.training.plugins.module_utils._hostfile import render_mpich, render_openmpi
from ansible_collections.muster.training.plugins.module_utils._rank_table import RankTableError, build_rank_table, shown


def mpi_hostfile(hosts: Iterable[Mapping[str, Any]], form: str = "openmpi", use: str = "name") -> str:
    """The content of a hostfile for mpirun (Open MPI) or mpiexec (MPICH)."""
    if form not in ("openmpi", "mpich"):
        raise AnsibleFilterError(f"The form of the hostfile is {shown(form)}. Needed: 'openmpi' or 'mpich'.")
    render = render_mpich if form == "mpich" else render_openmpi
    try:
        return render(build_rank_table(hosts), use)
    except RankTableError as exc:
        raise AnsibleFilterError(f"These hosts make no hostfile.\n{exc}") from exc


class FilterModule:
    """The filter as Ansible finds it."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"mpi_hostfile": mpi_hostfile}
