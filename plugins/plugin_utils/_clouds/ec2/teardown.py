# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stop or remove a cluster at EC2: check repeatedly until nothing of it is left. Private to this collection."""

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
ROUNDS = 3  # a list may be outdated, and show remaining things only once the rest is gone


class Ec2TeardownResult(NamedTuple):
    """The result. first: the plan before anything was done. left: what could not be removed, in words."""

    changed: bool
    desired: DesiredCluster
    initial: ClusterPlan
    current: ClusterPlan
    cost: ClusterCost
    remaining: list[str]
    message: str


def stop(context: Ec2Context, check: bool = False, confirm: Confirm = lambda machines: None) -> Ec2TeardownResult:
    """Stop all machines of the cluster. agree: raises PlanRefused if these must not be stopped.

    Raises PlanRefused, ClusterError if one stays on, Ec2Error.
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
            f"{', '.join(running_names)} of {context.cluster} could not be stopped and still cost money. Run this again"
        )
    current = plan_cluster(desired, discover(context).resources, context.notes)
    cost = _estimate_cost(context, desired, current)
    message = f"{context.cluster}: {len(current['nodes'])} machines are off; {format_cost(cost, 'stopped')}"
    context.say(message)
    return Ec2TeardownResult(bool(running), desired, initial, current, cost, [], message)


def teardown(context: Ec2Context, check: bool = False, confirm: Confirm = lambda machines: None) -> Ec2TeardownResult:
    """Remove the whole cluster and check that it is gone. agree: as for stop(). What remains is in left.

    Raises PlanRefused, ClusterError, Ec2Error.
    """
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
        raise Ec2ClusterError(f"{error}. {format_recorded(context)} Run this again to continue") from None


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
    context.say(message)
    return Ec2TeardownResult(bool(initial["steps"]), desired, initial, current, cost, remaining, message)


def _apply_plan(context: Ec2Context, plan: ClusterPlan) -> dict[str, str]:
    """Carry out the steps; return why some things still exist."""
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
        f"{one}: {why}" for one, why in reasons.items() if not any(said.startswith(one) for said in remaining)
    ]
    remaining += [line for line in current["retained"] if line.startswith(("the network", "the VPC"))]
    volumes = account.volumes.get(context.cluster, [])
    remaining = [to_ec2_terms(item) for item in remaining]
    return remaining + [f"volume {volume}: somebody detached it, and it still costs money" for volume in volumes]


def _estimate_cost(context: Ec2Context, desired: DesiredCluster, plan: ClusterPlan) -> ClusterCost:
    disks = any(machine["disk_gb"] for machine in plan["nodes"])
    return estimate_cost(
        desired, plan, None, prices.make_prices("", None, prices.read_disk_price(context.aws) if disks else None)
    )


def _show_plan(context: Ec2Context, desired: DesiredCluster, initial: ClusterPlan) -> None:
    for line in format_plan(desired, initial):
        context.say(to_ec2_terms(line))


def _summarize(context: Ec2Context, current: ClusterPlan, remaining: list[str]) -> str:
    if not remaining:
        return f"nothing of {context.cluster} is left, 0 USD an hour"
    running = [machine for machine in [*current["nodes"], *current["duplicates"]] if machine["state"] != "off"]
    rates = [machine["per_hour"] for machine in running]
    price = "unknown" if None in rates else format_usd(sum(rate or 0.0 for rate in rates))
    return f"{context.cluster} is not gone, {price} an hour. Left: {'; '.join(remaining)}"
