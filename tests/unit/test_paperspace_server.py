# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fake Paperspace API follows the service's rules, as the client sees it over HTTP, and its API document."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace import operations as api
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.errors import (
    EventError,
    LostReplyError,
    NotFoundError,
    PaperspaceError,
    RequestError,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.objects import (
    ApiMachine,
    MachineChange,
)
from tests.support.paperspace_server.account import EventOutcome, FileShare, HostAddresses, PaperspaceAccount
from tests.support.paperspace_server.document import DOCUMENT, ApiDocument
from tests.support.paperspace_server.faults import PaperspaceFault, disconnect_after
from tests.support.paperspace_server.meter import list_costs
from tests.support.paperspace_server.objects import machine, snapshot
from tests.support.paperspace_server.routes import ROUTES
from tests.support.paperspace_server.server import PaperspaceServer
from tests.support.paperspace_server.strangers import add_foreign_resources, remaining_keys, serialize_foreign


@pytest.fixture(autouse=True)
def no_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests without TLS read the machine's certificates too, which takes most of a test's time."""
    monkeypatch.setenv("SSL_CERT_FILE", os.devnull)


@pytest.fixture
def account() -> PaperspaceAccount:
    return PaperspaceAccount([], [])


@pytest.fixture
def server(account: PaperspaceAccount) -> Iterator[PaperspaceServer]:
    with PaperspaceServer(account) as running:
        yield running


@pytest.fixture
def client(server: PaperspaceServer) -> Client:
    return Client(server.key, server.url, retries=0, sleep=lambda seconds: None)


def create(client: Client, name: str = "bert-0", **changes: Any) -> MachineChange:
    expected: dict[str, Any] = {"machine_type": "A4000", "template_id": "t0nspur5", "disk_gb": 50, "region": "ny2"}
    return api.create_machine(client, name=name, **{**expected, **changes})


def create_machine(client: Client, name: str = "bert-0", **changes: Any) -> ApiMachine:
    return looked_at(client, create(client, name, **changes))


def looked_at(client: Client, change: MachineChange) -> ApiMachine:
    assert change.event is not None
    client.wait_for_event(change.event)
    return api.get_machine(client, change.machine["id"])


def test_every_route_but_one_is_in_the_api_document() -> None:
    if not DOCUMENT.exists():
        pytest.skip("the official API document is not beside the checkout")
    document = ApiDocument()
    unknown = [route.template for route in ROUTES if not document.has_operation(route.method, route.template)]
    assert unknown == ["/billing/account-standing"]


def test_event_advances_each_time_its_machine_is_listed(client: Client) -> None:
    create(client)
    assert [api.list_machines(client)[0]["state"] for _turn in range(3)] == ["provisioning", "ready", "ready"]
    create(client, "bert-1", start=False)
    states = [api.list_machines(client)[1]["state"] for _turn in range(2)]
    assert states == ["provisioning", "off"]


def test_dynamic_address_changes_at_each_start_and_is_absent_while_off(client: Client) -> None:
    change = create(client)
    assert change.machine["publicIp"] is None
    first = looked_at(client, change)
    off = looked_at(client, api.stop_machine(client, first["id"]))
    again = looked_at(client, api.start_machine(client, first["id"]))
    assert off["publicIp"] is None
    assert first["publicIp"] and again["publicIp"] and first["publicIp"] != again["publicIp"]
    assert first["privateIp"] == off["privateIp"] == again["privateIp"]


def test_static_address_outlives_its_machine_and_keeps_costing_money(
    account: PaperspaceAccount, client: Client
) -> None:
    change = create(client, public_ip_type="static")
    item = looked_at(client, change)
    assert change.machine["publicIp"] == item["publicIp"]
    assert looked_at(client, api.stop_machine(client, item["id"]))["publicIp"] == item["publicIp"]
    api.delete_machine(client, item["id"])
    api.list_machines(client)
    assert api.list_machines(client) == []
    assert [(cost.kind, cost.key) for cost in list_costs(account)] == [("address", item["publicIp"])]


def test_meter_counts_machines_disks_drives_and_snapshots(account: PaperspaceAccount, client: Client) -> None:
    assert account.usd_per_hour() == 0
    network = api.create_network(client, name="muster-bert", region="ny2")
    assert account.usd_per_hour() == 0
    item = create_machine(client, network_id=network["id"])
    assert account.usd_per_hour() == pytest.approx(item["usageRate"] + item["storageRate"])
    create(client, "bert-1", network_id=network["id"])
    assert account.usd_per_hour() == pytest.approx(2 * (item["usageRate"] + item["storageRate"]))
    account.power_off_guest(item["id"])
    assert [cost.kind for cost in list_costs(account)] == ["disk", "machine", "disk"]
    api.create_drive(client, name="bert", size_gb=250, region="ny2", network_id=network["id"])
    account.snapshots.append(snapshot(1, machineId=item["id"]))
    kinds = [cost.kind for cost in list_costs(account)]
    assert kinds == ["disk", "machine", "disk", "drive", "snapshot"]
    assert all(cost.usd > 0 for cost in list_costs(account))


def test_snapshots_are_deleted_with_their_machine(account: PaperspaceAccount, client: Client) -> None:
    item = create_machine(client)
    change = client.change("POST", "/snapshots", {"name": "before", "machineId": item["id"]})
    assert change.event is not None
    client.wait_for_event(change.event)
    assert [entry["name"] for entry in client.list_all("/snapshots")] == ["before"]
    looked_for = create(client, "bert-1")
    looked_at(client, looked_for)
    deletion = api.delete_machine(client, item["id"])
    assert deletion.event is not None
    client.wait_for_event(deletion.event)
    assert client.list_all("/snapshots") == []


def test_machines_above_the_team_limit_are_refused(account: PaperspaceAccount, client: Client) -> None:
    account.max_machines = 2
    create(client)
    create(client, "bert-1", start=False)
    with pytest.raises(RequestError, match="HTTP 412 PRECONDITION_FAILED: Your team is limited to 2 machines"):
        create(client, "bert-2")


def test_lack_of_capacity_keeps_machine_off_with_finished_event(account: PaperspaceAccount, client: Client) -> None:
    account.capacity = {"A4000": 1}
    create_machine(client)
    assert api.is_available(client, "A4000", "ny2")
    second = create_machine(client, "bert-1")
    assert second["state"] == "off"
    (event,) = api.list_machine_events(client, second["id"])
    assert (event["state"], event["error"]) == ("done", None)
    assert looked_at(client, api.start_machine(client, second["id"]))["state"] == "off"
    assert api.list_machine_events(client, second["id"])[-1]["state"] == "error"
    account.capacity["A4000"] = 2
    assert looked_at(client, api.start_machine(client, second["id"]))["state"] == "ready"


def test_machine_can_be_stuck_or_end_in_error_with_or_without_text(account: PaperspaceAccount, client: Client) -> None:
    account.outcomes = {
        "create bert-1": EventOutcome(stuck=True),
        "create bert-2": EventOutcome(state="error", machine_state="ready"),
        "create bert-3": EventOutcome(state="error", error="Out of memory"),
    }
    assert create_machine(client)["state"] == "ready"
    stuck = create(client, "bert-1").machine
    assert {api.get_machine(client, stuck["id"])["state"] for _turn in range(5)} == {"provisioning"}
    assert create_machine(client, "bert-2")["state"] == "ready"
    with pytest.raises(EventError, match="Out of memory"):
        create_machine(client, "bert-3")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"machine_type": "B200x8"}, "Unknown machine type"),
        ({"template_id": "t7vp562h"}, "The template is not available for A4000"),
        ({"template_id": "none"}, "Template not found"),
        ({"network_id": "none"}, "Private network not found"),
        ({"disk_gb": 20}, "needs a disk of 50 GB"),
    ],
)
def test_impossible_machine_is_refused(
    account: PaperspaceAccount, client: Client, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(PaperspaceError, match=message):
        create(client, **changes)
    assert account.machines == []


def test_names_can_repeat_and_are_matched_as_substrings(client: Client) -> None:
    for name in ("bert", "bert", "bertha"):
        create(client, name)
        api.create_network(client, name=f"muster-{name}", region="ny2")
    assert len({network["id"] for network in api.list_networks(client)}) == 3
    assert len(client.list_all("/machines", {"name": "bert"})) == 3


def test_machine_refuses_actions_while_one_is_in_progress(account: PaperspaceAccount, client: Client) -> None:
    item = create(client).machine
    for change in (api.stop_machine, api.start_machine, api.delete_machine):
        with pytest.raises(RequestError, match="HTTP 409 CONFLICT: This machine is currently provisioning"):
            change(client, item["id"])
    api.list_machines(client)
    api.list_machines(client)
    account.delete_needs_off = True
    with pytest.raises(RequestError, match="must be off to be deleted"):
        api.delete_machine(client, item["id"])
    looked_at(client, api.stop_machine(client, item["id"]))
    api.delete_machine(client, item["id"])
    with pytest.raises(RequestError, match="CONFLICT: deactivate is in progress"):
        api.delete_machine(client, item["id"])
    with pytest.raises(NotFoundError):
        for _turn in range(3):
            api.get_machine(client, item["id"])


def test_new_resources_appear_only_after_several_list_requests(account: PaperspaceAccount, client: Client) -> None:
    account.hidden_lists = 2
    create(client)
    api.create_network(client, name="muster-bert", region="ny2")
    assert [len(api.list_machines(client)) for _turn in range(4)] == [0, 0, 1, 1]
    assert [len(api.list_networks(client)) for _turn in range(3)] == [0, 0, 1]


def test_network_with_migrate_machines_takes_all_machines_in_the_region(client: Client) -> None:
    mine, other_region = create(client).machine, create(client, region="ca1").machine
    network = client.change("POST", "/private-networks", {"name": "n", "region": "ny2", "migrateMachines": True}).data
    assert api.get_machine(client, mine["id"])["networkId"] == network["id"]
    assert api.get_machine(client, other_region["id"])["networkId"] != network["id"]


@pytest.mark.parametrize("carried_out", [True, False])
def test_after_a_cut_connection_at_most_one_machine_is_created(
    account: PaperspaceAccount, client: Client, server: PaperspaceServer, carried_out: bool
) -> None:
    server.faults = disconnect_after(1, carried_out=carried_out)
    api.list_machines(client)
    for name in ("bert-0", "bert-1"):
        with pytest.raises(LostReplyError):
            create(client, name)
    assert [m["name"] for m in account.machines] == ["bert-0"] * carried_out
    server.faults = [PaperspaceFault(method="POST", status=403)]
    with pytest.raises(PaperspaceError):
        create(client, "bert-2")
    assert len(account.machines) == int(carried_out)


def test_any_change_to_foreign_resources_is_detected(account: PaperspaceAccount, client: Client) -> None:
    add_foreign_resources(account, "bert")
    before = serialize_foreign(account)
    assert all(items for items, _other in account.resource_lists())
    assert (remaining_keys(account), account.usd_per_hour()) == ([], 0)
    network = api.create_network(client, name="muster-bert", region="ny2")
    item = create_machine(client, network_id=network["id"])
    assert sorted(remaining_keys(account)) == sorted([network["id"], item["id"]])
    assert account.usd_per_hour() > 0
    assert serialize_foreign(account) == before
    changes: list[Callable[[], Any]] = [
        lambda: api.stop_machine(client, account.machines[0]["id"]),
        lambda: api.delete_network(client, "nwlonger"),
        lambda: api.release_public_ip(client, "198.18.200.1"),
    ]
    for change in changes:
        before = serialize_foreign(account)
        try:
            change()
        except RequestError:  # the network has machines: those that belong to other users must not be deleted for this
            account.machines[:] = [m for m in account.machines if m["networkId"] != "nwlonger"]
        assert serialize_foreign(account) != before


def test_new_machines_are_the_configured_test_hosts(account: PaperspaceAccount, client: Client) -> None:
    hosts = [HostAddresses("10.9.0.11", "198.51.100.11"), HostAddresses("10.9.0.12", "198.51.100.12")]
    account.hosts = hosts
    account.share = FileShare(r"\\10.9.0.2\share", "me", "secret")
    network = api.create_network(client, name="muster-bert", region="ny2")
    assert network["network"] == "10.9.0.0"
    machines = [create_machine(client, f"bert-{number}", network_id=network["id"]) for number in range(3)]
    addresses = [HostAddresses(str(m["privateIp"]), str(m["publicIp"])) for m in machines[:2]]
    assert addresses == hosts
    assert [m["state"] for m in machines] == ["ready", "ready", "off"]
    drive = api.create_drive(client, name="bert", size_gb=250, region="ny2", network_id=network["id"])
    assert (drive["mountPoint"], drive["username"], drive["password"]) == account.share
    for item in (machines[0], machines[2]):
        deletion = api.delete_machine(client, item["id"])
        assert deletion.event is not None
        client.wait_for_event(deletion.event)
    assert create_machine(client, "bert-4", network_id=network["id"])["privateIp"] == "10.9.0.11"


def test_startup_script_text_is_kept_for_the_test(account: PaperspaceAccount, client: Client) -> None:
    script = api.create_startup_script(client, name="bert-first-boot", script="#!/bin/sh\n", run_once=False)
    assert account.script_texts == {script["id"]: "#!/bin/sh\n"}
    item = create(client, startup_script_id=script["id"]).machine
    client.change("POST", f"/startup-scripts/{script['id']}/unassign", {"machineId": item["id"]})
    changed = client.change("PUT", f"/startup-scripts/{script['id']}", {"script": "true\n", "isEnabled": False}).data
    assert (changed["assignedMachineIds"], changed["isEnabled"], changed["isRunOnce"]) == ([], False, False)
    assert account.script_texts == {script["id"]: "true\n"}


def test_a_machine_changes_type_and_disk_only_while_off(account: PaperspaceAccount, client: Client) -> None:
    account.machines.append(machine(0))
    path = f"/machines/{account.machines[0]['id']}"
    assert client.change("PUT", path, {"name": "other"}).data["name"] == "other"
    with pytest.raises(RequestError, match="currently ready"):
        client.change("PUT", path, {"machineType": "A4000"})
    account.power_off_guest(account.machines[0]["id"])
    changed = client.change("PUT", path, {"machineType": "A4000", "diskSize": 500}).data
    assert (changed["cpus"], changed["usageRate"], changed["storageTotal"]) == (8, 0.76, 500 * 1024**3)


def test_account_standing_is_returned_or_missing(account: PaperspaceAccount, client: Client) -> None:
    assert client.request("GET", "/billing/account-standing")["isInGoodStanding"] is True
    account.standing = None
    with pytest.raises(NotFoundError):
        client.request("GET", "/billing/account-standing")
