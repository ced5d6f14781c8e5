# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Remove groups and parts of networks at EC2, once they are empty. Private to this collection.

EC2 refuses to remove anything still in use, by whomever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.client import Ec2Error
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.discover import LOOK_AGAIN, Work, in_words

#: Seconds.
GONE_WITHIN = 900.0
LONG = 30.0  # of waiting before the user is told
_IN_USE = ("DependencyViolation", "InvalidPlacementGroup.InUse", "InvalidGroup.InUse")
_NOT_THERE = (
    "InvalidGroup.NotFound",
    "InvalidGroupId.Malformed",
    "InvalidPlacementGroup.Unknown",
    "InvalidSubnetID.NotFound",
    "InvalidInternetGatewayID.NotFound",
    "InvalidVpcID.NotFound",
)


def remove_part(work: Work, what: str, name: str, part_id: str) -> str:
    """Remove a group or part of a network, once it is empty; return why it still exists, or ""."""
    began = work.clock()
    told = False
    while True:
        try:
            _REQUESTS[what](work, name, part_id)
        except Ec2Error as error:
            if error.code in _IN_USE and work.clock() - began < GONE_WITHIN:
                if not told and work.clock() - began > LONG:
                    told = True
                    limit = f"{GONE_WITHIN / 60:g} minutes"
                    work.say(in_words(f"{what} {name} is still in use; waiting at most {limit}: {error}"))
                work.sleep(LOOK_AGAIN)
                continue
            if error.code not in _NOT_THERE:
                work.say(in_words(f"{what} {name} could not be removed: {error}"))
                return str(error)
        work.say(in_words(f"{what} {name} is gone"))
        work.record.forget(what, name, part_id)
        return ""


def _gateway(work: Work, _name: str, gateway: str) -> None:
    for raw in work.aws.pages("describe_internet_gateways", "InternetGateways", InternetGatewayIds=[gateway]):
        for tie in raw.get("Attachments") or []:
            try:
                work.aws.ec2("detach_internet_gateway", InternetGatewayId=gateway, VpcId=str(tie.get("VpcId")))
            except Ec2Error as error:
                if error.code != "Gateway.NotAttached":
                    raise
    work.aws.ec2("delete_internet_gateway", InternetGatewayId=gateway)


_REQUESTS: Mapping[str, Callable[[Work, str, str], object]] = {
    "placement group": lambda work, name, _group: work.aws.ec2("delete_placement_group", GroupName=name),
    "network": lambda work, _name, group: work.aws.ec2("delete_security_group", GroupId=group),
    "subnet": lambda work, _name, subnet: work.aws.ec2("delete_subnet", SubnetId=subnet),
    "internet gateway": _gateway,
    "VPC": lambda work, _name, vpc: work.aws.ec2("delete_vpc", VpcId=vpc),
}
#: In the order of removal: each is needed by those before it.
REMOVABLE = tuple(_REQUESTS)
