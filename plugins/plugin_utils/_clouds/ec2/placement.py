# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Determine the region, subnets, image and types of EC2 machines. Send only read requests."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.muster.training.plugins.plugin_utils._clouds.address_block import choose_free_block
from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import ClusterPart
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.client import AwsClient, Ec2Error
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.network import subnet_block
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.network_interfaces import find_efa_cards
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.network_resources import (
    cidr_blocks,
    subnet_name,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.request import Ec2Image
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import PlanRefusedError
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import single_line


class ClusterNetwork(NamedTuple):
    """The network for the machines. The ids of the cluster's own VPC and subnets are "" until they exist."""

    vpc: str
    subnets: dict[str, str]  # id by zone
    block: str = ""  # CIDR block of the cluster's own VPC, or "" if the cluster is in a different VPC


class InstanceType(NamedTuple):
    """A machine type."""

    name: str
    vcpus: int | None
    architectures: list[str]
    markets: list[str]
    placement: bool  # whether it can be placed in a cluster placement group
    efa_cards: tuple[int, ...]  # indexes of the network cards that support Elastic Fabric Adapters
    zones: list[str]  # zones in which it is offered


def choose_region(session: Any, region: str) -> str:
    """Return the requested region, or the configured one. Raise PlanRefusedError if it does not exist."""
    region = region or session.region_name or ""
    if not region:
        raise PlanRefusedError("no region is set. Set one: -e region=us-east-1, or export AWS_DEFAULT_REGION")
    known_regions = [
        region_name
        for partition in session.get_available_partitions()
        for region_name in session.get_available_regions("ec2", partition)
    ]
    if region not in known_regions:
        suggestions = difflib.get_close_matches(region, known_regions, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(suggestions)}?" if suggestions else "names look like us-east-1 and eu-west-1"
        raise PlanRefusedError(f"unknown AWS region {single_line(region, 40)!r}; {hint}")
    return region


# --- Network


def read_site(
    aws: AwsClient, subnet_id: str, nodes: Sequence[Mapping[str, Any]], group: Mapping[str, Any] | None
) -> ClusterNetwork:
    """Return the subnets that may be used: for an existing cluster, only its own. Raise PlanRefusedError or Ec2Error.

    nodes, group: the cluster's instances and security group, as EC2 describes them.
    """
    if nodes:
        zones_by_subnet = {
            str(raw.get("SubnetId")): str((raw.get("Placement") or {}).get("AvailabilityZone")) for raw in nodes
        }
        if len(zones_by_subnet) > 1 or (subnet_id and subnet_id not in zones_by_subnet):
            raise PlanRefusedError(
                f"the existing machines are in {', '.join(sorted(zones_by_subnet))}; all machines of a cluster "
                "must be in one subnet. Use that subnet, or tear the cluster down first"
            )
        return ClusterNetwork(str(nodes[0].get("VpcId")), {zone: subnet for subnet, zone in zones_by_subnet.items()})
    if subnet_id:
        try:
            subnets = aws.list_all("describe_subnets", "Subnets", SubnetIds=[subnet_id])
        except Ec2Error as error:
            if error.transient:
                raise
            raise PlanRefusedError(f"provision_subnet_id is {single_line(subnet_id, 60)}: {error}") from None
        site = ClusterNetwork(str(subnets[0]["VpcId"]), {str(subnets[0]["AvailabilityZone"]): subnet_id})
    else:
        site = _default_site(aws)
    if group and group.get("VpcId") != site.vpc:
        raise PlanRefusedError(
            f"the security group {group['GroupName']} ({group['GroupId']}) is in {group.get('VpcId')}, but the "
            f"machines would be in {site.vpc}. Set provision_subnet_id to a subnet of {group.get('VpcId')}, or tear "
            "the cluster down first"
        )
    return site


def _default_site(aws: AwsClient) -> ClusterNetwork:
    vpcs = aws.list_all("describe_vpcs", "Vpcs", Filters=[{"Name": "is-default", "Values": ["true"]}])
    if not vpcs:
        raise PlanRefusedError(
            f"the account has no default network in {aws.region}. Create it: aws ec2 create-default-vpc --region "
            f"{aws.region}; or create a network for the cluster: -e provision_own_network=true; or use a subnet with "
            "internet access: -e provision_subnet_id=subnet-..."
        )
    vpc = str(vpcs[0]["VpcId"])
    filters = [{"Name": "vpc-id", "Values": [vpc]}, {"Name": "default-for-az", "Values": ["true"]}]
    subnets = aws.list_all("describe_subnets", "Subnets", Filters=filters)
    return ClusterNetwork(vpc, {str(subnet["AvailabilityZone"]): str(subnet["SubnetId"]) for subnet in subnets})


def dedicated_site(
    aws: AwsClient, cluster: str, parts: Sequence[ClusterPart], vpcs: Mapping[str, Any], local_networks: Sequence[str]
) -> ClusterNetwork:
    """Return the cluster's own network: the existing one, or otherwise a new one with an unused CIDR block.

    Args:
        parts: the cluster's.
        vpcs: all of the region, by id.
        local_networks: CIDR blocks of the networks that this machine is in.

    Raises:
        PlanRefusedError: no block is free.
        Ec2Error: a request failed.
    """
    existing_subnets = {part["name"]: part["id"] for part in parts if part["kind"] == "subnet"}
    vpc = next((part["id"] for part in parts if part["kind"] == "VPC"), "")
    block = str(vpcs[vpc]["CidrBlock"]) if vpc else choose_free_block([*cidr_blocks(vpcs.values()), *local_networks])
    filters = [{"Name": "zone-type", "Values": ["availability-zone"]}]
    zones = aws.ec2("describe_availability_zones", Filters=filters).get("AvailabilityZones") or []
    names = [str(entry["ZoneName"]) for entry in zones]
    return ClusterNetwork(
        vpc,
        {zone: existing_subnets.get(subnet_name(cluster, zone), "") for zone in names if subnet_block(block, zone)},
        block,
    )


def refuse_other_network(  # noqa: PLR0913
    cluster: str,
    dedicated: bool,
    subnet_id: str,
    parts: Sequence[ClusterPart],
    current_vpc: str,
    subnets: Sequence[str],
) -> None:
    """Raise PlanRefusedError if the cluster is not in the requested network, because machines cannot be moved.

    Args:
        dedicated: whether a dedicated network is requested.
        current_vpc: VPC of its security group, or "" if it has none.
        subnets: those of its machines.
    """
    vpc = next((part["id"] for part in parts if part["kind"] == "VPC"), "")
    if (dedicated or vpc) and current_vpc not in ("", vpc):
        raise PlanRefusedError(
            f"{cluster} is in {current_vpc}, which is not its own network. Remove provision_own_network, or "
            "tear the cluster down first"
        )
    if subnet_id and vpc and subnet_id not in [*subnets, *(part["id"] for part in parts)]:
        raise PlanRefusedError(
            f"{cluster} has its own network ({vpc}), and {single_line(subnet_id, 60)} is not a subnet in it. "
            "Remove provision_subnet_id, or tear the cluster down first"
        )


# --- Image


def read_image(aws: AwsClient, requested: str, nodes: Sequence[Mapping[str, Any]]) -> Ec2Image:
    """Return the image: an existing cluster keeps its current image, so that all nodes are the same.

    requested: an id, or the name of a public SSM parameter that contains one. Raise PlanRefusedError or Ec2Error.
    """
    current_images = sorted({str(raw.get("ImageId")) for raw in nodes})
    image_id = current_images[0] if len(current_images) == 1 and not requested.startswith("ami-") else requested
    if not image_id.startswith("ami-"):
        try:
            image_id = str(aws.call("ssm", "get_parameter", Name=requested)["Parameter"]["Value"])
        except Ec2Error as error:
            if error.code not in ("ParameterNotFound", "ValidationException", "ParameterVersionNotFound"):
                raise
            raise PlanRefusedError(
                f"AWS has no image under {single_line(requested, 120)} in {aws.region}. Set its id: -e "
                "provision_template=ami-..., or the parameter from its release notes: "
                "https://docs.aws.amazon.com/dlami/latest/devguide/find-dlami-id.html"
            ) from None
    try:
        images = aws.list_all("describe_images", "Images", ImageIds=[image_id])
    except Ec2Error as error:
        if not error.code.startswith("InvalidAMIID"):
            raise
        images = []
    if not images:
        raise PlanRefusedError(
            f"image {single_line(image_id, 60)} does not exist in {aws.region}. An image has a different id in "
            "each region: look up the id for this region"
        )
    raw = images[0]
    root = str(raw.get("RootDeviceName") or "/dev/sda1")
    sizes = [
        (mapping.get("Ebs") or {}).get("VolumeSize")
        for mapping in raw.get("BlockDeviceMappings") or []
        if mapping.get("DeviceName") == root
    ]
    return Ec2Image(
        image_id,
        single_line(raw.get("Name") or image_id, 120),
        root,
        next((size for size in sizes if isinstance(size, int)), 0),
        str(raw.get("Architecture") or ""),
    )


def check_key_name(aws: AwsClient, name: str) -> None:
    """Raise PlanRefusedError if the account has no key pair of this name in the region."""
    try:
        aws.ec2("describe_key_pairs", KeyNames=[name])
    except Ec2Error as error:
        if error.code != "InvalidKeyPair.NotFound":
            raise
        raise PlanRefusedError(
            f"key pair {single_line(name, 80)} does not exist in {aws.region}. Correct provision_key_name, or use "
            "your own key: -e provision_ssh_public_key=~/.ssh/id_ed25519.pub"
        ) from None


# --- Types


def read_type(aws: AwsClient, name: str) -> InstanceType:
    """Return EC2's description of an instance type. Raise PlanRefusedError if the type does not exist, or Ec2Error."""
    try:
        described = aws.list_all("describe_instance_types", "InstanceTypes", InstanceTypes=[name])
    except Ec2Error as error:
        if error.code not in ("InvalidInstanceType", "InvalidParameterValue"):
            raise
        raise PlanRefusedError(_explain_unknown_type(aws, name)) from None
    if not described:
        raise PlanRefusedError(_explain_unknown_type(aws, name))
    raw = described[0]
    filters = [{"Name": "instance-type", "Values": [name]}]
    offerings = aws.list_all(
        "describe_instance_type_offerings", "InstanceTypeOfferings", LocationType="availability-zone", Filters=filters
    )
    vcpus = (raw.get("VCpuInfo") or {}).get("DefaultVCpus")
    return InstanceType(
        name,
        vcpus if isinstance(vcpus, int) else None,
        [str(item) for item in (raw.get("ProcessorInfo") or {}).get("SupportedArchitectures") or []],
        [str(item) for item in raw.get("SupportedUsageClasses") or ["on-demand", "spot"]],
        "cluster" in ((raw.get("PlacementGroupInfo") or {}).get("SupportedStrategies") or []),
        find_efa_cards(raw.get("NetworkInfo") or {}),
        sorted(str(offering["Location"]) for offering in offerings),
    )


def _explain_unknown_type(aws: AwsClient, name: str) -> str:
    offerings = aws.list_all("describe_instance_type_offerings", "InstanceTypeOfferings", LocationType="region")
    suggestions = difflib.get_close_matches(
        name, sorted(str(offering["InstanceType"]) for offering in offerings), n=3, cutoff=0.5
    )
    hint = f"did you mean {' or '.join(suggestions)}?" if suggestions else "names look like g5.xlarge"
    return f"EC2 has no instance type {single_line(name, 40)!r} in {aws.region}; {hint}"
