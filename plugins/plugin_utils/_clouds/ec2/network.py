# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster's own network: VPC, internet gateway, route and subnet. Private to this collection.

VPCs and gateways have no client token or unique name, so a repeated request would make a second one. So each is
recorded, requested without automatic retries, and searched for by its tags if no answer comes.
"""

from __future__ import annotations

import ipaddress
import string
from typing import Any, NamedTuple

from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import Part, Plan, What
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.client import Ec2Error
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.discover import LOOK_AGAIN, SEEN_AFTER, Work
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.network_resources import subnet_name
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.resources import Account, read_network_parts
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.tags import tags_for
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import network_name

EVERYWHERE = "0.0.0.0/0"
TRIES = 3
#: Length of the prefix of a subnet: sixteen zones in a VPC of /16, with 4091 addresses each. AWS keeps five.
SUBNET_PREFIX = 20


class _Kind(NamedTuple):
    """How to request a part: request, key of the answer, key of the id, and the word for its tags."""

    action: str
    answer: str
    key: str
    tagged: str


_KINDS: dict[What, _Kind] = {
    "VPC": _Kind("create_vpc", "Vpc", "VpcId", "vpc"),
    "internet gateway": _Kind("create_internet_gateway", "InternetGateway", "InternetGatewayId", "internet-gateway"),
    "subnet": _Kind("create_subnet", "Subnet", "SubnetId", "subnet"),
}


def subnet_block(block: str, zone: str) -> str | None:
    """The addresses of a zone's subnet, by the zone's letter; None if the zone has no place in the block.

    block: the VPC's, a /16.
    """
    blocks = ipaddress.ip_network(block).subnets(new_prefix=SUBNET_PREFIX)
    of_letters = dict(zip(string.ascii_lowercase, map(str, blocks), strict=False))
    return of_letters.get(zone[-1:])


def have_network(work: Work, account: Account, found: Plan, block: str, zone: str) -> tuple[str, str]:
    """Make the missing parts of the cluster's own network; return the ids of the VPC and of the zone's subnet.

    block: addresses for a VPC that does not exist yet. Raises Ec2Error.
    """
    name = network_name(work.cluster)
    vpc = _there(found, "VPC", name) or _make(work, "VPC", name, CidrBlock=block)
    gateway = _there(found, "internet gateway", name) or _make(work, "internet gateway", name)
    _connect(work, vpc, gateway)
    of_zone = subnet_name(work.cluster, zone)
    subnet = _there(found, "subnet", of_zone)
    if not subnet:
        addresses = subnet_block(str(account.vpcs[vpc]["CidrBlock"]) if vpc in account.vpcs else block, zone)
        subnet = _make(work, "subnet", of_zone, VpcId=vpc, CidrBlock=addresses, AvailabilityZone=zone)
    return vpc, subnet


def _there(found: Plan, what: What, name: str) -> str:
    return next((part["id"] for part in found["parts"] if (part["what"], part["name"]) == (what, name)), "")


def _make(work: Work, what: What, name: str, **given: Any) -> str:
    """Make one part, and wait until EC2 lists it; return its id."""
    kind = _KINDS[what]
    tags = [{"Key": "Name", "Value": name}, *(tag for tag in tags_for(work.cluster) if tag["Key"] != "Name")]
    tagged = [{"ResourceType": kind.tagged, "Tags": tags}]
    for left in reversed(range(TRIES)):
        work.record.intend(what, name, work.clock())
        made = ""
        try:
            made = str(work.aws.once("ec2", kind.action, **given, TagSpecifications=tagged)[kind.answer][kind.key])
        except Ec2Error as error:
            if not error.passing:
                if left == TRIES - 1:  # otherwise an earlier request may have made one
                    work.record.forget(what, name)
                raise
            work.say(f"{error}; checking whether {what} {name} was made")
            made = _listed(work, what, name)
            if not made and not left:
                raise
        if made:
            break
    work.record.made(what, name, made)
    _listed(work, what, name, made)
    work.say(f"made {what} {name} ({made})")
    return made


def _listed(work: Work, what: What, name: str, part_id: str = "") -> str:
    """The id of a part once EC2 lists it, or "" after a minute. part_id: "" for any with the name."""
    began = work.clock()
    while True:
        for part in read_network_parts(work.aws):
            if _is(part, work.cluster, what, name) and part_id in ("", part["id"]):
                return part["id"]
        if work.clock() - began > SEEN_AFTER:
            return ""
        work.sleep(LOOK_AGAIN)


def _is(part: Part, cluster: str, what: What, name: str) -> bool:
    return (part["cluster"], part["what"], part["name"]) == (cluster, what, name)


def _connect(work: Work, vpc: str, gateway: str) -> None:
    """Route traffic that leaves the VPC to the internet, unless someone has routed it elsewhere."""
    try:
        work.aws.ec2("attach_internet_gateway", InternetGatewayId=gateway, VpcId=vpc)
    except Ec2Error as error:
        if error.code != "Resource.AlreadyAssociated":
            raise
    filters = [{"Name": "vpc-id", "Values": [vpc]}, {"Name": "association.main", "Values": ["true"]}]
    tables = work.aws.pages("describe_route_tables", "RouteTables", Filters=filters)
    if not tables:
        raise Ec2Error("", f"EC2 lists no route table for the VPC {vpc}")
    table = tables[0]
    routes = [one for one in table.get("Routes") or [] if one.get("DestinationCidrBlock") == EVERYWHERE]
    target = str(routes[0].get("GatewayId") or "") if routes else ""
    route = {"RouteTableId": table["RouteTableId"], "DestinationCidrBlock": EVERYWHERE, "GatewayId": gateway}
    if not routes:
        try:
            work.aws.ec2("create_route", **route)
        except Ec2Error as error:
            if error.code != "RouteAlreadyExists":
                raise
    elif target.startswith("igw-") and target != gateway:  # a VPC has at most one gateway, so that one is gone
        work.aws.ec2("replace_route", **route)
