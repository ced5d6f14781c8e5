# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where and from what EC2 machines can be made: subnets, image, types. Private to this collection, changes nothing."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.muster.training.plugins.plugin_utils._clouds.address_block import free_block
from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import Part
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.client import Aws, Ec2Error
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.network import subnet_block
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.network_resources import (
    blocks_of,
    subnet_name,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.request import Image
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import PlanRefused
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import one_line


class Site(NamedTuple):
    """The network that machines can be made in: one subnet per zone.

    block: CIDR block of the cluster's own VPC, "" if the cluster is in another one. vpc and subnets of its own network
    are "" until they exist.
    """

    vpc: str
    subnets: dict[str, str]
    block: str = ""


class Type(NamedTuple):
    """A type of machine. zones: those that offer it. placement: whether it can be in a cluster placement group.

    efa: whether it supports an Elastic Fabric Adapter.
    """

    name: str
    vcpus: int | None
    architectures: list[str]
    markets: list[str]
    placement: bool
    efa: bool
    zones: list[str]


def check_region(session: Any, region: str) -> str:
    """The requested region. Raises PlanRefused if there is no such region."""
    region = region or session.region_name or ""
    if not region:
        raise PlanRefused("no region is given. Say where: -e region=us-east-1, or export AWS_REGION")
    known = [
        one
        for partition in session.get_available_partitions()
        for one in session.get_available_regions("ec2", partition)
    ]
    if region not in known:
        alike = difflib.get_close_matches(region, known, n=3, cutoff=0.5)
        like = f"did you mean {' or '.join(alike)}?" if alike else "names look like us-east-1 and eu-west-1"
        raise PlanRefused(f"boto3 knows no AWS region {one_line(region, 40)!r}; {like}")
    return region


# --- Network


def read_site(aws: Aws, subnet_id: str, nodes: Sequence[Mapping[str, Any]], group: Mapping[str, Any] | None) -> Site:
    """The subnets: for an existing cluster, the one it has. Raises PlanRefused, Ec2Error.

    nodes, group: the cluster's instances and security group, as EC2 describes them.
    """
    if nodes:
        has = {str(raw.get("SubnetId")): str((raw.get("Placement") or {}).get("AvailabilityZone")) for raw in nodes}
        if len(has) > 1 or (subnet_id and subnet_id not in has):
            raise PlanRefused(
                f"the existing machines are in {', '.join(sorted(has))}; a cluster is always in one subnet. "
                "Ask for that one, or tear the cluster down first"
            )
        return Site(str(nodes[0].get("VpcId")), {zone: subnet for subnet, zone in has.items()})
    if subnet_id:
        try:
            found = aws.pages("describe_subnets", "Subnets", SubnetIds=[subnet_id])
        except Ec2Error as error:
            if error.passing:
                raise
            raise PlanRefused(f"subnet_id is {one_line(subnet_id, 60)}: {error}") from None
        site = Site(str(found[0]["VpcId"]), {str(found[0]["AvailabilityZone"]): subnet_id})
    else:
        site = _default_site(aws)
    if group and group.get("VpcId") != site.vpc:
        raise PlanRefused(
            f"the security group {group['GroupName']} ({group['GroupId']}) is in {group.get('VpcId')}, but the "
            f"machines would be in {site.vpc}. Give subnet_id of a subnet in the former, or tear the cluster down first"
        )
    return site


def _default_site(aws: Aws) -> Site:
    vpcs = aws.pages("describe_vpcs", "Vpcs", Filters=[{"Name": "is-default", "Values": ["true"]}])
    if not vpcs:
        raise PlanRefused(
            f"the account has no default network in {aws.region}. Create it: aws ec2 create-default-vpc --region "
            f"{aws.region}; or have a network made for the cluster: -e provision_own_network=true; or give a subnet "
            "whose machines reach the internet: -e provision_subnet_id=subnet-..."
        )
    vpc = str(vpcs[0]["VpcId"])
    filters = [{"Name": "vpc-id", "Values": [vpc]}, {"Name": "default-for-az", "Values": ["true"]}]
    subnets = aws.pages("describe_subnets", "Subnets", Filters=filters)
    return Site(vpc, {str(one["AvailabilityZone"]): str(one["SubnetId"]) for one in subnets})


def own_site(aws: Aws, cluster: str, parts: Sequence[Part], vpcs: Mapping[str, Any], reached: Sequence[str]) -> Site:
    """The cluster's own network: the existing one, otherwise one with an unused CIDR block.

    parts: the cluster's. vpcs: all of the region. reached: CIDR blocks of the networks that this machine is in. Raises
    PlanRefused, Ec2Error.
    """
    have = {part["name"]: part["id"] for part in parts if part["what"] == "subnet"}
    vpc = next((part["id"] for part in parts if part["what"] == "VPC"), "")
    block = str(vpcs[vpc]["CidrBlock"]) if vpc else free_block([*blocks_of(vpcs.values()), *reached])
    filters = [{"Name": "zone-type", "Values": ["availability-zone"]}]
    zones = aws.ec2("describe_availability_zones", Filters=filters).get("AvailabilityZones") or []
    names = [str(one["ZoneName"]) for one in zones]
    return Site(
        vpc, {zone: have.get(subnet_name(cluster, zone), "") for zone in names if subnet_block(block, zone)}, block
    )


def refuse_other_network(
    cluster: str, own: bool, subnet_id: str, parts: Sequence[Part], lies_in: str, subnets: Sequence[str]
) -> None:
    """Raise PlanRefused if the cluster exists in another network than requested: nothing is moved.

    own: whether a network of its own is requested. lies_in: VPC of its security group, "" if there is none. subnets:
    those of its machines.
    """
    vpc = next((part["id"] for part in parts if part["what"] == "VPC"), "")
    if (own or vpc) and lies_in not in ("", vpc):
        raise PlanRefused(
            f"{cluster} is in {lies_in}, which is not a network of its own. Leave out provision_own_network, or "
            "tear the cluster down first"
        )
    if subnet_id and vpc and subnet_id not in [*subnets, *(part["id"] for part in parts)]:
        raise PlanRefused(
            f"{cluster} has a network of its own ({vpc}), and {one_line(subnet_id, 60)} is not a subnet of it. "
            "Leave out provision_subnet_id, or tear the cluster down first"
        )


# --- Image


def read_image(aws: Aws, wanted: str, nodes: Sequence[Mapping[str, Any]]) -> Image:
    """The image: for an existing cluster, the one it has, so that all nodes are the same.

    wanted: an id, or the name of a public SSM parameter that holds one. Raises PlanRefused, Ec2Error.
    """
    has = sorted({str(raw.get("ImageId")) for raw in nodes})
    image_id = has[0] if len(has) == 1 and not wanted.startswith("ami-") else wanted
    if not image_id.startswith("ami-"):
        try:
            image_id = str(aws.call("ssm", "get_parameter", Name=wanted)["Parameter"]["Value"])
        except Ec2Error as error:
            if error.code not in ("ParameterNotFound", "ValidationException", "ParameterVersionNotFound"):
                raise
            raise PlanRefused(
                f"AWS has no image under {one_line(wanted, 120)} in {aws.region}. Give the id of one: -e "
                "provision_template=ami-..., or the parameter that its release notes name: "
                "https://docs.aws.amazon.com/dlami/latest/devguide/find-dlami-id.html"
            ) from None
    try:
        found = aws.pages("describe_images", "Images", ImageIds=[image_id])
    except Ec2Error as error:
        if not error.code.startswith("InvalidAMIID"):
            raise
        found = []
    if not found:
        raise PlanRefused(
            f"there is no image {one_line(image_id, 60)} in {aws.region}. Images belong to a region: look up its id "
            "there"
        )
    raw = found[0]
    root = str(raw.get("RootDeviceName") or "/dev/sda1")
    sizes = [
        (one.get("Ebs") or {}).get("VolumeSize")
        for one in raw.get("BlockDeviceMappings") or []
        if one.get("DeviceName") == root
    ]
    return Image(
        image_id,
        one_line(raw.get("Name") or image_id, 120),
        root,
        next((size for size in sizes if isinstance(size, int)), 0),
        str(raw.get("Architecture") or ""),
    )


def check_key_name(aws: Aws, name: str) -> None:
    """Raise PlanRefused if the account has no key pair of this name in the region."""
    try:
        aws.ec2("describe_key_pairs", KeyNames=[name])
    except Ec2Error as error:
        if error.code != "InvalidKeyPair.NotFound":
            raise
        raise PlanRefused(
            f"there is no key pair {one_line(name, 80)} in {aws.region}. Correct provision_key_name, or give your own "
            "key: -e provision_ssh_public_key=~/.ssh/id_ed25519.pub"
        ) from None


# --- Types


def read_type(aws: Aws, name: str) -> Type:
    """EC2's description of a type. Raises PlanRefused if there is no such type, and Ec2Error."""
    try:
        described = aws.pages("describe_instance_types", "InstanceTypes", InstanceTypes=[name])
    except Ec2Error as error:
        if error.code not in ("InvalidInstanceType", "InvalidParameterValue"):
            raise
        raise PlanRefused(_unknown_type(aws, name)) from None
    if not described:
        raise PlanRefused(_unknown_type(aws, name))
    raw = described[0]
    filters = [{"Name": "instance-type", "Values": [name]}]
    offered = aws.pages(
        "describe_instance_type_offerings", "InstanceTypeOfferings", LocationType="availability-zone", Filters=filters
    )
    vcpus = (raw.get("VCpuInfo") or {}).get("DefaultVCpus")
    return Type(
        name,
        vcpus if isinstance(vcpus, int) else None,
        [str(one) for one in (raw.get("ProcessorInfo") or {}).get("SupportedArchitectures") or []],
        [str(one) for one in raw.get("SupportedUsageClasses") or ["on-demand", "spot"]],
        "cluster" in ((raw.get("PlacementGroupInfo") or {}).get("SupportedStrategies") or []),
        bool((raw.get("NetworkInfo") or {}).get("EfaSupported")),
        sorted(str(one["Location"]) for one in offered),
    )


def _unknown_type(aws: Aws, name: str) -> str:
    offered = aws.pages("describe_instance_type_offerings", "InstanceTypeOfferings", LocationType="region")
    alike = difflib.get_close_matches(name, sorted(str(one["InstanceType"]) for one in offered), n=3, cutoff=0.5)
    like = f"did you mean {' or '.join(alike)}?" if alike else "names look like g5.xlarge"
    return f"EC2 has no instance type {one_line(name, 40)!r} in {aws.region}; {like}"
