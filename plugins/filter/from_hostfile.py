# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: from_hostfile
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Read a hostfile of DeepSpeed or Open MPI, strictly
description:
  - Reads lines of the form C(host slots=N), empty lines, and comments after C(#).
  - Accepts only lines that DeepSpeed and Open MPI both read as intended. Fails with the number of each line that one of
    them would reject or silently misread, such as Windows line endings, text after the slots, C(slots=0), user names,
    patterns, IPv6 addresses, or two hosts with the same short name.
positional: _input
options:
  _input:
    description: The content of the hostfile.
    type: str
    required: true
seealso:
  - plugin: muster.training.hostfile
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Check a handwritten hostfile
  ansible.builtin.debug:
    msg: "{{ lookup('ansible.builtin.file', 'hostfile') | muster.training.from_hostfile }}"
"""

RETURN = r"""
_value:
  description: The hosts, in the order of the file.
  type: list
  elements: dict
  contains:
    name:
      description: Name of the host.
      type: str
    slots:
      description: Number of processes on it.
      type: int
  sample:
    - {name: node0, slots: 8}
    - {name: node1, slots: 8}
"""

from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.muster.training.plugins.plugin_utils._cluster.hostfile_formats import (
    HostfileError,
    parse_hostfile,
)


def from_hostfile(text: str) -> list[dict[str, Any]]:
    """Return the hosts and slots of a hostfile."""
    try:
        return [{"name": name, "slots": slots} for name, slots in parse_hostfile(text)]
    except HostfileError as exc:
        raise AnsibleFilterError(f"DeepSpeed and Open MPI would read this hostfile differently.\n{exc}") from exc


class FilterModule:
    """Expose the filter to Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"from_hostfile": from_hostfile}
