# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Offers for a cluster on EC2: market, type, zone and price. Sends only read requests."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.muster.training.plugins.plugin_utils._clouds.cloud import Offer, Offers
from ansible_collections.muster.training.plugins.plugin_utils._clouds.cost import budget_error, estimate_cost
from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import (
    DesiredCluster,
    ResourceKind,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2 import prices
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.context import Ec2Context
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.network_interfaces import (
    describe_unused_cards,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.network_resources import subnet_name
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.placement import (
    ClusterNetwork,
    InstanceType,
    check_key_name,
    dedicated_site,
    read_image,
    read_site,
    read_type,
    refuse_other_network,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.quotas import (
    check_quota,
    format_market,
    quota_code,
    read_quota,
    type_family,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.request import Ec2Image
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.resources import Ec2Account
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import (
    PlanRefusedError,
    find_machines,
    find_network,
    network_name,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.planner import count_new_machines, plan_cluster
from ansible_collections.muster.training.plugins.plugin_utils._clouds.prices import Price

EFA_RANKS = {"none": 0, "auto": 0, "required": 1, "all": 2}  # an existing cluster must have as much as requested
MARKETS = {"on-demand": ["on-demand"], "spot": ["spot"], "spot-else-on-demand": ["spot", "on-demand"]}


class Ec2Request(NamedTuple):
    """The user's request."""

    nnodes: int
    machine_types: list[str]  # in order of preference
    market: str = "on-demand"  # a key of MARKETS
    zones: Sequence[str] = ()  # in order of preference; empty for any
    image: str = ""
    disk_gb: int = 150
    subnet_id: str = ""
    dedicated_network: bool = False
    efa: str = "auto"  # auto, required, all or none
    local_networks: Sequence[str] = ()  # CIDR blocks of this machine's networks, which a new network must not overlap
    first_boot: str = ""  # build_first_boot()'s result
    key_name: str = ""
    ssh_from: Sequence[str] = ()  # parse_ssh_sources()'s result
    max_usd_per_hour: float | None = None  # None is allowed only for a plan
    price_per_hour: float | None = None
    wait_minutes: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ec2Offer(Offer):
    """A market, instance type and zone that can satisfy the request."""

    machine_type: str
    market: str
    zone: str = ""  # empty if no machine needs to be created
    subnet: str = ""  # empty if the cluster's own network does not have one in the zone yet
    price: Price | None = None  # hourly price per machine
    efa: bool = False  # whether it has Elastic Fabric Adapters
    efa_cards: tuple[int, ...] = ()  # the network cards that get one each; none for a single interface
    vpc: str = ""  # empty if it does not exist yet
    image: Ec2Image | None = None


def find_instances(context: Ec2Context, account: Ec2Account) -> list[Mapping[str, Any]]:
    """Return the cluster's machines as EC2 describes them, in the order of their numbers."""
    network = find_network(context.cluster, account.resources["networks"], context.network_id)
    return [account.instances[machine["id"]] for machine in find_machines(context.cluster, network, account.resources)]


def required_parts(
    context: Ec2Context, site: ClusterNetwork, zone: str, placement: bool
) -> list[tuple[ResourceKind, str]]:
    """Return the kind and name of the other parts that machines in a zone need."""
    name = network_name(context.cluster)
    network_parts: list[tuple[ResourceKind, str]] = [
        ("VPC", name),
        ("internet gateway", name),
        ("subnet", subnet_name(context.cluster, zone)),
    ]
    placement_parts: list[tuple[ResourceKind, str]] = [("placement group", name)]
    return network_parts * bool(site.block) + placement_parts * placement


def desired_cluster(
    context: Ec2Context, request: Ec2Request, machine_type: str, parts: list[tuple[ResourceKind, str]], block: str = ""
) -> DesiredCluster:
    """Return the requested cluster with one machine type. block: the CIDR block of the cluster's own network."""
    return {
        "cluster": context.cluster,
        "state": "present",
        "nnodes": request.nnodes,
        "machine_type": machine_type,
        "region": context.client.region,
        "disk_gb": request.disk_gb,
        "drive_gb": 0,
        "script": "",
        "network_id": context.network_id,
        "remove_drive": False,
        "parts": parts,
        "address_block": block,
    }


def find_offers(context: Ec2Context, request: Ec2Request, account: Ec2Account, check: bool) -> Offers[Ec2Offer]:
    """Return the offers in the order in which to try them.

    Raises:
        PlanRefusedError: no other offer could help.
        Ec2Error: a request failed.
    """
    refuse_foreign_name(context, account)
    network = find_network(context.cluster, account.resources["networks"], context.network_id)
    nodes = find_instances(context, account)
    existing_types = {str(raw.get("InstanceType")) for raw in nodes}
    matching_types = [machine_type for machine_type in request.machine_types if machine_type in existing_types]
    types = (matching_types or request.machine_types)[:1] if existing_types else request.machine_types
    desired = desired_cluster(context, request, types[0], [])
    plan = plan_cluster(desired, account.resources, context.notes)
    group = account.groups.get(network["id"]) if network else None
    refuse_other_network(
        context.cluster,
        request.dedicated_network,
        request.subnet_id,
        plan["parts"],
        str(group.get("VpcId")) if group else "",
        [str(raw.get("SubnetId")) for raw in nodes],
    )
    efa = choose_efa(context.cluster, request.efa, nodes)
    if not count_new_machines(plan):
        market = "spot" if any(raw.get("InstanceLifecycle") == "spot" for raw in nodes) else "on-demand"
        known_prices = prices.make_prices(types[0], None, prices.read_disk_price(context.client))
        cost = estimate_cost(desired, plan, known_prices, request.price_per_hour)
        starts = any(step["action"] == "start" for step in plan["steps"])
        reason = budget_error(cost, request.max_usd_per_hour, types[0], prices.PAGE) if starts else ""
        if reason and not (check and request.max_usd_per_hour is None):
            raise PlanRefusedError(reason)
        description = f"{types[0]} {format_market(market)}"
        offer = Ec2Offer(
            desired=desired, plan=plan, cost=cost, description=description, machine_type=types[0], market=market
        )
        return Offers([offer], [])
    has_network = any(part["kind"] == "VPC" for part in plan["parts"])
    if not nodes and not request.subnet_id and (has_network or request.dedicated_network):
        site = dedicated_site(context.client, context.cluster, plan["parts"], account.vpcs, request.local_networks)
    else:
        site = read_site(context.client, request.subnet_id, nodes, group)
    image = read_image(context.client, request.image, nodes)
    if request.disk_gb < image.min_gb:
        raise PlanRefusedError(
            f"disk_gb is {request.disk_gb}, but the image {image.name} needs at least {image.min_gb}"
        )
    if request.key_name:
        check_key_name(context.client, request.key_name)
    zones = _candidate_zones(request, site, bool(nodes))
    return _list_offers(context, request._replace(efa=efa), account, types, site, image, zones, check)


def refuse_foreign_name(context: Ec2Context, account: Ec2Account) -> None:
    """Raise PlanRefusedError if a resource that does not belong to the cluster has the cluster's name."""
    name = network_name(context.cluster)
    conflicts = [
        group
        for group in account.foreign_groups
        if group.split(" (")[0] in (f"security group {name}", f"placement group {name}")
    ]
    if conflicts:
        raise PlanRefusedError(
            f"the name {context.cluster} is taken: {', '.join(conflicts)} exists without cluster tags, so it "
            "belongs to someone else. Choose another name"
        )


def choose_efa(cluster: str, requested: str, nodes: Sequence[Mapping[str, Any]]) -> str:
    """Return the EFA setting for new machines: that of existing machines if any, otherwise the requested one.

    Raises:
        PlanRefusedError: EFA is required, but the existing machines have none.
    """
    if not nodes:
        return requested
    interfaces = [interface for raw in nodes for interface in raw.get("NetworkInterfaces") or []]
    types = {interface.get("InterfaceType") for interface in interfaces}
    existing = "all" if "efa-only" in types else "required" if "efa" in types else "none"
    if EFA_RANKS[requested] > EFA_RANKS[existing]:
        what = "no EFA" if existing == "none" else "EFA on one network card only"
        raise PlanRefusedError(
            f"the existing machines of {cluster} have {what}, but provision_efa={requested} is set. Remove the "
            "setting, or tear the cluster down first"
        )
    return existing


def choose_cards(requested: str, efa_cards: tuple[int, ...]) -> tuple[bool, tuple[int, ...]]:
    """Return whether machines have EFA, and which network cards get an EFA each; no cards means a single interface."""
    return bool(efa_cards) and requested != "none", efa_cards if requested == "all" else ()


def _candidate_zones(request: Ec2Request, site: ClusterNetwork, fixed: bool) -> list[str]:
    """Return the zones that may be tried. Raise PlanRefusedError if there are none."""
    if not request.zones:
        return sorted(site.subnets)
    zones = [zone for zone in request.zones if zone in site.subnets]
    if not zones:
        location = "the existing machines are in" if fixed else "only these zones have a subnet:"
        raise PlanRefusedError(
            f"cannot create machines in {', '.join(request.zones)}: {location} "
            f"{', '.join(sorted(site.subnets)) or 'none'}"
        )
    return zones


def _list_offers(  # noqa: PLR0913
    context: Ec2Context,
    request: Ec2Request,
    account: Ec2Account,
    types: list[str],
    site: ClusterNetwork,
    image: Ec2Image,
    zones: list[str],
    check: bool,
) -> Offers[Ec2Offer]:
    refusals: list[str] = []
    remarks: list[str] = []
    instance_types: dict[str, InstanceType] = {}
    for name in types:
        try:
            instance_types[name] = _check_type(context, request, name, image, zones)
        except PlanRefusedError as error:
            refusals.append(str(error))
    disk_price = prices.read_disk_price(context.client) if instance_types else None
    offers = []
    for market in MARKETS[request.market]:
        for instance_type in instance_types.values():
            if market not in instance_type.markets:
                refusals.append(f"{instance_type.name} is not offered {format_market(market)}")
                continue
            count = count_new_machines(
                plan_cluster(
                    desired_cluster(context, request, instance_type.name, []), account.resources, context.notes
                )
            )
            refusal, remark = _check_quota(context, account, market, instance_type, count)
            unused = describe_unused_cards(instance_type.name, instance_type.efa_cards)
            for text in (remark, unused if request.efa in ("auto", "required") else ""):
                remarks += [text] if text and text not in remarks else []
            if refusal:
                refusals.append(refusal)
                continue
            zone_prices = _zone_prices(context, request, market, instance_type.name, zones)
            candidate_zones = [
                zone
                for zone in _order_zones(zones, zone_prices, keep=bool(request.zones))
                if zone in instance_type.zones
            ]
            over_budget: list[str] = []
            for zone in candidate_zones:
                price = zone_prices.get(zone)
                parts = required_parts(context, site, zone, instance_type.placement)
                desired = desired_cluster(context, request, instance_type.name, parts, site.block)
                plan = plan_cluster(desired, account.resources, context.notes)
                known_prices = prices.make_prices(instance_type.name, price, disk_price)
                cost = estimate_cost(desired, plan, known_prices, request.price_per_hour)
                too_expensive = budget_error(
                    cost, request.max_usd_per_hour, f"{instance_type.name} {format_market(market)}", prices.PAGE
                )
                if too_expensive and not (check and request.max_usd_per_hour is None):
                    over_budget.append(too_expensive)
                else:
                    efa, cards = choose_cards(request.efa, instance_type.efa_cards)
                    fabric = f", with EFA on {len(cards)} network cards" if cards else ", with EFA" if efa else ""
                    description = f"{instance_type.name} {format_market(market)} in {zone}{fabric}"
                    offers.append(
                        Ec2Offer(
                            desired=desired,
                            plan=plan,
                            cost=cost,
                            description=description,
                            location=description,
                            pool=(market, type_family(instance_type.name)),
                            machine_type=instance_type.name,
                            market=market,
                            zone=zone,
                            subnet=site.subnets[zone],
                            price=price,
                            efa=efa,
                            efa_cards=cards,
                            vpc=site.vpc,
                            image=image,
                        )
                    )
            refusals += over_budget[:1]
    return Offers(offers, refusals, remarks)


def _check_type(
    context: Ec2Context, request: Ec2Request, name: str, image: Ec2Image, zones: Sequence[str]
) -> InstanceType:
    instance_type = read_type(context.client, name)
    if image.architecture and instance_type.architectures and image.architecture not in instance_type.architectures:
        raise PlanRefusedError(
            f"{name} has the architecture {', '.join(instance_type.architectures)}, but the image {image.name} is for "
            f"{image.architecture}"
        )
    if request.efa in ("required", "all") and not instance_type.efa_cards:
        raise PlanRefusedError(f"{name} does not support EFA, but provision_efa={request.efa} is set")
    if not set(zones) & set(instance_type.zones):
        offered_in = ", ".join(instance_type.zones) or "no zone in the region"
        raise PlanRefusedError(f"{name} is offered in {offered_in}, but not in {', '.join(zones)}")
    return instance_type


def _check_quota(
    context: Ec2Context, account: Ec2Account, market: str, instance_type: InstanceType, count: int
) -> tuple[str, str]:
    code = quota_code(market, instance_type.name)
    quota = read_quota(context.client, code) if code else None
    used = account.vcpus.get((market, type_family(instance_type.name) or ""), 0)
    return check_quota(market, instance_type.name, count, instance_type.vcpus, quota, used)


def _zone_prices(
    context: Ec2Context, request: Ec2Request, market: str, machine_type: str, zones: Sequence[str]
) -> dict[str, Price]:
    if request.price_per_hour is not None:
        return dict.fromkeys(zones, Price(request.price_per_hour, "set by you", ""))
    if market == "spot":
        return prices.read_spot_prices(context.client, machine_type)
    price = prices.read_on_demand_price(context.client, machine_type)
    return dict.fromkeys(zones, price) if price else {}


def _order_zones(zones: Sequence[str], zone_prices: Mapping[str, Price], keep: bool) -> list[str]:
    """Return the zones in the requested order, or ordered by price, cheapest first."""
    if keep:
        return list(zones)
    return sorted(zones, key=lambda zone: (zone_prices[zone].usd if zone in zone_prices else float("inf"), zone))
