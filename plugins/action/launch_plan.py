# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module launch_plan. Opens no connections."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.module_utils._checkpoints.resume import resume_arguments
from ansible_collections.muster.training.plugins.module_utils._facts.git_checkout import CheckoutQuery
from ansible_collections.muster.training.plugins.plugin_utils._checks.findings import Finding, render_findings
from ansible_collections.muster.training.plugins.plugin_utils._checks.gather import (
    THRESHOLDS_SPEC,
    collect_replies,
    find_local_nodes,
    run_checks,
)
from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import RankTable, RankTableError
from ansible_collections.muster.training.plugins.plugin_utils._command_line.job_file_path import find_job_file
from ansible_collections.muster.training.plugins.plugin_utils._controller_env import (
    missing_names,
    missing_names_message,
    parse_patterns,
)
from ansible_collections.muster.training.plugins.plugin_utils._plan.checkpoint_contract import (
    Contract,
    checkpoint_to_resume,
    describe_contract,
    read_contract,
)
from ansible_collections.muster.training.plugins.plugin_utils._plan.cost import (
    CURRENCY,
    format_amount,
    read_prices,
    total_price,
)
from ansible_collections.muster.training.plugins.plugin_utils._plan.cpu_binding import render_binding
from ansible_collections.muster.training.plugins.plugin_utils._plan.first_node import explain_first_node_loss
from ansible_collections.muster.training.plugins.plugin_utils._plan.gpu_selection import limit_facts
from ansible_collections.muster.training.plugins.plugin_utils._plan.job import Job
from ansible_collections.muster.training.plugins.plugin_utils._plan.job_arguments import (
    parse_arguments,
    parse_environment,
)
from ansible_collections.muster.training.plugins.plugin_utils._plan.job_spec import JOB_OPTIONS
from ansible_collections.muster.training.plugins.plugin_utils._plan.launch_options import launch_options
from ansible_collections.muster.training.plugins.plugin_utils._plan.limits import unpriced_nodes
from ansible_collections.muster.training.plugins.plugin_utils._plan.machines import describe_machines
from ansible_collections.muster.training.plugins.plugin_utils._plan.network_log import add_rdma_of_others
from ansible_collections.muster.training.plugins.plugin_utils._plan.notify_targets import read_targets
from ansible_collections.muster.training.plugins.plugin_utils._plan.plan import (
    build_node_plan,
    cpu_binding,
    exclude_spares,
    get_launcher,
    render_hostfiles,
)
from ansible_collections.muster.training.plugins.plugin_utils._plan.read_job import read_job
from ansible_collections.muster.training.plugins.plugin_utils._plan.save_interval import reported_seconds
from ansible_collections.muster.training.plugins.plugin_utils._record.bad_nodes import file_of, read_entries
from ansible_collections.muster.training.plugins.plugin_utils._record.origin import JobOrigin, make_origin
from ansible_collections.muster.training.plugins.plugin_utils._record.record_paths import records_directory
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import printable
from ansible_collections.muster.training.plugins.plugin_utils._user_error import UserError

ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    **JOB_OPTIONS,
    "nodes": {"type": "list", "elements": "dict", "required": True},
    "facts": {"type": "dict", "default": {}},
    "facts_from": {"type": "str", "default": ""},
    "prices": {"type": "dict", "default": {}},
    "currency": {"type": "str", "default": CURRENCY},
    "pass_environment": {"type": "raw", "default": []},
    "records": {"type": "str", "default": ""},
    "group": {"type": "str", "default": "training"},
    "replace": {"type": "bool", "default": False},
    "scheduler": {"type": "str", "choices": ["ssh", "slurm"], "default": "ssh"},
    "notify": {"type": "raw", "default": [], "no_log": True},
    "code": {"type": "dict", "default": {}},
    "code_skip_reason": {"type": "str", "choices": ["", "as_is", "later", "refused", "in_use"], "default": ""},
    "skip": {"type": "list", "elements": "str", "default": []},
    "thresholds": {"type": "dict", "apply_defaults": True, "options": THRESHOLDS_SPEC},
}


def render_plan(job: Job, table: RankTable, facts: Mapping[str, Any], cost: str = "") -> str:
    """Render the planned run for a terminal: the nodes, and the command of one rank.

    Shows only the names of the job's variables.

    Args:
        job: the job.
        table: all nodes.
        facts: the first node's facts, empty if it has not replied.
        cost: price of all nodes, or "" if it is unknown.
    """
    kind = f"{job.launcher}" + (f", {job.rdzv_backend} rendezvous" if job.launcher == "torchrun" else "")
    nodes = f"{job.min_nnodes} to {table.nnodes}" if job.elastic else str(table.nnodes)
    lines = [
        f"run {job.run_id}: {nodes} node{'' if table.nnodes == 1 else 's'}, world size {table.world_size}, {kind}, "
        f"rendezvous at {table.master.address} port {job.master_port}"
    ]
    visible = table.nodes if table.nnodes <= 16 else table.nodes[:15]
    width = max(len(node.name) for node in visible)
    for node in visible:
        ranks = (
            f"rank {node.first_rank}"
            if node.slots == 1
            else f"ranks {node.first_rank}-{node.first_rank + node.slots - 1}"
        )
        lines.append(f"  node {node.node_rank}  {node.name:<{width}}  {node.address}  {ranks}")
    if len(visible) < table.nnodes:
        lines.append(f"  ... and {table.nnodes - len(visible)} more")
    if cost:
        lines.append(f"  costs        {cost}")
    binding = render_binding(job, cpu_binding(job, table.master, facts))
    return "\n".join([*lines, *render_rank(job, facts), *binding])


def format_hourly_cost(table: RankTable, prices: Mapping[str, float | None], currency: str) -> str:
    """Format the nodes' total price, or "" if any price is unknown."""
    rate = total_price(prices.get(node.name) for node in table.nodes)
    return f"{format_amount(rate, currency)} an hour" if rate is not None else ""


def render_restarts(job: Job, table: RankTable, prices: Mapping[str, float | None], currency: str) -> list[str]:
    """Render whether the run restarts automatically, and list the spare nodes with their prices."""
    if not job.restarts:
        return []
    spares = table.nodes[table.nnodes - job.spares :]
    lines = [f"  restarts     {job.restarts} at most, after {', '.join(job.restart_when) or 'nothing'}"]
    why = explain_first_node_loss(table.nnodes, get_launcher(job).remote_start) if table.nnodes > 1 else ""
    if why:
        lines.append(f"  first node   losing it ends the run: {why}")
    if spares:
        rate = total_price(prices.get(node.name) for node in spares)
        price = f", {format_amount(rate, currency)} an hour of the costs above" if rate is not None else ""
        lines.append(f"  spares       {', '.join(node.name for node in spares)}{price}")
    return lines


def render_rank(job: Job, facts: Mapping[str, Any]) -> list[str]:
    """Render a rank's command, quoted for a shell, its directory and the names of the user's variables."""
    names = job.interpreter.split(":")
    interpreter = names[-1] if job.image else facts.get("interpreter") or names[0]
    directory = facts.get("working_directory", {}).get("path") or job.working_directory or "the user's home"
    command = shlex.join([*job.program_argv(interpreter), *job.args])
    lines = [f"  command      {command}", f"  directory    {directory}"]
    if job.gpus:
        lines.append(f"  GPUs         {', '.join(map(str, job.gpus))} on each node")
    if job.image:
        lines.append(f"  image        {job.image}")
    if job.variables:
        lines.append(f"  environment  {', '.join(sorted(job.variables))}")
    return lines


def job_contract(table: RankTable, replies: Mapping[str, Any]) -> Contract:
    """Return the job's checkpoint contract, from the nodes' replies."""
    facts = {node.name: (replies.get(node.name) or {}).get("facts") or {} for node in table.nodes}
    return read_contract({name: node["checkpoints"] for name, node in facts.items() if node.get("checkpoints")})


def render_contract(contract: Contract, job: Job, table: RankTable, seconds: float | None) -> str:
    """Render the known facts about the checkpoints for a terminal; seconds: how long a save took in the last run."""
    text = describe_contract(contract, table.world_size, seconds)
    lines = [f"  checkpoints  {text}"] if text else []
    if job.checkpoint and job.resume_args:
        lines.append(f"  resumes      {shlex.join(resume_arguments(job.resume_args, job.checkpoint))}")
    return "\n".join(map(printable, lines))


def make_plan(args: Mapping[str, Any]) -> tuple[Job, RankTable, list[Finding]]:
    """Return the job, the rank table and the findings. Raise ValueError if the arguments or the nodes are invalid."""
    job = read_job(args)
    return job, *run_checks(args, job)


def read_origin(job: Any, code: Mapping[str, Any]) -> JobOrigin:
    """Return the job's origin on this machine, with the code as listed by list_code."""
    file = find_job_file(job)
    source = str(code.get("source") or "")
    checkout = CheckoutQuery(source).result() if os.path.isdir(source) else None
    return make_origin(str(file or ""), code, checkout)


class ActionModule(ActionBase):
    """Action plugin that plans a run from the nodes, their facts and a job."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the plan, or fail with all findings that prevent the run from starting."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        args["facts"] = collect_replies(args, task_vars.get("hostvars"))
        missing = missing_names(parse_patterns([args["pass_environment"]]))
        if missing:
            raise UserError(f"launch_pass_environment contains variables that are {missing_names_message(missing)}")
        try:
            args["args"] = parse_arguments(args["args"], self._loader)
            args["environment"] = parse_environment(args["environment"], self._loader)
            prices = read_prices(args["prices"])
            read_targets(args["notify"])
            args["local_nodes"] = find_local_nodes(args["nodes"], task_vars.get("hostvars"))
            args["bad_nodes"] = read_entries(file_of(task_vars, args["group"]))
            job, table, findings = make_plan(args)
        except RankTableError as error:
            raise AnsibleActionFail(f"the nodes are not a valid cluster:\n{error}") from error
        except ValueError as error:
            raise AnsibleActionFail(f"the job cannot be planned:\n{error}") from error
        unpriced = unpriced_nodes(job.cost_limit, prices, [node.name for node in table.nodes])
        if unpriced:
            raise UserError(
                "launch_cost_limit needs the price of each node: set node_price_per_hour for "
                f"{', '.join(unpriced)} in the inventory"
            )
        display = Display()
        reply = args["facts"].get(table.master.name)
        cost = format_hourly_cost(table, prices, args["currency"])
        active = exclude_spares(job, table)
        shown = render_plan(job, active, (reply or {}).get("facts") or {}, cost)
        display.display("\n".join([shown, *render_restarts(job, table, prices, args["currency"])]))
        contract = job_contract(table, args["facts"])
        job = replace(job, checkpoint=checkpoint_to_resume(contract, active.world_size))
        records = records_directory(args["records"], args["group"], task_vars)
        text = render_contract(contract, job, active, reported_seconds(records, job.script or job.module))
        if text:
            display.display(text)
        if findings:
            display.display(render_findings(findings), stderr=False)
        errors = [finding for finding in findings if finding.severity == "error"]
        if errors:
            failed_nodes = sorted({name for finding in errors for name in finding.nodes})
            location = f" on {', '.join(failed_nodes)}" if failed_nodes else ""
            ids = ", ".join(dict.fromkeys(finding.id for finding in errors))
            # omit the findings, which are already on the screen: Ansible prints a failed task's whole result
            raise UserError(f"nothing was started: {ids}{location}", result={"changed": False, "run_id": job.run_id})
        facts = add_rdma_of_others(
            {node.name: limit_facts(args["facts"][node.name]["facts"], job.gpus) for node in table.nodes}
        )
        machines = describe_machines(facts, prices, table.master.name, args["currency"], bool(job.image))
        plans = {node.name: build_node_plan(job, table, node, facts[node.name], machines) for node in table.nodes}
        for plan in plans.values():
            plan["options"] = launch_options(job)
        return {
            "changed": False,
            "run_id": job.run_id,
            "findings": [finding.as_dict() for finding in findings],
            "nnodes": active.nnodes,
            "world_size": active.world_size,
            "rank_table": active.as_dicts(),
            "all_nodes": table.as_dicts(),
            "master": table.master.name,
            "origin": read_origin(task_vars.get("job"), args["code"]),
            "hostfiles": render_hostfiles(active),
            "nodes": {
                name: {
                    "command": plan["command"],
                    "environment": plan["environment"],
                    "files": sorted([*FILES, *plan["files"], *(f"bin/{name}" for name in plan["programs"])]),
                    "plan": plan,
                }
                for name, plan in plans.items()
            },
        }


FILES = ("plan.json", "environment.json", "token", "supervisor.py")
