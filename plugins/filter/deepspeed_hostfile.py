# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: deepspeed_hostfile
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Render the nodes of a run as a hostfile of DeepSpeed
description:
  - Makes the text of the file that C(deepspeed --hostfile) reads, C(host slots=N) a line, in the order of the ranks.
  - Only what DeepSpeed and Open MPI read alike is written; anything else is an error that names the hosts.
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
- name: Write the hostfile on the node that launches
  ansible.builtin.copy:
    content: "{{ nodes | muster.training.deepspeed_hostfile }}"
    dest: /etc/deepspeed/hostfile
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

from ansible_collections.muster.training.plugins.module_utils._hostfile import render_deepspeed
from ansible_collections.muster.training.plugins.module_utils._rank_table import RankTableError, build_rank_table


def deepspeed_hostfile(hosts: Iterable[Mapping[str, Any]], use: str = "name") -> str:
    """The content of a hostfile for DeepSpeed."""
    try:
        return render_deepspeed(build_rank_table(hosts), use)
    except RankTableError as exc:
        raise AnsibleFilterError(f"These hosts make no hostfile.\n{exc}") from exc


class FilterModule:
    """The filter as Ansible finds it."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"deepspeed_hostfile": deepspeed_hostfile}
