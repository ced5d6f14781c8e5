# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: listing_differences
author: muster contributors (@muster)
version_added: 0.1.0
short_description: List the mounts whose contents differ between nodes
description:
  - Compares the listings of M(muster.training.data_mount) on several nodes. The listing of most nodes counts as
    correct; in a tie, that of the first node.
positional: _input
options:
  _input:
    description: For each node by name, in node order, the count and digest of each listing by mount.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Fail with the differences
  ansible.builtin.debug:
    msg: "{{ listings | muster.training.listing_differences }}"
  vars:
    listings:
      node0: {/mnt/data: {count: 12, digest: 9e107d9d}}
      node1: {/mnt/data: {count: 0, digest: e3b0c442}}
"""

RETURN = r"""
_value:
  description: One line for each mount that differs between the nodes that have it. Empty if none does.
  type: list
  elements: str
  sample: ["/mnt/data: 12 names on node0, 0 names on node1"]
"""

from collections.abc import Callable

from ansible_collections.muster.training.plugins.plugin_utils._cluster.mount_listings import listing_differences


class FilterModule:
    """Registers the filter."""

    def filters(self) -> dict[str, Callable[..., list[str]]]:
        return {"listing_differences": listing_differences}
