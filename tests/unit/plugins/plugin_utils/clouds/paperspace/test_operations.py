# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""API operations over real HTTP; the test server checks requests and replies against the official document."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace import operations as api
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.errors import (
    AuthenticationError,
    InvalidReplyError,
    LostReplyError,
    NotFoundError,
    RequestError,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.objects import (
    ApiMachine,
    MachineChange,
    TemplateChange,
)
from tests.support.paperspace_server.account import PaperspaceAccount
from tests.support.paperspace_server.faults import PaperspaceFault, bad_gateway, lose_reply, too_many_requests
from tests.support.paperspace_server.server import PaperspaceServer


@pytest.fixture(autouse=True)
def no_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip loading the system's CA certificates, which takes most of a test's time even without TLS."""
    monkeypatch.setenv("SSL_CERT_FILE", os.devnull)


@pytest.fixture
def server() -> Iterator[PaperspaceServer]:
    with PaperspaceServer(PaperspaceAccount([], [])) as running:
        yield running


@pytest.fixture
def client(server: PaperspaceServer) -> Client:
    return Client(server.key, server.url, retries=2, sleep=lambda seconds: None)


def created_machine(client: Client, name: str = "bert-0", **changes: Any) -> ApiMachine:
    """Create a machine, wait until it is ready, and return it."""
    expected: dict[str, Any] = {"machine_type": "A4000", "template_id": "t0nspur5", "disk_gb": 50, "region": "ny2"}
    change = api.create_machine(client, name=name, **{**expected, **changes})
    assert change.event is not None
    client.wait_for_event(change.event)
    return api.get_machine(client, change.machine["id"])


def ended(client: Client, change: MachineChange | TemplateChange) -> None:
    assert change.event is not None
    client.wait_for_event(change.event)


def test_team_machine_limit_is_read_and_a_wrong_key_is_refused(server: PaperspaceServer, client: Client) -> None:
    server.account.max_machines = 7
    assert api.get_session(client)["team"]["maxMachines"] == 7
    with pytest.raises(AuthenticationError, match=r"no session. The API key is wrong or was deleted"):
        api.get_session(Client("wrong", server.url))
    server.faults = [PaperspaceFault(body="[]")]
    with pytest.raises(InvalidReplyError, match="not a session"):
        api.get_session(client)


def test_cluster_is_created_and_removed(server: PaperspaceServer, client: Client) -> None:
    network = api.create_network(client, name="muster-bert", region="ny2")
    drive = api.create_drive(client, name="bert", size_gb=250, region="ny2", network_id=network["id"])
    script = api.create_startup_script(client, name="bert-first-boot", script="#!/bin/sh\nid\n")
    machine = created_machine(client, network_id=network["id"], startup_script_id=script["id"])
    assert machine["networkId"] == network["id"]
    assert server.requests[-1].body is None
    posted = next(r.body for r in server.requests if r.method == "POST" and r.path == "/machines")
    assert posted["emailPassword"] is False
    assert [r.body["migrateMachines"] for r in server.requests if r.path == "/private-networks"] == [False]
    assert [item["id"] for item in api.list_machines(client)] == [machine["id"]]
    assert [item["id"] for item in api.list_networks(client)] == [network["id"]]
    assert [item["password"] for item in api.list_drives(client)] == [drive["password"]]
    (listed,) = api.list_startup_scripts(client)
    assert (listed["isRunOnce"], listed["assignedMachineIds"]) == (True, [machine["id"]])
    assert [event["name"] for event in api.list_machine_events(client, machine["id"])] == ["create"]
    with pytest.raises(RequestError, match="PRECONDITION_FAILED: The private network still has machines"):
        api.delete_network(client, network["id"])
    ended(client, api.delete_machine(client, machine["id"]))
    with pytest.raises(NotFoundError):
        api.get_machine(client, machine["id"])
    with pytest.raises(RequestError, match="still has shared drives"):
        api.delete_network(client, network["id"])
    api.delete_drive(client, drive["id"])
    api.delete_network(client, network["id"])
    api.delete_startup_script(client, script["id"])
    assert not any(items for items, _other in server.account.resource_lists())


def test_stopped_machine_becomes_a_template_for_a_new_machine(client: Client) -> None:
    first = created_machine(client)
    with pytest.raises(RequestError, match="must be off to create a template"):
        api.create_template(client, name="muster-bert-1", machine_id=first["id"])
    ended(client, api.stop_machine(client, first["id"]))
    change = api.create_template(client, name="muster-bert-1", machine_id=first["id"])
    assert api.list_templates(client) == []
    ended(client, change)
    # The service lists some templates twice.
    (template,) = api.list_templates(client)
    assert (template["id"], template["parentMachineId"]) == (change.template["id"], first["id"])
    ended(client, api.start_machine(client, first["id"]))
    second = created_machine(client, "bert-1", template_id=template["id"])
    assert second["state"] == "ready"
    with pytest.raises(RequestError, match="The template is in ny2, not in ca1"):
        created_machine(client, "bert-2", template_id=template["id"], region="ca1")
    api.delete_template(client, template["id"])
    assert api.list_templates(client) == []


def test_static_public_ips_can_be_listed_and_released(server: PaperspaceServer, client: Client) -> None:
    machine = created_machine(client, public_ip_type="static")
    spare = server.account.claim_public_ip("ny2")
    assert [ip.get("assignedMachineId") for ip in api.list_public_ips(client)] == [machine["id"], None]
    ended(client, api.delete_machine(client, machine["id"]))
    public_ips = api.list_public_ips(client)
    assert [ip["ip"] for ip in public_ips] == [machine["publicIp"], spare["ip"]]
    for ip in public_ips:
        api.release_public_ip(client, ip["ip"])
    assert api.list_public_ips(client) == []


def test_provider_templates_can_only_be_ordered_by_name(server: PaperspaceServer, client: Client) -> None:
    names = [template["name"] for template in api.list_os_templates(client)]
    assert names == sorted(names)
    if server.document:
        with pytest.raises(RequestError, match="'dtCreated' is not one of"):
            client.list_all("/os-templates")


def test_availability_of_a_machine_type_is_read(server: PaperspaceServer, client: Client) -> None:
    server.account.unavailable = {"H100x8"}
    assert api.is_available(client, "A4000", "ny2")
    assert not api.is_available(client, "H100x8", "ny2")
    server.faults = [PaperspaceFault(body='{"available": "yes"}')]
    with pytest.raises(InvalidReplyError, match="without the field 'available'"):
        api.is_available(client, "A4000", "ny2")


@pytest.mark.parametrize(
    "injected",
    [
        lose_reply(),
        bad_gateway(),
        PaperspaceFault(method="POST", body="{}"),
        PaperspaceFault(method="POST", body='{"data": {}}'),
    ],
)
def test_lost_reply_to_a_create_request_is_reported_and_not_retried(
    server: PaperspaceServer, client: Client, injected: PaperspaceFault
) -> None:
    server.faults = [injected]
    with pytest.raises(LostReplyError, match=r"^POST /machines.* The request may have been executed anyway: check"):
        created_machine(client)
    assert [machine["name"] for machine in server.account.machines] == ["bert-0"]
    assert len(server.requests) == 1


@pytest.mark.parametrize("retry_after", [None, 3])
def test_rate_limited_creation_is_retried_and_happens_once(
    server: PaperspaceServer, client: Client, retry_after: int | None
) -> None:
    server.faults = [too_many_requests(method="POST", times=2, retry_after=retry_after)]
    created_machine(client)
    assert len(server.account.machines) == 1


def test_every_list_can_be_read(client: Client) -> None:
    lists: list[Callable[[Client], Any]] = [
        api.list_machines,
        api.list_networks,
        api.list_drives,
        api.list_templates,
        api.list_os_templates,
        api.list_public_ips,
        api.list_startup_scripts,
    ]
    assert [read(client) == [] for read in lists] == [read is not api.list_os_templates for read in lists]


def test_creation_time_comes_from_the_accounts_clock(server: PaperspaceServer, client: Client) -> None:
    server.account.now = lambda: datetime.datetime(2026, 5, 1, 12, tzinfo=datetime.UTC)
    assert created_machine(client)["dtCreated"] == "2026-05-01T12:00:00.000Z"
