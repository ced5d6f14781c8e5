# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests that create machines on EC2, their security group's rules, and the first boot."""

from __future__ import annotations

import base64
import gzip
import ipaddress
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.network_interfaces import build_interfaces
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.tags import build_tags
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import PlanRefusedError
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import single_line

SSH_NOTE = "muster: SSH from where the cluster was made"
NODES_NOTE = "muster: all among the nodes"

# Resource types that are tagged on creation, so that a crash leaves no untagged resource behind.
TAGGED_RESOURCES = ("instance", "volume", "network-interface")

Permission = dict[str, Any]


class Ec2Image(NamedTuple):
    """A disk image."""

    id: str
    name: str
    root: str  # name of its root device
    min_gb: int  # 0 if unknown
    architecture: str


class LaunchRequest(NamedTuple):
    """The common settings of a set of machines. price: one machine's price in US dollars per hour, or "" if unknown."""

    cluster: str
    numbers: list[int]
    machine_type: str
    market: str
    subnet: str
    efa: bool
    efa_cards: Sequence[int]  # network cards that get their own EFA; none for a single interface
    group: str
    placement: str
    image: Ec2Image
    disk_gb: int
    first_boot: str
    key_name: str
    price: str
    price_source: str
    token: str


def build_launch_request(launch: LaunchRequest) -> dict[str, Any]:
    """Return the request that creates either the whole set or nothing."""
    count = len(launch.numbers)
    tags = build_tags(launch.cluster, launch.numbers, price=launch.price, price_source=launch.price_source)
    kinds = [*TAGGED_RESOURCES, *(["spot-instances-request"] if launch.market == "spot" else [])]
    request: dict[str, Any] = {
        "ImageId": launch.image.id,
        "InstanceType": launch.machine_type,
        "MinCount": count,
        "MaxCount": count,
        "ClientToken": launch.token,
        "NetworkInterfaces": build_interfaces(launch.subnet, launch.group, launch.efa, launch.efa_cards),
        "BlockDeviceMappings": [
            {
                "DeviceName": launch.image.root,
                "Ebs": {"VolumeSize": launch.disk_gb, "VolumeType": "gp3", "DeleteOnTermination": True},
            }
        ],
        # a machine that powers itself off is terminated without any command from outside
        "InstanceInitiatedShutdownBehavior": "terminate",
        "MetadataOptions": {"HttpTokens": "required"},
        "TagSpecifications": [{"ResourceType": kind, "Tags": tags} for kind in kinds],
    }
    if launch.placement:
        request["Placement"] = {"GroupName": launch.placement}
    if launch.key_name:
        request["KeyName"] = launch.key_name
    if launch.first_boot:
        request["UserData"] = launch.first_boot
    if launch.market == "spot":
        options = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
        request["InstanceMarketOptions"] = {"MarketType": "spot", "SpotOptions": options}
    return request


def build_first_boot(key: str, watch: Mapping[str, str]) -> str:
    """Return cloud-init's configuration for the first boot, or "". Machines can read it, so it has no secrets.

    AWS accepts 16 kB: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/user-data.html

    Args:
        key: public key in parse_public_key()'s form, or "" for none.
        watch: contents of the idle watch's files, by path.
    """
    content: dict[str, Any] = {}
    if key:
        content["ssh_authorized_keys"] = [key]
    if watch:
        content["write_files"] = [
            {
                "path": path,
                "owner": "root:root",
                "permissions": "0644",
                "encoding": "gz+b64",
                "content": _compress(text),
            }
            for path, text in watch.items()
        ]
        timer = next(PurePosixPath(path).name for path in watch if path.endswith(".timer"))
        content["runcmd"] = [["systemctl", "daemon-reload"], ["systemctl", "enable", "--now", timer]]
    return f"#cloud-config\n{json.dumps(content)}\n" if content else ""  # JSON is YAML


def _compress(text: str) -> str:
    """Compress a text reproducibly, because requests with the same client token must not differ."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


# --- The security group


def parse_ssh_sources(sources: Iterable[str]) -> list[str]:
    """Return the addresses and networks from which SSH is allowed, as CIDR blocks.

    Raises:
        PlanRefusedError: a source is malformed or too large.
    """
    networks = []
    for text in sources:
        try:
            network = ipaddress.ip_network(text.strip(), strict=False)
        except ValueError:
            raise PlanRefusedError(
                f"ssh_from contains {single_line(text, 60)!r}, which is not an address. Use addresses such as "
                "203.0.113.7 or 203.0.113.0/24"
            ) from None
        if network.prefixlen < 8:
            raise PlanRefusedError(
                f"ssh_from contains {network}, which opens SSH to most of the internet. List only your own addresses"
            )
        networks.append(str(network))
    return sorted(set(networks))


def diff_rules(group: str, rules: Sequence[Mapping[str, Any]], ssh_from: Sequence[str]) -> tuple[list[Any], list[Any]]:
    """Return the rules to add and the rules to remove, as IpPermissions. rules: the group's current rules.

    Only SSH rules written by this collection are removed.
    """
    missing = missing_node_rule(group, rules)
    current_sources, own_sources = set(), set()
    for rule in rules:
        if rule.get("IpProtocol") == "tcp" and rule.get("FromPort") == rule.get("ToPort") == 22:
            for ip_range in [*(rule.get("IpRanges") or []), *(rule.get("Ipv6Ranges") or [])]:
                source = str(ip_range.get("CidrIp") or ip_range.get("CidrIpv6"))
                current_sources.add(source)
                if ip_range.get("Description") == SSH_NOTE:
                    own_sources.add(source)
    missing += [_ssh_rule(source) for source in ssh_from if source not in current_sources]
    return missing, [_ssh_rule(source) for source in sorted(own_sources - set(ssh_from))]


def missing_node_rule(group: str, rules: Sequence[Mapping[str, Any]]) -> list[Permission]:
    """Return the rule that allows all traffic between a group's machines, as IpPermissions, unless the group has it.

    rules: the group's inbound or outbound ones. EFA needs both, and a rule for outbound traffic to everywhere does not
    suffice: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-start.html
    """
    for rule in rules:
        pairs = [pair.get("GroupId") for pair in rule.get("UserIdGroupPairs") or []]
        if str(rule.get("IpProtocol")) == "-1" and group in pairs:
            return []
    return [{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group, "Description": NODES_NOTE}]}]


def _ssh_rule(source: str) -> Permission:
    port: Permission = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22}
    if ":" in source:
        return {**port, "Ipv6Ranges": [{"CidrIpv6": source, "Description": SSH_NOTE}]}
    return {**port, "IpRanges": [{"CidrIp": source, "Description": SSH_NOTE}]}
