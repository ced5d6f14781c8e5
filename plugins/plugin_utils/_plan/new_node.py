# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan of a node that joins an active run, derived from the first node's plan in the launch record.

Values that differ between nodes are taken from the new node's facts; values that differ between attempts are filled in
by its supervisor. Everything else is the same on all nodes, which site.yml sets up identically. Only the names and
addresses of the other nodes and the members of the current attempt come from nodes, since root acts on a plan, too.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from typing import Any, cast

from ansible_collections.muster.training.plugins.module_utils._run.documents import Plan
from ansible_collections.muster.training.plugins.module_utils._run.members import (
    generation_of,
    replace_member,
    validate_member,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.attempt_plan import (
    plan_of_attempt,
    validate_attempt,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.programs.stack_hook import RANK_CPUS
from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import ip_literal
from ansible_collections.muster.training.plugins.plugin_utils._plan.container_command import (
    container_name,
    replace_ids_of_node,
)
from ansible_collections.muster.training.plugins.plugin_utils._plan.cpu_binding import (
    PlannedJob,
    bind_ranks,
    binding_environment,
)
from ansible_collections.muster.training.plugins.plugin_utils._plan.gpu_selection import limit_facts
from ansible_collections.muster.training.plugins.plugin_utils._plan.launchers.torchrun_c10d import joining_command
from ansible_collections.muster.training.plugins.plugin_utils._plan.plan import (
    network_environment,
    temporary_directory,
)

# fields that do not contain any paths on a node
SHARED_FIELDS = ("nodes", "options", "arguments", "program", "run_id", "unit", "restart")


def apply_replacements(plan: Plan, nodes: Sequence[Mapping[str, Any]]) -> Plan:
    """Return a launch plan with the replacements made since then. Raise ValueError if they do not match the plan."""
    if len(nodes) != len(plan["nodes"]):
        raise ValueError(f"it has {len(nodes)} nodes instead of {len(plan['nodes'])}")
    changed = copy.deepcopy(plan)
    for rank, node in enumerate(nodes):
        member = validate_member({**node, "node_rank": rank}, len(nodes))
        if member is not None and member["generation"] > generation_of(changed, rank):
            replace_member(changed, member)
    return changed


def plan_of_new_node(launch_plan: Plan, attempt: Mapping[str, Any], node_rank: int, facts: Mapping[str, Any]) -> Plan:
    """Return the plan of a new node, which waits for the next attempt; in an elastic run, it takes part immediately.

    Args:
        launch_plan: that of the first node, apply_replacements().
        attempt: number, hub, members and checkpoint of the current attempt.
        node_rank: the number that the run has given to the new node.
        facts: the new node's facts.

    Raises:
        ValueError: The attempt does not match the plan.
    """
    peer, run_id = launch_plan["nodes"][node_rank], launch_plan["run_id"]
    directory = f"{facts['runs_directory']}/{run_id}/node{node_rank}"
    first = launch_plan["node"]["node_rank"]
    texts = {
        os.path.dirname(launch_plan["environment"]["MUSTER_NOTICE_FILE"]): directory,
        launch_plan["temporary_directory"]: temporary_directory(run_id, node_rank),
        container_name(run_id, first): container_name(run_id, node_rank),
    }
    mounts = [mount["point"] for mount in facts.get("storage", {}).get("mounts", ()) if mount["state"] == "ok"]
    restart, address = launch_plan.get("restart"), ip_literal(peer["address"])
    shared: dict[str, Any] = {name: value for name, value in launch_plan.items() if name in SHARED_FIELDS}
    plan = {
        **cast("dict[str, Any]", replace_texts(launch_plan, texts)),
        **shared,
        "node": {
            "name": peer["name"],
            "address": peer["address"],
            "slots": restart["slots"][node_rank] if restart else peer["slots"],
            "node_rank": node_rank,
            "first_rank": peer["first_rank"],
        },
        "supervision": "process" if address is not None and address.is_loopback else "auto",
        "mounts": mounts,
    }
    if plan.get("wrap"):
        plan["wrap"] = replace_ids_of_node(plan["wrap"], facts)
    environment = {
        **{name: value for name, value in plan["environment"].items() if name != RANK_CPUS},
        **network_environment(facts["interface"], peer["address"]),
        **cpu_environment(launch_plan, plan["node"]["slots"], facts),
    }
    joined = cast("Plan", {**plan, "environment": environment})
    if restart is None:
        joined["command"] = joining_command(joined["command"], peer["address"])
        return joined
    members = [member for member in attempt["members"] if member != node_rank] or [int(node_rank == 0)]
    current = {**attempt, "members": members, "master_port": restart["master_port"]}
    checked = validate_attempt(current, len(launch_plan["nodes"]))
    if checked is None:
        raise ValueError("the node that leads the run sent an invalid description of the attempt")
    return plan_of_attempt(joined, checked, directory)


def cpu_environment(plan: Plan, slots: int, facts: Mapping[str, Any]) -> dict[str, str]:
    """Return the variable with the CPUs for each rank on a new node, whose NUMA nodes may differ."""
    gpus = tuple(plan.get("gpus") or ())
    binding = (plan.get("options") or {}).get("launch_numa_binding", "auto")
    job = PlannedJob(binding, bool(plan.get("stacks")), tuple(plan.get("variables") or ()), gpus)
    return binding_environment(bind_ranks(job, slots, plan["rank_logs"] != "launcher", limit_facts(facts, gpus)))


def replace_texts(value: Any, texts: Mapping[str, str]) -> Any:
    """Return a document with texts replaced in all its strings."""
    if isinstance(value, str):
        for old, new in texts.items():
            value = value.replace(old, new) if old else value
        return value
    if isinstance(value, Mapping):
        return {key: replace_texts(item, texts) for key, item in value.items()}
    return [replace_texts(item, texts) for item in value] if isinstance(value, (list, tuple)) else value
