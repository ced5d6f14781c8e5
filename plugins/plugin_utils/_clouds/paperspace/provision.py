# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Provision a cluster at Paperspace completely, or roll back everything that was created for it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import NamedTuple

from ansible_collections.muster.training.plugins.plugin_utils._clouds.cost import (
    estimate_cost,
    find_price_differences,
    format_cost,
    format_plan,
    format_usd,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import (
    ClusterCost,
    ClusterPlan,
    Machine,
    ResourceKind,
    Step,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import PlanRefusedError
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace import operations
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.create import (
    LISTING_TIMEOUT,
    POLL_INTERVAL,
    PaperspaceClusterError,
    PaperspaceContext,
    create_resource,
    discover,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.errors import (
    LostReplyError,
    NotFoundError,
    PaperspaceError,
    RequestError,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.offers import (
    CONSOLE,
    PaperspaceOffer,
    PaperspaceRequest,
    candidate_types,
    check_clock,
    check_machine_limit,
    count_new_machines,
    find_offer,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.remove import (
    remove_machines,
    remove_resource,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.resources import (
    parse_machine,
    read_account,
    read_addresses,
    read_machines,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.values import parse_integer
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.wait import (
    NO_CAPACITY,
    stop_and_wait,
    wait_until_ready,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.planner import plan_cluster
from ansible_collections.muster.training.plugins.plugin_utils._text.duration import format_duration

#: Seconds. A rollback also removes what an interrupted command created, but nothing older, which may be in use.
ROLLBACK_WINDOW = 3600.0
CAPACITY_INTERVAL = 60.0  # seconds between attempts to start all machines while waiting for capacity


class PaperspaceProvisionResult(NamedTuple):
    """Result of provision(). offer: with the plan before anything was created. current: the plan afterwards."""

    changed: bool
    offer: PaperspaceOffer
    current: ClusterPlan
    cost: ClusterCost


def provision(context: PaperspaceContext, request: PaperspaceRequest, check: bool = False) -> PaperspaceProvisionResult:
    """Create what is missing and wait until everything is ready. check: only plan, with read-only requests.

    Raises:
        PlanRefusedError: before anything is created
        PaperspaceClusterError: the cluster could not be created
        PaperspaceError: a request failed
    """
    team = operations.get_session(context.client).get("team") or {}
    check_clock(context.client.server_time, context.clock())
    resources = discover(context, wait=not check)
    context.journal.settle(context.clock() - ROLLBACK_WINDOW)
    refusals: list[str] = []
    offers = [
        find_offer(context, request, machine_type, resources, check, refusals)
        for machine_type in candidate_types(context, request, resources)
    ]
    possible = [offer for offer in offers if offer is not None]
    if not possible:
        raise PlanRefusedError(
            f"{context.cluster} cannot be provisioned, and nothing was created: {'; '.join(refusals)}"
        )
    initial = possible[0]
    machine_limit = parse_integer(team.get("maxMachines"))
    check_machine_limit(initial, machine_limit, resources)
    for line in [*refusals, *(format_plan(initial.desired, initial.plan) if check or initial.plan["steps"] else [])]:
        context.show(line)
    context.show(f"{context.cluster}: {format_cost(initial.cost, 'present')}")
    if machine_limit is not None and count_new_machines(initial.plan):
        context.show(f"the team has {len(resources['machines'])} of at most {machine_limit} machines")
    if check:
        return PaperspaceProvisionResult(bool(initial.plan["steps"]), initial, initial.plan, initial.cost)
    if not initial.plan["steps"] and all(machine["state"] == "ready" for machine in initial.plan["nodes"]):
        context.journal.settle()
        return PaperspaceProvisionResult(False, initial, initial.plan, initial.cost)
    try:
        return _try_offers(context, request, possible, refusals)
    except PaperspaceError as error:
        raise PaperspaceClusterError(
            f"{error.summary}. {format_recorded(context)} Run the command again to continue"
        ) from None


def _try_offers(
    context: PaperspaceContext, request: PaperspaceRequest, possible: list[PaperspaceOffer], failures: list[str]
) -> PaperspaceProvisionResult:
    initial = possible[0]
    for number, offer in enumerate(possible):
        if number:
            context.show(f"trying {offer.desired['machine_type']} instead")
            renewed = find_offer(context, request, offer.desired["machine_type"], discover(context), False, failures)
            if renewed is None:
                continue
            offer = renewed
        ready, machine_failures = _create(context, request, offer)
        if not machine_failures:
            return _finish(context, request, offer, initial)
        details = "; ".join(f"{name} {reason}" for name, reason in machine_failures.items())
        failures.append(f"{ready} of {request.nnodes} {offer.desired['machine_type']} are ready, {details}")
        _roll_back(context, offer, failures)
    _remove_leftovers(context, failures)
    raise PaperspaceClusterError(
        f"{context.cluster}: {'; '.join(failures)}. What was created for it was removed again; "
        f"{_describe_state(context, initial)}. Try other types (provision_machine_types=[A6000x2, A5000x2]), another "
        "region, or on_shortage=wait"
    )


# --- The steps


def _create(
    context: PaperspaceContext, request: PaperspaceRequest, offer: PaperspaceOffer
) -> tuple[int, dict[str, str]]:
    """Carry out the steps in order, and wait; return how many machines are ready, and the reasons of others by name."""
    network_id = offer.plan["network"]["id"] if offer.plan["network"] else ""
    script_id = offer.script_id
    awaited = {machine["id"]: machine["name"] for machine in offer.plan["nodes"]}
    for step in offer.plan["steps"]:
        try:
            if step["action"] == "remove":
                remove_machines(context, {step["id"]: step["name"]})
            elif step["action"] == "start":
                _start_machine(context, step["id"], step["name"])
            elif step["what"] == "network":
                network_id = _create_network(context, offer, step)
            elif step["what"] == "drive":
                _create_drive(context, offer, step, network_id)
            elif step["what"] == "script":
                script_id = _create_script(context, request, step)
            else:
                awaited[_create_machine(context, request, offer, step, network_id, script_id)] = step["name"]
        except PaperspaceError as error:
            if error.refused and not error.transient:
                return 0, {step["name"]: f"was rejected: {error}"}
            raise
    failures = wait_until_ready(context, awaited)
    if failures and request.on_shortage == "wait":
        failures = _wait_for_capacity(context, awaited, request.wait_minutes, failures)
    return len(awaited) - len(failures), failures


def _create_network(context: PaperspaceContext, offer: PaperspaceOffer, step: Step) -> str:
    def send_request() -> str:
        return operations.create_network(context.client, name=step["name"], region=offer.desired["region"])["id"]

    return create_resource(context, "network", step["name"], send_request)


def _create_drive(context: PaperspaceContext, offer: PaperspaceOffer, step: Step, network_id: str) -> str:
    def send_request() -> str:
        return operations.create_drive(
            context.client,
            name=step["name"],
            size_gb=offer.desired["drive_gb"],
            region=offer.desired["region"],
            network_id=network_id,
        )["id"]

    return create_resource(context, "drive", step["name"], send_request)


def _create_script(context: PaperspaceContext, request: PaperspaceRequest, step: Step) -> str:
    def send_request() -> str:
        return operations.create_startup_script(context.client, name=step["name"], script=request.first_boot)["id"]

    return create_resource(context, "script", step["name"], send_request)


def _create_machine(  # noqa: PLR0913
    context: PaperspaceContext,
    request: PaperspaceRequest,
    offer: PaperspaceOffer,
    step: Step,
    network_id: str,
    script_id: str,
) -> str:
    def send_request() -> str:
        return operations.create_machine(
            context.client,
            name=step["name"],
            machine_type=offer.desired["machine_type"],
            template_id=offer.template_id,
            disk_gb=offer.desired["disk_gb"],
            region=offer.desired["region"],
            network_id=network_id,
            public_ip_type=request.public_ip,
            startup_script_id=script_id or None,
        ).machine["id"]

    return create_resource(context, "machine", step["name"], send_request)


def _start_machine(context: PaperspaceContext, machine_id: str, name: str) -> None:
    context.show(f"starting {name}")
    # wait_until_ready() restarts a machine that was still stopping; a machine that is already starting is fine
    with contextlib.suppress(RequestError, LostReplyError):
        operations.start_machine(context.client, machine_id)


def _wait_for_capacity(
    context: PaperspaceContext, awaited: Mapping[str, str], minutes: float, failures: dict[str, str]
) -> dict[str, str]:
    """Try to start all machines every minute; in between they are off, and only their disks are billed."""
    deadline = context.clock() + 60 * minutes
    while (
        failures and context.clock() < deadline and all(reason.startswith(NO_CAPACITY) for reason in failures.values())
    ):
        context.show(f"waiting for capacity with all machines off: {format_duration(deadline - context.clock())} left")
        stop_and_wait(context, awaited)
        context.sleep(CAPACITY_INTERVAL)
        for machine_id, name in awaited.items():
            _start_machine(context, machine_id, name)
        failures = wait_until_ready(context, awaited, restart=False)
    return failures


# --- Success or rollback


def _finish(
    context: PaperspaceContext, request: PaperspaceRequest, offer: PaperspaceOffer, initial: PaperspaceOffer
) -> PaperspaceProvisionResult:
    current = plan_cluster(offer.desired, discover(context), context.notes)
    context.journal.settle()
    cost = estimate_cost(offer.desired, current, request.price_per_hour)
    for line in find_price_differences(current["nodes"]):
        context.show(line)
    count = f"{len(current['nodes'])} machine{' is' if len(current['nodes']) == 1 else 's are'}"
    context.show(f"{context.cluster}: {count} ready; {format_cost(cost, 'present')}")
    budget = request.max_usd_per_hour
    if budget is not None and cost["per_hour"] is not None and cost["per_hour"] > budget:
        context.show(
            f"this exceeds max_usd_per_hour={budget:g}. Remove the machines with teardown.yml -e "
            f"cluster={context.cluster}"
        )
    return PaperspaceProvisionResult(True, initial, current, cost)


def _roll_back(context: PaperspaceContext, offer: PaperspaceOffer, failures: list[str]) -> None:
    """Remove the machines created since the cluster was last complete, and stop those that were started.

    Raise PaperspaceClusterError if one could not be removed; then no further offer is tried.
    """
    new_ids = context.journal.unsettled_ids("machine")
    machines = []
    for name, machine_id in new_ids.items():
        try:
            machine = operations.get_machine(context.client, machine_id)  # it may not be listed yet
            machines.append(parse_machine(machine))
        except NotFoundError:
            context.journal.forget("machine", name, machine_id)
    remaining = remove_machines_and_addresses(context, machines)
    started = [step for step in offer.plan["steps"] if step["action"] == "start" and step["id"] not in new_ids.values()]
    if started:
        stop_and_wait(context, {step["id"]: step["name"] for step in started})
    if remaining:
        details = "; ".join(f"{name}: {reason}" for name, reason in remaining.items())
        raise PaperspaceClusterError(
            f"{context.cluster}: {'; '.join(failures)}. What was created could not be removed, and is billed: "
            f"{details}. Remove it at {CONSOLE}, or with teardown.yml -e cluster={context.cluster}"
        )


def remove_machines_and_addresses(context: PaperspaceContext, machines: list[Machine]) -> dict[str, str]:
    """Remove machines, then their fixed addresses, which are billed separately; return the reason of each failure."""
    fixed = [machine for machine in machines if machine["fixed_address"] and machine["public_ip"]]
    context.journal.record_addresses({machine["public_ip"]: machine["id"] for machine in fixed})
    remaining = remove_machines(context, {machine["id"]: machine["name"] for machine in machines})
    for ip, machine_id in list(context.notes["addresses"].items()):
        reason = _release_address(context, ip, machine_id)
        if reason:
            remaining[f"address {ip}"] = reason
    return remaining


def _release_address(context: PaperspaceContext, ip: str, machine_id: str) -> str:
    """Release the fixed address of a removed machine; return the reason if that fails.

    An address that was reassigned to another machine is left alone. An unlisted one is polled for a minute.
    """
    started = context.clock()
    while True:
        if machine_id in [machine["id"] for machine in read_machines(context.client)]:
            return ""  # the machine still exists and keeps it
        holder = {address["ip"]: address["machine"] for address in read_addresses(context.client)}.get(ip)
        if holder in ("", machine_id):
            return remove_resource(context, {"action": "remove", "what": "address", "name": ip, "id": ip})
        if holder or context.clock() - started > LISTING_TIMEOUT:
            context.show(f"address {ip} was not released: it no longer exists, or belongs to someone else")
            context.journal.forget_address(ip)
            return ""
        context.sleep(POLL_INTERVAL)


def _remove_leftovers(context: PaperspaceContext, failures: list[str]) -> None:
    """Remove everything else created for a cluster that was never complete."""
    kinds: tuple[ResourceKind, ...] = ("script", "drive", "network")
    for what in kinds:
        for name, resource_id in context.journal.unsettled_ids(what).items():
            reason = remove_resource(context, {"action": "remove", "what": what, "name": name, "id": resource_id})
            if reason:
                failures.append(f"{what} {name} ({resource_id}) could not be removed: {reason}")


def _describe_state(context: PaperspaceContext, offer: PaperspaceOffer) -> str:
    """Return one line about the cluster's existing machines and their price."""
    current = plan_cluster({**offer.desired, "state": "stopped"}, read_account(context.client), context.notes)
    running = [machine for machine in current["nodes"] if machine["state"] != "off"]
    rates = [machine["per_hour"] for machine in running]
    price = "unknown" if None in rates else format_usd(sum(rate or 0.0 for rate in rates))
    if not current["nodes"] and current["network"] is None:
        return f"nothing of {context.cluster} is left, 0 USD an hour"
    names = (
        ", ".join(f"{machine['name']} ({machine['provider_state']})" for machine in current["nodes"]) or "no machine"
    )
    return f"remaining: {names}; {price} an hour"


def format_recorded(context: PaperspaceContext) -> str:
    """Return the recorded machines, for a message when the API does not respond."""
    entries = [entry for entry in context.journal.content["entries"] if entry["what"] == "machine"]
    if not entries:
        return f"No machine of {context.cluster} is recorded in the journal."
    details = ", ".join(f"{entry['name']} ({entry['id'] or 'requested, no reply'})" for entry in entries)
    return f"Recorded in the journal, and billed: {details}."
