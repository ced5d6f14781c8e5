# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The interface between the engine and a provider.

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

# : Seconds for which a new resource may be missing from listings. If it is missing for longer, it was not created.
LISTING_TIMEOUT = 60.0
POLL_INTERVAL = 5.0

OptionSpec = Mapping[str, dict[str, Any]]
Options = Mapping[str, Any]
Show = Callable[[str], None]


class Account(Protocol):
    """The resources in an account; a provider may add details."""

    @property
    def resources(self) -> AccountResources:
        """Return the resources in the planner's form."""


class PlainAccount(NamedTuple):
    """An account without details."""

    resources: AccountResources


class CloudRequest(Protocol):
    """The user's request, as far as the engine reads it."""

    @property
    def nnodes(self) -> int:
        """Return the number of machines."""

    @property
    def max_usd_per_hour(self) -> float | None:
        """Return the budget. It may be None only for a plan."""

    @property
    def price_per_hour(self) -> float | None:
        """Return the price of a machine, if the user set it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Offer:
    """A variant that can satisfy the request, and its plan.

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
    """All offers, and messages about them."""

    possible: list[OfferT]  # best first
    refusals: list[str]  # reasons why other choices are impossible
    remarks: Sequence[str] = ()  # other messages for the user
    updates: Sequence[str] = ()  # changes to existing resources, which are not counted as steps
    notes: Sequence[str] = ()  # shown after the cost
    retry_minutes: float = 0.0  # how long to keep retrying all offers while none has capacity


class Creation(NamedTuple, Generic[RequestT, OfferT]):
    """Resources of a kind to create in one request. ids: of the cluster's other resources, by "kind name"."""

    what: ResourceKind
    names: Sequence[str]
    request: RequestT
    offer: OfferT
    ids: Mapping[str, str]


class OfferOutcome(NamedTuple):
    """The outcome of an offer: how many machines are ready, why others are not, and the error of a refused request."""

    ready: int
    requested: int
    failures: Mapping[str, str]  # reason by name
    refusal: CloudError | None


class CloudTemplate(NamedTuple):
    """An image of a machine of the cluster, which outlives the machine."""

    id: str
    name: str
    label: str  # name and ID to show to a person


@dataclasses.dataclass
class CloudContext(Generic[ClientT]):
    """The context of all steps of a command.

    network_id: chosen if several networks have the cluster's name. show: prints a line for the waiting user. clock:
    seconds since 1970.
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
        """Return the journal in the planner's form."""
        return self.journal.notes()


class Cloud(CloudContext[ClientT], Generic[ClientT, RequestT, OfferT, AccountT], abc.ABC):
    """A provider, bound to a cluster. Only the abstract methods are required."""

    # : Used in the option `provider`, and in journals.
    name: ClassVar[str]
    # : Where a person can remove resources manually.
    console: ClassVar[str]
    # : What to try if no offer has capacity.
    shortage_advice: ClassVar[str]
    # : Precedes the list of existing resources in the message about a failed cluster.
    rollback_note: ClassVar[str] = ""
    #: What the provider calls a cluster's network.
    network_term: ClassVar[str] = "network"
    #: What the provider calls a usable machine.
    ready_term: ClassVar[str] = "ready"
    #: Whether one request creates all machines.
    batch: ClassVar[bool] = False
    # : Inventory plugins whose hosts are machines of this provider.
    inventory_plugins: ClassVar[Sequence[str]] = ()
    # : Whether new machines are created in the inventory's region, if it names one.
    inventory_region: ClassVar[bool] = False
    # : Module options that only this provider has, by module; the others are in options.py.
    options: ClassVar[OptionSpec] = {}
    # : Access options, which `cluster_info` has as well.
    access_options: ClassVar[OptionSpec] = {}

    # --- Settings

    @classmethod
    @abc.abstractmethod
    def connect(cls, options: Options, show: Show, warn: Show) -> ClientT:
        """Return a client. Raise PlanRefusedError or CloudError."""

    @classmethod
    @abc.abstractmethod
    def build_request(cls, options: Options, check: bool) -> RequestT:
        """Return the request, without sending anything. Raise PlanRefusedError if it is invalid."""

    @classmethod
    def complete_request(cls, request: RequestT) -> RequestT:
        """Return the request with settings that must be looked up."""
        return request

    @staticmethod
    @abc.abstractmethod
    def first_boot(key: str, watch: Mapping[str, str]) -> str:
        """Return the data for a machine's first boot: a public key, and files of the idle watch by path."""

    # --- What exists, and what is possible

    def check_access(self, creates: bool) -> None:
        """Refuse wrong credentials. creates: whether resources may be created."""

    @abc.abstractmethod
    def read_account(self) -> AccountT:
        """Return all resources in the account that can belong to a cluster."""

    @abc.abstractmethod
    def find_offers(self, request: RequestT, account: AccountT, check: bool) -> Offers[OfferT]:
        """Return the offers in the order to try them. Raise PlanRefusedError if the request is impossible."""

    def check_quota(self, offer: OfferT, account: AccountT) -> None:
        """Raise PlanRefusedError if the offer exceeds a limit of the account."""

    def refresh_offer(self, request: RequestT, offer: OfferT, account: AccountT, refusals: list[str]) -> OfferT | None:
        """Return the offer with a current plan, or None and append the reason to `refusals`."""
        plan = plan_cluster(offer.desired, account.resources, self.notes)
        return dataclasses.replace(offer, plan=plan)

    @abc.abstractmethod
    def prices(self, offer: OfferT | None, disks: bool) -> CloudPrices:
        """Return the prices for an offer or for existing machines. disks: whether disk prices are needed."""

    def describe_failure(self, offer: OfferT, attempt: OfferOutcome) -> str:
        """Return why an offer did not yield the cluster."""
        reasons = "; ".join(f"{name} {reason}" for name, reason in attempt.failures.items())
        return f"{offer.description}: {attempt.refusal or reasons}"

    def find_templates(self, machine_ids: Sequence[str]) -> list[CloudTemplate]:
        """Return the templates created from these machines, and those in the journal."""
        return []

    def unattached_disks(self, account: AccountT, cluster: str) -> list[str]:
        """Return the ids of a cluster's disks that belong to no machine, and still cost money."""
        return []

    def price_notes(self, machines: Sequence[Machine]) -> list[str]:
        """Return sentences about machines whose price is not the listed one."""
        return []

    # --- Changes

    @abc.abstractmethod
    def create(self, creation: Creation[RequestT, OfferT]) -> dict[str, str]:
        """Send one request, and return the ids of the new resources by name.

        Set reply_lost on the error if the request may have been executed.
        """

    def wait_until_listed(self, what: ResourceKind, ids: Mapping[str, str]) -> None:
        """Wait until requests can refer to new resources."""

    def configure(self, creation: Creation[RequestT, OfferT]) -> None:
        """Set up the existing network before machines are created in it. names: those of the machines to create."""

    @abc.abstractmethod
    def start(self, names_by_id: Mapping[str, str]) -> None:
        """Request that machines start."""

    @abc.abstractmethod
    def wait_until_ready(self, names_by_id: Mapping[str, str]) -> dict[str, str]:
        """Wait for machines; return why some will not become ready, by name. Raise ClusterError if one is stuck."""

    def wait_for_capacity(
        self, request: RequestT, names_by_id: Mapping[str, str], failures: dict[str, str]
    ) -> dict[str, str]:
        """Wait with existing machines until the provider can start them all; return the remaining failures."""
        return failures

    def complete(self, account: AccountT) -> None:
        """Finish the setup of a cluster whose machines are all ready."""

    def check_stoppable(self, account: AccountT, names_by_id: Mapping[str, str]) -> None:
        """Raise PlanRefusedError if machines cannot be stopped, only removed."""

    @abc.abstractmethod
    def stop(self, names_by_id: Mapping[str, str]) -> list[str]:
        """Stop machines and wait until they are off; return the names of those that are not."""

    @abc.abstractmethod
    def delete_machines(self, names_by_id: Mapping[str, str]) -> dict[str, str]:
        """Remove machines and everything billed with them, and wait; return the reason of each failure, by resource."""

    @abc.abstractmethod
    def delete(self, step: Step) -> str:
        """Remove another resource; return the reason if that fails, otherwise ""."""

    def delete_template(self, template: CloudTemplate) -> None:
        """Remove a template."""


AnyCloud = Cloud[Any, Any, Any, Any]
