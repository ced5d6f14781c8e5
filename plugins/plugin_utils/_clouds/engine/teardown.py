# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stop or tear down a cluster; a teardown checks repeatedly until none of the cluster's resources remain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ansible_collections.muster.training.plugins.plugin_utils._clouds.cloud import (
    POLL_INTERVAL,
    AnyCloud,
    CloudTemplate,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.cost import (
    estimate_cost,
    format_cost,
    format_plan,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import (
    ClusterCost,
    ClusterPlan,
    DesiredCluster,
    Machine,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.engine.confirm import confirm_missing
from ansible_collections.muster.training.plugins.plugin_utils._clouds.engine.create import remove_step
from ansible_collections.muster.training.plugins.plugin_utils._clouds.engine.discover import (
    desired_without_machines,
    discover,
    format_recorded,
    to_cloud_terms,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.engine.rollback import CONTAINERS, format_rate
from ansible_collections.muster.training.plugins.plugin_utils._clouds.errors import CloudError, ClusterError
from ansible_collections.muster.training.plugins.plugin_utils._clouds.planner import plan_cluster

# Raises PlanRefusedError if these machines must not be stopped or removed.
Confirm = Callable[[Sequence[Machine]], None]
ROUNDS = 3  # a listing may be outdated, and may show remaining resources only once the others are gone


class TeardownResult(NamedTuple):
    """The result of stopping or removing a cluster."""

    changed: bool
    desired: DesiredCluster
    initial: ClusterPlan  # the plan made before anything was changed
    current: ClusterPlan
    cost: ClusterCost
    remaining: list[str]  # resources that could not be removed, and the reasons
    message: str


class Removal(NamedTuple):
    """The resources that a teardown removes in addition to the machines."""

    drive: bool = False
    templates: bool = False


MACHINES_ONLY = Removal()


def stop(cloud: AnyCloud, check: bool = False, confirm: Confirm = lambda machines: None) -> TeardownResult:
    """Stop all machines in the cluster. check: only plan, and send only read requests.

    Raises:
        PlanRefusedError: nothing was changed.
        ClusterError: a machine stays on.
        CloudError: a request failed.
    """
    cloud.check_access(creates=False)
    account = discover(cloud, wait=not check)
    desired = desired_without_machines(cloud, "stopped")
    initial = plan_cluster(desired, account.resources, cloud.notes)
    _show_plan(cloud, desired, initial)
    running = {
        machine["id"]: machine["name"]
        for machine in [*initial["nodes"], *initial["duplicates"]]
        if machine["state"] != "off"
    }
    cloud.check_stoppable(account, running)
    confirm([machine for machine in initial["nodes"] if machine["state"] != "off"])
    changes = bool(initial["steps"])
    if check:
        cost = _estimate_cost(cloud, desired, initial)
        return TeardownResult(changes, desired, initial, initial, cost, [], "")
    still_on = cloud.stop(running) if running else []
    if still_on:
        raise ClusterError(
            f"{', '.join(still_on)} of {cloud.cluster} could not be stopped and still cost money. Run this command "
            "again"
        )
    current = plan_cluster(desired, discover(cloud).resources, cloud.notes)
    cost = _estimate_cost(cloud, desired, current)
    number = len(current["nodes"]) + len(current["duplicates"])
    message = (
        f"{cloud.cluster}: {number} machine{' is' if number == 1 else 's are'} off; {format_cost(cost, 'stopped')}"
    )
    cloud.show(message)
    return TeardownResult(changes, desired, initial, current, cost, [], message)


def teardown(
    cloud: AnyCloud,
    removal: Removal = MACHINES_ONLY,
    check: bool = False,
    confirm: Confirm = lambda machines: None,
) -> TeardownResult:
    """Remove the whole cluster, and verify the removal. Raise the same exceptions as stop()."""
    cloud.check_access(creates=False)
    desired = desired_without_machines(cloud, "absent", removal.drive)
    account = discover(cloud, wait=not check)
    if not check:
        account = confirm_missing(cloud, account)
    initial = plan_cluster(desired, account.resources, cloud.notes)
    _show_plan(cloud, desired, initial)
    confirm([machine for machine in initial["nodes"] if machine["state"] != "off"])
    templates = cloud.find_templates([machine["id"] for machine in [*initial["nodes"], *initial["duplicates"]]])
    for template in templates:
        cloud.show(f"{'remove' if removal.templates else 'keep'}: template {template.label}")
    if check:
        changes = bool(initial["steps"]) or (removal.templates and bool(templates))
        cost = _estimate_cost(cloud, desired, initial)
        return TeardownResult(changes, desired, initial, initial, cost, [], "")
    try:
        for template in templates:
            if removal.templates:
                cloud.delete_template(template)
            else:  # once their machines have been removed, only the journal shows which cluster they belong to
                cloud.journal.record_existing("template", template.name, template.id, cloud.clock())
        return _remove_cluster(cloud, desired, initial, [] if removal.templates else templates)
    except CloudError as error:
        raise ClusterError(f"{error.summary}. {format_recorded(cloud)} Run this command again to continue") from None


def _remove_cluster(
    cloud: AnyCloud, desired: DesiredCluster, initial: ClusterPlan, templates: Sequence[CloudTemplate]
) -> TeardownResult:
    current, reasons = initial, dict[str, str]()
    for _round in range(ROUNDS):
        reasons = _execute_steps(cloud, current)
        account = discover(cloud)
        current = plan_cluster(desired, account.resources, cloud.notes)
        if initial["steps"] and not current["steps"]:  # a listing may be outdated
            cloud.sleep(POLL_INTERVAL)
            account = discover(cloud)
            current = plan_cluster(desired, account.resources, cloud.notes)
        if reasons or not current["steps"]:
            break
    remaining = _list_remaining(cloud, account, current, reasons)
    if not remaining and not current["drives"] and not templates:
        cloud.journal.delete()
    cost = _estimate_cost(cloud, desired, current)
    message = _summarize(cloud, current, remaining, [template.label for template in templates])
    cloud.show(message)
    return TeardownResult(bool(initial["steps"]), desired, initial, current, cost, remaining, message)


def _execute_steps(cloud: AnyCloud, plan: ClusterPlan) -> dict[str, str]:
    """Remove everything in the plan; return the reason for each resource that still exists.

    Containers of machines are skipped if a removal failed: their removal would be refused until the timeout.
    """
    machines = {step["id"]: step["name"] for step in plan["steps"] if step["kind"] == "machine"}
    reasons = cloud.delete_machines(machines)
    for step in plan["steps"]:
        if step["kind"] != "machine" and not (reasons and step["kind"] in CONTAINERS):
            reasons = {**reasons, **remove_step(cloud, step)}
    return reasons


def _list_remaining(cloud: AnyCloud, account: Any, current: ClusterPlan, reasons: dict[str, str]) -> list[str]:
    remaining = [f"{step['kind']} {step['name']} ({step['id']})" for step in current["steps"]]
    remaining = [f"{item}: {reasons[item]}" if item in reasons else item for item in remaining]
    remaining += [
        f"{item}: {reason}" for item, reason in reasons.items() if not any(line.startswith(item) for line in remaining)
    ]
    kept = ("the network", "the VPC") if current["foreign_machines"] else ("the VPC",)
    remaining += [line for line in current["retained"] if line.startswith(kept)]
    remaining = [to_cloud_terms(cloud, item) for item in remaining]
    disks = cloud.unattached_disks(account, cloud.cluster)
    return remaining + [f"volume {disk} was detached by someone and still costs money" for disk in disks]


def _estimate_cost(cloud: AnyCloud, desired: DesiredCluster, plan: ClusterPlan) -> ClusterCost:
    disks = any(machine["disk_gb"] for machine in plan["nodes"])
    return estimate_cost(desired, plan, cloud.prices(None, disks))


def _show_plan(cloud: AnyCloud, desired: DesiredCluster, initial: ClusterPlan) -> None:
    for line in format_plan(desired, initial):
        cloud.show(to_cloud_terms(cloud, line))


def _summarize(cloud: AnyCloud, current: ClusterPlan, remaining: list[str], templates: Sequence[str]) -> str:
    if remaining:
        return (
            f"{cloud.cluster} has not been completely removed ({format_rate(current)} an hour). Remaining: "
            f"{'; '.join(remaining)}"
        )
    template_note = (
        f"; the template {', '.join(templates)} is kept; remove it with teardown_template=true" if templates else ""
    )
    if current["retained"]:
        exceptions = "; ".join(current["retained"])
        remedy = ". Remove it with teardown_drive=true" if current["drives"] else ""
        return f"no machines of {cloud.cluster} remain; {exceptions}, at an unknown price{remedy}{template_note}"
    if templates:
        return f"no machines of {cloud.cluster} remain{template_note}"
    return f"no resources of {cloud.cluster} remain, 0 USD an hour"
