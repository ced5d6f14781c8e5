# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An attempt's plan: the nodes that take part, their ranks, and the launcher's arguments and files for them."""

from __future__ import annotations

import json
import os

from ansible_collections.muster.training.plugins.module_utils._checkpoints.agreement import MAX_PATH, is_relative
from ansible_collections.muster.training.plugins.module_utils._run.rank_logs import attempt_logs
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import conforms

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from ansible_collections.muster.training.plugins.module_utils._run.documents import Attempt, Data, Plan

MAX_ATTEMPTS = 1000
ATTEMPT = {"number": range(MAX_ATTEMPTS), "members": [range(10**6)], "master_port": range(1, 65536)}


def validate_attempt(message: Data, nnodes: int) -> Attempt | None:
    """Return the attempt in a message from rank 0's supervisor; None if it is invalid."""
    if not conforms(message, ATTEMPT):
        return None
    members = message["members"]
    if len(set(members)) != len(members) or any(member >= nnodes for member in members):
        return None
    name, hub = message.get("checkpoint_name"), message.get("hub", 0)
    if not conforms(hub, range(nnodes)):
        return None
    return {
        "number": message["number"],
        "hub": hub,
        "members": members,
        "master_port": message["master_port"],
        "checkpoint": str(message.get("checkpoint") or "")[:MAX_PATH],
        "checkpoint_name": name if isinstance(name, str) and is_relative(name) else "",
    }


def local_checkpoint(plan: Plan, attempt: Attempt) -> str:
    """Return the path on this node of the checkpoint that an attempt resumes from; home directories may differ."""
    name, directory = attempt.get("checkpoint_name", ""), plan.get("checkpoints", "")
    if name and directory.startswith("/"):
        return os.path.normpath(os.path.join(directory, name))
    return attempt["checkpoint"] or plan.get("checkpoint", "")


def first_attempt(plan: Plan) -> Attempt:
    """Return a run's first attempt: all nodes except the spares."""
    restart = plan.get("restart")
    members = list(range(len(plan["nodes"]) - (restart["spares"] if restart else 0)))
    port = restart["master_port"] if restart else 0
    return {"number": 0, "members": members, "master_port": port, "checkpoint": plan.get("checkpoint", "")}


def plan_of_attempt(plan: Plan, attempt: Attempt, directory: str) -> Plan:
    """Return a node's plan for an attempt. A node that does not take part has no slots.

    plan: that of any attempt, with the fields that change in `restart`. directory: the node's run directory.
    """
    restart, members, own = plan["restart"], attempt["members"], plan["node"]["node_rank"]
    first_ranks, world_size = {}, 0
    for member in members:
        first_ranks[member] = world_size
        world_size += restart["slots"][member]
    slots = [number if member in first_ranks else 0 for member, number in enumerate(restart["slots"])]
    attempt_rank = members.index(own) if own in first_ranks else -1
    logs, master = attempt_logs(attempt["number"]), plan["nodes"][members[0]]["address"]
    values = {
        "is_host": int(attempt_rank == 0),
        "master_address": master,
        "address": plan["nodes"][own]["address"],
        "nnodes": len(members),
        "node_rank": attempt_rank,
        "world_size": world_size,
        "master": f"[{master}]" if ":" in master else master,
        "master_port": attempt["master_port"],
        "attempt": attempt["number"],
        "rdzv_id": f"{plan['run_id']}.{attempt['number']}" if attempt["number"] else plan["run_id"],
        "logs": os.path.join(directory, logs) if logs else directory,
    }
    fields = restart["fields"]
    changed = {name: text.format(**values) for name, text in fields.get("environment", {}).items()}
    return {
        **plan_with_hub(plan, attempt.get("hub", 0)),
        "attempt": attempt["number"],
        "checkpoint": local_checkpoint(plan, attempt),
        "logs": logs,
        "node": {
            **plan["node"],
            "slots": slots[own],
            "first_rank": first_ranks.get(own, 0),
            "attempt_rank": attempt_rank,
        },
        "nodes": [
            {**peer, "slots": slots[member], "first_rank": first_ranks.get(member, 0)}
            for member, peer in enumerate(plan["nodes"])
        ],
        "world_size": world_size,
        "command": change_arguments(plan["command"], fields.get("arguments", {}), values),
        "environment": {**plan["environment"], **changed, "MUSTER_ATTEMPT": str(attempt["number"])},
        "files": change_files(plan, members, values),
    }


def plan_with_hub(plan: Plan, hub: int) -> Plan:
    """Return a plan whose lifeline leads to the node with the given node_rank."""
    if hub == plan.get("hub", 0):
        return plan
    return {**plan, "hub": hub, "lifeline": {**plan["lifeline"], "address": plan["nodes"][hub]["address"]}}


def change_arguments(command: list[str], arguments: dict[str, str], values: Data) -> list[str]:
    """Return a command updated for an attempt; arguments: values by option.

    An option that ends with "=" is followed by its value, any other by an argument with its value. Only the first of
    its kind is the launcher's: the job may have such an option, too.
    """
    changed = list(command)
    for option, text in arguments.items():
        joined = option.endswith("=")
        position = next(
            (index for index, word in enumerate(command) if (word.startswith(option) if joined else word == option)),
            None,
        )
        if position is not None and joined:
            changed[position] = option + text.format(**values)
        elif position is not None:
            changed[position + 1] = text.format(**values)
    return changed


def change_files(plan: Plan, members: list[int], values: Data) -> dict[str, str]:
    """Return a run directory's files updated for an attempt."""
    fields, restart = plan["restart"]["fields"], plan["restart"]
    files = dict(plan["files"])
    for name, settings in fields.get("settings", {}).items():
        content = {**json.loads(files[name]), **{key: values[value] for key, value in settings.items()}}
        files[name] = json.dumps(content, indent=1, sort_keys=True) + "\n"
    for name in fields.get("hostfiles", ()):
        if name in files:
            lines = restart["hostfile_lines"][name]
            files[name] = "".join(lines[member] for member in members)
    return files
