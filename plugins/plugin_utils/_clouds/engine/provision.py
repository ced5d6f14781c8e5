# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Provision a complete cluster, or roll back everything that was created for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ansible_collections.muster.training.plugins.plugin_utils._clouds.cloud import AnyCloud, CloudRequest, Offer, Offers
from ansible_collections.muster.training.plugins.plugin_utils._clouds.cost import (
    estimate_cost,
    format_cost,
    format_plan,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import ClusterCost, ClusterPlan
from ansible_collections.muster.training.plugins.plugin_utils._clouds.engine.confirm import confirm_missing
from ansible_collections.muster.training.plugins.plugin_utils._clouds.engine.create import execute_offer
from ansible_collections.muster.training.plugins.plugin_utils._clouds.engine.discover import (
    discover,
    format_recorded,
    to_cloud_terms,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.engine.rollback import (
    ROLLBACK_WINDOW,
    describe_state,
    remove_leftovers,
    roll_back,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.errors import CloudError, ClusterError
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import PlanRefusedError
from ansible_collections.muster.training.plugins.plugin_utils._clouds.planner import plan_cluster
from ansible_collections.muster.training.plugins.plugin_utils._text.duration import format_duration

CAPACITY_INTERVAL = 60.0  # seconds between rounds of trying all offers while waiting for capacity


class ProvisionResult(NamedTuple):
    """The result of provisioning a cluster.

    offer: the preferred offer, even if another one was used; its plan is from before anything was created.
    """

    changed: bool
    offer: Offer
    current: ClusterPlan
    cost: ClusterCost


def provision(cloud: AnyCloud, request: CloudRequest, check: bool = False) -> ProvisionResult:
    """Create the missing resources, and wait until everything is ready. check: only plan, and send only read requests.

    Raises:
        PlanRefusedError: the request is impossible; nothing was created.
        ClusterError: the cluster could not be created.
        CloudError: a request failed before anything was created.
    """
    cloud.check_access(creates=True)
    account = discover(cloud, wait=not check)
    if not check:
        account = confirm_missing(cloud, account)
    cloud.journal.settle(cloud.clock() - ROLLBACK_WINDOW)
    offers = cloud.find_offers(request, account, check)
    if not offers.possible:
        raise PlanRefusedError(
            f"{cloud.cluster} cannot be provisioned, and nothing was created: {'; '.join(offers.refusals)}"
        )
    first = offers.possible[0]
    cloud.check_quota(first, account)
    _show_offers(cloud, offers, check)
    changes = bool(first.plan["steps"]) or bool(offers.updates)
    if check:
        return ProvisionResult(changes, first, first.plan, first.cost)
    if not changes and all(machine["state"] == "ready" for machine in first.plan["nodes"]):
        cloud.complete(account)
        cloud.journal.settle()
        return ProvisionResult(False, first, first.plan, first.cost)
    try:
        return _try_offers(cloud, request, offers)
    except CloudError as error:
        raise ClusterError(f"{error.summary}. {format_recorded(cloud)} Run this command again to continue") from None


def _show_offers(cloud: AnyCloud, offers: Offers[Offer], check: bool) -> None:
    first = offers.possible[0]
    plan_lines = format_plan(first.desired, first.plan) if check or first.plan["steps"] else []
    for line in [*offers.refusals, *offers.remarks, *plan_lines, *offers.updates]:
        cloud.show(to_cloud_terms(cloud, line))
    location = f" ({first.location})" if first.location else ""
    cloud.show(f"{cloud.cluster}{location}: {format_cost(first.cost, 'present')}")
    for line in offers.notes:
        cloud.show(line)


def _try_offers(cloud: AnyCloud, request: CloudRequest, offers: Offers[Offer]) -> ProvisionResult:
    deadline, current = cloud.clock() + 60 * offers.retry_minutes, True
    while True:
        failures: list[str] = []
        provisioned = _try_each(cloud, request, offers.possible, current, failures)
        if provisioned:
            return provisioned
        if cloud.clock() >= deadline:
            break
        cloud.show(f"no capacity for any offer; retrying for another {format_duration(deadline - cloud.clock())}")
        cloud.sleep(CAPACITY_INTERVAL)
        current = False
    reasons = [*offers.refusals, *failures]
    remove_leftovers(cloud, reasons)
    state = f"{cloud.rollback_note}{describe_state(cloud)}"
    raise ClusterError(f"{cloud.cluster}: {'; '.join(reasons)}. {state[0].upper()}{state[1:]}. {cloud.shortage_advice}")


def _try_each(
    cloud: AnyCloud, request: CloudRequest, possible: Sequence[Offer], current: bool, failures: list[str]
) -> ProvisionResult | None:
    """Try each offer once; return the result of the first that succeeds, or None.

    current: whether the first offer is up to date. failures: list to which reasons for failures are appended.
    """
    exhausted = set()
    for number, planned in enumerate(possible):
        if planned.pool in exhausted:
            continue
        if number:
            cloud.show(f"trying {planned.description} instead")
        offer: Offer | None = planned
        if number or not current:
            offer = cloud.refresh_offer(request, planned, discover(cloud), failures)
        if offer is None:
            continue
        try:
            progress, attempt = execute_offer(cloud, request, offer)
        except CloudError as error:
            if error.refused and not error.transient:
                roll_back(cloud, {}, [str(error)])
                remove_leftovers(cloud, failures)
            raise
        if not attempt.failures:
            return _finish(cloud, request, possible[0], offer)
        if attempt.refusal and attempt.refusal.scope == "pool":
            exhausted.add(offer.pool)
        failures.append(cloud.describe_failure(offer, attempt))
        cloud.show(failures[-1])
        roll_back(cloud, progress.started, failures)
    return None


def _finish(cloud: AnyCloud, request: CloudRequest, initial: Offer, offer: Offer) -> ProvisionResult:
    account = discover(cloud)
    cloud.complete(account)
    current = plan_cluster(offer.desired, account.resources, cloud.notes)
    cloud.journal.settle()
    cost = estimate_cost(offer.desired, current, cloud.prices(offer, disks=True), request.price_per_hour)
    for line in cloud.price_notes(current["nodes"]):
        cloud.show(line)
    count = f"{len(current['nodes'])} machine{' is' if len(current['nodes']) == 1 else 's are'}"
    cloud.show(f"{cloud.cluster}: {count} {cloud.ready_term}; {format_cost(cost, 'present')}")
    budget = request.max_usd_per_hour
    if budget is not None and cost["per_hour"] is not None and cost["per_hour"] > budget:
        cloud.show(
            f"this exceeds max_usd_per_hour={budget:g}. Remove the machines with teardown.yml -e "
            f"cluster={cloud.cluster}"
        )
    return ProvisionResult(True, initial, current, cost)
