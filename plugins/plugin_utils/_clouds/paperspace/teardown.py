# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stop a cluster at Paperspace, or remove it and verify that nothing remains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ansible_collections.muster.training.plugins.plugin_utils._clouds.cost import (
    estimate_cost,
    format_cost,
    format_plan,
    format_usd,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import (
    ClusterCost,
    ClusterPlan,
    DesiredCluster,
    Machine,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace import operations
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.create import (
    POLL_INTERVAL,
    PaperspaceClusterError,
    PaperspaceContext,
    discover,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.errors import PaperspaceError
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.provision import (
    format_recorded,
    remove_machines_and_addresses,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.remove import remove_resource
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.resources import parse_name
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.templates import (
    Template,
    cluster_templates,
    delete_template,
    format_template,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.wait import stop_and_wait
from ansible_collections.muster.training.plugins.plugin_utils._clouds.planner import plan_cluster

Confirm = Callable[[Sequence[Machine]], None]


class PaperspaceTeardownResult(NamedTuple):
    """Result of stop() or teardown(). initial: the plan before any change. remaining: what could not be removed."""

    changed: bool
    desired: DesiredCluster
    initial: ClusterPlan
    current: ClusterPlan
    cost: ClusterCost
    remaining: list[str]
    message: str


def _desired_without_machines(context: PaperspaceContext, state: str, remove_drive: bool) -> DesiredCluster:
    return {
        "cluster": context.cluster,
        "state": "stopped" if state == "stopped" else "absent",
        "nnodes": 0,
        "machine_type": "",
        "region": "",
        "disk_gb": 0,
        "drive_gb": 0,
        "script": "",
        "network_id": context.network_id,
        "remove_drive": remove_drive,
    }


def stop(
    context: PaperspaceContext, check: bool = False, confirm: Confirm = lambda machines: None
) -> PaperspaceTeardownResult:
    """Stop all machines of the cluster. confirm: raises PlanRefusedError if these must not be stopped.

    Raises:
        PlanRefusedError
        PaperspaceClusterError: a machine stays on
        PaperspaceError: a request failed
    """
    operations.get_session(context.client)
    desired = _desired_without_machines(context, "stopped", False)
    initial = plan_cluster(desired, discover(context, wait=not check), context.notes)
    _show_plan(context, desired, initial)
    confirm([machine for machine in initial["nodes"] if machine["state"] != "off"])
    if check:
        return PaperspaceTeardownResult(
            bool(initial["steps"]), desired, initial, initial, estimate_cost(desired, initial), [], ""
        )
    machines = {machine["id"]: machine["name"] for machine in [*initial["nodes"], *initial["duplicates"]]}
    still_on = stop_and_wait(context, machines)
    current = plan_cluster(desired, discover(context), context.notes)
    cost = estimate_cost(desired, current)
    if still_on:
        raise PaperspaceClusterError(
            f"{', '.join(still_on)} of {context.cluster} could not be stopped and still cost money. Run "
            "the command again"
        )
    count = f"{len(machines)} machine{' is' if len(machines) == 1 else 's are'}"
    message = f"{context.cluster}: {count} off; {format_cost(cost, 'stopped')}"
    context.show(message)
    return PaperspaceTeardownResult(bool(initial["steps"]), desired, initial, current, cost, [], message)


def teardown(
    context: PaperspaceContext,
    remove_drive: bool = False,
    check: bool = False,
    confirm: Confirm = lambda machines: None,
    remove_templates: bool = False,
) -> PaperspaceTeardownResult:
    """Remove the whole cluster and verify it. What could not be removed is in the result's `remaining`.

    Args:
        confirm: as for stop()
        remove_templates: also remove the templates created from its machines

    Raises:
        PlanRefusedError, PaperspaceClusterError, PaperspaceError
    """
    operations.get_session(context.client)
    desired = _desired_without_machines(context, "absent", remove_drive)
    initial = plan_cluster(desired, discover(context, wait=not check), context.notes)
    _show_plan(context, desired, initial)
    confirm([machine for machine in initial["nodes"] if machine["state"] != "off"])
    templates = cluster_templates(context, [machine["id"] for machine in [*initial["nodes"], *initial["duplicates"]]])
    for template in templates:
        action = "remove" if remove_templates else "keep"
        context.show(f"{action}: template {format_template(template)}")
    if check:
        changes = bool(initial["steps"]) or (remove_templates and bool(templates))
        return PaperspaceTeardownResult(changes, desired, initial, initial, estimate_cost(desired, initial), [], "")
    try:
        if remove_templates:
            for template in templates:
                delete_template(context, template)
            templates = []
        return _remove_cluster(context, desired, initial, templates)
    except PaperspaceError as error:
        raise PaperspaceClusterError(
            f"{error.summary}. {format_recorded(context)} Run the command again to continue"
        ) from None


def _remove_cluster(
    context: PaperspaceContext, desired: DesiredCluster, initial: ClusterPlan, templates: list[Template]
) -> PaperspaceTeardownResult:
    for template in templates:  # once their machines are removed, only the journal says whose they are
        context.journal.record_existing("template", parse_name(template), str(template["id"]), context.clock())
    reasons = remove_machines_and_addresses(context, [*initial["nodes"], *initial["duplicates"]])
    for step in initial["steps"]:
        if step["what"] in ("script", "drive", "network"):
            reason = remove_resource(context, step)
            if reason:
                reasons[f"{step['what']} {step['name']} ({step['id']})"] = reason
    current = plan_cluster(desired, discover(context), context.notes)
    if initial["steps"] and not current["steps"]:  # the list may be outdated
        context.sleep(POLL_INTERVAL)
        current = plan_cluster(desired, discover(context), context.notes)
    remaining = [f"{step['what']} {step['name']} ({step['id']})" for step in current["steps"]]
    remaining = [f"{name}: {reasons[name]}" if name in reasons else name for name in remaining]
    remaining += [
        f"{name}: {reason}" for name, reason in reasons.items() if not any(line.startswith(name) for line in remaining)
    ]
    if current["foreign_machines"]:
        remaining += [line for line in current["retained"] if line.startswith("the network")]
    if not remaining and not current["drives"] and not templates:
        context.journal.delete()
    cost = estimate_cost(desired, current)
    message = _summarize(context, current, remaining, [format_template(template) for template in templates])
    context.show(message)
    return PaperspaceTeardownResult(bool(initial["steps"]), desired, initial, current, cost, remaining, message)


def _show_plan(context: PaperspaceContext, desired: DesiredCluster, initial: ClusterPlan) -> None:
    for line in format_plan(desired, initial):
        context.show(line)


def _summarize(context: PaperspaceContext, current: ClusterPlan, remaining: list[str], templates: list[str]) -> str:
    on = [machine for machine in [*current["nodes"], *current["duplicates"]] if machine["state"] != "off"]
    rates = [machine["per_hour"] for machine in on]
    price = "unknown" if None in rates else format_usd(sum(rate or 0.0 for rate in rates))
    if remaining:
        return f"{context.cluster} is not completely removed, {price} an hour. Remaining: {'; '.join(remaining)}"
    template_note = (
        f"; the template {', '.join(templates)} is kept; remove it with teardown_template=true" if templates else ""
    )
    if current["retained"]:
        exceptions = "; ".join(current["retained"])
        return (
            f"no machine of {context.cluster} is left; {exceptions}, at an unknown price. Remove it with "
            f"teardown_drive=true{template_note}"
        )
    if templates:
        return f"no machine of {context.cluster} is left{template_note}"
    return f"nothing of {context.cluster} is left, 0 USD an hour"
