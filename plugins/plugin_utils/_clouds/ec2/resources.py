# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read an AWS account's resources in one region, and convert them to the planner's terms."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import (
    AccountResources,
    ClusterPart,
    Machine,
    MachineState,
    Network,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.client import AwsClient
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.network_resources import (
    parse_network_parts,
    parse_placement_group,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.quotas import type_family
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.tags import (
    CLUSTER_TAG,
    CREATOR,
    CREATOR_TAG,
    PRICE_TAG,
    foreign_name,
    instance_node_name,
    parse_cluster,
    parse_tags,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import network_name
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import single_line

Raw = Mapping[str, Any]

_STATES: dict[str, MachineState] = {"pending": "coming", "running": "ready", "stopping": "going", "stopped": "off"}
# States that cost nothing, and from which an instance never runs again.
ENDED_STATES = ("shutting-down", "terminated")


class Ec2Account(NamedTuple):
    """The existing resources, with details that the planner does not need."""

    resources: AccountResources
    instances: dict[str, Raw]  # instances by id, as EC2 describes them
    groups: dict[str, Raw]  # security groups by id, as EC2 describes them
    volumes: dict[str, list[str]]  # ids of unattached disks with a cluster's tag, by cluster
    # vCPUs in use, by market and type family; None if EC2 does not report this
    vcpus: dict[tuple[str, str], int | None]
    vpcs: dict[str, Raw]  # all VPCs in the region by id, as EC2 describes them
    foreign_groups: list[str]  # descriptions of untagged groups whose names begin with muster-


def read_account(aws: AwsClient) -> Ec2Account:
    """Return all resources in the region. Raise Ec2Error."""
    return parse_account(
        aws.region,
        read_instances(aws),
        aws.list_all("describe_security_groups", "SecurityGroups"),
        aws.list_all("describe_placement_groups", "PlacementGroups"),
        aws.list_all("describe_volumes", "Volumes"),
        _add_interfaces(aws, _read_networks(aws)),
    )


class _Networks(NamedTuple):
    """EC2's descriptions of the region's VPCs, subnets and gateways with our tag, and interfaces in clusters' VPCs."""

    vpcs: list[dict[str, Any]]
    subnets: list[dict[str, Any]]
    gateways: list[dict[str, Any]]
    interfaces: list[dict[str, Any]] = []


def _read_networks(aws: AwsClient) -> _Networks:
    filters = [{"Name": f"tag:{CREATOR_TAG}", "Values": [CREATOR]}]
    return _Networks(
        aws.list_all("describe_vpcs", "Vpcs"),
        aws.list_all("describe_subnets", "Subnets", Filters=filters),
        aws.list_all("describe_internet_gateways", "InternetGateways", Filters=filters),
    )


def _add_interfaces(aws: AwsClient, networks: _Networks) -> _Networks:
    vpcs = [str(vpc["VpcId"]) for vpc in networks.vpcs if parse_cluster(vpc)]
    if not vpcs:
        return networks
    filters = [{"Name": "vpc-id", "Values": vpcs}]
    return networks._replace(
        interfaces=aws.list_all("describe_network_interfaces", "NetworkInterfaces", Filters=filters)
    )


def read_network_parts(aws: AwsClient) -> list[ClusterPart]:
    """Return the VPCs, gateways and subnets of clusters, without their contents. Raise Ec2Error."""
    return parse_network_parts(*_read_networks(aws), instances=[])


def read_instances(aws: AwsClient, cluster: str = "") -> list[dict[str, Any]]:
    """Return all instances, or those with a cluster's tag, including those removed within the last hour."""
    filters = {"Filters": [{"Name": f"tag:{CLUSTER_TAG}", "Values": [cluster]}]} if cluster else {}
    reservations = aws.list_all("describe_instances", "Reservations", **filters)
    return [instance for reservation in reservations for instance in reservation.get("Instances") or []]


def parse_account(  # noqa: PLR0913
    region: str,
    instances: Iterable[Raw],
    groups: Iterable[Raw],
    placements: Iterable[Raw],
    volumes: Sequence[Raw],
    networks: _Networks,
) -> Ec2Account:
    """Convert EC2's descriptions to the planner's format."""
    listed = {str(raw["InstanceId"]): raw for raw in instances}
    live_instances = {key: raw for key, raw in listed.items() if instance_state(raw) not in ENDED_STATES}
    groups_by_id = {str(raw["GroupId"]): raw for raw in groups}
    placements = [raw for raw in placements if raw.get("State") in (None, "available", "pending")]
    sizes = {
        (str(attachment.get("InstanceId")), str(attachment.get("Device"))): raw.get("Size")
        for raw in volumes
        for attachment in raw.get("Attachments") or []
    }
    unattached: dict[str, list[str]] = {}
    for raw in volumes:
        cluster = parse_cluster(raw)
        if cluster and raw.get("State") == "available":
            unattached.setdefault(cluster, []).append(str(raw["VolumeId"]))
    resources: AccountResources = {
        "machines": [parse_machine(region, raw, groups_by_id, sizes) for raw in live_instances.values()],
        "networks": [network for raw in groups_by_id.values() if (network := parse_network(region, raw))],
        "drives": [],
        "scripts": [],
        "addresses": [],
        "parts": [
            *(placement for raw in placements if (placement := parse_placement_group(raw))),
            *parse_network_parts(*networks, instances=list(live_instances.values())),
        ],
        "ended": sorted(listed.keys() - live_instances.keys()),
    }
    foreign_groups = [
        f"security group {single_line(raw['GroupName'], 80)} ({raw['GroupId']} in {raw.get('VpcId')})"
        for raw in groups_by_id.values()
        if not parse_network(region, raw) and str(raw.get("GroupName")).startswith("muster-")
    ]
    foreign_groups += [
        f"placement group {single_line(raw['GroupName'], 80)} ({raw.get('GroupId')})"
        for raw in placements
        if not parse_placement_group(raw) and str(raw.get("GroupName")).startswith("muster-")
    ]
    vpcs: dict[str, Raw] = {str(raw["VpcId"]): raw for raw in networks.vpcs}
    return Ec2Account(
        resources, live_instances, groups_by_id, unattached, _count_vcpus(live_instances.values()), vpcs, foreign_groups
    )


def instance_state(raw: Raw) -> str:
    """Return the state of an instance, as named by EC2."""
    return single_line((raw.get("State") or {}).get("Name") or "", 40)


def security_group_ids(raw: Raw) -> list[str]:
    """Return the ids of an instance's security groups."""
    interfaces = raw.get("NetworkInterfaces") or []
    groups = [
        *(raw.get("SecurityGroups") or []),
        *(group for interface in interfaces for group in interface.get("Groups") or []),
    ]
    return list(dict.fromkeys(str(group.get("GroupId")) for group in groups))


def instance_market(raw: Raw) -> str:
    """Return spot or on-demand."""
    return "spot" if raw.get("InstanceLifecycle") == "spot" else "on-demand"


def parse_machine(
    region: str, raw: Raw, groups: Mapping[str, Raw], sizes: Mapping[tuple[str, str], int | None]
) -> Machine:
    """Convert an instance to the planner's format. Its security group is its network."""
    machine_id, state = str(raw["InstanceId"]), instance_state(raw)
    node = instance_node_name(raw)
    cluster_groups = [
        group for group in security_group_ids(raw) if group in groups and parse_network(region, groups[group])
    ]
    price = parse_tags(raw).get(PRICE_TAG) if node else None
    launched = raw.get("LaunchTime")
    return {
        "id": machine_id,
        "name": node or foreign_name(raw),
        "state": _STATES.get(state, "coming"),
        "provider_state": state,
        "machine_type": single_line(raw.get("InstanceType") or "", 40),
        "region": region,
        "network": next(iter([*cluster_groups, *security_group_ids(raw)]), ""),
        "disk_gb": sizes.get((machine_id, str(raw.get("RootDeviceName")))),
        "private_ip": single_line(raw.get("PrivateIpAddress") or "", 45),
        "public_ip": single_line(raw.get("PublicIpAddress") or "", 45),
        "fixed_address": False,
        "per_hour": _parse_price(price),
        "created": launched.timestamp() if isinstance(launched, datetime.datetime) else None,
    }


def parse_network(region: str, raw: Raw) -> Network | None:
    """Convert a cluster's security group to the planner's format, or return None if the group belongs to no cluster."""
    cluster = parse_cluster(raw)
    if cluster is None or raw.get("GroupName") != network_name(cluster):
        return None
    return {"id": str(raw["GroupId"]), "name": network_name(cluster), "region": region}


def _parse_price(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 <= value < 100_000 else None


def _count_vcpus(instances: Iterable[Raw]) -> dict[tuple[str, str], int | None]:
    counts: dict[tuple[str, str], int | None] = {}
    for raw in instances:
        if instance_state(raw) not in ("pending", "running"):
            continue  # quotas count only running instances
        key = instance_market(raw), type_family(str(raw.get("InstanceType"))) or ""
        options = raw.get("CpuOptions") or {}
        cores, threads = options.get("CoreCount"), options.get("ThreadsPerCore")
        before = counts.get(key, 0)
        counts[key] = None if before is None or not cores or not threads else before + cores * threads
    return counts
