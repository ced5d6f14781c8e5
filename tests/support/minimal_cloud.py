"""The smallest provider: an account in memory whose requests can be interrupted. It shows the engine's requirements."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from ansible_collections.muster.training.plugins.plugin_utils._clouds.cloud import (
    Cloud,
    Creation,
    Offer,
    Offers,
    Options,
    PlainAccount,
    Show,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.cost import budget_error, estimate_cost
from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import DesiredCluster, Step
from ansible_collections.muster.training.plugins.plugin_utils._clouds.errors import CloudError
from ansible_collections.muster.training.plugins.plugin_utils._clouds.planner import plan_cluster
from ansible_collections.muster.training.plugins.plugin_utils._clouds.prices import CloudPrices, Price

PRICES = CloudPrices(
    lambda machine_type: Price(1.0, "a table", "2026-01-01"), lambda size: Price(0.0, "none", ""), "no page", "reported"
)


class Request(NamedTuple):
    """The content of a request."""

    nnodes: int = 2
    machine_types: tuple[str, ...] = ("small",)
    max_usd_per_hour: float | None = 10.0
    price_per_hour: float | None = None


class Refused(CloudError):
    """The account refuses a request."""

    refused = True


@dataclasses.dataclass
class Account:
    """All resources by ID. cut: called before and after each request, to interrupt it. full: types without capacity."""

    resources: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    cut: Callable[[bool, bool], None] = lambda change, executed: None
    full: tuple[str, ...] = ()
    count: int = 0

    def send(self, change: Callable[[], Any] | None = None) -> Any:
        """Execute a request. change: None for a read-only request."""
        self.cut(change is not None, False)
        reply = change() if change else list(self.resources.values())
        self.cut(change is not None, True)
        return reply

    def add(self, what: str, name: str, network: str = "", machine_type: str = "") -> str:
        """Add a resource; return its id."""
        if machine_type in self.full:
            error = Refused(f"no {machine_type} is available")
            error.scope = "offer"
            raise error
        self.count += 1
        resource_id = f"{what[0]}{self.count}"
        self.resources[resource_id] = {
            "kind": what, "id": resource_id, "name": name, "network": network, "machine_type": machine_type,
            "state": "ready", "provider_state": "on", "region": "here", "disk_gb": 10,
            "private_ip": "", "public_ip": "", "fixed_address": False, "per_hour": 1.0, "created": float(self.count),
        }  # fmt: skip
        return resource_id


class MinimalCloud(Cloud[Account, Request, Offer, PlainAccount]):
    """Machines in a network, and nothing else."""

    name = "minimal"
    console = "https://example.com"
    shortage_advice = "Try another type"

    @classmethod
    def connect(cls, options: Options, show: Show, warn: Show) -> Account:
        return Account()

    @classmethod
    def build_request(cls, options: Options, check: bool) -> Request:
        return Request(options["nnodes"], tuple(options["machine_types"]))

    @staticmethod
    def first_boot(key: str, watch: Mapping[str, str]) -> str:
        return key

    def read_account(self) -> PlainAccount:
        listed = self.client.send()
        machines = [dict(item) for item in listed if item["kind"] == "machine"]
        networks = [dict(item) for item in listed if item["kind"] == "network"]
        result: Any = {"machines": machines, "networks": networks, "drives": [], "scripts": [], "addresses": []}
        return PlainAccount(result)

    def find_offers(self, request: Request, account: PlainAccount, check: bool) -> Offers[Offer]:
        offers, refusals = [], []
        for machine_type in request.machine_types:
            desired: DesiredCluster = {
                "cluster": self.cluster, "state": "present", "nnodes": request.nnodes, "machine_type": machine_type,
                "region": "here", "disk_gb": 10, "drive_gb": 0, "script": "", "network_id": "", "remove_drive": False,
            }  # fmt: skip
            plan = plan_cluster(desired, account.resources, self.notes)
            cost = estimate_cost(desired, plan, PRICES)
            refusal = budget_error(cost, request.max_usd_per_hour, machine_type, PRICES.page)
            if refusal:
                refusals.append(refusal)
            else:
                offers.append(Offer(desired=desired, plan=plan, cost=cost, description=machine_type))
        return Offers(offers, refusals)

    def prices(self, offer: Offer | None, disks: bool) -> CloudPrices:
        return PRICES

    def create(self, creation: Creation[Request, Offer]) -> dict[str, str]:
        (name,) = creation.names
        network = creation.ids.get(f"network muster-{self.cluster}", "")
        machine_type = creation.offer.desired["machine_type"] if creation.what == "machine" else ""
        return {name: self.client.send(lambda: self.client.add(creation.what, name, network, machine_type))}

    def start(self, names_by_id: Mapping[str, str]) -> None:
        for key in names_by_id:
            self.client.send(partial(self.client.resources[key].update, state="ready"))

    def wait_until_ready(self, names_by_id: Mapping[str, str]) -> dict[str, str]:
        return {}

    def stop(self, names_by_id: Mapping[str, str]) -> list[str]:
        for key in names_by_id:
            self.client.send(partial(self.client.resources[key].update, state="off"))
        return []

    def delete_machines(self, names_by_id: Mapping[str, str]) -> dict[str, str]:
        for key, name in names_by_id.items():
            self.delete({"action": "remove", "kind": "machine", "name": name, "id": key})
        return {}

    def delete(self, step: Step) -> str:
        self.client.send(lambda: self.client.resources.pop(step["id"], None))
        self.journal.forget(step["kind"], step["name"], step["id"])
        return ""
