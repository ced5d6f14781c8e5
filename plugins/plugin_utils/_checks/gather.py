# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Turn nodes, their answers and a job into the checks' input. Private to this collection, controller only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._rank_table import RankTable, build_rank_table
from ansible_collections.muster.training.plugins.plugin_utils._checks.catalogue import check_all, skip_problems
from ansible_collections.muster.training.plugins.plugin_utils._checks.code import as_brought
from ansible_collections.muster.training.plugins.plugin_utils._checks.context import Case, Code, Thresholds
from ansible_collections.muster.training.plugins.plugin_utils._checks.findings import (
    Finding,
    merge,
    warning,
    worst_first,
)
from ansible_collections.muster.training.plugins.plugin_utils._checks.ssh_errors import shortened
from ansible_collections.muster.training.plugins.plugin_utils._checks.start_conditions import check_order
from ansible_collections.muster.training.plugins.plugin_utils._command_line.command_hints import as_typed
from ansible_collections.muster.training.plugins.plugin_utils._plan.job import Job, parse_nnodes
from ansible_collections.muster.training.plugins.plugin_utils._plan.plan import launcher_of

THRESHOLDS_SPEC = {
    "clock_skew": {"type": "float", "default": Thresholds.clock_skew},
    "disk_gib": {"type": "float", "default": Thresholds.disk_gib},
    "shm_gib": {"type": "float", "default": Thresholds.shm_gib},
    "memlock_mib": {"type": "float", "default": Thresholds.memlock_mib},
    "nofile": {"type": "int", "default": Thresholds.nofile},
}


def counted_slots(
    nodes: list[dict[str, Any]], facts: Mapping[str, Any], nproc_per_node: int | None
) -> tuple[list[dict[str, Any]], list[Finding]]:
    """Fill in slots: nproc_per_node, else the inventory's value, else one per GPU of the node."""
    filled, findings = [], []
    for node in nodes:
        slots = nproc_per_node if nproc_per_node is not None else node.get("slots")
        if slots in (None, ""):
            node_facts = facts.get(node["name"])
            slots = (node_facts["gpu_count"] if node_facts else 0) or 1
            if node_facts and node_facts["gpu_count"] == 0:
                findings.append(
                    warning(
                        "no-gpu",
                        [node["name"]],
                        "the node shows no GPU and the inventory has no node_slots: one process is started, on the CPU",
                        "GPUs with a working driver, or the number of processes in node_slots",
                        "run nvidia-smi there; or set node_slots, or use -e nproc_per_node=N",
                    )
                )
        filled.append({**node, "slots": slots})
    return filled, findings


def answers(args: Mapping[str, Any], hostvars: Any) -> dict[str, Any]:
    """The answer of each of args["nodes"]: args["facts"], or the variable named in args["facts_from"].

    Many nodes' answers are large, and Ansible would copy an argument several times.
    """
    if not args["facts_from"]:
        return dict(args["facts"])
    names = [str(node.get("name")) for node in args["nodes"]]
    return {name: hostvars.raw_get(name).get(args["facts_from"]) for name in names if name in hostvars}


def unreached_nodes(names: list[str], facts: Mapping[str, Any]) -> dict[str, str]:
    """The nodes without facts, each with the reason."""
    reasons = {}
    for name in names:
        answer = facts.get(name)
        if not isinstance(answer, Mapping):
            reasons[name] = "it was not queried (excluded by --limit?)"
        elif answer.get("facts") is None:
            reasons[name] = shortened(str(answer.get("msg") or "not queried"))
    return reasons


def code_of(args: Mapping[str, Any]) -> Code:
    """The code on the controller from the arguments code and code_left."""
    given = args.get("code") or {}
    kept = {name: str(given.get(name) or "") for name in ("source", "problem", "requirements", "required")}
    return Code(**kept, left=args.get("code_left") or "")


def judge(args: Mapping[str, Any], job: Job, names_needed: bool = False) -> tuple[RankTable, list[Finding]]:
    """The rank table, and all findings, worst first.

    args: nodes, facts, nnodes, nproc_per_node, skip, thresholds, and optionally replace, code and code_left, as in
    launch_plan.
    Raises ValueError (or RankTableError) if the nodes form no valid cluster, or skip names what cannot be skipped.
    """
    skip = [word.strip(" []'\"") for word in args["skip"]]  # -e preflight_skip=[a,b] gives a string
    problem = skip_problems(skip)
    if problem:
        raise ValueError(problem)
    reasons = unreached_nodes([str(node.get("name")) for node in args["nodes"]], args["facts"])
    facts = {name: answer["facts"] for name, answer in args["facts"].items() if name not in reasons and answer}
    filled, findings = counted_slots(args["nodes"], facts, args["nproc_per_node"])
    most = parse_nnodes(args["nnodes"])[1] if args["nnodes"] not in (None, "") else None
    wanted = build_rank_table(filled, nnodes=most)
    table = launcher_of(job).order(wanted)
    if any(node.get(key) is not None for node in filled for key in ("rank", "node_rank")):
        findings += check_order(job, wanted, table)
    thresholds = Thresholds(**(args["thresholds"] or {}))
    code = code_of(args)
    if code.is_coming:
        facts = {name: as_brought(one) for name, one in facts.items()}
    case = Case(job, table, facts, names_needed, bool(args.get("replace")), thresholds, code)
    findings += check_all(case, reasons)
    told = merge(finding for finding in findings if finding.id not in skip)
    return table, worst_first(replace(finding, todo=as_typed(finding.todo)) for finding in told)
