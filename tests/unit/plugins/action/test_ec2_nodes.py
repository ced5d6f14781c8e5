# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster is made and removed at EC2 over HTTP: wholly, wherever it is broken off, and nobody else's is touched."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from ansible_collections.muster.training.plugins.plugin_utils._cluster_record import read_record
from ansible_collections.muster.training.plugins.plugin_utils._ec2_nodes.calls import Aws
from ansible_collections.muster.training.plugins.plugin_utils._ec2_nodes.leave import Done, remove
from ansible_collections.muster.training.plugins.plugin_utils._ec2_nodes.look import ClusterError, Work
from ansible_collections.muster.training.plugins.plugin_utils._ec2_nodes.provide import Provided, provide
from ansible_collections.muster.training.plugins.plugin_utils._ec2_nodes.way import Ask
from tests.ec2_server import EC2Server, Fault

pytestmark = pytest.mark.one_core

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGkUeJcbx0vDN5hXgL5sWm3YpMMmxYHcGEYfCjRTsk1U"
IMAGE = "ami-0dee90000000000a2"
ASK = Ask(
    nnodes=2,
    machine_types=["g4dn.xlarge"],
    image=IMAGE,
    ssh_key=KEY,
    ssh_from=["203.0.113.7/32"],
    max_usd_per_hour=10.0,
)
READS = ("Describe", "Get")
SHORT = "InsufficientInstanceCapacity"


class Killed(BaseException):
    """The command ends here, as if by a signal that cannot be caught."""


class CutAws(Aws):
    """Requests that are counted, and end at one of them."""

    bench: Bench

    def _once(self, service: str, action: str, given: dict[str, Any]) -> dict[str, Any]:
        bench, change = self.bench, not action.startswith(("describe", "get"))
        bench.sent += 1
        bench.changed += change
        if action == "run_instances":
            record = json.loads((bench.directory / "bert.json").read_text())
            named = [one for one in record["entries"] if one["what"] == "machine" and not one["id"]]
            assert len(named) >= given["MinCount"], "the intent is recorded before the request"
        if bench.sent == bench.kill_before or (change and bench.changed == bench.kill_change):
            raise Killed
        answer = super()._once(service, action, given)
        if change and bench.changed == bench.kill_after:
            raise Killed
        return answer


class Bench:
    """One account behind one server, a clock that only sleeping moves, and requests that can be cut."""

    def __init__(self, server: EC2Server, directory: Path) -> None:
        self.server = server
        self.directory = directory
        self.now = 1_800_000_000.0
        self.said: list[str] = []
        self.kill_before: int | None = None
        self.kill_change: int | None = None
        self.kill_after: int | None = None
        self.sent = self.changed = 0
        self.clients: dict[str, Any] = {}
        self.fresh()

    def fresh(self) -> None:
        """Another account, with other people's things in it, and no record."""
        self.server.reset()
        sprinkle(self.server)
        self.foreign = self.server.foreign_bytes()
        for path in self.directory.glob("*.json"):
            path.unlink()

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def work(self) -> Work:
        self.sent = self.changed = 0
        keys = {"aws_access_key_id": self.server.access_key, "aws_secret_access_key": self.server.secret_key}
        aws = CutAws(session(self.server, **keys), self.server.region, self.said.append, self.sleep, self.clients)
        aws.bench = self
        record = read_record(self.directory, "bert", "ec2")
        return Work("bert", aws, record, "", self.said.append, self.sleep, self.clock)

    def clock(self) -> float:
        return self.now

    def provide(self, **changes: Any) -> Provided:
        return provide(self.work(), ASK._replace(**changes))

    def remove(self) -> Done:
        return remove(self.work())

    def own(self, everything: dict[str, Any] | None = None) -> dict[str, dict[str, Any]]:
        """Instances that are not other people's and not gone, by the name that the console shows."""
        found = self.server.everything() if everything is None else everything
        own = [one for key, one in found.items() if key.startswith("i-") and key not in self.server.foreign]
        alive = [one for one in own if one["State"]["Name"] not in ("shutting-down", "terminated")]
        named = {next(tag["Value"] for tag in one["Tags"] if tag["Key"] == "Name"): one for one in alive}
        assert len(named) == len(alive), "each node is there once"
        return named

    def groups(self, found: dict[str, Any]) -> list[str]:
        """Security and placement groups that are not other people's."""
        own = [key for key in found if key not in self.server.foreign and key.startswith(("sg-", "pg-"))]
        return sorted(f"{key[:3]}{found[key]['GroupName']}" for key in own)

    def changes(self) -> list[str]:
        """Requests that change something."""
        return [action for action, _given in self.server.requests if action and not action.startswith(READS)]

    def nothing_left(self) -> None:
        """What every teardown promises."""
        found = self.server.everything()
        assert sorted(set(found) - self.server.foreign) == []
        assert self.server.costs(found) == []
        assert self.server.foreign_bytes(found) == self.foreign


class Session:
    """boto3's session, of one server."""

    region_name = None

    def __init__(self, url: str, keys: dict[str, str]) -> None:
        self.real = boto3.Session(**keys)
        self.url = url

    def client(self, service: str, **given: Any) -> Any:
        return self.real.client(service, endpoint_url=self.url, **given)


SESSIONS: dict[str, Session] = {}


def session(server: EC2Server, **keys: str) -> Session:
    """One for all tests: it reads the description of EC2 once."""
    name = f"{server.url} {keys}"
    if name not in SESSIONS:
        SESSIONS[name] = Session(server.url, keys)
    return SESSIONS[name]


def sprinkle(server: EC2Server) -> None:
    """Other people's things, as near to the cluster's as they can be."""
    ec2 = server.client()
    ours = {"muster:cluster": "bert", "muster:made-by": "muster.training", "muster:numbers": "0-1", "Name": "bert-0"}

    def run(name: str, tags: dict[str, str], **more: Any) -> None:
        pairs = [{"Key": key, "Value": value} for key, value in {**tags, "Name": name}.items()]
        tagged = [{"ResourceType": kind, "Tags": pairs} for kind in ("instance", "volume")]
        ec2.run_instances(
            ImageId=IMAGE, InstanceType="g4dn.xlarge", MinCount=1, MaxCount=1, TagSpecifications=tagged, **more
        )

    vpc = ec2.describe_vpcs()["Vpcs"][0]["VpcId"]
    for name in ("bert", "muster-bertha", "muster-bert-2"):
        ec2.create_security_group(GroupName=name, Description="theirs", VpcId=vpc)
    ec2.create_placement_group(GroupName="muster-bert-2", Strategy="cluster")
    ec2.create_volume(AvailabilityZone="us-east-1a", Size=10)
    ec2.allocate_address(Domain="vpc")
    run("bert-0", {})
    run("bert-1", {"muster:cluster": "bert"})
    run("bert-0", ours)  # "launch more like this": all tags of a node, and none of our requests
    run("bertha-0", {**ours, "muster:cluster": "bertha"}, ClientToken="muster-bertha")
    server.mark_foreign()
    server.requests.clear()


@pytest.fixture(scope="module")
def server() -> Iterator[EC2Server]:
    with EC2Server() as started:
        yield started


@pytest.fixture
def bench(server: EC2Server, tmp_path: Path) -> Bench:
    return Bench(server, tmp_path)


# --- Broken off anywhere


def broken_off(bench: Bench, how: str, at: int, command: Callable[[], object]) -> bool:
    """Run a command that is broken off at one request; return whether it came so far.

    at: the number of the request or change before or after which it is killed, or which is not answered.
    """
    bench.kill_before = at if how == "killed before" else None
    bench.kill_change = at if how == "killed before a change" else None
    bench.kill_after = at if how == "killed after a change" else None
    if how == "answer lost":
        bench.server.faults.append(LostChange(action=None, skip=at - 1, carried_out=True))
    with contextlib.suppress(Killed, ClusterError):
        command()
    bench.kill_before = bench.kill_change = bench.kill_after = None
    bench.server.faults.clear()
    return (bench.sent if how == "killed before" else bench.changed) >= at


class LostChange(Fault):
    """The answer to one of the changes is lost, whichever they are."""

    def applies(self, action: str, zone: str, market: str, instance_type: str) -> bool:
        return not action.startswith("Describe") and super().applies(action, zone, market, instance_type)


@pytest.mark.parametrize(
    ("how", "hidden"),
    [
        ("killed before a change", 0),
        ("killed after a change", 3),
        ("answer lost", 3),
        # a question changes nothing: before it all is as before the next change
        pytest.param("killed before", 0, marks=pytest.mark.thorough),
    ],
)
def test_broken_off_at_any_request_and_run_again(bench: Bench, how: str, hidden: int) -> None:
    """Exactly the nodes and one of each group; then nothing at all, and the meter at 0. Other people's are as before.

    hidden: so many lists do not show yet what was made.
    """
    bench.server.hidden = hidden
    for at in range(1, 100):
        bench.server.an_hour_passes()
        came = broken_off(bench, how, at, bench.provide)
        bench.provide()
        found = bench.server.everything()
        assert sorted(bench.own(found)) == ["bert-0", "bert-1"], at
        assert bench.groups(found) == ["pg-muster-bert", "sg-muster-bert"], at
        came = broken_off(bench, how, at, bench.remove) or came
        assert bench.remove().left == [], at
        bench.nothing_left()
        if not came:
            return
    raise AssertionError("no command ends")
