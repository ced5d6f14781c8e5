# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Remove groups and parts of networks on EC2 once they are empty.

EC2 refuses to remove any resource that is still in use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ansible_collections.muster.training.plugins.plugin_utils._clouds.cloud import POLL_INTERVAL
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.client import Ec2Error
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.context import Ec2Context

# What EC2 calls a cluster's network.
NETWORK_TERM = "security group"
REMOVAL_TIMEOUT = 900.0  # seconds
NOTICE_AFTER = 30.0  # seconds to wait before the user is notified
_IN_USE = ("DependencyViolation", "InvalidPlacementGroup.InUse", "InvalidGroup.InUse")
_NOT_FOUND = (
    "InvalidGroup.NotFound",
    "InvalidGroupId.Malformed",
    "InvalidPlacementGroup.Unknown",
    "InvalidSubnetID.NotFound",
    "InvalidInternetGatewayID.NotFound",
    "InvalidVpcID.NotFound",
)


def remove_part(context: Ec2Context, what: str, name: str, part_id: str) -> str:
    """Remove a group or network part once it is empty; return the reason why it still exists, or ""."""
    began = context.clock()
    notified = False
    while True:
        try:
            _REQUESTS[what](context, name, part_id)
        except Ec2Error as error:
            if error.code in _IN_USE and context.clock() - began < REMOVAL_TIMEOUT:
                if not notified and context.clock() - began > NOTICE_AFTER:
                    notified = True
                    limit = f"{REMOVAL_TIMEOUT / 60:g} minutes"
                    context.show(_to_ec2_terms(f"{what} {name} is still in use; waiting up to {limit}: {error}"))
                context.sleep(POLL_INTERVAL)
                continue
            if error.code not in _NOT_FOUND:
                context.show(_to_ec2_terms(f"cannot remove {what} {name}: {error}"))
                return str(error)
        context.show(_to_ec2_terms(f"removed {what} {name}"))
        context.journal.forget(what, name, part_id)
        return ""


def _to_ec2_terms(text: str) -> str:
    return text.replace("network muster-", f"{NETWORK_TERM} muster-")


def _remove_gateway(context: Ec2Context, _name: str, gateway: str) -> None:
    for raw in context.client.list_all("describe_internet_gateways", "InternetGateways", InternetGatewayIds=[gateway]):
        for attachment in raw.get("Attachments") or []:
            try:
                context.client.ec2(
                    "detach_internet_gateway", InternetGatewayId=gateway, VpcId=str(attachment.get("VpcId"))
                )
            except Ec2Error as error:
                if error.code != "Gateway.NotAttached":
                    raise
    context.client.ec2("delete_internet_gateway", InternetGatewayId=gateway)


_REQUESTS: Mapping[str, Callable[[Ec2Context, str, str], object]] = {
    "placement group": lambda context, name, _group: context.client.ec2("delete_placement_group", GroupName=name),
    "network": lambda context, _name, group: context.client.ec2("delete_security_group", GroupId=group),
    "subnet": lambda context, _name, subnet: context.client.ec2("delete_subnet", SubnetId=subnet),
    "internet gateway": _remove_gateway,
    "VPC": lambda context, _name, vpc: context.client.ec2("delete_vpc", VpcId=vpc),
}
