# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The verdict of a run: how it ended, and what failed first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._run.node_loss import RESTARTED, SUPERVISOR_DIED
from ansible_collections.muster.training.plugins.plugin_utils._failures.attempts import (
    continue_command,
    summarize,
    unknown_values,
)
from ansible_collections.muster.training.plugins.plugin_utils._failures.first_failure import (
    add_difference,
    count_reactions,
    first_failure,
)
from ansible_collections.muster.training.plugins.plugin_utils._failures.hang import blame_hang, recorded_stacks
from ansible_collections.muster.training.plugins.plugin_utils._plan.cost import CURRENCY, run_cost

ENDED_AS_ASKED = ("succeeded", "stopped", "interrupted")  # states of runs in which no rank failed first


def add_replies(result: Mapping[str, Any], runs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the result with the reason why a node was lost, if that node responds: rank 0 only saw that it fell
    silent.

    runs: by node name, its run as read by training_run, or None if the node did not reply or was not queried.
    """
    nodes, reason = [], result["reason"]
    for node in result["nodes"]:
        run = runs.get(node["name"])
        if node["state"] == "lost" and run is not None and run["state"] == "died":
            why = f"{node['name']} is lost: {run['message']}"
            reason = why if node.get("lost_reason") and reason == node["lost_reason"] else reason
            node = {**node, "lost_reason": why}
        nodes.append(node)
    return {**result, "nodes": nodes, "reason": reason}


def verdict_from_hub(plan: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the verdict from the result written by rank 0's supervisor."""
    nodes = []
    for node in result["nodes"]:
        report = node["report"] or {}
        nodes.append(
            {
                "name": node["name"],
                "node_rank": node["node_rank"],
                "state": node["state"],
                "exit_code": report.get("exit_code"),
                "log": node["launcher_log"],
                "stuck": report.get("stuck", []),
                "mounts": report.get("mounts", {}),
                "gpus": report.get("gpus", ""),
                "health": report.get("health", []),
                "container": report.get("container", ""),
                "unwritten": report.get("unwritten", ""),
                "shortened": report.get("shortened", ""),
                "oom_kills": report.get("oom_kills"),
                "ranks": [{"host": node["name"], **rank} for rank in report.get("ranks", [])],
            }
        )
    first = None
    if result["state"] not in ENDED_AS_ASKED:
        first = blame_hang(result, plan.get("nodes", []), first_failure(result))
        first = add_difference(result, plan.get("nodes", []), first)
    return {
        "run_id": result["run_id"],
        "state": result["state"],
        "reason": result["reason"],
        "world_size": result["world_size"],
        "nnodes": result["nnodes"],
        "started": result["started"],
        "ended": result["ended"],
        "cost": run_cost(plan, result["started"], result["ended"]),
        "currency": plan.get("currency", CURRENCY),
        "first_failure": first,
        "broken": list(result.get("broken") or []),
        "reactions": count_reactions(result, first) if first else 0,
        "nodes": nodes,
        **summarize(plan, result),
        **recorded_stacks(result, plan.get("nodes", [])),
        **command_without_node_0(plan, result),
    }


def verdict_without_hub(plan: Mapping[str, Any], runs: Mapping[str, Any], now: float) -> dict[str, Any]:
    """Return the verdict from the other nodes' statuses, when rank 0's node is lost.

    runs: by node name, its run as read by training_run, or None if the node did not reply.
    """
    nodes, reasons = [], []
    # set by rank 0 or a person; other reasons may mean only that this node failed or left
    final_states = [
        run["state"]
        for run in runs.values()
        if run is not None and run["state"] in ENDED_AS_ASKED and not (run["report"] or {}).get("reason")
    ]
    hub = max((run.get("hub") or 0 for run in runs.values() if run is not None), default=0)
    hub = hub if hub < len(plan["nodes"]) else 0
    master = plan["nodes"][hub]["name"]
    default_reason = f"{master} is lost: it is not responding"
    for index, peer in enumerate(plan["nodes"]):
        run = runs.get(peer["name"])
        report = (run or {}).get("report")
        state = "lost" if run is None or run["state"] == "died" else run["state"]
        if run is not None and run["message"] and run["state"] != "died":
            reasons.append(run["message"])
        elif run is not None and index == hub:
            default_reason = f"{peer['name']} is lost: {run['message']}"
        log = run["directory"] + "/launcher.log" if run else ""
        node_result = {"state": state, "since": now, "report": report, "launcher_log": log}
        nodes.append({"name": peer["name"], "node_rank": index, **node_result})
    master_run = runs.get(master)
    if (
        master_run is not None
        and master_run["state"] == "died"
        and master_run["message"] in (SUPERVISOR_DIED, RESTARTED)
    ):
        # the other nodes saw only that it fell silent
        reasons = [default_reason if reason.startswith(f"{master} is lost: ") else reason for reason in reasons]
    result = {
        "run_id": plan["run_id"],
        "state": next(iter(final_states), "failed"),
        "reason": "" if "succeeded" in final_states else next(iter(reasons), default_reason),
        "world_size": plan["world_size"],
        "nnodes": len(nodes),
        "started": None,
        "ended": now,
        "first_node": master if nodes[hub]["state"] == "lost" else None,
        "nodes": nodes,
    }
    return verdict_from_hub(plan, result)


def command_without_node_0(plan: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the command for continuing a run that failed after the loss of node 0, as a field of the verdict."""
    lost = {node["name"] for node in result["nodes"] if node["state"] == "lost"}
    names = [node.get("name") for node in plan.get("nodes", [])]
    if result["state"] != "failed" or not lost.intersection(names[:1]):
        return {}
    command = continue_command(plan, lost)
    return {"continue_with": command, "continue_variables": unknown_values(plan) if command else []}
