# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: tree_differences
author: muster contributors (@muster)
version_added: 0.1.0
short_description: List the files that differ between the nodes' working trees
description:
  - Compares the hashes of files on several nodes. The content on most nodes counts as correct; in a tie, that of the
    first node.
positional: _input
options:
  _input:
    description: For each node by name, in node order, the hash of each file by path.
    type: dict
    required: true
  max_lines:
    description: Maximum number of lines. If there are more files, the last line counts the remaining ones.
    type: int
    default: 50
"""

EXAMPLES = r"""
- name: Fail with the differences
  ansible.builtin.debug:
    msg: "{{ trees | muster.training.tree_differences }}"
  vars:
    trees:
      node0: {train.py: 6b86b273, model.py: d4735e3a}
      node1: {train.py: 4e074085, model.py: d4735e3a}
"""

RETURN = r"""
_value:
  description: One line for each file that differs between nodes, sorted by path. Empty if none does.
  type: list
  elements: str
  sample: ["train.py: different content on node3", "utils/new.py: only on node0", "model.py: missing on node2"]
"""

from collections import Counter
from collections.abc import Callable, Mapping

from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import abbreviate


def tree_differences(trees: Mapping[str, Mapping[str, str]], max_lines: int = 50) -> list[str]:
    """Return one line for each file that differs."""
    lines = []
    for path in sorted(set().union(*trees.values())):
        digests = {node: tree[path] for node, tree in trees.items() if path in tree}
        nodes_without = [node for node in trees if node not in digests]
        most_common = Counter(digests.values()).most_common(1)[0][0]
        different_nodes = [node for node, digest in digests.items() if digest != most_common]
        differences = []
        if nodes_without:
            differences.append(
                f"only on {abbreviate(digests)}"
                if len(digests) < len(nodes_without)
                else f"missing on {abbreviate(nodes_without)}"
            )
        if different_nodes:
            differences.append(f"different content on {abbreviate(different_nodes)}")
        if differences:
            lines.append(f"{path}: {', '.join(differences)}")
    return lines if len(lines) <= max_lines else [*lines[: max_lines - 1], f"and {len(lines) - max_lines + 1} more"]


class FilterModule:
    """Registers the filter."""

    def filters(self) -> dict[str, Callable[..., list[str]]]:
        return {"tree_differences": tree_differences}
