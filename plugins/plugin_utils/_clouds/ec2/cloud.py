# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Support for EC2 as a provider of machines.

One request creates the whole set of machines in one subnet, or nothing. Tags set at creation say what belongs to a
cluster, and a client token makes a repeated request return the same machines.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from ansible_collections.muster.training.plugins.plugin_utils._clouds.cloud import (
    Cloud,
    Creation,
    Offers,
    Options,
    Show,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import ResourceKind, Step
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2 import prices, settings
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.client import AwsClient
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.create import (
    create_placement_group,
    create_security_group,
    ensure_egress_rule,
    ensure_ingress_rules,
    launch_machines,
    name_machines,
    start_machines,
    stop_machines,
    terminate,
    wait_until_running,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.network import (
    create_part,
    create_subnet,
    ensure_internet_route,
    wait_until_listed,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.network_resources import subnet_name
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.offers import (
    Ec2Offer,
    Ec2Request,
    find_offers,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.remove import NETWORK_TERM, remove_part
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.request import (
    LaunchRequest,
    build_first_boot,
    diff_rules,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.resources import Ec2Account, read_account
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.tags import build_client_token, node_numbers
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.topology import tag_topology
from ansible_collections.muster.training.plugins.plugin_utils._clouds.errors import ClusterError
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import PlanRefusedError, network_name
from ansible_collections.muster.training.plugins.plugin_utils._clouds.planner import ENCLOSING_KINDS
from ansible_collections.muster.training.plugins.plugin_utils._clouds.prices import CloudPrices

Ec2Creation = Creation[Ec2Request, Ec2Offer]


@dataclasses.dataclass
class Ec2Cloud(Cloud[AwsClient, Ec2Request, Ec2Offer, Ec2Account]):
    """An AWS account in one region."""

    name = "ec2"
    console = "https://console.aws.amazon.com/ec2"
    shortage_advice = (
        "Try other types (provision_machine_types=[g5.xlarge, g4dn.xlarge]), another region, "
        "provision_market=spot-else-on-demand, or provision_on_shortage=wait"
    )
    network_term = NETWORK_TERM
    ready_term = "running"
    batch = True
    inventory_plugins = ("amazon.aws.aws_ec2", "aws_ec2")
    inventory_region = True
    options: ClassVar[dict[str, dict[str, Any]]] = settings.OPTIONS

    @classmethod
    def connect(cls, options: Options, show: Show, warn: Show) -> AwsClient:
        """Return a client for the region."""
        return settings.connect(options, show)

    @classmethod
    def build_request(cls, options: Options, check: bool) -> Ec2Request:
        """Return the request."""
        return settings.build_request(options, check, cls.first_boot)

    @classmethod
    def complete_request(cls, request: Ec2Request) -> Ec2Request:
        """Return the request, with this machine's public address as the allowed SSH source if none is set."""
        return request if request.ssh_from else request._replace(ssh_from=settings.local_public_address())

    @staticmethod
    def first_boot(key: str, watch: Mapping[str, str]) -> str:
        """Return cloud-init's configuration."""
        return build_first_boot(key, watch)

    # --- What exists, and what is possible

    def read_account(self) -> Ec2Account:
        """Return all resources in the region."""
        return read_account(self.client)

    def find_offers(self, request: Ec2Request, account: Ec2Account, check: bool) -> Offers[Ec2Offer]:
        """Return the markets, instance types and zones that can satisfy the request, and the firewall changes."""
        offers = find_offers(self, request, account, check)
        network = offers.possible[0].plan["network"] if offers.possible else None
        group = account.groups[network["id"]] if network else {}
        updates = []
        if any(diff_rules(str(group.get("GroupId")), group.get("IpPermissions") or [], request.ssh_from)):
            updates.append(
                f"update: security group {network_name(self.cluster)}, to permit traffic between the nodes, and SSH "
                f"only from {', '.join(request.ssh_from)}"
            )
        return offers._replace(updates=updates, retry_minutes=request.wait_minutes)

    def prices(self, offer: Ec2Offer | None, disks: bool) -> CloudPrices:
        """Return the prices from AWS's price list."""
        disk_price = prices.read_disk_price(self.client) if disks else None
        return prices.make_prices(offer.machine_type if offer else "", offer.price if offer else None, disk_price)

    def unattached_disks(self, account: Ec2Account, cluster: str) -> list[str]:
        """Return the ids of volumes that have the cluster's tag and are not attached to a machine."""
        return account.volumes.get(cluster, [])

    # --- Changes

    def create(self, creation: Ec2Creation) -> dict[str, str]:
        """Create one resource, or all of the machines."""
        if creation.what == "machine":
            return launch_machines(self, self._build_launch(creation), creation.names)
        (name,) = creation.names
        resource_id = {
            "VPC": self._create_vpc,
            "internet gateway": lambda _creation: create_part(self, "internet gateway", name),
            "subnet": self._create_subnet,
            "network": lambda _creation: create_security_group(self, self._vpc(creation)),
            "placement group": lambda _creation: create_placement_group(self),
        }[creation.what](creation)
        return {name: resource_id}

    def _create_vpc(self, creation: Ec2Creation) -> str:
        block = creation.offer.desired.get("address_block", "")
        return create_part(self, "VPC", network_name(self.cluster), CidrBlock=block)

    def _create_subnet(self, creation: Ec2Creation) -> str:
        return create_subnet(self, self._vpc(creation), creation.offer.zone)

    def _vpc(self, creation: Ec2Creation) -> str:
        return creation.ids.get(f"VPC {network_name(self.cluster)}") or creation.offer.vpc

    def _build_launch(self, creation: Ec2Creation) -> LaunchRequest:
        offer, request, names = creation.offer, creation.request, creation.names
        if offer.image is None:
            raise ClusterError(
                f"machines of {self.cluster} have disappeared in the meantime. Run this command again to create the "
                "missing ones"
            )
        entries = [
            entry for entry in self.journal.content["entries"] if entry["kind"] == "machine" and entry["name"] in names
        ]
        group = creation.ids[f"network {network_name(self.cluster)}"]
        subnet = creation.ids.get(f"subnet {subnet_name(self.cluster, offer.zone)}") or offer.subnet
        placement = any(what == "placement group" for what, _name in offer.desired.get("parts", []))
        return LaunchRequest(
            cluster=self.cluster,
            numbers=node_numbers(self.cluster, names),
            machine_type=offer.machine_type,
            market=offer.market,
            subnet=subnet,
            efa=offer.efa,
            efa_cards=offer.efa_cards,
            group=group,
            placement=network_name(self.cluster) if placement else "",
            image=offer.image,
            disk_gb=request.disk_gb,
            first_boot=request.first_boot,
            key_name=request.key_name,
            price=f"{offer.price.usd:.6g}" if offer.price else "",
            price_source=f"{offer.price.source} {offer.price.date}".strip() if offer.price else "",
            token=build_client_token(
                group,
                [offer.machine_type, offer.market, subnet],
                names,
                min(entry["requested_at"][0] for entry in entries),
            ),
        )

    def wait_until_listed(self, what: ResourceKind, ids: Mapping[str, str]) -> None:
        """Wait for parts of the cluster's own network: lists may be outdated, and later requests refer to the parts."""
        if what in ENCLOSING_KINDS:
            for name, part_id in ids.items():
                wait_until_listed(self, what, name, part_id)

    def configure(self, creation: Ec2Creation) -> None:
        """Allow SSH from outside and all traffic between the nodes; route the cluster's own network to the internet."""
        name = network_name(self.cluster)
        gateway = creation.ids.get(f"internet gateway {name}")
        if creation.names and gateway and creation.offer.desired.get("address_block"):
            ensure_internet_route(self, creation.ids[f"VPC {name}"], gateway)
        group_id = creation.ids[f"network {name}"]
        filters = [{"Name": "group-id", "Values": [group_id]}]
        groups = self.client.list_all("describe_security_groups", "SecurityGroups", Filters=filters)
        group = groups[0] if groups else {}  # a new resource may not be listed yet
        ensure_ingress_rules(self, group_id, group.get("IpPermissions") or [], creation.request.ssh_from)
        if creation.offer.efa:
            ensure_egress_rule(self, group_id, group.get("IpPermissionsEgress") or [])

    def start(self, names_by_id: Mapping[str, str]) -> None:
        """Start machines that are off or stopping."""
        start_machines(self, names_by_id)

    def wait_until_ready(self, names_by_id: Mapping[str, str]) -> dict[str, str]:
        """Wait until the machines are running."""
        return wait_until_running(self, names_by_id)

    def complete(self, account: Ec2Account) -> None:
        """Tag the machines with their names and their network locations."""
        name_machines(self, account.instances.items())
        tag_topology(self, account.instances.items())

    def check_stoppable(self, account: Ec2Account, names_by_id: Mapping[str, str]) -> None:
        """Raise an error if spot instances would be stopped."""
        spot = [
            name
            for machine_id, name in names_by_id.items()
            if account.instances[machine_id].get("InstanceLifecycle") == "spot"
        ]
        if spot:
            raise PlanRefusedError(
                f"{', '.join(spot[:4])} of {self.cluster} cannot be stopped: spot instances can only be removed. "
                "Nothing was changed. Leave them on, or tear the cluster down"
            )

    def stop(self, names_by_id: Mapping[str, str]) -> list[str]:
        """Stop machines and wait until they are off."""
        return stop_machines(self, names_by_id)

    def delete_machines(self, names_by_id: Mapping[str, str]) -> dict[str, str]:
        """Terminate machines, and delete their disks."""
        ids = {name: machine_id for machine_id, name in names_by_id.items()}
        refused = terminate(self, names_by_id)
        return {f"machine {name} ({ids.get(name, 'shutting down')})": reason for name, reason in refused.items()}

    def delete(self, step: Step) -> str:
        """Remove a placement group, a security group or a part of the cluster's own network."""
        return remove_part(self, step["kind"], step["name"], step["id"])
