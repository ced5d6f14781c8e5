# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Build the checks' context from nodes, their replies and a job, and run all checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._code.compare import is_file, unpack
from ansible_collections.muster.training.plugins.plugin_utils._checks.catalogue import check_all, find_skip_errors
from ansible_collections.muster.training.plugins.plugin_utils._checks.code import facts_after_copy
from ansible_collections.muster.training.plugins.plugin_utils._checks.context import (
    CheckContext,
    ControllerCode,
    Thresholds,
)
from ansible_collections.muster.training.plugins.plugin_utils._checks.findings import (
    Finding,
    merge,
    note,
    sort_by_severity,
    warning,
)
from ansible_collections.muster.training.plugins.plugin_utils._checks.job_request import plain_environment
from ansible_collections.muster.training.plugins.plugin_utils._checks.ssh_errors import strip_wrapper
from ansible_collections.muster.training.plugins.plugin_utils._checks.start_conditions import check_order
from ansible_collections.muster.training.plugins.plugin_utils._cluster.local_connection import is_local
from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import RankTable, build_rank_table
from ansible_collections.muster.training.plugins.plugin_utils._command_line.command_hints import adapt_commands
from ansible_collections.muster.training.plugins.plugin_utils._plan.gpu_selection import limit_facts
from ansible_collections.muster.training.plugins.plugin_utils._plan.gpu_vendors import vendor_of
from ansible_collections.muster.training.plugins.plugin_utils._plan.job import Job, parse_nnodes
from ansible_collections.muster.training.plugins.plugin_utils._plan.plan import get_launcher

THRESHOLDS_SPEC = {
    "clock_skew": {"type": "float", "default": Thresholds.clock_skew},
    "disk_gib": {"type": "float", "default": Thresholds.disk_gib},
    "shm_gib": {"type": "float", "default": Thresholds.shm_gib},
    "memlock_mib": {"type": "float", "default": Thresholds.memlock_mib},
    "nofile": {"type": "int", "default": Thresholds.nofile},
}


def fill_slots(
    nodes: list[dict[str, Any]], facts: Mapping[str, Any], nproc_per_node: int | None
) -> tuple[list[dict[str, Any]], list[Finding]]:
    """Fill in slots: nproc_per_node, or the inventory's value, or one slot per GPU on the node.

    nproc_per_node: also the number of selected GPUs, which counts more than the inventory's value.
    """
    filled, findings = [], []
    for node in nodes:
        slots = nproc_per_node if nproc_per_node is not None else node.get("slots")
        if slots in (None, ""):
            node_facts = facts.get(node["name"])
            slots = (node_facts["gpu_count"] if node_facts else 0) or 1
            if node_facts and node_facts["gpu_count"] == 0:
                findings.append(report_no_gpu(node["name"], node_facts, facts))
        filled.append({**node, "slots": slots})
    return filled, findings


def report_no_gpu(name: str, node_facts: Mapping[str, Any], facts: Mapping[str, Any]) -> Finding:
    """Return a warning for a node without a visible GPU, or a note if no node has one, not even on its PCI bus."""
    if not any(other["gpu_count"] or (other.get("gpus") or {}).get("pci", 1) for other in facts.values()):
        return note(
            "no-gpu",
            [name],
            problem="no GPU, so one process is started on the CPU of each node",
            requirement="the number of processes in node_slots",
            remedy="for more processes, add -e nproc_per_node=N, or set node_slots in the inventory",
        )
    return warning(
        "no-gpu",
        [name],
        problem="the node has no visible GPU and the inventory has no node_slots: one process is started, on the CPU",
        requirement="GPUs with a working driver, or the number of processes in node_slots",
        remedy=f"run {vendor_of(node_facts.get('gpus')).tool} on the node; or set node_slots, or add "
        "-e nproc_per_node=N",
    )


def collect_replies(args: Mapping[str, Any], hostvars: Any) -> dict[str, Any]:
    """Return the reply from each of args["nodes"]: args["facts"], or the variable named in args["facts_from"].

    The variable exists because replies of many nodes are large, and Ansible would copy an argument several times. It
    contains the reply of its host, or, as a result of call_nodes, those of all nodes.
    """
    if not args["facts_from"]:
        return dict(args["facts"])
    replies: dict[str, Any] = {}
    for name in (str(node.get("name")) for node in args["nodes"]):
        if name in hostvars and name not in replies:
            reply = hostvars.raw_get(name).get(args["facts_from"])
            replies |= reply["by_node"] if isinstance(reply, Mapping) and "by_node" in reply else {name: reply}
    return replies


def find_local_nodes(nodes: Iterable[Mapping[str, Any]], hostvars: Any) -> list[str]:
    """Return the names of the nodes that are this machine, because Ansible uses no connection for them."""
    names = [str(node.get("name")) for node in nodes]
    return [name for name in names if name in (hostvars or ()) and is_local(hostvars.raw_get(name))]


def find_unreached_nodes(names: list[str], facts: Mapping[str, Any]) -> dict[str, str]:
    """Return the nodes without facts, with the reason for each."""
    reasons = {}
    for name in names:
        reply = facts.get(name)
        if not isinstance(reply, Mapping):
            reasons[name] = "it was not queried (excluded by --limit?)"
        elif reply.get("facts") is None:
            reasons[name] = strip_wrapper(str(reply.get("msg") or "not queried"))
    return reasons


def parse_controller_code(args: Mapping[str, Any]) -> ControllerCode:
    """Parse the code on the controller from the arguments code, code_skip_reason and local_nodes."""
    argument = args.get("code") or {}
    fields = {name: str(argument.get(name) or "") for name in ("source", "problem", "requirements", "required")}
    tree = unpack(argument["listing"]) if argument.get("listing") else {}
    files = tuple(name for name, entry in tree.items() if entry is not None and is_file(entry))
    local_nodes = frozenset(args.get("local_nodes") or ())
    return ControllerCode(
        **fields, skip_reason=args.get("code_skip_reason") or "", files=files, local_nodes=local_nodes
    )


def run_checks(args: Mapping[str, Any], job: Job, names_needed: bool = False) -> tuple[RankTable, list[Finding]]:
    """Return the rank table and all findings, with errors first.

    Args:
        args: nodes, facts, nnodes, nproc_per_node, skip, thresholds, and optionally replace, code and
            code_skip_reason, as in launch_plan, local_nodes, and bad_nodes, the entries of bad-nodes.json.
        job: the job to check the nodes for.
        names_needed: whether names must resolve even if the launcher does not use them.

    Raises:
        ValueError: the nodes do not form a valid cluster (RankTableError), or a check in `skip` cannot be skipped.
    """
    skip = [check_id.strip(" []'\"") for check_id in args["skip"]]  # -e preflight_skip=[a,b] gives a string
    skip_error = find_skip_errors(skip)
    if skip_error:
        raise ValueError(skip_error)
    reasons = find_unreached_nodes([str(node.get("name")) for node in args["nodes"]], args["facts"])
    facts = {name: reply["facts"] for name, reply in args["facts"].items() if name not in reasons and reply}
    facts = {name: limit_facts(node_facts, job.gpus) for name, node_facts in facts.items()}
    slots = args["nproc_per_node"] if args["nproc_per_node"] is not None else len(job.gpus) or None
    filled, findings = fill_slots(args["nodes"], facts, slots)
    max_nodes = parse_nnodes(args["nnodes"])[1] if args["nnodes"] not in (None, "") else None
    inventory_table = build_rank_table(filled, nnodes=max_nodes + job.spares if max_nodes is not None else None)
    if job.spares >= inventory_table.nnodes:
        raise ValueError(f"launch_spares is {job.spares}, but the run has only {inventory_table.nnodes} nodes in total")
    table = get_launcher(job).order(inventory_table)
    if any(node.get(key) is not None for node in filled for key in ("rank", "node_rank")):
        findings += check_order(job, inventory_table, table)
    thresholds = Thresholds(**(args["thresholds"] or {}))
    code = parse_controller_code(args)
    if code.will_be_copied:
        facts = {name: facts_after_copy(node_facts) for name, node_facts in facts.items()}
    environment = plain_environment(args.get("environment") or {})
    bad_nodes = tuple(args.get("bad_nodes") or ())
    context = CheckContext(
        job, table, facts, names_needed, bool(args.get("replace")), thresholds, code, environment, bad_nodes
    )
    findings += check_all(context, reasons)
    reported = merge(finding for finding in findings if finding.id not in skip)
    return table, sort_by_severity(replace(finding, remedy=adapt_commands(finding.remedy)) for finding in reported)
