# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The contents of an AWS account in one region, in the planner's terms. Private to this collection."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import (
    Machine,
    Network,
    Part,
    State,
    There,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.client import Aws
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.network_resources import (
    network_parts,
    placement_of,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.quotas import family
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.tags import (
    CLUSTER,
    MADE_BY,
    MAKER,
    PRICE,
    cluster_in,
    own_name,
    strange_name,
    tags_of,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import network_name
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import one_line

Raw = Mapping[str, Any]

_STATES: dict[str, State] = {"pending": "coming", "running": "ready", "stopping": "going", "stopped": "off"}
#: States that cost nothing, and after which an instance never runs again.
GONE = ("shutting-down", "terminated")


class Account(NamedTuple):
    """The existing things, and details that planners do not need. raw: by machine id, as EC2 describes it.

    groups: security groups by id, as EC2 describes them. volumes: ids of unattached disks with a cluster's tag, by
    cluster. vcpus: in use, by market and type family; None if EC2 does not report it. vpcs: all in the region, by id,
    as EC2 describes them.
    """

    there: There
    raw: dict[str, Raw]
    groups: dict[str, Raw]
    volumes: dict[str, list[str]]
    vcpus: dict[tuple[str, str], int | None]
    vpcs: dict[str, Raw]
    strange: list[str]


def read_account(aws: Aws) -> Account:
    """Everything in the region. Raises Ec2Error."""
    return account_of(
        aws.region,
        read_instances(aws),
        aws.pages("describe_security_groups", "SecurityGroups"),
        aws.pages("describe_placement_groups", "PlacementGroups"),
        aws.pages("describe_volumes", "Volumes"),
        _with_interfaces(aws, _read_network(aws)),
    )


class _Networks(NamedTuple):
    """EC2's descriptions: all VPCs of the region; subnets and gateways with our tag; interfaces in clusters' VPCs."""

    vpcs: list[dict[str, Any]]
    subnets: list[dict[str, Any]]
    gateways: list[dict[str, Any]]
    interfaces: list[dict[str, Any]] = []


def _read_network(aws: Aws) -> _Networks:
    ours = [{"Name": f"tag:{MADE_BY}", "Values": [MAKER]}]
    return _Networks(
        aws.pages("describe_vpcs", "Vpcs"),
        aws.pages("describe_subnets", "Subnets", Filters=ours),
        aws.pages("describe_internet_gateways", "InternetGateways", Filters=ours),
    )


def _with_interfaces(aws: Aws, networks: _Networks) -> _Networks:
    vpcs = [str(one["VpcId"]) for one in networks.vpcs if cluster_in(one)]
    if not vpcs:
        return networks
    filters = [{"Name": "vpc-id", "Values": vpcs}]
    return networks._replace(interfaces=aws.pages("describe_network_interfaces", "NetworkInterfaces", Filters=filters))


def read_network_parts(aws: Aws) -> list[Part]:
    """VPCs, gateways and subnets of clusters, whatever they contain. Raises Ec2Error."""
    return network_parts(*_read_network(aws), instances=[])


def read_instances(aws: Aws, cluster: str = "") -> list[dict[str, Any]]:
    """All instances, or those with a cluster's tag, including those removed within the last hour."""
    filters = {"Filters": [{"Name": f"tag:{CLUSTER}", "Values": [cluster]}]} if cluster else {}
    reservations = aws.pages("describe_instances", "Reservations", **filters)
    return [instance for one in reservations for instance in one.get("Instances") or []]


def account_of(
    region: str,
    instances: Iterable[Raw],
    groups: Iterable[Raw],
    placements: Iterable[Raw],
    volumes: Sequence[Raw],
    networks: _Networks,
) -> Account:
    """EC2's descriptions in the planner's form."""
    alive = {str(one["InstanceId"]): one for one in instances if state_of(one) not in GONE}
    of_groups = {str(one["GroupId"]): one for one in groups}
    placements = [one for one in placements if one.get("State") in (None, "available", "pending")]
    sizes = {
        (str(tie.get("InstanceId")), str(tie.get("Device"))): one.get("Size")
        for one in volumes
        for tie in one.get("Attachments") or []
    }
    loose: dict[str, list[str]] = {}
    for one in volumes:
        cluster = cluster_in(one)
        if cluster and one.get("State") == "available":
            loose.setdefault(cluster, []).append(str(one["VolumeId"]))
    there: There = {
        "machines": [machine_of(region, one, of_groups, sizes) for one in alive.values()],
        "networks": [network for one in of_groups.values() if (network := network_of(region, one))],
        "drives": [],
        "scripts": [],
        "addresses": [],
        "parts": [
            *(placement for one in placements if (placement := placement_of(one))),
            *network_parts(*networks, instances=list(alive.values())),
        ],
    }
    strange = [
        f"security group {one_line(one['GroupName'], 80)} ({one['GroupId']} in {one.get('VpcId')})"
        for one in of_groups.values()
        if not network_of(region, one) and str(one.get("GroupName")).startswith("muster-")
    ]
    strange += [
        f"placement group {one_line(one['GroupName'], 80)} ({one.get('GroupId')})"
        for one in placements
        if not placement_of(one) and str(one.get("GroupName")).startswith("muster-")
    ]
    vpcs: dict[str, Raw] = {str(one["VpcId"]): one for one in networks.vpcs}
    return Account(there, alive, of_groups, loose, _vcpus(alive.values()), vpcs, strange)


def state_of(raw: Raw) -> str:
    """EC2's word for the state of an instance."""
    return one_line((raw.get("State") or {}).get("Name") or "", 40)


def groups_of(raw: Raw) -> list[str]:
    """Ids of an instance's security groups."""
    interfaces = raw.get("NetworkInterfaces") or []
    listed = [*(raw.get("SecurityGroups") or []), *(one for face in interfaces for one in face.get("Groups") or [])]
    return list(dict.fromkeys(str(one.get("GroupId")) for one in listed))


def market_of(raw: Raw) -> str:
    """spot or on-demand."""
    return "spot" if raw.get("InstanceLifecycle") == "spot" else "on-demand"


def machine_of(
    region: str, raw: Raw, groups: Mapping[str, Raw], sizes: Mapping[tuple[str, str], int | None]
) -> Machine:
    """One instance. Its security group determines its cluster's network."""
    machine_id, said = str(raw["InstanceId"]), state_of(raw)
    own = own_name(raw)
    of_clusters = [one for one in groups_of(raw) if one in groups and network_of(region, groups[one])]
    price = tags_of(raw).get(PRICE) if own else None
    launched = raw.get("LaunchTime")
    return {
        "id": machine_id,
        "name": own or strange_name(raw),
        "state": _STATES.get(said, "coming"),
        "said": said,
        "machine_type": one_line(raw.get("InstanceType") or "", 40),
        "region": region,
        "network": next(iter([*of_clusters, *groups_of(raw)]), ""),
        "disk_gb": sizes.get((machine_id, str(raw.get("RootDeviceName")))),
        "private_ip": one_line(raw.get("PrivateIpAddress") or "", 45),
        "public_ip": one_line(raw.get("PublicIpAddress") or "", 45),
        "fixed_address": False,
        "per_hour": _number(price),
        "created": launched.timestamp() if isinstance(launched, datetime.datetime) else None,
    }


def network_of(region: str, raw: Raw) -> Network | None:
    """The security group of a cluster, None if it is not ours."""
    cluster = cluster_in(raw)
    if cluster is None or raw.get("GroupName") != network_name(cluster):
        return None
    return {"id": str(raw["GroupId"]), "name": network_name(cluster), "region": region}


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 <= value < 100_000 else None


def _vcpus(instances: Iterable[Raw]) -> dict[tuple[str, str], int | None]:
    found: dict[tuple[str, str], int | None] = {}
    for raw in instances:
        if state_of(raw) not in ("pending", "running"):
            continue  # quotas count only running ones
        key = market_of(raw), family(str(raw.get("InstanceType"))) or ""
        options = raw.get("CpuOptions") or {}
        cores, threads = options.get("CoreCount"), options.get("ThreadsPerCore")
        before = found.get(key, 0)
        found[key] = None if before is None or not cores or not threads else before + cores * threads
    return found
