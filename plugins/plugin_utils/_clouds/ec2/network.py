# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster's own network: VPC, internet gateway, route and subnet.

VPCs and gateways have no client token or unique name, so a repeated request would create a second one. Therefore each
is recorded, requested without automatic retries, and searched for by its tags if the reply is lost.
"""

from __future__ import annotations

import ipaddress
import string
from typing import Any, NamedTuple

from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import ClusterPlan, Part, ResourceKind
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.client import Ec2Error
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.discover import (
    LISTING_TIMEOUT,
    POLL_INTERVAL,
    Ec2Context,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.network_resources import subnet_name
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.resources import (
    Ec2Account,
    read_network_parts,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.tags import build_tags
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import network_name

DEFAULT_ROUTE = "0.0.0.0/0"
MAX_ATTEMPTS = 3
#: Prefix length of a subnet: a /16 VPC has room for 16 zones with 4091 addresses each. AWS reserves 5.
SUBNET_PREFIX = 20


class _PartRequest(NamedTuple):
    """How to request a part: boto3's action, keys of the object and its id in the reply, and its type for tags."""

    action: str
    response_key: str
    id_key: str
    resource_type: str


_PART_REQUESTS: dict[ResourceKind, _PartRequest] = {
    "VPC": _PartRequest("create_vpc", "Vpc", "VpcId", "vpc"),
    "internet gateway": _PartRequest(
        "create_internet_gateway", "InternetGateway", "InternetGatewayId", "internet-gateway"
    ),
    "subnet": _PartRequest("create_subnet", "Subnet", "SubnetId", "subnet"),
}


def subnet_block(block: str, zone: str) -> str | None:
    """Return the CIDR block of a zone's subnet, by the zone's letter, or None if the VPC's block is too small.

    block: the VPC's, a /16.
    """
    blocks = ipaddress.ip_network(block).subnets(new_prefix=SUBNET_PREFIX)
    block_by_letter = dict(zip(string.ascii_lowercase, map(str, blocks), strict=False))
    return block_by_letter.get(zone[-1:])


def ensure_network(
    context: Ec2Context, account: Ec2Account, plan: ClusterPlan, block: str, zone: str
) -> tuple[str, str]:
    """Create the missing parts of the cluster's own network; return the ids of the VPC and of the zone's subnet.

    block: CIDR block for a VPC that does not exist yet. Raises Ec2Error.
    """
    name = network_name(context.cluster)
    vpc = _existing_id(plan, "VPC", name) or _create_part(context, "VPC", name, CidrBlock=block)
    gateway = _existing_id(plan, "internet gateway", name) or _create_part(context, "internet gateway", name)
    _ensure_internet_route(context, vpc, gateway)
    name_of_subnet = subnet_name(context.cluster, zone)
    subnet = _existing_id(plan, "subnet", name_of_subnet)
    if not subnet:
        addresses = subnet_block(str(account.vpcs[vpc]["CidrBlock"]) if vpc in account.vpcs else block, zone)
        subnet = _create_part(context, "subnet", name_of_subnet, VpcId=vpc, CidrBlock=addresses, AvailabilityZone=zone)
    return vpc, subnet


def _existing_id(plan: ClusterPlan, what: ResourceKind, name: str) -> str:
    return next((part["id"] for part in plan["parts"] if (part["what"], part["name"]) == (what, name)), "")


def _create_part(context: Ec2Context, what: ResourceKind, name: str, **parameters: Any) -> str:
    """Create one part, and wait until EC2 lists it; return its id."""
    kind = _PART_REQUESTS[what]
    tags = [{"Key": "Name", "Value": name}, *(tag for tag in build_tags(context.cluster) if tag["Key"] != "Name")]
    tag_specifications = [{"ResourceType": kind.resource_type, "Tags": tags}]
    for remaining in reversed(range(MAX_ATTEMPTS)):
        context.journal.record_request(what, name, context.clock())
        part_id = ""
        try:
            part_id = str(
                context.aws.send_once("ec2", kind.action, **parameters, TagSpecifications=tag_specifications)[
                    kind.response_key
                ][kind.id_key]
            )
        except Ec2Error as error:
            if not error.transient:
                if remaining == MAX_ATTEMPTS - 1:  # otherwise an earlier request may have succeeded
                    context.journal.forget(what, name)
                raise
            context.show(f"{error}; checking whether {what} {name} was created")
            part_id = _wait_until_listed(context, what, name)
            if not part_id and not remaining:
                raise
        if part_id:
            break
    context.journal.record_created(what, name, part_id)
    _wait_until_listed(context, what, name, part_id)
    context.show(f"created {what} {name} ({part_id})")
    return part_id


def _wait_until_listed(context: Ec2Context, what: ResourceKind, name: str, part_id: str = "") -> str:
    """Return the id of a part once EC2 lists it, or "" after LISTING_TIMEOUT. part_id: "" for any with the name."""
    began = context.clock()
    while True:
        for part in read_network_parts(context.aws):
            if _matches(part, context.cluster, what, name) and part_id in ("", part["id"]):
                return part["id"]
        if context.clock() - began > LISTING_TIMEOUT:
            return ""
        context.sleep(POLL_INTERVAL)


def _matches(part: Part, cluster: str, what: ResourceKind, name: str) -> bool:
    return (part["cluster"], part["what"], part["name"]) == (cluster, what, name)


def _ensure_internet_route(context: Ec2Context, vpc: str, gateway: str) -> None:
    """Route traffic that leaves the VPC to the gateway, unless someone has routed it elsewhere."""
    try:
        context.aws.ec2("attach_internet_gateway", InternetGatewayId=gateway, VpcId=vpc)
    except Ec2Error as error:
        if error.code != "Resource.AlreadyAssociated":
            raise
    filters = [{"Name": "vpc-id", "Values": [vpc]}, {"Name": "association.main", "Values": ["true"]}]
    tables = context.aws.list_all("describe_route_tables", "RouteTables", Filters=filters)
    if not tables:
        raise Ec2Error("", f"EC2 lists no route table for the VPC {vpc}")
    table = tables[0]
    routes = [entry for entry in table.get("Routes") or [] if entry.get("DestinationCidrBlock") == DEFAULT_ROUTE]
    target = str(routes[0].get("GatewayId") or "") if routes else ""
    route = {"RouteTableId": table["RouteTableId"], "DestinationCidrBlock": DEFAULT_ROUTE, "GatewayId": gateway}
    if not routes:
        try:
            context.aws.ec2("create_route", **route)
        except Ec2Error as error:
            if error.code != "RouteAlreadyExists":
                raise
    elif target.startswith("igw-") and target != gateway:  # a VPC has at most one gateway, so the target was deleted
        context.aws.ec2("replace_route", **route)
