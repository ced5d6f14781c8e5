# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Record the nodes that a verdict blames for broken hardware as bad."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._failures.hardware import blamed_nodes
from ansible_collections.muster.training.plugins.plugin_utils._record.bad_nodes import (
    BadNodesError,
    change_entries,
    make_entry,
    with_entry,
)
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import single_line


def remember_bad_nodes(path: Path, plan: Mapping[str, Any], verdict: Mapping[str, Any]) -> list[str]:
    """Record the blamed nodes in bad-nodes.json; return lines for a person, in terms of ansible-playbook."""
    blames = blamed_nodes(verdict)
    if not blames:
        return []
    identities = {node["name"]: node.get("identity") or {} for node in plan["nodes"]}
    try:
        for blame in blames:
            entry = make_entry(
                blame.node, blame.reason, verdict["run_id"], identities.get(blame.node, {}), sorted(set(blame.gpus))
            )
            change_entries(path, lambda entries, entry=entry: with_entry(entries, entry))  # type: ignore[misc]
    except BadNodesError as error:
        return [f"{', '.join(blame.node for blame in blames)} could not be recorded as bad: {error}"]
    return [
        f"{blame.node} is recorded as bad: {single_line(blame.reason, 200)}. No run uses it until ansible-playbook "
        f"forgive.yml -e node={blame.node}"
        for blame in blames
    ]
