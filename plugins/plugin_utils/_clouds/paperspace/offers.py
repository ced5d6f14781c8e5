# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find Paperspace offers for a request: machine type, template and script. Read-only."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

from ansible_collections.muster.training.plugins.plugin_utils._clouds.cloud import Offer, Offers
from ansible_collections.muster.training.plugins.plugin_utils._clouds.cost import budget_error, estimate_cost
from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import (
    AccountResources,
    DesiredCluster,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import (
    PlanRefusedError,
    find_machines,
    find_network,
    find_scripts,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace import operations
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.context import PaperspaceContext
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.first_boot import (
    first_boot_script_name,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.prices import PAPERSPACE
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.validate import (
    check_disk,
    choose_template,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.planner import count_new_machines, plan_cluster
from ansible_collections.muster.training.plugins.plugin_utils._text.duration import format_duration

CONSOLE = "https://console.paperspace.com"
MAX_CLOCK_SKEW = 300.0  # seconds


class PaperspaceRequest(NamedTuple):
    """The user's request. machine_types: in order of preference. region: a region code.

    max_usd_per_hour: may be None only for a plan. first_boot: text of the first-boot script, "" for none.
    """

    nnodes: int
    machine_types: list[str]
    region: str
    template: str
    disk_gb: int
    drive_gb: int = 0
    public_ip: str = "dynamic"
    max_usd_per_hour: float | None = None
    price_per_hour: float | None = None
    on_shortage: str = "rollback"
    wait_minutes: float = 20.0
    first_boot: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PaperspaceOffer(Offer):
    """A plan with one machine type. script_id: the id of the first-boot script, "" if it does not exist yet."""

    template_id: str
    script_id: str


def check_clock(server_time: float | None, local_time: float) -> None:
    """Raise PlanRefusedError if this machine's clock is wrong, because the journal and the machines' ages depend on it.

    server_time: the API's time, None if unknown; both in seconds since 1970.
    """
    ahead = local_time - server_time if server_time is not None else 0.0
    if abs(ahead) > MAX_CLOCK_SKEW:
        raise PlanRefusedError(
            f"this machine's clock is {format_duration(abs(ahead))} {'ahead of' if ahead > 0 else 'behind'} the "
            "API's, so nothing was created: machine ages and recovery after an interruption depend on it. Set "
            "the clock: sudo timedatectl set-ntp true"
        )


def candidate_types(context: PaperspaceContext, request: PaperspaceRequest, resources: AccountResources) -> list[str]:
    """Return the types in the order to try them; an existing cluster has only one, its own if that is requested."""
    machines = find_machines(
        context.cluster, find_network(context.cluster, resources["networks"], context.network_id), resources
    )
    existing_types = {machine["machine_type"] for machine in machines}
    matches = [name for name in request.machine_types if name in existing_types]
    return (matches or request.machine_types)[:1] if existing_types else list(request.machine_types)


def find_offers(
    context: PaperspaceContext, request: PaperspaceRequest, resources: AccountResources, check: bool
) -> Offers[PaperspaceOffer]:
    """Return one offer for each machine type, in the order to try them."""
    refusals: list[str] = []
    offers = [
        find_offer(context, request, machine_type, resources, check, refusals)
        for machine_type in candidate_types(context, request, resources)
    ]
    return Offers([offer for offer in offers if offer is not None], refusals)


def find_offer(  # noqa: PLR0913
    context: PaperspaceContext,
    request: PaperspaceRequest,
    machine_type: str,
    resources: AccountResources,
    check: bool,
    refusals: list[str],
) -> PaperspaceOffer | None:
    """Return the offer for one machine type, or return None and append the reason to `refusals`.

    Raise PlanRefusedError if no other type can help.
    """
    desired: DesiredCluster = {
        "cluster": context.cluster,
        "state": "present",
        "nnodes": request.nnodes,
        "machine_type": machine_type,
        "region": request.region,
        "disk_gb": request.disk_gb,
        "drive_gb": request.drive_gb,
        "script": first_boot_script_name(context.cluster, request.first_boot) if request.first_boot else "",
        "network_id": context.network_id,
        "remove_drive": False,
    }
    cluster_plan = plan_cluster(desired, resources, context.notes)
    cost = estimate_cost(desired, cluster_plan, PAPERSPACE, request.price_per_hour)
    template_id = ""
    try:
        if count_new_machines(cluster_plan):
            template = _choose_template(context, request, machine_type)
            check_disk(request.disk_gb, template)
            template_id = str(template["id"])
        refusal = ""
        if cluster_plan["steps"]:
            refusal = budget_error(cost, request.max_usd_per_hour, machine_type, PAPERSPACE.page)
        if refusal and not (check and request.max_usd_per_hour is None):
            raise PlanRefusedError(refusal)
        if count_new_machines(cluster_plan) and not operations.is_available(
            context.client, machine_type, request.region
        ):
            raise PlanRefusedError(f"no {machine_type} is currently available in {request.region}")
    except PlanRefusedError as error:
        refusals.append(str(error))
        return None
    scripts = find_scripts(context.cluster, cluster_plan["nodes"], resources)
    script_id = next((script["id"] for script in scripts if script["name"] == desired["script"]), "")
    return PaperspaceOffer(
        desired=desired,
        plan=cluster_plan,
        cost=cost,
        description=machine_type,
        template_id=template_id,
        script_id=script_id,
    )


def _choose_template(context: PaperspaceContext, request: PaperspaceRequest, machine_type: str) -> Mapping[str, Any]:
    team_templates: list[Any] = list(operations.list_templates(context.client))
    os_templates: list[Any] = list(operations.list_os_templates(context.client))
    return choose_template(request.template, machine_type, request.region, team_templates, os_templates)


def check_machine_limit(offer: PaperspaceOffer, limit: int | None, resources: AccountResources) -> None:
    """Raise PlanRefusedError if the plan exceeds the team's machine limit. limit: None if the API reports none."""
    new, existing = count_new_machines(offer.plan), len(resources["machines"])
    if limit is not None and new and existing + new > limit:
        raise PlanRefusedError(
            f"{new} new machine{'s are' if new > 1 else ' is'} needed, but the team already has {existing} of at most "
            f"{limit}, including those that are off. Nothing was created. Remove {existing + new - limit}, or request "
            f"a higher limit from Paperspace: {CONSOLE}"
        )
