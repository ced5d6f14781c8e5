# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Support for Paperspace as a provider of machines.

It has no tags; a private network serves as one. It creates machines one by one, and one without capacity stays off.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ansible_collections.muster.training.plugins.plugin_utils._clouds.cloud import (
    Cloud,
    CloudTemplate,
    Creation,
    OfferOutcome,
    Offers,
    Options,
    PlainAccount,
    Show,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.cost import find_price_differences
from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import Machine, Step
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import network_name
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace import operations, settings
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.first_boot import (
    build_first_boot_script,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.offers import (
    CONSOLE,
    PaperspaceOffer,
    PaperspaceRequest,
    check_clock,
    check_machine_limit,
    find_offer,
    find_offers,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.prices import PAPERSPACE
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.remove import (
    release_address,
    remove_machines_and_addresses,
    remove_resource,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.resources import read_account
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.templates import (
    cluster_templates,
    delete_template,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.values import parse_integer
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.wait import (
    start_machine,
    stop_and_wait,
    wait_for_capacity,
    wait_until_ready,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.planner import count_new_machines
from ansible_collections.muster.training.plugins.plugin_utils._clouds.prices import CloudPrices

PaperspaceCreation = Creation[PaperspaceRequest, PaperspaceOffer]


@dataclasses.dataclass
class PaperspaceCloud(Cloud[Client, PaperspaceRequest, PaperspaceOffer, PlainAccount]):
    """The account that an API key belongs to, which is one team's. machine_limit: the team's limit, None if unknown."""

    name = "paperspace"
    console = CONSOLE
    shortage_advice = (
        "Try other types (provision_machine_types=[A6000x2, A5000x2]), another region, or provision_on_shortage=wait"
    )
    rollback_note = "The resources created for it have been removed; "
    inventory_plugins = ("muster.training.paperspace",)
    options: ClassVar[dict[str, dict[str, Any]]] = settings.OPTIONS
    access_options: ClassVar[dict[str, dict[str, Any]]] = settings.ACCESS_OPTIONS

    machine_limit: int | None = None

    @classmethod
    def connect(cls, options: Options, show: Show, warn: Show) -> Client:
        """Return an API client."""
        return settings.connect(options, warn)

    @classmethod
    def build_request(cls, options: Options, check: bool) -> PaperspaceRequest:
        """Return the request."""
        return settings.build_request(options, check, cls.first_boot)

    @staticmethod
    def first_boot(key: str, watch: Mapping[str, str]) -> str:
        """Return a startup script's text."""
        return build_first_boot_script(key, watch)

    # --- What exists, and what is possible

    def check_access(self, creates: bool) -> None:
        """Reject an invalid key, and an incorrect clock before anything is created."""
        team = operations.get_session(self.client).get("team") or {}
        self.machine_limit = parse_integer(team.get("maxMachines"))
        if creates:
            check_clock(self.client.server_time, self.clock())

    def read_account(self) -> PlainAccount:
        """Return all of the team's resources."""
        return PlainAccount(read_account(self.client))

    def find_offers(self, request: PaperspaceRequest, account: PlainAccount, check: bool) -> Offers[PaperspaceOffer]:
        """Return one offer for each machine type."""
        offers = find_offers(self, request, account.resources, check)
        if self.machine_limit is None or not any(count_new_machines(offer.plan) for offer in offers.possible[:1]):
            return offers
        count = len(account.resources["machines"])
        return offers._replace(notes=[f"the team has {count} of at most {self.machine_limit} machines"])

    def check_quota(self, offer: PaperspaceOffer, account: PlainAccount) -> None:
        """Raise an error if the request exceeds the team's machine limit."""
        check_machine_limit(offer, self.machine_limit, account.resources)

    def refresh_offer(
        self, request: PaperspaceRequest, offer: PaperspaceOffer, account: PlainAccount, refusals: list[str]
    ) -> PaperspaceOffer | None:
        """Return the offer if its type is still available."""
        return find_offer(self, request, offer.desired["machine_type"], account.resources, False, refusals)

    def prices(self, offer: PaperspaceOffer | None, disks: bool) -> CloudPrices:
        """Return the built-in price table."""
        return PAPERSPACE

    def price_notes(self, machines: Sequence[Machine]) -> list[str]:
        """Return a sentence for each type whose machines report a different price than the table lists."""
        return find_price_differences(machines, PAPERSPACE)

    def describe_failure(self, offer: PaperspaceOffer, attempt: OfferOutcome) -> str:
        """Describe how many machines are ready, and why the others are not."""
        details = "; ".join(f"{name} {reason}" for name, reason in attempt.failures.items())
        return f"{attempt.ready} of {attempt.requested} {offer.description} are ready, {details}"

    def find_templates(self, machine_ids: Sequence[str]) -> list[CloudTemplate]:
        """Return the templates created from these machines, and those in the journal."""
        return cluster_templates(self, machine_ids)

    # --- Changes

    def create(self, creation: PaperspaceCreation) -> dict[str, str]:
        """Create one resource."""
        (name,) = creation.names
        resource_id = {
            "network": self._create_network,
            "drive": self._create_drive,
            "script": self._create_script,
            "machine": self._create_machine,
        }[creation.what](name, creation)
        return {name: resource_id}

    def _create_network(self, name: str, creation: PaperspaceCreation) -> str:
        return operations.create_network(self.client, name=name, region=creation.offer.desired["region"])["id"]

    def _create_drive(self, name: str, creation: PaperspaceCreation) -> str:
        desired = creation.offer.desired
        return operations.create_drive(
            self.client,
            name=name,
            size_gb=desired["drive_gb"],
            region=desired["region"],
            network_id=self._network_id(creation),
        )["id"]

    def _create_script(self, name: str, creation: PaperspaceCreation) -> str:
        return operations.create_startup_script(self.client, name=name, script=creation.request.first_boot)["id"]

    def _create_machine(self, name: str, creation: PaperspaceCreation) -> str:
        desired = creation.offer.desired
        script_id = creation.ids.get(f"script {desired['script']}") or creation.offer.script_id
        return operations.create_machine(
            self.client,
            name=name,
            machine_type=desired["machine_type"],
            template_id=creation.offer.template_id,
            disk_gb=desired["disk_gb"],
            region=desired["region"],
            network_id=self._network_id(creation),
            public_ip_type=creation.request.public_ip,
            startup_script_id=script_id or None,
        ).machine["id"]

    def _network_id(self, creation: PaperspaceCreation) -> str:
        return creation.ids[f"network {network_name(self.cluster)}"]

    def start(self, names_by_id: Mapping[str, str]) -> None:
        """Request that machines start."""
        for machine_id, name in names_by_id.items():
            start_machine(self, machine_id, name)

    def wait_until_ready(self, names_by_id: Mapping[str, str]) -> dict[str, str]:
        """Wait until machines are ready, based on their states and events."""
        return wait_until_ready(self, names_by_id)

    def wait_for_capacity(
        self, request: PaperspaceRequest, names_by_id: Mapping[str, str], failures: dict[str, str]
    ) -> dict[str, str]:
        """Keep all machines off, and try to start them all once a minute."""
        if request.on_shortage != "wait":
            return failures
        return wait_for_capacity(self, names_by_id, request.wait_minutes, failures)

    def stop(self, names_by_id: Mapping[str, str]) -> list[str]:
        """Stop machines and wait until they are off."""
        return stop_and_wait(self, names_by_id)

    def delete_machines(self, names_by_id: Mapping[str, str]) -> dict[str, str]:
        """Remove machines, then their fixed addresses and those of machines that someone else removed."""
        return remove_machines_and_addresses(self, names_by_id)

    def delete(self, step: Step) -> str:
        """Remove another resource."""
        if step["kind"] == "address":
            return release_address(self, step["id"])
        return remove_resource(self, step)

    def delete_template(self, template: CloudTemplate) -> None:
        """Remove a template."""
        delete_template(self, template)
