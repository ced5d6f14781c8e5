# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Provision a cluster at EC2: all of it or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ansible_collections.muster.training.plugins.plugin_utils._clouds.cost import (
    estimate_cost,
    format_cost,
    format_plan,
    format_usd,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import ClusterCost, ClusterPlan
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2 import prices
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.client import (
    CAPACITY_ERRORS,
    QUOTA_ERRORS,
    Ec2Error,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.create import (
    create_placement_group,
    create_security_group,
    ensure_egress_rule,
    ensure_ingress_rules,
    launch_machines,
    name_machines,
    start_machines,
    terminate,
    wait_until_running,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.discover import (
    Ec2ClusterError,
    Ec2Context,
    desired_without_machines,
    discover,
    format_recorded,
    refuse_foreign_name,
    to_ec2_terms,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.network import ensure_network
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.offers import (
    Ec2Offer,
    Ec2Offers,
    Ec2Request,
    find_offers,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.quotas import type_family
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.remove import REMOVABLE, remove_part
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.request import LaunchRequest, diff_rules
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.tags import build_client_token, node_numbers
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import PlanRefusedError, network_name
from ansible_collections.muster.training.plugins.plugin_utils._clouds.planner import plan_cluster
from ansible_collections.muster.training.plugins.plugin_utils._text.duration import format_duration

CAPACITY_INTERVAL = 60.0  # seconds between attempts at all offers while waiting for capacity


class Ec2ProvisionResult(NamedTuple):
    """How the cluster was provisioned. offer: the best one, with the plan before anything was created."""

    changed: bool
    offer: Ec2Offer
    current: ClusterPlan
    cost: ClusterCost


def provision(context: Ec2Context, request: Ec2Request, check: bool = False) -> Ec2ProvisionResult:
    """Create the missing resources and wait until all machines run.

    Args:
        check: only plan, with read-only requests.

    Raises:
        PlanRefusedError: the request is impossible; nothing was created.
        Ec2ClusterError: the cluster could not be created.
        Ec2Error: a request failed before anything was created.
    """
    account = discover(context, wait=not check)
    refuse_foreign_name(context, account)
    offers = find_offers(context, request, account, check)
    if not offers.possible:
        raise PlanRefusedError(
            f"{context.cluster} cannot be provisioned, and nothing was created: {'; '.join(offers.refusals)}"
        )
    first = offers.possible[0]
    network = first.plan["network"]
    group = account.groups[network["id"]] if network else {}
    rule_changes = diff_rules(str(group.get("GroupId")), group.get("IpPermissions") or [], request.ssh_from)
    for line in [
        *offers.refusals,
        *offers.remarks,
        *(format_plan(first.desired, first.plan) if check or first.plan["steps"] else []),
    ]:
        context.show(to_ec2_terms(line))
    if any(rule_changes):
        context.show(
            f"update: security group {network_name(context.cluster)}, to permit traffic between the nodes, and SSH "
            f"only from {', '.join(request.ssh_from)}"
        )
    location = f" ({first.description})" if first.zone else ""
    context.show(f"{context.cluster}{location}: {format_cost(first.cost, 'present')}")
    if check:
        return Ec2ProvisionResult(bool(first.plan["steps"]) or any(rule_changes), first, first.plan, first.cost)
    ready = all(machine["state"] == "ready" for machine in first.plan["nodes"])
    if not first.plan["steps"] and not any(rule_changes) and ready:
        name_machines(context, account.instances.items())
        context.journal.settle()
        return Ec2ProvisionResult(False, first, first.plan, first.cost)
    try:
        return _try_offers(context, request, offers)
    except Ec2Error as error:
        raise Ec2ClusterError(f"{error}. {format_recorded(context)} Run this command again to continue") from None


def _try_offers(context: Ec2Context, request: Ec2Request, offers: Ec2Offers) -> Ec2ProvisionResult:
    deadline, reasons = context.clock() + 60 * request.wait_minutes, [*offers.refusals]
    while True:
        exhausted: set[tuple[str, str | None]] = set()
        attempts: list[str] = []
        for offer in offers.possible:
            if (offer.market, type_family(offer.machine_type)) in exhausted:
                continue
            try:
                failures = _create(context, request, offers, offer)
            except Ec2Error as error:
                if error.code in QUOTA_ERRORS:
                    exhausted.add((offer.market, type_family(offer.machine_type)))
                elif error.code not in CAPACITY_ERRORS:
                    if not error.transient:
                        _remove_leftovers(context, reasons)
                    raise
                attempts.append(f"{offer.description}: {error}")
                context.show(attempts[-1])
                continue
            if not failures:
                return _finish(context, request, offers.possible[0], offer)
            attempts.append(
                f"{offer.description}: {'; '.join(f'{name} {reason}' for name, reason in failures.items())}"
            )
        if context.clock() >= deadline:
            break
        context.show(f"no capacity for any offer; retrying for another {format_duration(deadline - context.clock())}")
        context.sleep(CAPACITY_INTERVAL)
    reasons += attempts
    _remove_leftovers(context, reasons)
    raise Ec2ClusterError(
        f"{context.cluster}: {'; '.join(reasons)}. {_describe_state(context)}. Try other types "
        "(provision_machine_types=[g5.xlarge, g4dn.xlarge]), another region, provision_market=spot-else-on-demand, or "
        "on_shortage=wait"
    )


def _create(context: Ec2Context, request: Ec2Request, offers: Ec2Offers, offer: Ec2Offer) -> dict[str, str]:
    """Carry out the steps of one offer, and wait; return the reasons why machines do not run, by name.

    If there are any, the new machines are removed.

    Raises:
        Ec2Error: no machine was created.
        Ec2ClusterError: the new machines could not be removed, or their state is unknown.
    """
    account = discover(context)
    plan = plan_cluster(offer.desired, account.resources, context.notes)
    names = [step["name"] for step in plan["steps"] if step["action"] == "make" and step["what"] == "machine"]
    group_id, vpc = plan["network"]["id"] if plan["network"] else "", offers.site.vpc
    if offers.site.block and names:
        vpc, subnet = ensure_network(context, account, plan, offers.site.block, offer.zone)
        offer = offer._replace(subnet=subnet)
    if not group_id:
        group_id = create_security_group(context, vpc)
        account.groups[group_id] = {}
    ensure_ingress_rules(context, group_id, account.groups[group_id].get("IpPermissions") or [], request.ssh_from)
    if offer.efa:
        ensure_egress_rule(context, group_id, account.groups[group_id].get("IpPermissionsEgress") or [])
    starting = {machine["id"]: machine["name"] for machine in plan["nodes"] if machine["state"] != "ready"}
    if any(step["what"] == "placement group" for step in plan["steps"]):
        create_placement_group(context)
    stopped = {step["id"]: step["name"] for step in plan["steps"] if step["action"] == "start"}
    if stopped:
        start_machines(context, stopped)
    removals = [step for step in plan["steps"] if step["action"] == "remove"]
    remaining = terminate(context, {step["id"]: step["name"] for step in removals if step["what"] == "machine"})
    if remaining:
        return remaining
    for step in removals:
        if step["what"] in REMOVABLE:
            remove_part(context, step["what"], step["name"], step["id"])
    created = _launch_missing(context, request, offers, offer, group_id, names) if names else {}
    failures = wait_until_running(context, {**starting, **created})
    if failures and created:
        _roll_back(context, created, failures)
    return failures


def _launch_missing(  # noqa: PLR0913
    context: Ec2Context, request: Ec2Request, offers: Ec2Offers, offer: Ec2Offer, group: str, names: list[str]
) -> dict[str, str]:
    if offers.image is None:
        raise Ec2ClusterError(
            f"machines of {context.cluster} have disappeared in the meantime. Run this command again to create the "
            "missing ones"
        )
    for name in names:
        context.journal.record_request("machine", name, context.clock())
    entries = [
        entry for entry in context.journal.content["entries"] if entry["what"] == "machine" and entry["name"] in names
    ]
    requested_at = min(entry["asked"][0] for entry in entries)
    token = build_client_token(group, [offer.machine_type, offer.market, offer.subnet], names, requested_at)
    placement = any(what == "placement group" for what, _name in offer.desired.get("parts", []))
    launch = LaunchRequest(
        cluster=context.cluster,
        numbers=node_numbers(context.cluster, names),
        machine_type=offer.machine_type,
        market=offer.market,
        subnet=offer.subnet,
        efa=offer.efa,
        group=group,
        placement=network_name(context.cluster) if placement else "",
        image=offers.image,
        disk_gb=request.disk_gb,
        first_boot=request.first_boot,
        key_name=request.key_name,
        price=f"{offer.price.usd:.6g}" if offer.price else "",
        price_source=f"{offer.price.source} {offer.price.date}".strip() if offer.price else "",
        token=token,
    )
    return launch_machines(context, launch, names)


def _roll_back(context: Ec2Context, created: Mapping[str, str], failures: Mapping[str, str]) -> None:
    """Remove newly created machines. Raise Ec2ClusterError if that fails, so that no other offer is tried."""
    remaining = terminate(context, created)
    if remaining:
        raise Ec2ClusterError(
            f"{context.cluster}: {'; '.join(f'{name} {reason}' for name, reason in failures.items())}. These new "
            "machines could not be removed, and are billed: "
            f"{'; '.join(f'{name}: {reason}' for name, reason in remaining.items())}. Remove them with teardown.yml "
            f"-e cluster={context.cluster}"
        )


def _finish(context: Ec2Context, request: Ec2Request, initial: Ec2Offer, offer: Ec2Offer) -> Ec2ProvisionResult:
    account = discover(context)
    name_machines(context, account.instances.items())
    current = plan_cluster(offer.desired, account.resources, context.notes)
    context.journal.settle()
    known_prices = prices.make_prices(offer.machine_type, offer.price, prices.read_disk_price(context.aws))
    cost = estimate_cost(offer.desired, current, request.price_per_hour, known_prices)
    count = f"{len(current['nodes'])} machine{' is' if len(current['nodes']) == 1 else 's are'}"
    context.show(f"{context.cluster}: {count} running; {format_cost(cost, 'present')}")
    return Ec2ProvisionResult(True, initial, current, cost)


def _remove_leftovers(context: Ec2Context, reasons: list[str]) -> None:
    """Remove the groups and the network of a cluster that was never complete."""
    if plan_cluster(desired_without_machines(context, "stopped"), discover(context).resources, context.notes)["nodes"]:
        return
    for what in REMOVABLE:
        for name, resource_id in context.journal.unsettled_ids(what).items():
            reason = remove_part(context, what, name, resource_id)
            if reason:
                reasons.append(f"cannot remove {what} {name} ({resource_id}): {reason}")


def _describe_state(context: Ec2Context) -> str:
    """Return a sentence about the cluster's existing resources."""
    current = plan_cluster(desired_without_machines(context, "stopped"), discover(context).resources, context.notes)
    if not current["nodes"] and current["network"] is None and not current["parts"]:
        return f"Nothing of {context.cluster} is left, 0 USD an hour"
    running = [machine for machine in current["nodes"] if machine["state"] != "off"]
    rates = [machine["per_hour"] for machine in running]
    price = "unknown" if None in rates else format_usd(sum(rate or 0.0 for rate in rates))
    names = (
        ", ".join(f"{machine['name']} ({machine['provider_state']})" for machine in current["nodes"]) or "no machine"
    )
    parts = "".join(f", {part['what']} {part['name']} ({part['id']})" for part in current["parts"])
    return f"Existing: {names}{parts}; {price} an hour"
