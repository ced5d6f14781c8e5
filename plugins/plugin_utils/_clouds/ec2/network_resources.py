# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""EC2 resources of a cluster other than instances and security groups.

All are recognized by the tags set at creation; subnets and gateways also by their VPC.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import ClusterPart, ResourceKind
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.tags import parse_cluster
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import network_name

Raw = Mapping[str, Any]


def subnet_name(cluster: str, zone: str) -> str:
    """Return the name of the subnet in a zone of the cluster's own VPC."""
    return f"{network_name(cluster)}-{zone}"


def parse_placement_group(raw: Raw) -> ClusterPart | None:
    """Return a cluster's placement group, or None if it belongs to no cluster."""
    cluster = parse_cluster(raw)
    if cluster is None or raw.get("GroupName") != network_name(cluster):
        return None
    return _new_part(
        "placement group", cluster, str(raw.get("GroupId") or network_name(cluster)), network_name(cluster)
    )


def parse_network_parts(
    vpcs: Iterable[Raw],
    subnets: Iterable[Raw],
    gateways: Iterable[Raw],
    interfaces: Sequence[Raw],
    instances: Sequence[Raw],
) -> list[ClusterPart]:
    """Return the VPCs, gateways and subnets of clusters.

    Args:
        interfaces: those attached to an instance are ignored. Any other belongs to, for example, a database or load
            balancer that somebody has added, and counts as content of the VPC, as a machine does.
        instances: those that have not ended.
    """
    owners = {str(vpc_raw["VpcId"]): cluster for vpc_raw in vpcs if (cluster := parse_cluster(vpc_raw))}
    unattached = [interface for interface in interfaces if not (interface.get("Attachment") or {}).get("InstanceId")]
    parts = [
        _new_part(
            "VPC",
            cluster,
            vpc,
            network_name(cluster),
            [*_ids_in(instances, "VpcId", vpc), *_ids_in(unattached, "VpcId", vpc, "NetworkInterfaceId")],
        )
        for vpc, cluster in owners.items()
    ]
    for raw in gateways:
        cluster = parse_cluster(raw)
        attached_vpcs = [str(attachment.get("VpcId")) for attachment in raw.get("Attachments") or []]
        if cluster and all(owners.get(vpc) == cluster for vpc in attached_vpcs):
            parts.append(_new_part("internet gateway", cluster, str(raw["InternetGatewayId"]), network_name(cluster)))
    for raw in subnets:
        cluster, subnet = parse_cluster(raw), str(raw["SubnetId"])
        if cluster and owners.get(str(raw.get("VpcId"))) == cluster:
            name = subnet_name(cluster, str(raw.get("AvailabilityZone")))
            parts.append(_new_part("subnet", cluster, subnet, name, _ids_in(instances, "SubnetId", subnet)))
    return parts


def cidr_blocks(vpcs: Iterable[Raw]) -> list[str]:
    """Return the CIDR blocks of VPCs."""
    blocks = []
    for vpc in vpcs:
        additional = [association.get("CidrBlock") for association in vpc.get("CidrBlockAssociationSet") or []]
        blocks += [str(block) for block in dict.fromkeys([vpc.get("CidrBlock"), *additional]) if block]
    return blocks


def _new_part(what: ResourceKind, cluster: str, part_id: str, name: str, holds: list[str] | None = None) -> ClusterPart:
    return {"kind": what, "cluster": cluster, "id": part_id, "name": name, "holds": holds or []}


def _ids_in(resources: Iterable[Raw], key: str, value: str, id_key: str = "InstanceId") -> list[str]:
    return [str(raw[id_key]) for raw in resources if raw.get(key) == value]
