# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ways to get a cluster at EC2: market, type, zone. Private to this collection, changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.muster.training.plugins.plugin_utils._clouds.cost import cost_of, over_budget
from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import Cost, Plan, Wanted, What
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2 import prices
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.discover import Work
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.network_resources import subnet_name
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.placement import (
    Site,
    Type,
    check_key_name,
    own_site,
    read_image,
    read_site,
    read_type,
    refuse_other_network,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.quotas import (
    family,
    over_quota,
    quota_code,
    read_quota,
    words,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.request import Image
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.resources import Account
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import (
    PlanRefused,
    network_name,
    own_machines,
    own_network,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.planner import plan
from ansible_collections.muster.training.plugins.plugin_utils._clouds.prices import Price

MARKETS = {"on-demand": ["on-demand"], "spot": ["spot"], "spot-else-on-demand": ["spot", "on-demand"]}


class Ask(NamedTuple):
    """What is wanted. machine_types, zones: in order of preference. first_boot: first_boot()'s result.

    max_usd_per_hour: None if only a plan is wanted. ssh_from: ssh_sources()'s result. reached: blocks of this machine's
    networks, which a new network must not overlap. efa: auto, required or none.
    """

    nnodes: int
    machine_types: list[str]
    market: str = "on-demand"
    zones: Sequence[str] = ()
    image: str = ""
    disk_gb: int = 150
    subnet_id: str = ""
    own_network: bool = False
    efa: str = "auto"
    reached: Sequence[str] = ()
    first_boot: str = ""
    key_name: str = ""
    ssh_from: Sequence[str] = ()
    max_usd_per_hour: float | None = None
    price_per_hour: float | None = None
    wait_minutes: float = 0.0


class Way(NamedTuple):
    """One way. price: of one machine per hour. The zone is empty if no machine must be made.

    subnet: "" if the cluster's own network has none in the zone yet. efa: whether its interfaces are EFA's.
    """

    machine_type: str
    market: str
    zone: str
    subnet: str
    wanted: Wanted
    plan: Plan
    cost: Cost
    price: Price | None
    efa: bool = False

    @property
    def words(self) -> str:
        """The way for a person."""
        return f"{self.machine_type} {words(self.market)} in {self.zone}{', with EFA' if self.efa else ''}"


class Ways(NamedTuple):
    """All ways, best first, and why others are impossible. told: other messages for a person."""

    possible: list[Way]
    refused: list[str]
    told: list[str]
    site: Site
    image: Image | None


def makes(found: Plan) -> int:
    """How many machines a plan makes."""
    return sum(step["action"] == "make" and step["what"] == "machine" for step in found["steps"])


def own_raw(work: Work, account: Account) -> list[Mapping[str, Any]]:
    """The cluster's machines as EC2 describes them, by number."""
    network = own_network(work.cluster, account.there["networks"], work.group_id)
    return [account.raw[one["id"]] for one in own_machines(work.cluster, network, account.there)]


def parts_with(work: Work, site: Site, zone: str, placement: bool) -> list[tuple[What, str]]:
    """The other parts that machines in a zone need."""
    name = network_name(work.cluster)
    around: list[tuple[What, str]] = [
        ("VPC", name),
        ("internet gateway", name),
        ("subnet", subnet_name(work.cluster, zone)),
    ]
    beside: list[tuple[What, str]] = [("placement group", name)]
    return around * bool(site.block) + beside * placement


def wanted_with(work: Work, ask: Ask, machine_type: str, parts: list[tuple[What, str]], block: str = "") -> Wanted:
    """The cluster of one type of machine. block: addresses of its own network."""
    return {
        "cluster": work.cluster,
        "stand": "present",
        "nnodes": ask.nnodes,
        "machine_type": machine_type,
        "region": work.aws.region,
        "disk_gb": ask.disk_gb,
        "drive_gb": 0,
        "script": "",
        "network_id": work.group_id,
        "remove_drive": False,
        "parts": parts,
        "address_block": block,
    }


def find_ways(work: Work, ask: Ask, account: Account, check: bool) -> Ways:
    """The ways in the order to try them. Raises PlanRefused if no other way could help, Ec2Error."""
    network = own_network(work.cluster, account.there["networks"], work.group_id)
    nodes = own_raw(work, account)
    has = {str(raw.get("InstanceType")) for raw in nodes}
    fit = [one for one in ask.machine_types if one in has]
    types = (fit or ask.machine_types)[:1] if has else ask.machine_types
    first = wanted_with(work, ask, types[0], [])
    found = plan(first, account.there, work.noted)
    group = account.groups.get(network["id"]) if network else None
    refuse_other_network(
        work.cluster,
        ask.own_network,
        ask.subnet_id,
        found["parts"],
        str(group.get("VpcId")) if group else "",
        [str(raw.get("SubnetId")) for raw in nodes],
    )
    efa = efa_beside(work.cluster, ask.efa, nodes)
    if not makes(found):
        market = "spot" if any(raw.get("InstanceLifecycle") == "spot" for raw in nodes) else "on-demand"
        known = prices.prices_with(types[0], None, prices.disk(work.aws))
        cost = cost_of(first, found, ask.price_per_hour, known)
        starts = any(step["action"] == "start" for step in found["steps"])
        why = over_budget(cost, ask.max_usd_per_hour, types[0], prices.PAGE) if starts else ""
        if why and not (check and ask.max_usd_per_hour is None):
            raise PlanRefused(why)
        way = Way(types[0], market, "", "", first, found, cost, None)
        return Ways([way], [], [], Site("", {}), None)
    own = any(part["what"] == "VPC" for part in found["parts"])
    if not nodes and not ask.subnet_id and (own or ask.own_network):
        site = own_site(work.aws, work.cluster, found["parts"], account.vpcs, ask.reached)
    else:
        site = read_site(work.aws, ask.subnet_id, nodes, group)
    image = read_image(work.aws, ask.image, nodes)
    if ask.disk_gb < image.least_gb:
        raise PlanRefused(f"disk_gb is {ask.disk_gb}, but the image {image.name} needs {image.least_gb}")
    if ask.key_name:
        check_key_name(work.aws, ask.key_name)
    zones = _zones(ask, site, bool(nodes))
    return _ways(work, ask._replace(efa=efa), account, types, site, image, zones, check)


def efa_beside(cluster: str, wanted: str, nodes: Sequence[Mapping[str, Any]]) -> str:
    """EFA of added machines (auto, required or none): like the existing ones, else as wanted. Raises PlanRefused."""
    if not nodes:
        return wanted
    faces = [face for raw in nodes for face in raw.get("NetworkInterfaces") or []]
    if any(face.get("InterfaceType") == "efa" for face in faces):
        return "required"
    if wanted == "required":
        raise PlanRefused(
            f"the existing machines of {cluster} have no EFA, but provision_efa=required is set. Leave it out, "
            "or tear the cluster down first"
        )
    return "none"


def _zones(ask: Ask, site: Site, fixed: bool) -> list[str]:
    """The zones that may be tried. Raises PlanRefused."""
    if not ask.zones:
        return sorted(site.subnets)
    found = [zone for zone in ask.zones if zone in site.subnets]
    if not found:
        where = "the existing machines are in" if fixed else "there are subnets in"
        raise PlanRefused(
            f"no machine can be made in {', '.join(ask.zones)}: {where} {', '.join(sorted(site.subnets)) or 'no zone'}"
        )
    return found


def _ways(
    work: Work, ask: Ask, account: Account, types: list[str], site: Site, image: Image, zones: list[str], check: bool
) -> Ways:
    refused: list[str] = []
    told: list[str] = []
    known: dict[str, Type] = {}
    for name in types:
        try:
            known[name] = _type(work, ask, name, image, zones)
        except PlanRefused as error:
            refused.append(str(error))
    of_disk = prices.disk(work.aws) if known else None
    found = []
    for market in MARKETS[ask.market]:
        for kind in known.values():
            if market not in kind.markets:
                refused.append(f"{kind.name} is not offered {words(market)}")
                continue
            count = makes(plan(wanted_with(work, ask, kind.name, []), account.there, work.noted))
            why, more = _quota(work, account, market, kind, count)
            told += [more] if more and more not in told else []
            if why:
                refused.append(why)
                continue
            of_zones = _prices(work, ask, market, kind.name, zones)
            offered = [zone for zone in _order(zones, of_zones, keep=bool(ask.zones)) if zone in kind.zones]
            dear: list[str] = []
            for zone in offered:
                price = of_zones.get(zone)
                parts = parts_with(work, site, zone, kind.placement)
                wanted = wanted_with(work, ask, kind.name, parts, site.block)
                steps = plan(wanted, account.there, work.noted)
                known_prices = prices.prices_with(kind.name, price, of_disk)
                cost = cost_of(wanted, steps, ask.price_per_hour, known_prices)
                over = over_budget(cost, ask.max_usd_per_hour, f"{kind.name} {words(market)}", prices.PAGE)
                if over and not (check and ask.max_usd_per_hour is None):
                    dear.append(over)
                else:
                    efa = kind.efa and ask.efa != "none"
                    found.append(Way(kind.name, market, zone, site.subnets[zone], wanted, steps, cost, price, efa))
            refused += dear[:1]
    return Ways(found, refused, told, site, image)


def _type(work: Work, ask: Ask, name: str, image: Image, zones: Sequence[str]) -> Type:
    kind = read_type(work.aws, name)
    if image.architecture and kind.architectures and image.architecture not in kind.architectures:
        raise PlanRefused(
            f"{name} is {', '.join(kind.architectures)}, but the image {image.name} is for {image.architecture}"
        )
    if ask.efa == "required" and not kind.efa:
        raise PlanRefused(f"{name} has no EFA, but provision_efa=required is set")
    if not set(zones) & set(kind.zones):
        where = ", ".join(kind.zones) or "no zone of the region"
        raise PlanRefused(f"{name} is offered in {where}, and in none of {', '.join(zones)}")
    return kind


def _quota(work: Work, account: Account, market: str, kind: Type, count: int) -> tuple[str, str]:
    code = quota_code(market, kind.name)
    quota = read_quota(work.aws, code) if code else None
    used = account.vcpus.get((market, family(kind.name) or ""), 0)
    return over_quota(market, kind.name, count, kind.vcpus, quota, used)


def _prices(work: Work, ask: Ask, market: str, machine_type: str, zones: Sequence[str]) -> dict[str, Price]:
    if ask.price_per_hour is not None:
        return dict.fromkeys(zones, Price(ask.price_per_hour, "given by you", ""))
    if market == "spot":
        return prices.spot(work.aws, machine_type)
    price = prices.on_demand(work.aws, machine_type)
    return dict.fromkeys(zones, price) if price else {}


def _order(zones: Sequence[str], of_zones: Mapping[str, Price], keep: bool) -> list[str]:
    """The zones in the given order, else the cheapest first."""
    if keep:
        return list(zones)
    return sorted(zones, key=lambda zone: (of_zones[zone].usd if zone in of_zones else float("inf"), zone))
