# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The attempts of an automatically restarting run, as reported in its verdict."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._run.attempt_losses import (
    format_loss,
    losses,
    total_loss,
)
from ansible_collections.muster.training.plugins.plugin_utils._plan.cost import format_amount, run_cost
from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import to_mapping
from ansible_collections.muster.training.plugins.plugin_utils._text.duration import format_duration
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import printable

MAX_SHOWN = 10  # last attempts
MAX_REASON = 200  # characters
MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def summarize(plan: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the verdict's fields about a run's attempts; the attempts are [] if the run was not meant to restart.

    effective_seconds: how long the job ran in all attempts, excluding the time between them; kept_seconds: the same,
    excluding lost work, None if unknown. between_seconds: how long each attempt waited for the next, with its cost;
    None for the last one. lost_steps, lost_seconds, lost_cost: the work after the attempt's newest checkpoint.
    """
    records = list(result.get("attempts") or [])
    attempts = []
    lost = losses(records, bool(to_mapping(plan.get("restart")).get("counts_progress")))
    for index, record in enumerate(records):
        following = records[index + 1]["started"] if index + 1 < len(records) else None
        between = None if following is None else max(0.0, following - record["ended"])
        cost = None if between is None else run_cost(plan, record["ended"], record["ended"] + between)
        seconds = lost[index].seconds
        lost_cost = None if seconds is None else run_cost(plan, record["ended"] - seconds, record["ended"])
        attempts.append(
            {
                **record,
                "between_seconds": between,
                "between_cost": cost,
                "lost_steps": lost[index].steps,
                "lost_seconds": seconds,
                "lost_cost": lost_cost,
                "lost": format_loss(lost[index]),
            }
        )
    total = total_loss(lost).seconds
    running = sum(max(0.0, record["ended"] - record["started"]) for record in records)
    return {
        "kept_seconds": None if total is None else running - total,
        "attempts": attempts,
        "effective_seconds": sum(max(0.0, record["ended"] - record["started"]) for record in records),
        "not_restarted": result.get("not_restarted") or "",
    }


def nodes_of_last_attempt(result: Mapping[str, Any]) -> list[Any]:
    """Return the nodes that took part in the last attempt, because only these can have ended it."""
    records = result.get("attempts") or []
    return [node for node in result["nodes"] if not records or node["name"] in records[-1]["nodes"]]


def render_attempts(verdict: Mapping[str, Any]) -> list[str]:
    """Render lines for the terminal: how many attempts there were, how they ended, and why no more followed."""
    attempts, lines = verdict.get("attempts") or [], []
    if len(attempts) > 1:
        whole = (verdict["ended"] or 0.0) - (verdict["started"] or 0.0)
        share = f", {100 * verdict['effective_seconds'] / whole:.0f} % of its time in the job" if whole > 0 else ""
        kept = verdict.get("kept_seconds")
        if kept is not None and whole > 0:
            share += f", {100 * kept / whole:.0f} % in work that was kept"
        lines.append(f"  attempts: {len(attempts)}{share}")
    for record in attempts[:-1][-MAX_SHOWN:]:
        seconds = format_duration(max(0.0, record["ended"] - record["started"]))
        costs = [record["between_cost"], record.get("lost_cost")]
        known = [cost for cost in costs if cost is not None]
        price = f" ({format_amount(sum(known), verdict['currency'])})" if known else ""
        lines.append(
            f"    attempt {record['number']} ended after {seconds}: {printable(record['reason'])[:MAX_REASON]}; "
            f"{describe_phases(record)}work lost: {record.get('lost') or 'unknown'}; the next began "
            f"{record['between_seconds']:.0f} s later{price}"
        )
        for name, why in to_mapping(record.get("unusable")).items():
            lines.append(f"      {printable(str(name))} could not take part: {printable(str(why))[:MAX_REASON]}")
    if verdict.get("not_restarted"):
        lines.append(f"  not restarted: {printable(verdict['not_restarted'])[:MAX_REASON]}")
    if verdict.get("continue_with"):
        lines.append(f"  continue with: {verdict['continue_with']}")
        names = ", ".join(printable(name) for name in (verdict.get("continue_variables") or [])[:MAX_SHOWN])
        if names:
            lines.append(f"  and add launch_environment, whose values are not recorded: {names}")
    return lines


def describe_phases(record: Mapping[str, Any]) -> str:
    """Return how long it took to notice the failure that ended an attempt and to end the processes; "" if unknown."""
    noticed, silent = record.get("noticed"), record.get("silent")
    if noticed is None:
        return ""
    ended = f"ended on all nodes {max(0.0, record['ended'] - noticed):.0f} s later, "
    return f"noticed after {silent:.0f} s, {ended}" if silent is not None else f"{ended}"


def continue_command(plan: Mapping[str, Any], lost: set[str]) -> str:
    """Return the command that continues a run without its first node, or "" if the plan does not determine it."""
    names = [node["name"] for node in plan["nodes"] if node["name"] not in lost]
    program = str(plan.get("program") or "")
    if "restart" not in plan or not names or not program:
        return ""
    options = plan.get("options")
    job = {
        **(options if isinstance(options, dict) else {}),
        "nodes": ",".join(names),
        "launch_launcher": plan.get("launcher"),
        "launch_working_directory": plan.get("working_directory"),
        "launch_module" if MODULE.fullmatch(program) and not program.endswith(".py") else "launch_script": program,
        "launch_args": plan.get("arguments") or [],
        "launch_restarts": plan["restart"]["restarts"],
    }
    job.update(fewer_nodes(job, plan, len(names)))
    text = json.dumps(job, ensure_ascii=False)
    if "{{" in text or "{%" in text:  # Ansible would interpret it as a template
        return ""
    return f"ansible-playbook launch.yml -e {shlex.quote(text)}"


def fewer_nodes(job: Mapping[str, Any], plan: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Return the number of spares and the minimum number of nodes for a launch on the remaining nodes."""
    spares = int(job.get("launch_spares") or 0)
    active = len(plan["nodes"]) - spares
    remaining = max(0, count - active)
    changed: dict[str, Any] = {"launch_spares": min(spares, remaining)} if spares else {}
    least = job.get("launch_restart_min_nodes")
    if isinstance(least, int) and least > count:
        changed["launch_restart_min_nodes"] = count
    if spares:
        changed["nnodes"] = count - changed["launch_spares"]
    return changed


def unknown_values(plan: Mapping[str, Any]) -> list[str]:
    """Return the names of the job's environment variables whose values are not in any record."""
    variables = plan.get("variables")
    return [name for name in variables if isinstance(name, str)] if isinstance(variables, list) else []
