# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options for a cluster on EC2, and the request that they describe."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.urls import open_url

from ansible_collections.muster.training.plugins.plugin_utils._clouds.cloud import Options, Show
from ansible_collections.muster.training.plugins.plugin_utils._clouds.controller_networks import local_networks
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.client import AwsClient, new_session
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.offers import MARKETS, Ec2Request
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.placement import choose_region
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.request import (
    parse_ssh_sources,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import PlanRefusedError
from ansible_collections.muster.training.plugins.plugin_utils._clouds.options import (
    FirstBoot,
    read_common_settings,
    read_first_boot,
)
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import single_line

# Name of the image in SSM: https://docs.aws.amazon.com/dlami/latest/devguide/find-dlami-id.html
DEFAULT_IMAGE = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"
DEFAULT_DISK_GB = 150
ADDRESS_PAGE = "https://checkip.amazonaws.com"

OPTIONS: dict[str, dict[str, Any]] = {
    "zones": {"type": "list", "elements": "str", "default": []},
    "market": {"type": "str", "choices": list(MARKETS), "default": "on-demand"},
    "subnet_id": {"type": "str", "default": ""},
    "dedicated_network": {"type": "bool", "default": False},
    "efa": {"type": "str", "choices": ["auto", "required", "all", "none"], "default": "auto"},
    "key_name": {"type": "str", "default": ""},
    "ssh_from": {"type": "list", "elements": "str", "default": []},
}


def connect(options: Options, show: Show) -> AwsClient:
    """Return a client for the region. show: reports retried requests. Raise PlanRefusedError or CloudError."""
    session = new_session()
    return AwsClient(session, choose_region(session, options["region"]), show=show)


def build_request(options: Options, check: bool, first_boot: FirstBoot) -> Ec2Request:
    """Return the request, without a default for the SSH source address. Raise PlanRefusedError if it is invalid."""
    settings = read_common_settings(options, check, example_type="g5.xlarge", disk_gb=DEFAULT_DISK_GB)
    if options["dedicated_network"] and options["subnet_id"]:
        raise PlanRefusedError(
            f"both a new network and the existing subnet {single_line(options['subnet_id'], 60)} are requested. "
            "Remove provision_own_network or provision_subnet_id"
        )
    if options["efa"] == "all" and not options["subnet_id"]:
        raise PlanRefusedError(
            "provision_efa=all creates machines with several network interfaces, to which AWS assigns no public "
            "address. Set a subnet that has a NAT gateway, and whose private addresses you can reach: -e "
            "provision_subnet_id=subnet-..."
        )
    if not options["ssh_public_key"] and not options["key_name"]:
        raise PlanRefusedError(
            "no SSH key is set, so no one could log in. Set your public key: -e "
            "provision_ssh_public_key=~/.ssh/id_ed25519.pub, or the name of an EC2 key pair: -e "
            "provision_key_name=..."
        )
    return Ec2Request(
        **settings,
        market=options["market"],
        zones=[zone.strip() for zone in options["zones"] if zone.strip()],
        image=options["template"] or DEFAULT_IMAGE,
        subnet_id=options["subnet_id"],
        dedicated_network=options["dedicated_network"],
        efa=options["efa"],
        local_networks=local_networks() if options["dedicated_network"] else (),
        first_boot=read_first_boot(options, first_boot),
        key_name=options["key_name"],
        ssh_from=parse_ssh_sources(options["ssh_from"]),
        wait_minutes=options["wait_minutes"] if options["on_shortage"] == "wait" else 0.0,
    )


def local_public_address(page: str = ADDRESS_PAGE) -> list[str]:
    """Return this machine's public address, as parse_ssh_sources() does. Raise PlanRefusedError if unavailable."""
    try:
        with open_url(page, timeout=10) as response:
            return parse_ssh_sources([response.read(100).decode()])
    except (OSError, ValueError, PlanRefusedError) as error:
        raise PlanRefusedError(
            f"cannot read this machine's public address from {page}: {single_line(error)}. Set the addresses that may "
            "connect by SSH: -e provision_ssh_from=203.0.113.7"
        ) from None
