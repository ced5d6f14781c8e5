# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""EC2 resources of a cluster other than instances and security groups. Private to this collection, pure.

All are recognized by the tags set at creation; subnets and gateways also by their VPC.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import Part, What
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.tags import cluster_in
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import network_name

Raw = Mapping[str, Any]


def subnet_name(cluster: str, zone: str) -> str:
    """Name of the subnet in a zone of the cluster's own VPC."""
    return f"{network_name(cluster)}-{zone}"


def placement_of(raw: Raw) -> Part | None:
    """The placement group of a cluster, None if it belongs to no cluster."""
    cluster = cluster_in(raw)
    if cluster is None or raw.get("GroupName") != network_name(cluster):
        return None
    return _part("placement group", cluster, str(raw.get("GroupId") or network_name(cluster)), network_name(cluster))


def network_parts(
    vpcs: Iterable[Raw],
    subnets: Iterable[Raw],
    gateways: Iterable[Raw],
    interfaces: Sequence[Raw],
    instances: Sequence[Raw],
) -> list[Part]:
    """VPCs, gateways and subnets of clusters. instances: those that are alive.

    interfaces: those attached to an instance are ignored. Any other belongs to, say, a database or load balancer that
    somebody has added, and counts as content of the VPC, as a machine does.
    """
    owners = {str(one["VpcId"]): cluster for one in vpcs if (cluster := cluster_in(one))}
    of_nobody = [one for one in interfaces if not (one.get("Attachment") or {}).get("InstanceId")]
    found = [
        _part(
            "VPC",
            cluster,
            vpc,
            network_name(cluster),
            [*_in(instances, "VpcId", vpc), *_in(of_nobody, "VpcId", vpc, "NetworkInterfaceId")],
        )
        for vpc, cluster in owners.items()
    ]
    for one in gateways:
        cluster = cluster_in(one)
        ties = [str(tie.get("VpcId")) for tie in one.get("Attachments") or []]
        if cluster and all(owners.get(vpc) == cluster for vpc in ties):
            found.append(_part("internet gateway", cluster, str(one["InternetGatewayId"]), network_name(cluster)))
    for one in subnets:
        cluster, subnet = cluster_in(one), str(one["SubnetId"])
        if cluster and owners.get(str(one.get("VpcId"))) == cluster:
            name = subnet_name(cluster, str(one.get("AvailabilityZone")))
            found.append(_part("subnet", cluster, subnet, name, _in(instances, "SubnetId", subnet)))
    return found


def blocks_of(vpcs: Iterable[Raw]) -> list[str]:
    """The CIDR blocks of these VPCs."""
    found = []
    for one in vpcs:
        more = [tie.get("CidrBlock") for tie in one.get("CidrBlockAssociationSet") or []]
        found += [str(block) for block in dict.fromkeys([one.get("CidrBlock"), *more]) if block]
    return found


def _part(what: What, cluster: str, part_id: str, name: str, holds: list[str] | None = None) -> Part:
    return {"what": what, "cluster": cluster, "id": part_id, "name": name, "holds": holds or []}


def _in(things: Iterable[Raw], key: str, place: str, name: str = "InstanceId") -> list[str]:
    return [str(one[name]) for one in things if one.get(key) == place]
