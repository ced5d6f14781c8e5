# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Record the nodes that a verdict blames for broken hardware as bad."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._failures.hardware import Blame, blamed_nodes
from ansible_collections.muster.training.plugins.plugin_utils._record.bad_nodes import (
    BadNodesError,
    add_entry,
    change_entries,
    exclude_shared_gpus,
    exclude_shared_numbers,
    make_entry,
)
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import single_line


def own_gpus(blame: Blame, identities: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the blamed GPUs that the node, and no other node, had when the run began. identities: of all nodes."""
    others = [identity for node, identity in identities.items() if node != blame.node]
    shared = {uuid for identity in others for uuid in identity.get("gpus") or []}
    present = set(identities.get(blame.node, {}).get("gpus") or blame.gpus)
    return sorted((set(blame.gpus) & present) - shared)


def record_bad_nodes(path: Path, plan: Mapping[str, Any], verdict: Mapping[str, Any]) -> list[str]:
    """Record the blamed nodes in bad-nodes.json; return lines for users, which refer to ansible-playbook commands."""
    blames = blamed_nodes(verdict)
    if not blames:
        return []
    read = {node["name"]: node.get("identity") or {} for node in plan["nodes"]}
    identities = exclude_shared_gpus(exclude_shared_numbers(read))
    try:
        for blame in blames:
            blamed = own_gpus(blame, read)
            entry = make_entry(blame.node, blame.reason, verdict["run_id"], identities.get(blame.node, {}), blamed)
            change_entries(path, lambda entries, entry=entry: add_entry(entries, entry))  # type: ignore[misc]
    except BadNodesError as error:
        return [f"{', '.join(blame.node for blame in blames)} could not be recorded as bad: {error}"]
    return [
        (
            f"{blame.node} is recorded as bad: {single_line(blame.reason, 200)}. No run will use it until you "
            f"run ansible-playbook forgive.yml -e node={blame.node}"
        )
        for blame in blames
    ]
