# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The activity of a run's ranks when it hung or was ended: groups of ranks with the same stack, for the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._run.ended_ranks import locate_ranks
from ansible_collections.muster.training.plugins.module_utils._run.hang_analysis import (
    activity,
    location,
    merge_groups,
    validate_groups,
    validate_hang,
)
from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import clean_text, to_int, to_mappings
from ansible_collections.muster.training.plugins.plugin_utils._report.documents import StackGroup

MAX_SHOWN_GROUPS = 32
MAX_NODES = 10_000


def plan_nodes(plan: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the name, first rank and slots of each node in a plan."""
    return [
        {
            "name": clean_text(node.get("name"), 100),
            "first_rank": to_int(node.get("first_rank")),
            "slots": to_int(node.get("slots")),
        }
        for node in to_mappings(plan.get("nodes"), MAX_NODES)
    ]


def describe_group(group: Mapping[str, Any], culprits: Sequence[int], nodes: Sequence[Mapping[str, Any]]) -> StackGroup:
    """Describe a group of ranks with the same stack in texts."""
    return {
        "ranks": locate_ranks(group["ranks"], nodes),
        "activity": activity(group),
        "awaited": bool(set(group["ranks"]) & set(culprits)),
        "source": f"{location(group)}: {group['text']}" if group["text"] else "",
        "frames": group["frames"],
        "workers": group["workers"],
    }


def stack_groups(plan: Mapping[str, Any], result: Mapping[str, Any]) -> list[StackGroup]:
    """Return the ranks' activity when the run hung, otherwise before it was ended; awaited ranks come first."""
    nodes = plan_nodes(plan)
    hang = validate_hang(result.get("hang"))
    if hang is not None and hang["groups"]:
        groups, culprits = merge_groups(hang["groups"]), hang["awaited_ranks"]
    else:
        groups, culprits = merge_groups(validate_groups(result.get("stacks"))), []
    described = [describe_group(group, culprits, nodes) for group in groups[:MAX_SHOWN_GROUPS]]
    return sorted(described, key=lambda group: not group["awaited"])
