# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan of a node that joins a running run, made from the plan of the node that leads it.

What differs between nodes is taken from the facts of the new one, and what differs between attempts is filled in by its
supervisor. Everything else is the same on all nodes, which site.yml sets up alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from ansible_collections.muster.training.plugins.module_utils._rank_table import ip_literal
from ansible_collections.muster.training.plugins.module_utils._run.documents import Attempt, Plan
from ansible_collections.muster.training.plugins.module_utils._supervisor.attempt_plan import plan_of_attempt
from ansible_collections.muster.training.plugins.plugin_utils._plan.container_command import container_name
from ansible_collections.muster.training.plugins.plugin_utils._plan.gpu_selection import limit_facts
from ansible_collections.muster.training.plugins.plugin_utils._plan.launchers.torchrun_c10d import joining_command
from ansible_collections.muster.training.plugins.plugin_utils._plan.plan import (
    network_environment,
    temporary_directory,
)

SHARED_FIELDS = ("nodes", "options", "arguments", "program", "run_id", "unit", "restart")  # that name no node's paths


def plan_of_new_node(hub_plan: Plan, hub_directory: str, node_rank: int, facts: Mapping[str, Any]) -> Plan:
    """Return the plan of a new node, which waits for the next attempt; in an elastic run, it takes part at once.

    Args:
        hub_plan: the current plan of the node that leads the run, which knows the new one already.
        hub_directory: its run directory.
        node_rank: the number that the hub has given to the new node.
        facts: the new node's facts.
    """
    peer, run_id = hub_plan["nodes"][node_rank], hub_plan["run_id"]
    directory = f"{facts['runs_directory']}/{run_id}/node{node_rank}"
    hub_rank = hub_plan["node"]["node_rank"]
    temporary = temporary_directory(run_id, node_rank)
    texts = {
        hub_directory: directory,
        hub_plan["temporary_directory"]: temporary,
        container_name(run_id, hub_rank): container_name(run_id, node_rank),
    }
    facts = limit_facts(facts, tuple(hub_plan.get("gpus") or ()))
    mounts = [mount["point"] for mount in facts.get("storage", {}).get("mounts", ()) if mount["state"] == "ok"]
    restart = hub_plan.get("restart")
    address = ip_literal(peer["address"])
    shared: dict[str, Any] = {name: value for name, value in hub_plan.items() if name in SHARED_FIELDS}
    plan = {
        **cast("dict[str, Any]", replace_texts(hub_plan, texts)),
        **shared,
        "node": {
            "name": peer["name"],
            "address": peer["address"],
            "slots": restart["slots"][node_rank] if restart else peer["slots"],
            "node_rank": node_rank,
            "first_rank": peer["first_rank"],
        },
        "supervision": "process" if address is not None and address.is_loopback else "auto",
        "mounts": mounts or hub_plan["mounts"],
        "code": None,
    }
    environment = {**plan["environment"], **network_environment(facts["interface"], peer["address"])}
    joined = cast("Plan", {**plan, "environment": environment})
    if restart:
        return plan_of_attempt(joined, current_attempt(hub_plan, node_rank), directory)
    joined["command"] = joining_command(joined["command"], peer["address"])
    return joined


def current_attempt(plan: Plan, without: int) -> Attempt:
    """Return the attempt that a plan is of, in which one node does not take part."""
    ranks = sorted(
        (peer["first_rank"], number) for number, peer in enumerate(plan["nodes"]) if peer["slots"] and number != without
    )
    return {
        "number": plan.get("attempt") or 0,
        "hub": plan.get("hub") or 0,
        "members": [number for _first_rank, number in ranks] or [plan["node"]["node_rank"]],
        "master_port": plan["restart"]["master_port"],
        "checkpoint": plan["checkpoint"],
    }


def replace_texts(value: Any, texts: Mapping[str, str]) -> Any:
    """Return a document with texts replaced in all its strings."""
    if isinstance(value, str):
        for old, new in texts.items():
            value = value.replace(old, new) if old else value
        return value
    if isinstance(value, Mapping):
        return {key: replace_texts(item, texts) for key, item in value.items()}
    return [replace_texts(item, texts) for item in value] if isinstance(value, (list, tuple)) else value
