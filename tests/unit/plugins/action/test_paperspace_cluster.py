# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster is created and removed over HTTP: completely, after any interruption, keeping foreign resources."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import http.client
import json
import re
import stat
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._clouds.engine.provision import ProvisionResult, provision
from ansible_collections.muster.training.plugins.plugin_utils._clouds.engine.teardown import (
    Removal,
    TeardownResult,
    stop,
    teardown,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.errors import ClusterError
from ansible_collections.muster.training.plugins.plugin_utils._clouds.journal import read_journal
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import PlanRefusedError
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.cloud import PaperspaceCloud
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.errors import (
    AuthenticationError,
    ConnectionFailedError,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.first_boot import (
    build_first_boot_script,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.image import (
    TemplateResult,
    ensure_template,
    remove_template,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.offers import PaperspaceRequest
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.transport import Response
from tests.support.paperspace_server.account import EventOutcome, PaperspaceAccount
from tests.support.paperspace_server.faults import PaperspaceFault, bad_gateway, too_many_requests
from tests.support.paperspace_server.objects import custom_template, machine, network
from tests.support.paperspace_server.server import PaperspaceServer
from tests.support.paperspace_server.strangers import add_foreign_resources, remaining_keys, serialize_foreign

pytestmark = pytest.mark.one_core

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGkUeJcbx0vDN5hXgL5sWm3YpMMmxYHcGEYfCjRTsk1U"
REQUEST = PaperspaceRequest(
    nnodes=2,
    machine_types=["A6000x2"],
    region="ny2",
    template="ML-in-a-Box",
    disk_gb=250,
    drive_gb=250,
    public_ip="static",
    max_usd_per_hour=10.0,
    first_boot=build_first_boot_script(KEY, {}),
)


class LostChange(PaperspaceFault):
    """Loses the reply to a change of any kind."""

    def applies(self, method: str, path: str) -> bool:
        self.method = method
        return method != "GET" and super().applies(method, path)


class EverySecond(PaperspaceFault):
    """Fails every second request."""

    def applies(self, method: str, path: str) -> bool:
        self.skip = 1 - self.skip
        return self.skip == 1


class Killed(BaseException):
    """Simulates SIGKILL of the command."""


def exchange(method: str, url: str, headers: Mapping[str, str], body: bytes | None, timeout: float) -> Response:
    """Send a request with http.client, which is 50 times faster than Ansible's client."""
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=timeout)
    try:
        connection.request(method, f"{parts.path}?{parts.query}".rstrip("?"), body, dict(headers))
        with connection.getresponse() as reply:
            return Response(reply.status, {name.lower(): value for name, value in reply.headers.items()}, reply.read())
    except (OSError, http.client.HTTPException) as error:
        raise ConnectionFailedError(f"the connection failed: {error}") from error
    finally:
        connection.close()


class Bench:
    """An account on a fake server, a clock that advances only by sleeping, and an interruptible transport."""

    def __init__(self, server: PaperspaceServer, directory: Path) -> None:
        self.server = server
        self.directory = directory
        self.now = 1_800_000_000.0
        self.messages: list[str] = []
        self.kill_before: int | None = None
        self.kill_after: int | None = None
        self.sent = self.changed = 0
        self.fresh()

    def fresh(self) -> None:
        """Reset to an account with foreign resources and without a record."""
        self.account = self.server.account = PaperspaceAccount(
            now=lambda: datetime.datetime.fromtimestamp(self.now, datetime.UTC)
        )
        add_foreign_resources(self.account, "bert")
        self.foreign = serialize_foreign(self.account)
        self.server.faults.clear()
        self.server.requests.clear()
        for path in self.directory.glob("*.json"):
            path.unlink()

    def transport(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, timeout: float
    ) -> Response:
        self.sent += 1
        self.changed += method != "GET"
        if method == "POST":
            record = json.loads((self.directory / "bert.json").read_text())
            assert [item for item in record["entries"] if not item["id"]], "the intent is recorded before the request"
        if self.sent == self.kill_before:
            raise Killed
        response = exchange(method, url, headers, body, timeout)
        if method != "GET" and self.changed == self.kill_after:
            raise Killed
        return response

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def work(self) -> PaperspaceCloud:
        self.sent = self.changed = 0
        client = Client("test-key", self.server.url, transport=self.transport, sleep=self.sleep, clock=lambda: self.now)
        record = read_journal(self.directory, "bert", "paperspace")
        return PaperspaceCloud("bert", client, record, "", self.messages.append, self.sleep, lambda: self.now)

    def provide(self, request: PaperspaceRequest = REQUEST, **changes: Any) -> ProvisionResult:
        return provision(self.work(), request._replace(**changes))

    def remove(self, remove_drive: bool = True, remove_templates: bool = True) -> TeardownResult:
        return teardown(self.work(), Removal(remove_drive, remove_templates))

    def image(self, node: str = "bert-0", name: str = "golden", **more: Any) -> TemplateResult:
        return ensure_template(self.work(), node, name, **more)

    def changes(self) -> list[str]:
        """Return the requests that change resources."""
        return [f"{item.method} {item.path}" for item in self.server.requests if item.method != "GET"]

    def nodes(self) -> list[str]:
        return sorted(item["name"] for item in self.account.machines if item["id"] not in self.account.foreign_keys)

    def own_machines(self) -> dict[str, dict[str, Any]]:
        """Return the machines that are not foreign, by name."""
        return {item["name"]: item for item in self.account.machines if item["id"] not in self.account.foreign_keys}

    def assert_no_resources(self) -> None:
        """Assert that no resources remain and foreign ones are unchanged."""
        assert remaining_keys(self.account) == []
        assert self.account.usd_per_hour() == 0
        assert serialize_foreign(self.account) == self.foreign

    def networks(self) -> list[str]:
        return [item["name"] for item in self.account.networks if item["id"] not in self.account.foreign_keys]


@pytest.fixture(scope="module")
def server() -> Iterator[PaperspaceServer]:
    with PaperspaceServer() as started:
        yield started


@pytest.fixture
def bench(server: PaperspaceServer, tmp_path: Path) -> Bench:
    return Bench(server, tmp_path)


@pytest.fixture
def without_validation(server: PaperspaceServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable validation against the API document in tests with many requests, which other tests validate."""
    monkeypatch.setattr(server, "document", None)


# --- Interruptions


def run_interrupted(bench: Bench, how: str, at: int, command: Callable[[], object]) -> bool:
    """Run a command that is interrupted at a request; return whether the request was reached.

    Args:
        at: Number of the request or change at which the command is killed, or which gets no reply.
    """
    bench.kill_before = at if how == "killed before" else None
    bench.kill_after = at if how == "killed after a change" else None
    if how == "answer lost":
        bench.server.faults.append(LostChange(skip=at - 1, times=1, drop=True))
    with contextlib.suppress(Killed, ClusterError):
        command()
    bench.kill_before = bench.kill_after = None
    bench.server.faults.clear()
    return (bench.sent if how == "killed before" else bench.changed) >= at


def test_teardown_right_after_killed_provision_removes_all_resources(bench: Bench) -> None:
    bench.account.hidden_lists = 10
    assert run_interrupted(bench, "killed after a change", 5, bench.provide)
    bench.remove()
    bench.assert_no_resources()


def test_rate_limited_requests_are_retried(bench: Bench) -> None:
    """Every second request gets HTTP 429, with and without Retry-After."""
    for retry_after in (None, 7):
        bench.fresh()
        bench.server.faults.append(
            EverySecond(**dataclasses.asdict(too_many_requests(times=None, retry_after=retry_after)))
        )
        bench.provide()
        assert bench.nodes() == ["bert-0", "bert-1"]
        bench.remove()
        bench.assert_no_resources()


def test_post_carried_out_behind_proxy_error_is_not_repeated(bench: Bench) -> None:
    bench.server.faults.append(bad_gateway(times=None))
    bench.provide()
    assert (bench.nodes(), bench.networks()) == (["bert-0", "bert-1"], ["muster-bert"])
    assert any(line.startswith("found machine bert-1 (") for line in bench.messages)
    bench.remove()
    bench.assert_no_resources()


def test_unavailable_service_keeps_machines_and_lists_them(bench: Bench) -> None:
    bench.server.faults.append(PaperspaceFault("/machines", "POST", skip=1, status=503, carried_out=False))
    with pytest.raises(
        ClusterError,
        match=r"Recorded in the journal and being billed: bert-0 \(ps\w+\), bert-1 \(requested, no reply",
    ):
        bench.provide()
    bench.server.faults.clear()
    bench.provide()
    assert bench.nodes() == ["bert-0", "bert-1"]


# --- Provision


def test_nodes_are_created_as_requested(bench: Bench) -> None:
    result = bench.provide()
    assert result.changed
    assert [(item["name"], item["state"]) for item in result.current["nodes"]] == [
        ("bert-0", "ready"),
        ("bert-1", "ready"),
    ]
    network = next(item for item in bench.account.networks if item["name"] == "muster-bert")
    bodies = [item.body for item in bench.server.requests if (item.method, item.path) == ("POST", "/machines")]
    script = next(item for item in bench.account.scripts if item["name"].startswith("muster-bert-first-boot-"))
    assert bodies[1] == {
        "name": "bert-1",
        "machineType": "A6000x2",
        "templateId": "twnlo3zj",
        "diskSize": 250,
        "region": "ny2",
        "networkId": network["id"],
        "publicIpType": "static",
        "startOnCreate": True,
        "emailPassword": False,
        "startupScriptId": script["id"],
    }
    assert KEY in bench.account.script_texts[script["id"]]
    network_bodies = [item.body for item in bench.server.requests if item.path == "/private-networks" and item.body]
    assert network_bodies[0]["migrateMachines"] is False, "everybody's machines of the account would be moved"


def test_record_is_owner_only_and_holds_no_secret(bench: Bench) -> None:
    bench.provide()
    path = bench.directory / "bert.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    record = json.loads(path.read_text())
    assert all(item["settled"] and item["id"] for item in record["entries"])
    password = next(item["password"] for item in bench.account.drives if item["name"] == "bert-data")
    for secret in (password, "test-key"):
        assert secret not in path.read_text() + "\n".join(bench.messages)


def test_a_second_run_changes_nothing(bench: Bench) -> None:
    bench.provide()
    bench.server.requests.clear()
    assert not bench.provide().changed
    assert bench.changes() == []


def test_missing_node_is_created_and_stopped_node_is_started(bench: Bench) -> None:
    bench.provide(nnodes=3, max_usd_per_hour=12.0)
    machines = bench.own_machines()
    bench.account.power_off_guest(machines["bert-2"]["id"])
    bench.account.machines.remove(machines["bert-1"])  # removed in the console
    bench.server.requests.clear()
    bench.provide(nnodes=3, max_usd_per_hour=12.0)
    assert bench.nodes() == ["bert-0", "bert-1", "bert-2"]
    assert bench.changes() == ["POST /machines", f"PATCH /machines/{machines['bert-2']['id']}/start"]
    assert machines["bert-2"]["state"] == "ready"


def test_check_mode_only_reads_and_shows_the_plan(bench: Bench) -> None:
    result = provision(bench.work(), REQUEST._replace(max_usd_per_hour=None), check=True)
    assert result.changed
    assert bench.changes() == []
    assert result.cost["per_hour"] == pytest.approx(7.56)
    assert "create: machine bert-1 of type A6000x2 with 250 GB" in bench.messages
    assert any("7.56 USD an hour, 181.44 USD a day" in line for line in bench.messages)
    assert "the team has 5 of at most 20 machines" in bench.messages


def add_foreign_network(bench: Bench) -> None:
    """Create another network with the cluster's name."""
    for number in (1, 2):
        bench.account.networks.append(network(number + 20, name="muster-bert"))


def add_foreign_machines(bench: Bench) -> None:
    """Create a network with the cluster's name and foreign machines."""
    bench.account.networks.append(network(21, name="muster-bert"))
    bench.account.machines.append(machine(77, name="photos", networkId=network(21)["id"]))


def foreign_template(bench: Bench) -> None:
    """Create a template of the team in another region."""
    bench.account.templates.append(custom_template(9, name="golden", region="ams1"))


@pytest.mark.parametrize(
    ("prepare", "changes", "expected_text"),
    [
        (None, {"max_usd_per_hour": 7.55}, "A6000x2, the cluster costs 7.56 USD an hour, but max_usd_per_hour is 7.55"),
        (None, {"nnodes": 16}, "16 new machines are needed, but the team already has 5 of at most 20"),
        (None, {"machine_types": ["A6000x3"]}, "unknown Paperspace machine type 'A6000x3'; did you mean A6000"),
        (None, {"machine_types": ["H100x8"], "template": "t0nspur5"}, "H100x8, the cluster costs 95.20 USD an hour"),
        (None, {"machine_types": ["C5"]}, "the template ML-in-a-Box does not currently support C5 in ny2"),
        (None, {"template": "Fedora"}, "no template is named 'Fedora'. Existing ones: ML-in-a-Box"),
        (None, {"disk_gb": 10}, "disk_gb is 10, but the template ML-in-a-Box needs at least 50"),
        (foreign_template, {"template": "golden"}, "the template golden is in ams1"),
        (add_foreign_network, {}, "2 networks are named muster-bert: nw0000015 in ny2, nw0000016 in ny2"),
        (add_foreign_machines, {}, "the name bert is taken: the network muster-bert (nw0000015) contains photos"),
        (lambda bench: bench.account.unavailable.add("A6000x2"), {}, "no A6000x2 is currently available in ny2"),
    ],
)
def test_impossible_request_is_refused_in_one_line_and_creates_nothing(
    bench: Bench, prepare: Callable[[Bench], object] | None, changes: dict[str, Any], expected_text: str
) -> None:
    if prepare:
        prepare(bench)
    with pytest.raises(PlanRefusedError) as excinfo:
        bench.provide(**{"max_usd_per_hour": 70.0, **changes})
    assert expected_text in str(excinfo.value)
    assert "\n" not in str(excinfo.value)
    assert bench.changes() == []


@pytest.mark.parametrize(("seconds", "expected_text"), [(7200, "2:00:00 behind"), (-400, "0:06:40 ahead of")])
def test_wrong_clock_is_refused_and_creates_nothing(bench: Bench, seconds: float, expected_text: str) -> None:
    """The API's clock is ahead by `seconds`."""
    bench.account.now = lambda: datetime.datetime.fromtimestamp(bench.now + seconds, datetime.UTC)
    with pytest.raises(
        PlanRefusedError, match=f"this machine's clock is {expected_text} the API's.*timedatectl set-ntp true"
    ):
        bench.provide()
    assert bench.changes() == []


def test_wrong_api_key_is_reported_as_such(bench: Bench) -> None:
    work = bench.work()
    work.client = Client("wrong", bench.server.url, transport=bench.transport)
    with pytest.raises(AuthenticationError, match="The API key is wrong"):
        provision(work, REQUEST)


def test_unavailable_or_too_expensive_type_is_skipped(bench: Bench) -> None:
    bench.account.unavailable.add("A6000x2")
    bench.provide(machine_types=["A100-80Gx8", "A6000x2", "A5000x2"], template="t0nspur5")
    kinds = {item["machineType"] for item in bench.own_machines().values()}
    assert kinds == {"A5000x2"}


# --- Shortage


def test_partial_cluster_is_removed_and_next_type_is_tried(bench: Bench) -> None:
    bench.account.capacity["A6000x2"] = 3 + 2  # two belong to other users
    bench.provide(nnodes=4, machine_types=["A6000x2", "A5000x2"], max_usd_per_hour=20.0)
    machines = list(bench.own_machines().values())
    assert [(item["name"], item["machineType"], item["state"]) for item in machines] == [
        (f"bert-{number}", "A5000x2", "ready") for number in range(4)
    ]
    assert "trying A5000x2 instead" in bench.messages
    bench.remove()
    bench.assert_no_resources()


def test_lack_of_capacity_without_another_type_removes_all_resources(bench: Bench) -> None:
    bench.account.capacity["A6000x2"] = 3
    with pytest.raises(ClusterError) as excinfo:
        bench.provide(nnodes=4, max_usd_per_hour=20.0)
    assert re.search(r"of 4 A6000x2 are ready, bert-\d got no capacity in ny2 \(off after", str(excinfo.value))
    assert "no resources of bert remain, 0 USD an hour" in str(excinfo.value)
    bench.assert_no_resources()


def test_existing_nodes_survive_failed_extension(bench: Bench) -> None:
    """A machine that was off and was started for the extension is stopped again."""
    bench.provide()
    stopped_node = bench.own_machines()["bert-1"]
    bench.account.power_off_guest(stopped_node["id"])
    bench.account.outcomes["create bert-2"] = EventOutcome("error", "no host found")
    with pytest.raises(ClusterError, match="bert-2 create failed: no host found"):
        bench.provide(nnodes=3, max_usd_per_hour=20.0)
    assert bench.nodes() == ["bert-0", "bert-1"]
    assert stopped_node["state"] == "off"


def test_rollback_removes_only_machines_of_the_last_hour(bench: Bench) -> None:
    """Machines of a killed command are rolled back with those of the next command, but only within an hour."""
    for minutes, remaining in ((59, []), (61, ["bert-0", "bert-1"])):
        bench.fresh()
        assert run_interrupted(bench, "killed after a change", 5, bench.provide)
        assert bench.nodes() == ["bert-0", "bert-1"]
        bench.now += minutes * 60
        bench.account.outcomes["create bert-2"] = EventOutcome("error", "no host found")
        with pytest.raises(ClusterError, match="no host found"):
            bench.provide(nnodes=3, max_usd_per_hour=20.0)
        assert bench.nodes() == remaining
        assert len(bench.networks()) == bool(remaining)


def test_refused_rollback_names_machines_and_tries_no_further_type(bench: Bench) -> None:
    bench.account.capacity["A6000x2"] = 1 + 2
    body = '{"code": "BAD_REQUEST", "message": "no"}'
    bench.server.faults.append(PaperspaceFault(r"/machines/\w+", "DELETE", status=400, body=body))
    with pytest.raises(ClusterError) as excinfo:
        bench.provide(machine_types=["A6000x2", "A5000x2"])
    machine_ids = [item["id"] for item in bench.own_machines().values()]
    assert len(machine_ids) == 2
    assert all(machine_id in str(excinfo.value) for machine_id in machine_ids)
    assert "https://console.paperspace.com" in str(excinfo.value)
    assert not any("A5000x2" in str(item.body) for item in bench.server.requests), "no further type is tried"


def test_provision_waits_for_missing_capacity(bench: Bench) -> None:
    bench.account.capacity["A6000x2"] = 3
    until = bench.now + 600

    def sleep(seconds: float) -> None:
        bench.now += seconds
        if bench.now > until:
            bench.account.capacity.clear()

    work = bench.work()
    work.sleep = sleep
    provision(work, REQUEST._replace(nnodes=4, max_usd_per_hour=20.0, on_shortage="wait"))
    assert bench.nodes() == [f"bert-{number}" for number in range(4)]
    posts = [item for item in bench.changes() if item == "POST /machines"]
    assert len(posts) == 4, "none is made again"


def test_provision_waits_for_capacity_until_wait_minutes(bench: Bench, without_validation: None) -> None:
    bench.account.capacity["A6000x2"] = 3
    start = bench.now
    with pytest.raises(ClusterError, match="got no capacity"):
        bench.provide(nnodes=4, max_usd_per_hour=20.0, on_shortage="wait", wait_minutes=10.0)
    assert 600 <= bench.now - start < 1800
    bench.assert_no_resources()


def test_stuck_machine_is_named_and_kept(bench: Bench, without_validation: None) -> None:
    bench.account.outcomes["create bert-1"] = EventOutcome(stuck=True)
    with pytest.raises(ClusterError, match=r"bert-1 \(ps\w+\) has been provisioning for .* support ticket"):
        bench.provide()
    assert bench.nodes() == ["bert-0", "bert-1"]


def test_error_event_without_text_is_ignored(bench: Bench) -> None:
    bench.account.outcomes["create bert-1"] = EventOutcome("error", None, machine_state="ready")
    bench.provide()


# --- Stop, and teardown


def test_stopped_machines_are_started_again(bench: Bench) -> None:
    bench.provide()
    result = stop(bench.work())
    assert (
        "2 machines are off; 0 USD an hour; disks, whether machines are on or off: 20.00 USD a month" in result.message
    )
    assert {item["state"] for item in bench.own_machines().values()} == {"off"}
    assert not stop(bench.work()).changed
    bench.provide()
    assert {item["state"] for item in bench.own_machines().values()} == {"ready"}


def test_second_teardown_changes_nothing(bench: Bench) -> None:
    bench.provide()
    assert bench.remove().message == "no resources of bert remain, 0 USD an hour"
    assert not (bench.directory / "bert.json").exists()
    bench.server.requests.clear()
    again = bench.remove()
    assert (again.changed, again.message) == (False, "no resources of bert remain, 0 USD an hour")
    assert bench.changes() == []


def test_teardown_in_check_mode_only_reads(bench: Bench) -> None:
    bench.provide()
    bench.server.requests.clear()
    assert teardown(bench.work(), check=True).changed
    assert bench.changes() == []


def test_teardown_works_without_the_record(bench: Bench) -> None:
    bench.provide()
    (bench.directory / "bert.json").unlink()
    bench.remove()
    bench.assert_no_resources()


def test_addresses_of_machines_removed_in_console_are_released(bench: Bench) -> None:
    bench.provide()
    stop(bench.work())
    work = bench.work()
    machines = list(bench.own_machines().values())
    work.journal.record_addresses({item["publicIp"]: item["id"] for item in machines})
    for item in machines:
        bench.account.delete_machine(item["id"])
    bench.remove()
    bench.assert_no_resources()


def test_machines_that_must_be_off_to_be_removed_are_stopped_first(bench: Bench) -> None:
    bench.provide()
    bench.account.delete_needs_off = True
    bench.remove()
    bench.assert_no_resources()


def test_starting_machines_are_removed(bench: Bench) -> None:
    bench.provide()
    stop(bench.work())
    for item in bench.own_machines().values():
        bench.account.change_power(item["id"], "start")
    bench.remove()
    bench.assert_no_resources()


def test_drive_and_its_network_are_kept_with_remove_drive_false(bench: Bench) -> None:
    bench.provide()
    result = bench.remove(remove_drive=False)
    assert (result.remaining, bench.nodes(), bench.networks()) == ([], [], ["muster-bert"])
    assert "no machines of bert remain; the drive bert-data" in result.message
    assert result.message.endswith("at an unknown price. Remove it with teardown_drive=true")
    assert "no resources of bert remain" not in result.message
    bench.remove()
    bench.assert_no_resources()


def test_machine_that_cannot_be_removed_is_named_and_the_others_are_removed(bench: Bench) -> None:
    bench.provide()
    reserved = bench.own_machines()["bert-0"]
    body = '{"code": "BAD_REQUEST", "message": "it is reserved"}'
    bench.server.faults.append(PaperspaceFault(f"/machines/{reserved['id']}", "DELETE", status=400, body=body))
    result = bench.remove()
    assert bench.nodes() == ["bert-0"]
    assert f"machine bert-0 ({reserved['id']})" in result.message
    assert "it is reserved" in result.message
    assert "nothing of bert" not in result.message
    bench.server.faults.clear()
    bench.remove()
    bench.assert_no_resources()


def test_network_with_foreign_machine_is_kept(bench: Bench) -> None:
    bench.provide()
    home = next(item["id"] for item in bench.account.networks if item["name"] == "muster-bert")
    bench.account.machines.append(machine(77, name="photos", networkId=home))
    result = bench.remove()
    assert bench.nodes() == ["photos"]
    assert bench.networks() == ["muster-bert"]
    assert result.remaining == [
        "the network muster-bert is kept: it contains photos (ps00004d), not part of this cluster"
    ]


def test_foreign_drive_in_the_network_is_kept_without_advice_to_remove_it(bench: Bench) -> None:
    bench.provide()
    network = next(item["id"] for item in bench.account.networks if item["name"] == "muster-bert")
    bench.account.drives.append({**bench.account.drives[-1], "id": "drtheirs", "name": "theirs", "networkId": network})
    message = bench.remove().message
    assert "it contains drives that are not part of this cluster: theirs" in message and "teardown_drive" not in message


def test_address_reassigned_to_foreign_machine_is_not_released(bench: Bench) -> None:
    bench.provide()
    node = bench.own_machines()["bert-0"]
    ip = node["publicIp"]
    bench.work().journal.record_addresses({ip: node["id"]})
    foreign = next(item for item in bench.account.machines if item["name"] == "bert")
    bench.account.assign_public_ip(ip, foreign["id"])
    bench.remove()
    assert [item["ip"] for item in bench.account.public_ips if item.get("assignedMachineId") == foreign["id"]] == [ip]
    assert bench.nodes() == []


# --- A template created from a node, and machines created from it


def templates(bench: Bench) -> list[str]:
    return [item["name"] for item in bench.account.templates if item["id"] not in bench.account.foreign_keys]


@pytest.mark.parametrize(
    ("how", "visible_after"), [("killed before", 0), ("killed after a change", 3), ("answer lost", 0)]
)
def test_template_is_created_once_after_break_at_any_request(
    bench: Bench, without_validation: None, how: str, visible_after: int
) -> None:
    """The node restarts, the only template serves for new machines, and teardown keeps foreign resources."""
    for at in range(1, 60):
        bench.fresh()
        bench.provide(nnodes=1)
        bench.account.hidden_lists = visible_after
        interrupted = run_interrupted(bench, how, at, bench.image)
        bench.image()
        assert templates(bench) == ["golden"], at
        assert [item["state"] for item in bench.own_machines().values()] == ["ready"], at
        bench.provide(template="golden")
        (golden,) = [item["id"] for item in bench.account.templates if item["name"] == "golden"]
        bodies = [item.body for item in bench.server.requests if (item.method, item.path) == ("POST", "/machines")]
        assert bodies[-1]["templateId"] == golden
        interrupted = run_interrupted(bench, how, at, bench.remove) or interrupted
        bench.remove()
        bench.assert_no_resources()
        if not interrupted:
            return
    raise AssertionError("no command ends")


def test_existing_template_is_not_created_again(bench: Bench) -> None:
    bench.provide()
    first = bench.image()
    assert (first.changed, bool(first.template_id)) == (True, True)
    assert "the template costs 11.00 USD a month (Paperspace's page about custom templates, 2023)" in " ".join(
        bench.messages
    )
    bench.server.requests.clear()
    again = bench.image()
    assert (again.changed, again.template_id) == (False, first.template_id)
    assert bench.changes() == []


def test_image_in_check_mode_only_reads(bench: Bench) -> None:
    bench.provide()
    bench.server.requests.clear()
    assert bench.image(check=True).changed
    assert bench.changes() == []


def test_start_false_keeps_imaged_node_off(bench: Bench) -> None:
    bench.provide()
    bench.image(start=False)
    assert bench.own_machines()["bert-0"]["state"] == "off"


@pytest.mark.parametrize(
    ("node", "name", "expected_text"),
    [
        ("bert-7", "golden", "bert has no machine 'bert-7'. Its machines: bert-0, bert-1"),
        ("bert-0", "muster-bert-2", "was created from another machine"),
    ],
)
def test_impossible_template_is_refused_and_stops_no_machine(
    bench: Bench, node: str, name: str, expected_text: str
) -> None:
    bench.provide()
    bench.server.requests.clear()
    with pytest.raises(PlanRefusedError, match=re.escape(expected_text)):
        bench.image(node, name)
    assert bench.changes() == []


def test_failed_template_shows_error_of_service_and_can_be_retried(bench: Bench) -> None:
    bench.provide()
    bench.account.outcomes["template-create"] = EventOutcome("error", "no space in the store")
    with pytest.raises(
        ClusterError, match="no template was created from bert-0: template-create failed: no space in the"
    ):
        bench.image()
    assert bench.image().changed
    assert templates(bench) == ["golden"]


def test_teardown_can_keep_template_and_reports_it(bench: Bench) -> None:
    bench.provide()
    bench.image()
    result = bench.remove(remove_templates=False)
    assert re.search(r"no machines of bert remain; the template golden \(\w+\) is kept; remove it with", result.message)
    assert templates(bench) == ["golden"]
    again = bench.remove(remove_templates=False)  # the machine no longer exists, but its name is in the record
    assert "the template golden" in again.message
    bench.remove()
    bench.assert_no_resources()


def test_template_is_removed_alone(bench: Bench) -> None:
    bench.provide()
    bench.image()
    assert remove_template(bench.work(), "golden").changed
    assert templates(bench) == []
    assert not remove_template(bench.work(), "golden").changed
    with pytest.raises(PlanRefusedError, match="left alone"):
        remove_template(bench.work(), "muster-bert-2")
