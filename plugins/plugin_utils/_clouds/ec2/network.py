# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster's own network: its VPC, internet gateway, route and subnet.

VPCs and gateways have no client token or unique name, so a repeated request would create a second one. Therefore each
is recorded, requested without automatic retries, and searched for by its tags if the reply is lost.
"""

from __future__ import annotations

import ipaddress
import string
from typing import Any, NamedTuple

from ansible_collections.muster.training.plugins.plugin_utils._clouds.cloud import LISTING_TIMEOUT, POLL_INTERVAL
from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import ClusterPart, ResourceKind
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.client import Ec2Error
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.context import Ec2Context
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.network_resources import subnet_name
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.resources import (
    read_network_parts,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.tags import build_tags

DEFAULT_ROUTE = "0.0.0.0/0"
# Prefix length of a subnet: a /16 VPC has room for 16 zones with 4091 addresses each. AWS reserves 5.
SUBNET_PREFIX = 20


class _PartRequest(NamedTuple):
    """How to request a network part: the action in boto3, keys of the object and id in the reply, and type for tags."""

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
    """Return the CIDR block for a zone's subnet, based on the zone's letter, or None if the VPC's block is too small.

    block: the VPC's, a /16.
    """
    blocks = ipaddress.ip_network(block).subnets(new_prefix=SUBNET_PREFIX)
    block_by_letter = dict(zip(string.ascii_lowercase, map(str, blocks), strict=False))
    return block_by_letter.get(zone[-1:])


def create_part(context: Ec2Context, what: ResourceKind, name: str, **parameters: Any) -> str:
    """Send one request to create a part of the cluster's own network; return the part's id."""
    kind = _PART_REQUESTS[what]
    tags = [{"Key": "Name", "Value": name}, *(tag for tag in build_tags(context.cluster) if tag["Key"] != "Name")]
    specifications = [{"ResourceType": kind.resource_type, "Tags": tags}]
    try:
        reply = context.client.send_once("ec2", kind.action, **parameters, TagSpecifications=specifications)
    except Ec2Error as error:
        error.reply_lost = error.transient
        if error.reply_lost:
            context.show(f"{error}; checking whether {what} {name} was created")
        raise
    return str(reply[kind.response_key][kind.id_key])


def create_subnet(context: Ec2Context, cluster_vpc: str, zone: str) -> str:
    """Create a zone's subnet; return its id."""
    (raw,) = context.client.list_all("describe_vpcs", "Vpcs", VpcIds=[cluster_vpc])
    block = subnet_block(str(raw["CidrBlock"]), zone)
    name = subnet_name(context.cluster, zone)
    return create_part(context, "subnet", name, VpcId=cluster_vpc, CidrBlock=block, AvailabilityZone=zone)


def wait_until_listed(context: Ec2Context, what: ResourceKind, name: str, part_id: str = "") -> str:
    """Return a part's id once EC2 lists it, or "" after LISTING_TIMEOUT. part_id: "" for any part with the name."""
    began = context.clock()
    while True:
        for part in read_network_parts(context.client):
            if _matches(part, context.cluster, what, name) and part_id in ("", part["id"]):
                return part["id"]
        if context.clock() - began > LISTING_TIMEOUT:
            return ""
        context.sleep(POLL_INTERVAL)


def _matches(part: ClusterPart, cluster: str, what: ResourceKind, name: str) -> bool:
    return (part["cluster"], part["kind"], part["name"]) == (cluster, what, name)


def ensure_internet_route(context: Ec2Context, vpc: str, gateway: str) -> None:
    """Route traffic that leaves the VPC to the gateway, unless a route to somewhere else already exists."""
    try:
        context.client.ec2("attach_internet_gateway", InternetGatewayId=gateway, VpcId=vpc)
    except Ec2Error as error:
        if error.code != "Resource.AlreadyAssociated":
            raise
    filters = [{"Name": "vpc-id", "Values": [vpc]}, {"Name": "association.main", "Values": ["true"]}]
    tables = context.client.list_all("describe_route_tables", "RouteTables", Filters=filters)
    if not tables:
        raise Ec2Error("", f"EC2 lists no route table for the VPC {vpc}")
    table = tables[0]
    routes = [entry for entry in table.get("Routes") or [] if entry.get("DestinationCidrBlock") == DEFAULT_ROUTE]
    target = str(routes[0].get("GatewayId") or "") if routes else ""
    route = {"RouteTableId": table["RouteTableId"], "DestinationCidrBlock": DEFAULT_ROUTE, "GatewayId": gateway}
    if not routes:
        try:
            context.client.ec2("create_route", **route)
        except Ec2Error as error:
            if error.code != "RouteAlreadyExists":
                raise
    # a VPC has at most one gateway, so the route's target was deleted
    elif target.startswith("igw-") and target != gateway:
        context.client.ec2("replace_route", **route)
