# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Record the location of EC2 machines in AWS's network as a tag, which the inventory uses to order the ranks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.client import Ec2Error
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.context import Ec2Context
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.tags import (
    MAX_TAG_LENGTH,
    TOPOLOGY_TAG,
    instance_node_name,
    parse_cluster,
    parse_tags,
)

MAX_INSTANCES = 100  # maximum number of instances per request: API_DescribeInstanceTopology
NETWORK_NODE = re.compile(r"[A-Za-z0-9-]{1,64}", re.ASCII)


def format_topology(raw: Mapping[str, Any]) -> str:
    """Return the network nodes above an instance as a tag value, outermost first, or "" if AWS lists none."""
    nodes = [str(node) for node in raw.get("NetworkNodes") or []]
    text = "/".join(nodes)
    return text if all(map(NETWORK_NODE.fullmatch, nodes)) and len(text) <= MAX_TAG_LENGTH else ""


def read_topologies(context: Ec2Context, ids: list[str]) -> dict[str, str]:
    """Return the topology of each instance for which AWS reports one. Raise Ec2Error."""
    topologies: dict[str, str] = {}
    for start in range(0, len(ids), MAX_INSTANCES):
        chunk = ids[start : start + MAX_INSTANCES]
        for raw in context.client.list_all("describe_instance_topology", "Instances", InstanceIds=chunk):
            topology = format_topology(raw)
            if topology:
                topologies[str(raw.get("InstanceId"))] = topology
    return topologies


def tag_topology(context: Ec2Context, machines: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
    """Tag the cluster's machines with their topology if there are several: a restarted machine may have moved.

    A refused request only affects the order of the ranks, so it is merely reported.
    """
    nodes = {
        machine_id: raw
        for machine_id, raw in machines
        if parse_cluster(raw) == context.cluster and instance_node_name(raw)
    }
    if len(nodes) < 2:
        return
    try:
        for machine_id, topology in read_topologies(context, sorted(nodes)).items():
            raw = nodes.get(machine_id)
            if raw is not None and parse_tags(raw).get(TOPOLOGY_TAG) != topology:
                context.client.ec2(
                    "create_tags", Resources=[machine_id], Tags=[{"Key": TOPOLOGY_TAG, "Value": topology}]
                )
    except Ec2Error as error:
        context.show(f"ranks will be ordered by name, since the machines' location in the network is unknown: {error}")
