# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The result of a run that may have been led by several nodes in succession."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._run.hub_node import can_succeed
from ansible_collections.muster.training.plugins.module_utils._run.status import UNFINISHED_STATES
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import validate_result
from ansible_collections.muster.training.plugins.plugin_utils._record.node_replies import validate_run


def final_result(plan: Mapping[str, Any], watched: Any, reads: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the result that counts, or None if there is none yet.

    A result counts only if it was read from the node that wrote it; that of the last node that led the run decides. An
    isolated node's result does not count while other nodes continue.

    watched: the result that the watch has seen, None if there was no watch. reads: by node name, its run as read by
    training_run.
    """
    runs = {name: validate_run(run) for name, run in reads.items()}
    results = [validate_result(watched)]
    for rank, node in enumerate(plan["nodes"] if can_succeed(plan) else plan["nodes"][:1]):
        result = (runs.get(node["name"]) or {}).get("result")
        results.append(result if result is not None and (result.get("hub") or 0) == rank else None)
    of_plan = [result for result in results if result is not None and is_of_plan(result, plan)]
    newest = max(of_plan, key=lambda result: result.get("hub") or 0, default=None)
    if newest is not None and newest.get("cut_off"):
        hub = newest.get("hub") or 0
        active = [run for run in runs.values() if run is not None and run["state"] in UNFINISHED_STATES]
        return None if any((run.get("hub") or 0) > hub for run in active) else newest
    return newest


def is_of_plan(result: Mapping[str, Any], plan: Mapping[str, Any]) -> bool:
    """Return whether a result has the run ID of a plan and was written by one of its nodes."""
    return bool(result["run_id"] == plan["run_id"] and (result.get("hub") or 0) < len(plan["nodes"]))
