# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module run_join."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.module_utils._files.bounded import write_atomically
from ansible_collections.muster.training.plugins.module_utils._run.documents import Plan
from ansible_collections.muster.training.plugins.module_utils._run.members import (
    ADDRESS,
    MAX_GENERATION,
    generation_of,
)
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import NAME, RANK, conforms
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import CALL_TIMEOUT
from ansible_collections.muster.training.plugins.module_utils._supervisor.attempt_plan import MAX_ATTEMPTS
from ansible_collections.muster.training.plugins.plugin_utils._command_line.command_hints import adapt_commands
from ansible_collections.muster.training.plugins.plugin_utils._node_call.call import call_node, module_source
from ansible_collections.muster.training.plugins.plugin_utils._node_call.run_programs import PROGRAMS, packed_supervisor
from ansible_collections.muster.training.plugins.plugin_utils._plan.cost import read_price
from ansible_collections.muster.training.plugins.plugin_utils._plan.job import environment_problems
from ansible_collections.muster.training.plugins.plugin_utils._plan.machines import (
    extract_hardware,
    extract_identity,
)
from ansible_collections.muster.training.plugins.plugin_utils._plan.new_node import (
    apply_replacements,
    plan_of_new_node,
)
from ansible_collections.muster.training.plugins.plugin_utils._plan.notify_targets import read_targets
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import printable
from ansible_collections.muster.training.plugins.plugin_utils._user_error import UserError

ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "state": {"type": "str", "choices": ["requested", "started"], "required": True},
    "run_id": {"type": "str", "required": True},
    "name": {"type": "str", "required": True},
    "address": {"type": "str", "default": ""},
    "facts": {"type": "dict", "required": True},
    "replies": {"type": "dict", "default": {}, "no_log": True},
    "record": {"type": "path", "default": ""},
    "notify": {"type": "raw", "default": [], "no_log": True},
    "runs_directory": {"type": "str", "default": "~/.muster/runs"},
    "user": {"type": "str", "default": ""},
}
REPLY = {
    "node_rank": RANK,
    "nodes": [{"name": NAME, "address": ADDRESS, "generation": range(MAX_GENERATION)}],
    "attempt": {"number": range(MAX_ATTEMPTS), "hub": RANK, "members": [RANK], "checkpoint": str},
    "environment": dict,
}


def leader_reply(replies: Mapping[str, Any], name: str, run_id: str) -> tuple[str, Mapping[str, Any]]:
    """Return the name and reply of the node that is leading the run. Raise UserError if there is none."""
    for node, reply in replies.items():
        if isinstance(reply, Mapping) and reply.get("is_hub") is True and conforms(reply, REPLY):
            return node, reply
    messages = [
        printable(str(reply["msg"]))[:500]
        for reply in replies.values()
        if isinstance(reply, Mapping) and reply.get("failed") and reply.get("msg")
    ]
    why = "; ".join(dict.fromkeys(messages)) or "the node that leads it is not responding, or the run has ended"
    text = f"{name} cannot join run {run_id}: {why}. See its state: ansible-playbook status.yml -e run_id={run_id}"
    raise UserError(adapt_commands(text), result={"changed": False})


def price_of(name: str, hostvars: Any) -> float | None:
    """Return a node's hourly price, or None if it is unknown. Raise UserError if the value is not a price."""
    try:
        return read_price(name, hostvars[name].get("node_price_per_hour") if name in hostvars else None)
    except ValueError as error:
        raise UserError(str(error), result={"changed": False}) from None


def check_replacements(plan: Plan, nodes: Sequence[Mapping[str, Any]], hostvars: Any) -> None:
    """Raise ValueError if a replacement node does not match the inventory.

    The node that leads the run names the replacements, but names and addresses must come from the inventory: otherwise,
    the run's record, and with it every command, could refer to other machines.
    """
    for rank, node in enumerate(nodes[: len(plan["nodes"])]):
        name = node["name"]
        if node["generation"] <= generation_of(plan, rank):
            continue
        if name not in hostvars:
            raise ValueError(f"the run now includes the node {name}, which is not in this inventory")
        variables = hostvars[name]
        address = str(variables.get("node_address") or variables.get("ansible_host") or name)
        if node["address"] != address:
            raise ValueError(f"the run has the node {name} at {node['address']}, but the inventory has it at {address}")


def update_record(record: Path, plan: Plan, node_rank: int, facts: Mapping[str, Any], price: float | None) -> None:
    """Write the plan with the new node to the run's record, so that other commands query that node too."""
    node = plan["nodes"][node_rank]
    node["identity"], node["hardware"] = extract_identity(facts), extract_hardware(facts)
    if price is not None:
        node["price_per_hour"] = price
    write_atomically(str(record / "plan.json"), json.dumps(plan, indent=1, sort_keys=True) + "\n")


class ActionModule(ActionBase):
    """Action plugin that makes one call to the node."""

    _supports_check_mode = True
    _requires_connection = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Ask the run to accept a node, or start that node's supervisor."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        if self._task.check_mode:
            return {"changed": True}
        request = {
            **{name: args[name] for name in ("run_id", "runs_directory", "user")},
            "node": task_vars["inventory_hostname"],
            "check": False,
        }
        if args["state"] == "requested":
            gpus = int((args["facts"].get("gpus") or {}).get("count") or 0)
            price = price_of(args["name"], task_vars["hostvars"])
            member = {"name": args["name"], "address": args["address"], "gpus": gpus, "price_per_hour": price}
            return call_node(self, "_run.dispatch", {**request, "operation": "join", "member": member}, task_vars)
        return self.start(args, request, task_vars)

    def start(self, args: dict[str, Any], request: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        """Start the supervisor on the new node in the same way as at launch."""
        _leader, reply = leader_reply(args["replies"], args["name"], args["run_id"])
        record, node_rank = Path(args["record"]), reply["node_rank"]
        environment: dict[str, object] = {str(name): str(value) for name, value in reply["environment"].items()}
        problems = environment_problems(environment)
        if problems:
            raise AnsibleActionFail("; ".join(problems))
        try:
            launch_plan = json.loads((record / "plan.json").read_text(encoding="utf-8"))
            check_replacements(launch_plan, reply["nodes"], task_vars["hostvars"])
            recorded = apply_replacements(launch_plan, reply["nodes"])
            plan = plan_of_new_node(recorded, reply["attempt"], node_rank, args["facts"])
            token = (record / "token").read_text(encoding="ascii").strip()
            notify = read_targets(args["notify"])
        except OSError as error:
            raise AnsibleActionFail(f"cannot read the record of the run, {record}: {error.strerror}") from None
        except (KeyError, IndexError, ValueError) as error:
            raise AnsibleActionFail(
                f"the plan of run {args['run_id']} cannot be used for a new node: {error}"
            ) from None
        start = {
            **request,
            "operation": "start_member",
            "plan": plan,
            "environment": environment,
            "token": token,
            "notify": notify,
            "replace": False,
            "supervisor": packed_supervisor(),
            "programs": {name: module_source(PROGRAMS[name]) for name in plan["programs"] if name in PROGRAMS},
        }
        started = call_node(self, "_run.dispatch", start, task_vars, CALL_TIMEOUT)
        try:
            price = price_of(args["name"], task_vars["hostvars"])
            update_record(record, recorded, node_rank, args["facts"], price)
        except OSError as error:
            Display().warning(
                f"cannot update {record / 'plan.json'}: {error.strerror or error}. Commands on this run will still "
                f"contact the node that {args['name']} replaced"
            )
        when = "takes part now" if plan["elastic"] else "will take part from the next attempt onward, if needed"
        Display().display(f"[muster] {args['name']} has joined run {args['run_id']}, and {when}")
        return {"changed": bool(started["changed"]), "node_rank": node_rank, "directory": started["directory"]}
