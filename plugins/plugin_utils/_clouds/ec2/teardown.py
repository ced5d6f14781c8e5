# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stop or tear down a cluster at EC2: check repeatedly until none of its resources is left."""

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
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2 import prices
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.client import Ec2Error
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.create import stop_machines, terminate
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.discover import (
    POLL_INTERVAL,
    Ec2ClusterError,
    Ec2Context,
    desired_without_machines,
    discover,
    format_recorded,
    to_ec2_terms,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.remove import REMOVABLE, remove_part
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.resources import Ec2Account
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import PlanRefusedError
from ansible_collections.muster.training.plugins.plugin_utils._clouds.planner import plan_cluster

Confirm = Callable[[Sequence[Machine]], None]
ROUNDS = 3  # a list may be outdated, and show remaining resources only once the others are gone


class Ec2TeardownResult(NamedTuple):
    """How the cluster was stopped or removed."""

    changed: bool
    desired: DesiredCluster
    initial: ClusterPlan  # before anything was changed
    current: ClusterPlan
    cost: ClusterCost
    remaining: list[str]  # resources that could not be removed, with reasons
    message: str


def stop(context: Ec2Context, check: bool = False, confirm: Confirm = lambda machines: None) -> Ec2TeardownResult:
    """Stop all machines of the cluster.

    Args:
        check: only plan, with read-only requests.
        confirm: raises PlanRefusedError if these machines must not be stopped.

    Raises:
        PlanRefusedError: nothing was changed.
        Ec2ClusterError: a machine stays on.
        Ec2Error: a request failed.
    """
    account = discover(context, wait=not check)
    desired = desired_without_machines(context, "stopped")
    initial = plan_cluster(desired, account.resources, context.notes)
    _show_plan(context, desired, initial)
    running = {step["id"]: step["name"] for step in initial["steps"]}
    spot = [
        name for machine_id, name in running.items() if account.instances[machine_id].get("InstanceLifecycle") == "spot"
    ]
    if spot:
        raise PlanRefusedError(
            f"{', '.join(spot[:4])} of {context.cluster} cannot be stopped: spot machines can only be removed. Nothing "
            "was changed. Leave them on, or tear the cluster down"
        )
    confirm([machine for machine in initial["nodes"] if machine["state"] != "off"])
    if check:
        return Ec2TeardownResult(
            bool(running), desired, initial, initial, _estimate_cost(context, desired, initial), [], ""
        )
    running_names = stop_machines(context, running)
    if running_names:
        raise Ec2ClusterError(
            f"{', '.join(running_names)} of {context.cluster} could not be stopped and still cost money. Run this "
            "command again"
        )
    current = plan_cluster(desired, discover(context).resources, context.notes)
    cost = _estimate_cost(context, desired, current)
    count = f"{len(current['nodes'])} machine{' is' if len(current['nodes']) == 1 else 's are'}"
    message = f"{context.cluster}: {count} off; {format_cost(cost, 'stopped')}"
    context.show(message)
    return Ec2TeardownResult(bool(running), desired, initial, current, cost, [], message)


def teardown(context: Ec2Context, check: bool = False, confirm: Confirm = lambda machines: None) -> Ec2TeardownResult:
    """Remove the whole cluster and verify that it is gone. Arguments and exceptions are those of stop()."""
    account = discover(context, wait=not check)
    desired = desired_without_machines(context, "absent")
    initial = plan_cluster(desired, account.resources, context.notes)
    _show_plan(context, desired, initial)
    confirm([machine for machine in initial["nodes"] if machine["state"] != "off"])
    if check:
        return Ec2TeardownResult(
            bool(initial["steps"]), desired, initial, initial, _estimate_cost(context, desired, initial), [], ""
        )
    try:
        return _remove_cluster(context, desired, initial)
    except Ec2Error as error:
        raise Ec2ClusterError(f"{error}. {format_recorded(context)} Run this command again to continue") from None


def _remove_cluster(context: Ec2Context, desired: DesiredCluster, initial: ClusterPlan) -> Ec2TeardownResult:
    current, reasons = initial, dict[str, str]()
    for _round in range(ROUNDS):
        reasons = _apply_plan(context, current)
        account = discover(context)
        current = plan_cluster(desired, account.resources, context.notes)
        if initial["steps"] and not current["steps"]:  # a list may be outdated
            context.sleep(POLL_INTERVAL)
            account = discover(context)
            current = plan_cluster(desired, account.resources, context.notes)
        if reasons or not current["steps"]:
            break
    remaining = _list_remaining(context, account, current, reasons)
    if not remaining:
        context.journal.delete()
    cost = _estimate_cost(context, desired, current)
    message = _summarize(context, current, remaining)
    context.show(message)
    return Ec2TeardownResult(bool(initial["steps"]), desired, initial, current, cost, remaining, message)


def _apply_plan(context: Ec2Context, plan: ClusterPlan) -> dict[str, str]:
    """Carry out the steps; return the reasons why some resources still exist, by resource."""
    machines = {step["id"]: step["name"] for step in plan["steps"] if step["what"] == "machine"}
    refused = terminate(context, machines)
    ids = {name: machine_id for machine_id, name in machines.items()}
    reasons = {f"machine {name} ({ids[name]})": reason for name, reason in refused.items()}
    for step in plan["steps"]:
        if step["what"] in REMOVABLE and not reasons:
            problem = remove_part(context, step["what"], step["name"], step["id"])
            if problem:
                reasons[f"{step['what']} {step['name']} ({step['id']})"] = problem
    return reasons


def _list_remaining(
    context: Ec2Context, account: Ec2Account, current: ClusterPlan, reasons: dict[str, str]
) -> list[str]:
    remaining = [f"{step['what']} {step['name']} ({step['id']})" for step in current["steps"]]
    remaining = [f"{item}: {reasons[item]}" if item in reasons else item for item in remaining]
    remaining += [
        f"{item}: {reason}" for item, reason in reasons.items() if not any(line.startswith(item) for line in remaining)
    ]
    remaining += [line for line in current["retained"] if line.startswith(("the network", "the VPC"))]
    volumes = account.volumes.get(context.cluster, [])
    remaining = [to_ec2_terms(item) for item in remaining]
    return remaining + [f"volume {volume}: detached by someone, and still costs money" for volume in volumes]


def _estimate_cost(context: Ec2Context, desired: DesiredCluster, plan: ClusterPlan) -> ClusterCost:
    disks = any(machine["disk_gb"] for machine in plan["nodes"])
    return estimate_cost(
        desired, plan, None, prices.make_prices("", None, prices.read_disk_price(context.aws) if disks else None)
    )


def _show_plan(context: Ec2Context, desired: DesiredCluster, initial: ClusterPlan) -> None:
    for line in format_plan(desired, initial):
        context.show(to_ec2_terms(line))


def _summarize(context: Ec2Context, current: ClusterPlan, remaining: list[str]) -> str:
    if not remaining:
        return f"nothing of {context.cluster} is left, 0 USD an hour"
    running = [machine for machine in [*current["nodes"], *current["duplicates"]] if machine["state"] != "off"]
    rates = [machine["per_hour"] for machine in running]
    price = "unknown" if None in rates else format_usd(sum(rate or 0.0 for rate in rates))
    return f"{context.cluster} is not completely removed, {price} an hour. Remaining: {'; '.join(remaining)}"
