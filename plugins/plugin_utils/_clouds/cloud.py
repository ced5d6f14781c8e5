# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The interface between the engine and the providers.

The engine plans, records, adopts, rolls back and verifies; a provider lists what exists, prices it, and sends requests.
A method of a provider raises CloudError if a request fails.
"""

from __future__ import annotations

import abc
import dataclasses
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import (
    AccountResources,
    ClusterCost,
    ClusterPlan,
    DesiredCluster,
    JournalNotes,
    Machine,
    ResourceKind,
    Step,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.errors import CloudError
from ansible_collections.muster.training.plugins.plugin_utils._clouds.journal import ClusterJournal
from ansible_collections.muster.training.plugins.plugin_utils._clouds.planner import plan_cluster
from ansible_collections.muster.training.plugins.plugin_utils._clouds.prices import CloudPrices

# Seconds for which a new resource may be missing from listings. If it is missing for longer, it was not created.
LISTING_TIMEOUT = 60.0
POLL_INTERVAL = 5.0

OptionSpec = Mapping[str, dict[str, Any]]
Options = Mapping[str, Any]
Show = Callable[[str], None]


class Account(Protocol):
    """The resources in an account; a provider may add details."""

    @property
    def resources(self) -> AccountResources:
        """Return the resources in the planner's format."""


class PlainAccount(NamedTuple):
    """An account without any details."""

    resources: AccountResources


class CloudRequest(Protocol):
    """The user's request, limited to what the engine reads."""

    @property
    def nnodes(self) -> int:
        """Return the number of machines."""

    @property
    def max_usd_per_hour(self) -> float | None:
        """Return the budget, which may be None only when planning."""

    @property
    def price_per_hour(self) -> float | None:
        """Return a machine's hourly price as set by the user, or None if the user set no price."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Offer:
    """One way to satisfy the request, and its plan.

    description: part of a sentence. location: shown next to the cost. pool: offers of an exhausted one are skipped.
    """

    desired: DesiredCluster
    plan: ClusterPlan
    cost: ClusterCost
    description: str
    location: str = ""
    pool: Hashable = None


ClientT = TypeVar("ClientT")
RequestT = TypeVar("RequestT", bound=CloudRequest)
OfferT = TypeVar("OfferT", bound=Offer)
AccountT = TypeVar("AccountT", bound=Account)


class Offers(NamedTuple, Generic[OfferT]):
    """All offers, with messages about them."""

    possible: list[OfferT]  # best first
    refusals: list[str]  # reasons why other choices are impossible
    remarks: Sequence[str] = ()  # other messages for the user
    updates: Sequence[str] = ()  # changes to existing resources, which are not counted as steps
    notes: Sequence[str] = ()  # shown after the cost
    retry_minutes: float = 0.0  # how long to keep retrying all offers while none has capacity


class Creation(NamedTuple, Generic[RequestT, OfferT]):
    """Resources of one kind to create in one request. ids: the cluster's other resources, by "kind name"."""

    what: ResourceKind
    names: Sequence[str]
    request: RequestT
    offer: OfferT
    ids: Mapping[str, str]


class OfferOutcome(NamedTuple):
    """An offer's outcome: how many machines are ready, why others are not, and the error of a rejected request."""

    ready: int
    requested: int
    failures: Mapping[str, str]  # reason by name
    refusal: CloudError | None


class CloudTemplate(NamedTuple):
    """An image of one of the cluster's machines, which outlives the machine."""

    id: str
    name: str
    label: str  # name and ID to show to a person


@dataclasses.dataclass
class CloudContext(Generic[ClientT]):
    """The context shared by all steps of a command.

    network_id: the network to use if several have the cluster's name. show: prints a line for the waiting user.
    clock: returns the seconds since 1970.
    """

    cluster: str
    client: ClientT
    journal: ClusterJournal
    network_id: str = ""
    show: Show = print
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.time

    @property
    def notes(self) -> JournalNotes:
        """Return the journal in the planner's format."""
        return self.journal.notes()


class Cloud(CloudContext[ClientT], Generic[ClientT, RequestT, OfferT, AccountT], abc.ABC):
    """A provider that is bound to a cluster. Only the abstract methods are required."""

    # Used in the option `provider`, and in journals.
    name: ClassVar[str]
    # Where a person can remove resources manually.
    console: ClassVar[str]
    # What to try if no offer has capacity.
    shortage_advice: ClassVar[str]
    # Precedes the list of existing resources in the message about a failed cluster.
    rollback_note: ClassVar[str] = ""
    # What the provider calls a cluster's network.
    network_term: ClassVar[str] = "network"
    # What the provider calls a usable machine.
    ready_term: ClassVar[str] = "ready"
    # Whether one request creates all machines.
    batch: ClassVar[bool] = False
    # Inventory plugins whose hosts are machines of this provider.
    inventory_plugins: ClassVar[Sequence[str]] = ()
    # Whether new machines are created in the inventory's region, if it names one.
    inventory_region: ClassVar[bool] = False
    # Module options that only this provider has, by module; the others are in options.py.
    options: ClassVar[OptionSpec] = {}
    # Access options, which `cluster_info` has as well.
    access_options: ClassVar[OptionSpec] = {}

    # --- Settings

    @classmethod
    @abc.abstractmethod
    def connect(cls, options: Options, show: Show, warn: Show) -> ClientT:
        """Return a client. Raise PlanRefusedError or CloudError."""

    @classmethod
    @abc.abstractmethod
    def build_request(cls, options: Options, check: bool) -> RequestT:
        """Build the request without sending anything. Raise PlanRefusedError if it is invalid."""

    @classmethod
    def complete_request(cls, request: RequestT) -> RequestT:
        """Return the request with all settings that need to be looked up."""
        return request

    @staticmethod
    @abc.abstractmethod
    def first_boot(key: str, watch: Mapping[str, str]) -> str:
        """Return a machine's first-boot data: a public key, and files of the idle watch by path."""

    # --- What exists, and what is possible

    def check_access(self, creates: bool) -> None:
        """Reject invalid credentials. creates: whether resources may be created."""

    @abc.abstractmethod
    def read_account(self) -> AccountT:
        """Return all resources in the account that can belong to a cluster."""

    @abc.abstractmethod
    def find_offers(self, request: RequestT, account: AccountT, check: bool) -> Offers[OfferT]:
        """Return the offers in the order in which to try them. Raise PlanRefusedError if the request is impossible."""

    def check_quota(self, offer: OfferT, account: AccountT) -> None:
        """Raise PlanRefusedError if the offer exceeds one of the account's limits."""

    def refresh_offer(self, request: RequestT, offer: OfferT, account: AccountT, refusals: list[str]) -> OfferT | None:
        """Return the offer with an up-to-date plan, or return None and append the reason to `refusals`."""
        plan = plan_cluster(offer.desired, account.resources, self.notes)
        return dataclasses.replace(offer, plan=plan)

    @abc.abstractmethod
    def prices(self, offer: OfferT | None, disks: bool) -> CloudPrices:
        """Return the prices for an offer or for existing machines. disks: whether disk prices are needed."""

    def describe_failure(self, offer: OfferT, attempt: OfferOutcome) -> str:
        """Return the reason why an offer did not produce the cluster."""
        reasons = "; ".join(f"{name} {reason}" for name, reason in attempt.failures.items())
        return f"{offer.description}: {attempt.refusal or reasons}"

    def find_templates(self, machine_ids: Sequence[str]) -> list[CloudTemplate]:
        """Return the templates created from these machines, and the templates in the journal."""
        return []

    def unattached_disks(self, account: AccountT, cluster: str) -> list[str]:
        """Return the ids of a cluster's disks that do not belong to a machine but still cost money."""
        return []

    def price_notes(self, machines: Sequence[Machine]) -> list[str]:
        """Return sentences about machines whose price differs from the listed price."""
        return []

    # --- Changes

    @abc.abstractmethod
    def create(self, creation: Creation[RequestT, OfferT]) -> dict[str, str]:
        """Send a single request, and return the ids of the new resources by name.

        Set reply_lost on the error if the request may have been executed.
        """

    def wait_until_listed(self, what: ResourceKind, ids: Mapping[str, str]) -> None:
        """Wait until new resources can be referred to in requests."""

    def configure(self, creation: Creation[RequestT, OfferT]) -> None:
        """Set up the existing network before machines are created in it. names: names of the machines to create."""

    @abc.abstractmethod
    def start(self, names_by_id: Mapping[str, str]) -> None:
        """Request that the machines be started."""

    @abc.abstractmethod
    def wait_until_ready(self, names_by_id: Mapping[str, str]) -> dict[str, str]:
        """Wait for machines; return why some will not become ready, by name. Raise ClusterError if any is stuck."""

    def wait_for_capacity(
        self, request: RequestT, names_by_id: Mapping[str, str], failures: dict[str, str]
    ) -> dict[str, str]:
        """Keep existing machines while waiting until the provider can start them all; return the remaining failures."""
        return failures

    def complete(self, account: AccountT) -> None:
        """Finish setting up a cluster whose machines are all ready."""

    def check_stoppable(self, account: AccountT, names_by_id: Mapping[str, str]) -> None:
        """Raise PlanRefusedError if machines can only be removed and not stopped."""

    @abc.abstractmethod
    def stop(self, names_by_id: Mapping[str, str]) -> list[str]:
        """Stop machines and wait until they are off; return the names of machines that are not off."""

    @abc.abstractmethod
    def delete_machines(self, names_by_id: Mapping[str, str]) -> dict[str, str]:
        """Remove machines and everything billed with them, and wait; return the reason for each failure by resource."""

    @abc.abstractmethod
    def delete(self, step: Step) -> str:
        """Remove a resource other than a machine or a template; return the reason if this fails, otherwise ""."""

    def delete_template(self, template: CloudTemplate) -> None:
        """Remove a template."""


AnyCloud = Cloud[Any, Any, Any, Any]
