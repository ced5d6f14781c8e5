# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The state of a run and its machines, based on the status that status.yml writes and on the inventory."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._run.status import UNFINISHED_STATES
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import NAME, conforms
from ansible_collections.muster.training.plugins.plugin_utils._keep.planner import (
    ACTIVE,
    ENDED,
    UNKNOWN,
    MissingNode,
    Situation,
)

STATUS = {"nodes": [{"node": NAME, "state": str}]}
MISSING = {"name": NAME, "excluded": bool}
NOT_READ = ("unreachable", "not read")  # states of a node when nothing is known about it


def read_situation(
    status: Any, has_result: bool, run_nodes: Collection[str], machines: Sequence[str], purse: tuple[bool, bool]
) -> Situation:
    """Return the situation.

    Args:
        status: content of the file that status.yml wrote; arbitrary if it failed.
        has_result: whether the run's record has its result.
        run_nodes: names of the run's nodes in its record.
        machines: those in the inventory group.
        purse: whether a provider can create machines, and whether a cost limit is set.
    """
    nodes = status["nodes"] if conforms(status, STATUS) else []
    states = {node["node"]: node["state"] for node in nodes}
    return Situation(
        state=ENDED if has_result else run_state(states),
        nodes=frozenset(run_nodes),
        missing=missing_nodes(nodes, run_nodes),
        unreachable=frozenset(name for name in run_nodes if name not in states or states[name] in NOT_READ),
        machines=tuple(machines),
        rents=purse[0],
        has_budget=purse[1],
    )


def run_state(states: Mapping[str, str]) -> str:
    """Return the state of a run, derived from the states of its nodes."""
    if any(state in UNFINISHED_STATES for state in states.values()):
        return ACTIVE
    is_known = bool(states) and not any(state in NOT_READ for state in states.values())
    return ENDED if is_known else UNKNOWN


def missing_nodes(nodes: Sequence[Mapping[str, Any]], run_nodes: Collection[str]) -> tuple[MissingNode, ...]:
    """Return the nodes that the run has lost, according to the node that leads it.

    Ignore duplicates and names of nodes outside the run: a machine is created for each entry. If two nodes each report
    missing nodes, the one that reports more has been cut off and does not know yet that the other leads the majority;
    its report is ignored.
    """
    lists = [valid_entries(node.get("missing"), run_nodes) for node in nodes if node["state"] in UNFINISHED_STATES]
    missing = min(filter(None, lists), key=len, default={})
    return tuple(MissingNode(name, broken) for name, broken in missing.items())


def valid_entries(entries: Any, run_nodes: Collection[str]) -> dict[str, bool]:
    """Map the name of each missing node to whether it is excluded, as reported by a node; the report may be
    anything.
    """
    valid = [entry for entry in entries if conforms(entry, MISSING)] if isinstance(entries, list) else []
    return {entry["name"]: entry["excluded"] for entry in valid if entry["name"] in run_nodes}
