# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands killed at any request, or with any reply lost, at each provider: a rerun completes or removes everything."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._clouds.engine.provision import ProvisionResult, provision
from ansible_collections.muster.training.plugins.plugin_utils._clouds.engine.teardown import (
    TeardownResult,
    stop,
    teardown,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.errors import CloudError, ClusterError
from ansible_collections.muster.training.plugins.plugin_utils._clouds.journal import read_journal
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import PlanRefusedError
from ansible_collections.muster.training.plugins.plugin_utils._clouds.registry import CLOUDS, find_cloud
from tests.support.ec2_server import EC2Server
from tests.support.minimal_cloud import Account, MinimalCloud, Request
from tests.support.paperspace_server.server import PaperspaceServer
from tests.unit.plugins.action import test_ec2_nodes as at_ec2
from tests.unit.plugins.action import test_paperspace_cluster as at_paperspace

pytestmark = pytest.mark.one_core


class Killed(BaseException):
    """End of a command, as if by a signal that cannot be caught."""


class MinimalBench:
    """An in-memory account with foreign resources, whose requests can be interrupted."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.now = 1_800_000_000.0
        self.messages: list[str] = []
        self.account = Account()
        self.fresh()

    def fresh(self) -> None:
        self.account.resources.clear()
        self.foreign = {self.account.add("machine", "bert-0", "n9"), self.account.add("network", "muster-bertha")}
        for path in self.directory.glob("*.json"):
            path.unlink()

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def work(self) -> MinimalCloud:
        journal = read_journal(self.directory, "bert", "minimal")
        return MinimalCloud("bert", self.account, journal, "", self.messages.append, self.sleep, lambda: self.now)

    def provide(self, request: Request | None = None) -> ProvisionResult:
        return provision(self.work(), request or Request())

    def remove(self) -> TeardownResult:
        return teardown(self.work())

    def own_names(self) -> list[str]:
        return sorted(item["name"] for key, item in self.account.resources.items() if key not in self.foreign)

    def assert_no_resources(self) -> None:
        assert set(self.account.resources) == self.foreign

    def break_off(self, how: str, at: int, command: Callable[[], object]) -> bool:
        sent = changed = 0

        def cut(change: bool, executed: bool) -> None:
            nonlocal sent, changed
            if not executed:
                sent, changed = sent + 1, changed + change
            if how == "killed before" and not executed and sent == at:
                raise Killed
            if executed and change and changed == at and how == "killed after a change":
                raise Killed
            if executed and change and changed == at and how == "answer lost":
                error = CloudError("no reply")
                error.reply_lost = True
                raise error

        self.account.cut = cut
        with contextlib.suppress(Killed, ClusterError):
            command()
        self.account.cut = lambda change, executed: None
        return (sent if how == "killed before" else changed) >= at


@pytest.fixture
def minimal(tmp_path: Path) -> MinimalBench:
    return MinimalBench(tmp_path)


class Account3:
    """The minimal provider, with the interface of the other two."""

    def __init__(self, directory: Path, hidden: int, changes: dict[str, Any]) -> None:
        self.bench = MinimalBench(directory)
        self.fresh, self.remove, self.assert_no_resources = (
            self.bench.fresh,
            self.bench.remove,
            self.bench.assert_no_resources,
        )
        self.break_off, self.provide = self.bench.break_off, self.bench.provide

    def check_complete(self, at: int) -> None:
        assert self.bench.own_names() == ["bert-0", "bert-1", "muster-bert"], at


class Paperspace:
    """Paperspace's test server. hidden: the number of lists that omit newly created resources."""

    def __init__(self, server: PaperspaceServer, directory: Path, hidden: int) -> None:
        self.bench, self.hidden = at_paperspace.Bench(server, directory), hidden
        self.provide, self.remove, self.assert_no_resources = (
            self.bench.provide,
            self.bench.remove,
            self.bench.assert_no_resources,
        )

    def fresh(self) -> None:
        self.bench.fresh()
        self.bench.account.hidden_lists = self.hidden

    def break_off(self, how: str, at: int, command: Callable[[], object]) -> bool:
        return at_paperspace.run_interrupted(self.bench, how, at, command)

    def check_complete(self, at: int) -> None:
        assert self.bench.nodes() == ["bert-0", "bert-1"], at
        assert self.bench.networks() == ["muster-bert"], at


class EC2:
    """EC2's test server. changes: overrides of the request."""

    def __init__(self, server: EC2Server, directory: Path, hidden: int, changes: dict[str, Any]) -> None:
        self.bench = at_ec2.Bench(server, directory)
        self.changes = {**changes, "zones": ["us-east-1b"]}
        network = ["VPC 10.2.0.0/16", "gateway of 1", "route 0.0.0.0/0", "subnet 10.2.16.0/20"]
        self.network = network if changes else []
        self.fresh = server.an_hour_passes
        self.remove, self.assert_no_resources = self.bench.remove, self.bench.assert_no_resources
        server.hidden = hidden

    def provide(self) -> ProvisionResult:
        return self.bench.provide(**self.changes)

    def break_off(self, how: str, at: int, command: Callable[[], object]) -> bool:
        return at_ec2.run_interrupted(self.bench, how, at, command)

    def check_complete(self, at: int) -> None:
        result = self.bench.server.everything()
        assert sorted(self.bench.own_instances(result)) == ["bert-0", "bert-1"], at
        assert self.bench.groups(result) == ["pg-muster-bert", "sg-muster-bert"], at
        assert self.bench.network(result) == self.network, at


@pytest.fixture
def provider(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    name, hidden, changes = request.param
    if name == "minimal":
        yield Account3(tmp_path, hidden, changes)
    elif name == "paperspace":
        with PaperspaceServer() as server:
            monkeypatch.setattr(server, "document", None)  # other tests check the same requests with it
            yield Paperspace(server, tmp_path, hidden)
    else:
        with EC2Server() as server:
            yield EC2(server, tmp_path, hidden, changes)


def row(name: str, hidden: int, how: str, changes: dict[str, Any] | None = None, thorough: bool = False) -> Any:
    marks = [pytest.mark.thorough] if thorough else []
    title = f"{name}-{how}-{hidden}{'-own network' if changes else ''}".replace(" ", "-")
    return pytest.param((name, hidden, changes or {}), how, marks=marks, id=title)


@pytest.mark.parametrize(
    ("provider", "how"),
    [
        *(row("minimal", 0, how) for how in ("killed before", "killed after a change", "answer lost")),
        row("paperspace", 0, "killed before"),
        row("paperspace", 0, "killed after a change"),
        row("paperspace", 3, "killed after a change"),
        row("paperspace", 3, "answer lost"),
        row("ec2", 0, "killed before a change"),
        row("ec2", 3, "answer lost", at_ec2.OWN_NETWORK),
        # an earlier row kills it before the next change, and the row above hides newly created resources
        row("ec2", 3, "killed after a change", at_ec2.OWN_NETWORK, thorough=True),
        # reads change nothing: the state before a read is the same as before the next change
        row("ec2", 0, "killed before", at_ec2.OWN_NETWORK, thorough=True),
        row("ec2", 0, "killed before a change", at_ec2.OWN_NETWORK, thorough=True),
        row("ec2", 3, "killed after a change", thorough=True),
        row("ec2", 3, "answer lost", thorough=True),
    ],
    indirect=["provider"],
)
def test_provision_and_teardown_complete_after_an_interruption_at_any_request(provider: Any, how: str) -> None:
    """Provisioning yields exactly the nodes and one network; teardown removes both, at no further cost."""
    for at in range(1, 100):
        provider.fresh()
        came = provider.break_off(how, at, provider.provide)
        provider.provide()
        provider.check_complete(at)
        came = provider.break_off(how, at, provider.remove) or came
        assert provider.remove().remaining == [], at
        provider.assert_no_resources()
        if not came:
            return
    raise AssertionError("no command ends")


def test_next_offer_is_tried_and_exhausted_offer_keeps_no_resources(minimal: MinimalBench) -> None:
    minimal.account.full = ("small",)
    minimal.provide(Request(machine_types=("small", "large")))
    assert {item["machine_type"] for item in minimal.account.resources.values() if item["name"] == "bert-1"} == {
        "large"
    }
    assert "trying large instead" in minimal.messages
    minimal.remove()
    minimal.account.full = ("small", "large")
    with pytest.raises(ClusterError, match="No resources of bert remain, 0 USD an hour. Try another type"):
        minimal.provide(Request(machine_types=("small", "large")))
    minimal.assert_no_resources()


def test_budget_is_kept_and_stopped_machines_are_started_again(minimal: MinimalBench) -> None:
    with pytest.raises(PlanRefusedError, match="costs 2.00 USD an hour, but max_usd_per_hour is 1"):
        minimal.provide(Request(max_usd_per_hour=1.0))
    minimal.assert_no_resources()
    minimal.provide()
    assert stop(minimal.work()).message.startswith("bert: 2 machines are off; 0 USD an hour")
    assert minimal.provide().changed
    assert not minimal.provide().changed


def test_unknown_provider_is_refused_with_the_valid_providers() -> None:
    assert all(cloud.name == name for name, cloud in CLOUDS.items())
    with pytest.raises(PlanRefusedError, match="'papersapce'. Known providers: ec2, paperspace. Did you"):
        find_cloud("papersapce")
