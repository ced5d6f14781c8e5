# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster is created and removed on EC2 over HTTP: completely, after any interruption, keeping foreign resources."""

from __future__ import annotations

import base64
import contextlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.client import AwsClient, Ec2Error
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.cloud import Ec2Cloud
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.offers import Ec2Request
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.request import build_first_boot
from ansible_collections.muster.training.plugins.plugin_utils._clouds.engine.provision import ProvisionResult, provision
from ansible_collections.muster.training.plugins.plugin_utils._clouds.engine.teardown import (
    TeardownResult,
    stop,
    teardown,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.errors import ClusterError
from ansible_collections.muster.training.plugins.plugin_utils._clouds.journal import read_journal
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import PlanRefusedError
from ansible_collections.muster.training.plugins.plugin_utils._clouds.watch_files import read_watch_files
from tests.support.ec2_server import EC2Server, Fault

pytestmark = pytest.mark.one_core

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGkUeJcbx0vDN5hXgL5sWm3YpMMmxYHcGEYfCjRTsk1U"
IMAGE = "ami-0dee90000000000a2"
REQUEST = Ec2Request(
    nnodes=2,
    machine_types=["g4dn.xlarge"],
    image=IMAGE,
    first_boot=build_first_boot(KEY, {}),
    ssh_from=["203.0.113.7/32"],
    max_usd_per_hour=10.0,
)
# A dedicated network; the controller is in 10.1.0.0/16.
OWN_NETWORK: dict[str, Any] = {"dedicated_network": True, "local_networks": ["10.1.0.0/16"]}
READS = ("Describe", "Get")
SHORT = "InsufficientInstanceCapacity"


class Killed(BaseException):
    """Simulates SIGKILL of the command."""


class CutAws(AwsClient):
    """Client that counts requests and interrupts the command at a given request."""

    bench: Bench

    def send_once(self, service: str, action: str, **parameters: Any) -> dict[str, Any]:
        bench, change = self.bench, not action.startswith(("describe", "get"))
        bench.sent += 1
        bench.changed += change
        if action == "run_instances":
            record = json.loads((bench.directory / "bert.json").read_text())
            intents = [item for item in record["entries"] if item["kind"] == "machine" and not item["id"]]
            assert len(intents) >= parameters["MinCount"], "the intent is recorded before the request"
        if bench.sent == bench.kill_before or (change and bench.changed == bench.kill_change):
            raise Killed
        reply = super().send_once(service, action, **parameters)
        if change and bench.changed == bench.kill_after:
            raise Killed
        return reply


class Bench:
    """An account on a fake server, a clock that advances only by sleeping, and interruptible requests."""

    def __init__(self, server: EC2Server, directory: Path) -> None:
        self.server = server
        self.directory = directory
        self.now = 1_800_000_000.0
        self.messages: list[str] = []
        self.kill_before: int | None = None
        self.kill_change: int | None = None
        self.kill_after: int | None = None
        self.sent = self.changed = 0
        self.clients: dict[str, Any] = {}
        self.fresh()

    def fresh(self) -> None:
        """Reset to an account with foreign resources and without a record."""
        self.server.reset()
        add_foreign_resources(self.server)
        self.foreign = self.server.foreign_bytes()
        for path in self.directory.glob("*.json"):
            path.unlink()

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def work(self) -> Ec2Cloud:
        self.sent = self.changed = 0
        keys = {"aws_access_key_id": self.server.access_key, "aws_secret_access_key": self.server.secret_key}
        aws = CutAws(session(self.server, **keys), self.server.region, self.messages.append, self.sleep, self.clients)
        aws.bench = self
        record = read_journal(self.directory, "bert", "ec2")
        return Ec2Cloud("bert", aws, record, "", self.messages.append, self.sleep, self.clock)

    def clock(self) -> float:
        return self.now

    def provide(self, **changes: Any) -> ProvisionResult:
        return provision(self.work(), REQUEST._replace(**changes))

    def remove(self) -> TeardownResult:
        return teardown(self.work())

    def own_instances(self, everything: dict[str, Any] | None = None) -> dict[str, dict[str, Any]]:
        """Return instances that are neither foreign nor terminated, by the name that the console shows."""
        result = self.server.everything() if everything is None else everything
        instances = [item for key, item in result.items() if key.startswith("i-") and key not in self.server.foreign]
        alive = [item for item in instances if item["State"]["Name"] not in ("shutting-down", "terminated")]
        by_name = {next(tag["Value"] for tag in item["Tags"] if tag["Key"] == "Name"): item for item in alive}
        assert len(by_name) == len(alive), "each node is there once"
        return by_name

    def groups(self, result: dict[str, Any]) -> list[str]:
        """Return the security and placement groups that are not foreign."""
        group_ids = [key for key in result if key not in self.server.foreign and key.startswith(("sg-", "pg-"))]
        return sorted(
            f"{key[:3]}{result[key]['GroupName']}" for key in group_ids if result[key]["GroupName"] != "default"
        )

    def network(self, result: dict[str, Any]) -> list[str]:
        """Return the networks, gateways, subnets and routes that are not foreign."""
        own_resources = {key: item for key, item in result.items() if key not in self.server.foreign}
        messages = [f"VPC {item['CidrBlock']}" for key, item in own_resources.items() if key.startswith("vpc-")]
        messages += [f"subnet {item['CidrBlock']}" for key, item in own_resources.items() if key.startswith("subnet-")]
        for key, item in own_resources.items():
            if key.startswith("igw-"):
                messages.append(f"gateway of {len(item['Attachments'])}")
            for route in item.get("Routes", []):
                if route.get("GatewayId") in own_resources:
                    messages.append(f"route {route['DestinationCidrBlock']}")
        return sorted(messages)

    def changes(self) -> list[str]:
        """Return the requests that change resources."""
        return [action for action, _parameters in self.server.requests if action and not action.startswith(READS)]

    def assert_no_resources(self) -> None:
        """Assert that no resources remain and foreign ones are unchanged."""
        result = self.server.everything()
        assert sorted(set(result) - self.server.foreign) == []
        assert self.server.costs(result) == []
        assert self.server.foreign_bytes(result) == self.foreign


class Session:
    """Session of boto3 for the fake server."""

    region_name = None

    def __init__(self, url: str, keys: dict[str, str]) -> None:
        self.real = boto3.Session(**keys)
        self.url = url

    def client(self, service: str, **options: Any) -> Any:
        return self.real.client(service, endpoint_url=self.url, **options)


SESSIONS: dict[str, Session] = {}


def session(server: EC2Server, **keys: str) -> Session:
    """Return a session shared by all tests, because it loads the EC2 service model once."""
    name = f"{server.url} {keys}"
    if name not in SESSIONS:
        SESSIONS[name] = Session(server.url, keys)
    return SESSIONS[name]


def add_foreign_resources(server: EC2Server) -> None:
    """Add foreign resources that are as similar to the cluster's as possible."""
    ec2 = server.client()
    cluster_tags = {
        "muster:cluster": "bert",
        "muster:made-by": "muster.training",
        "muster:numbers": "0-1",
        "Name": "bert-0",
    }

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
    name_tags = [{"Key": "Name", "Value": "muster-bert"}, {"Key": "muster:cluster", "Value": "bert"}]
    foreign_vpc = ec2.create_vpc(
        CidrBlock="10.0.0.0/16", TagSpecifications=[{"ResourceType": "vpc", "Tags": name_tags}]
    )
    # tags of a cluster machine in a foreign network
    marked = [*name_tags, {"Key": "muster:made-by", "Value": "muster.training"}]
    tagged = [{"ResourceType": "subnet", "Tags": marked}]
    ec2.create_subnet(VpcId=foreign_vpc["Vpc"]["VpcId"], CidrBlock="10.0.0.0/20", TagSpecifications=tagged)
    gateway = ec2.create_internet_gateway(TagSpecifications=[{"ResourceType": "internet-gateway", "Tags": marked}])
    ec2.attach_internet_gateway(
        InternetGatewayId=gateway["InternetGateway"]["InternetGatewayId"], VpcId=foreign_vpc["Vpc"]["VpcId"]
    )
    ec2.create_volume(AvailabilityZone="us-east-1a", Size=10)
    ec2.allocate_address(Domain="vpc")
    run("bert-0", {})
    run("bert-1", {"muster:cluster": "bert"})
    # "launch more like this": all of a node's tags, but the cluster did not request the machine
    run("bert-0", cluster_tags)
    run("bertha-0", {**cluster_tags, "muster:cluster": "bertha"}, ClientToken="muster-bertha")
    server.mark_foreign()
    server.requests.clear()


@pytest.fixture(scope="module")
def server() -> Iterator[EC2Server]:
    with EC2Server() as started:
        yield started


@pytest.fixture
def bench(server: EC2Server, tmp_path: Path) -> Bench:
    return Bench(server, tmp_path)


# --- Interruptions


def run_interrupted(bench: Bench, how: str, at: int, command: Callable[[], object]) -> bool:
    """Run a command that is interrupted at a request; return whether the request was reached.

    Args:
        at: Number of the request or change at which the command is killed, or which gets no reply.
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
    """Loses the reply to a change of any kind."""

    def applies(self, action: str, zone: str, market: str, instance_type: str) -> bool:
        return not action.startswith("Describe") and super().applies(action, zone, market, instance_type)


# --- Provision


def launches(bench: Bench) -> list[dict[str, str]]:
    """Return the parameters of the requests that create machines."""
    return [parameters for action, parameters in bench.server.requests if action == "RunInstances"]


def zones(bench: Bench) -> set[str]:
    return {item["Placement"]["AvailabilityZone"] for item in bench.own_instances().values()}


def test_nodes_are_created_as_requested(bench: Bench) -> None:
    result = bench.provide(machine_types=["g5.xlarge"], market="spot")
    assert result.changed
    assert [(item["name"], item["state"]) for item in result.current["nodes"]] == [
        ("bert-0", "ready"),
        ("bert-1", "ready"),
    ]
    (parameters,) = launches(bench)
    assert (parameters["MinCount"], parameters["MaxCount"]) == ("2", "2"), "all or nothing"
    assert re.fullmatch(r"muster-[0-9a-f]{48}", parameters["ClientToken"])
    assert parameters["Placement.GroupName"] == "muster-bert"
    assert parameters["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert parameters["MetadataOptions.HttpTokens"] == "required"
    assert parameters["InstanceMarketOptions.SpotOptions.SpotInstanceType"] == "one-time"
    tagged = {value for key, value in parameters.items() if key.endswith(".ResourceType")}
    assert tagged == {"instance", "volume", "network-interface", "spot-instances-request"}, "at birth"
    new = [item for key, item in bench.server.everything().items() if key not in bench.server.foreign]
    assert {item["Size"] for item in new if "Size" in item} == {150}
    group = next(
        item
        for item in bench.server.everything().values()
        if item.get("GroupName") == "muster-bert" and "VpcId" in item
    )
    internal, ssh = group["IpPermissions"]
    assert (internal["IpProtocol"], [pair["GroupId"] for pair in internal["UserIdGroupPairs"]]) == (
        "-1",
        [group["GroupId"]],
    )
    assert internal["IpRanges"] == []
    assert (ssh["FromPort"], ssh["ToPort"], [item["CidrIp"] for item in ssh["IpRanges"]]) == (
        22,
        22,
        ["203.0.113.7/32"],
    )
    for name, item in bench.own_instances().items():
        tags = {tag["Key"]: tag["Value"] for tag in item["Tags"]}
        assert tags["Name"] == tags["muster:node"] == name
        assert tags["muster:cluster"] == "bert"
        assert float(tags["muster:usd-per-hour"]) > 0.005
        assert tags["muster:price-source"].startswith("AWS's spot price history")


def test_a_second_run_changes_nothing(bench: Bench) -> None:
    bench.provide()
    bench.server.requests.clear()
    assert not bench.provide().changed
    assert not bench.provide(nnodes=1).changed, "nothing is counted down"
    assert bench.changes() == []


def test_interrupted_node_is_recreated_in_the_zone_of_the_other_nodes(bench: Bench) -> None:
    bench.provide(nnodes=3, zones=["us-east-1c"], market="spot")
    lost_id = bench.own_instances()["bert-1"]["InstanceId"]
    bench.server.interrupt(lost_id)
    bench.server.requests.clear()
    bench.provide(nnodes=3, market="spot-else-on-demand")
    instances = bench.own_instances()
    assert sorted(instances) == ["bert-0", "bert-1", "bert-2"]
    assert instances["bert-1"]["InstanceId"] != lost_id
    assert zones(bench) == {"us-east-1c"}
    assert [parameters["MaxCount"] for parameters in launches(bench)] == ["1"]
    bench.remove()
    bench.assert_no_resources()


def test_check_mode_only_reads_and_shows_the_plan(bench: Bench) -> None:
    result = provision(bench.work(), REQUEST._replace(max_usd_per_hour=None), check=True)
    assert result.changed
    assert bench.changes() == []
    assert result.cost["per_hour"] == pytest.approx(2 * (0.526 + 0.005))
    assert result.cost["disks_per_month"] == pytest.approx(2 * 150 * 0.08)
    for line in (
        "create: security group muster-bert",
        "create: placement group muster-bert",
        "create: machine bert-1 of type g4dn.xlarge with 150 GB",
        "update: security group muster-bert, to permit traffic between the nodes, and SSH only from 203.0.113.7/32",
        "cannot read the quota for g4dn.xlarge on demand, so it may be too small",
    ):
        assert line in bench.messages
    assert any(
        "1.06 USD an hour, 25.49 USD a day (AWS's price list and 0.005 for its address, 2026-01-01)" in line
        for line in bench.messages
    )


def add_foreign_group(server: EC2Server, kind: str) -> None:
    """Create a foreign group with the cluster's name."""
    ec2 = server.client()
    if kind == "placement group":
        ec2.create_placement_group(GroupName="muster-bert", Strategy="cluster")
    else:
        vpc = ec2.describe_vpcs()["Vpcs"][0]["VpcId"]
        ec2.create_security_group(GroupName="muster-bert", Description="theirs", VpcId=vpc)


def add_duplicate_network(server: EC2Server) -> None:
    """Create two groups of the cluster in two networks."""
    ec2 = server.client()
    tags = [{"Key": "muster:cluster", "Value": "bert"}, {"Key": "muster:made-by", "Value": "muster.training"}]
    tagged = [{"ResourceType": "security-group", "Tags": tags}]
    for vpc in [item["VpcId"] for item in ec2.describe_vpcs()["Vpcs"]]:
        ec2.create_security_group(GroupName="muster-bert", Description="d", VpcId=vpc, TagSpecifications=tagged)


@pytest.mark.parametrize(
    ("prepare", "changes", "expected_text"),
    [
        (
            None,
            {"max_usd_per_hour": 1.0},
            "with g4dn.xlarge on demand, the cluster costs 1.06 USD an hour, but max_usd_per_hour is 1",
        ),
        (
            None,
            {"machine_types": ["g4dn.xlrage"]},
            "EC2 has no instance type 'g4dn.xlrage' in us-east-1; did you mean g4dn",
        ),
        (
            None,
            {"machine_types": ["g5g.xlarge"]},
            "g5g.xlarge has the architecture arm64, but the image Deep Learning Base",
        ),
        (None, {"image": "ami-0dee90000000000ff"}, "image ami-0dee90000000000ff does not exist in us-east-1"),
        (None, {"image": "/aws/service/none"}, "AWS has no image under /aws/service/none in us-east-1"),
        (None, {"disk_gb": 10}, "disk_gb is 10, but the image Deep Learning Base OSS"),
        (None, {"key_name": "laptop"}, "key pair laptop does not exist in us-east-1"),
        (
            None,
            {"zones": ["us-east-1z"]},
            "cannot create machines in us-east-1z: only these zones have a subnet: us-east-1a, us-",
        ),
        (None, {"subnet_id": "subnet-0123"}, "subnet_id is subnet-0123: describe_subnets was rejected"),
        (
            lambda ec2_server: add_foreign_group(ec2_server, "security group"),
            {},
            "the name bert is taken: security group muster-bert (sg-",
        ),
        (
            lambda ec2_server: add_foreign_group(ec2_server, "placement group"),
            {},
            "the name bert is taken: placement group muster-bert (pg-",
        ),
        (
            None,
            {**OWN_NETWORK, "local_networks": ["10.0.0.0/8", "172.16.0.0/12"]},
            "no private /16 address block is free",
        ),
        (add_duplicate_network, {}, "2 networks are named muster-bert: sg-"),
        (lambda ec2_server: ec2_server.prices.pop("g4dn.xlarge"), {}, "the price of g4dn.xlarge on demand is unknown"),
        (
            lambda ec2_server: ec2_server.quotas.update({"L-DB2E81BA": 4.0}),
            {},
            "2 g4dn.xlarge on demand need 8 vCPUs, but the account's quota for this family (L-DB2E81BA) is 4",
        ),
    ],
)
def test_impossible_request_is_refused_in_one_line_and_creates_nothing(
    bench: Bench, prepare: Callable[[EC2Server], object] | None, changes: dict[str, Any], expected_text: str
) -> None:
    if prepare:
        prepare(bench.server)
    bench.server.requests.clear()
    with pytest.raises(PlanRefusedError) as excinfo:
        bench.provide(**changes)
    assert expected_text in str(excinfo.value)
    assert "\n" not in str(excinfo.value)
    assert bench.changes() == []


@pytest.mark.parametrize(
    ("injected", "expected_text"),
    [
        (
            Fault("AuthFailure", "DescribeInstances", message="not able to validate"),
            "AWS rejected the credentials: not",
        ),
        (
            Fault("RequestExpired", "DescribeInstances", message="Request has expired."),
            "according to AWS, this machine's clock is wrong",
        ),
        (
            Fault("UnauthorizedOperation", "DescribeInstances"),
            "this AWS user is not allowed to call describe_instances",
        ),
    ],
)
def test_access_errors_are_explained_and_change_nothing(bench: Bench, injected: Fault, expected_text: str) -> None:
    bench.server.faults = [injected]
    with pytest.raises(Ec2Error) as excinfo:
        bench.provide()
    assert str(excinfo.value).startswith(expected_text)
    assert bench.changes() == []


def test_existing_nodes_keep_their_type_and_disk_size(bench: Bench) -> None:
    bench.provide()
    bench.server.requests.clear()
    for changes, arguments in (
        ({"machine_types": ["g5.xlarge"]}, "bert-0 is of type g4dn.xlarge, not g5.xlarge"),
        ({"disk_gb": 300}, "bert-0 has a disk of 150 GB, not 300"),
    ):
        with pytest.raises(PlanRefusedError, match=arguments):
            bench.provide(**changes)
    assert bench.changes() == []


def test_ssh_rule_follows_current_address_and_keeps_foreign_rules(bench: Bench) -> None:
    bench.provide()
    group = next(
        parameters["GroupId"] for action, parameters in bench.server.requests if action.startswith("Authorize")
    )
    manual_rule = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "192.0.2.1/32"}]}
    bench.server.client().authorize_security_group_ingress(GroupId=group, IpPermissions=[manual_rule])
    assert bench.provide(ssh_from=["198.51.100.9/32"]).changed
    rules = bench.server.everything()[group]["IpPermissions"]
    sources = {item["CidrIp"] for rule in rules for item in rule["IpRanges"]}
    assert sources == {"198.51.100.9/32", "192.0.2.1/32"}, "what somebody added by hand is theirs"


# --- Own network


def test_own_network_reaches_the_internet_and_overlaps_no_other(bench: Bench) -> None:
    """A subnet remains in a zone without capacity; it costs nothing and is removed with the others."""
    planned = provision(bench.work(), REQUEST._replace(**OWN_NETWORK, max_usd_per_hour=None), check=True)
    assert (planned.changed, bench.changes()) == (True, [])
    for line in (
        "create: VPC muster-bert with address block 10.2.0.0/16",
        "create: internet gateway muster-bert",
        "create: subnet muster-bert-us-east-1a",
    ):
        assert line in bench.messages
    bench.server.faults = [Fault(SHORT, zone="us-east-1a", times=None)]
    bench.provide(**OWN_NETWORK, zones=["us-east-1a", "us-east-1c"])
    result = bench.server.everything()
    assert bench.network(result) == [
        "VPC 10.2.0.0/16",
        "gateway of 1",
        "route 0.0.0.0/0",
        "subnet 10.2.0.0/20",
        "subnet 10.2.32.0/20",
    ]
    instances = bench.own_instances(result)
    (vpc,) = {item["VpcId"] for item in instances.values()}
    assert (vpc in bench.server.foreign, zones(bench)) == (False, {"us-east-1c"})
    for action, parameters in bench.server.requests:
        if action in ("CreateVpc", "CreateInternetGateway", "CreateSubnet"):
            assert "muster:made-by" in parameters.values(), "tagged at birth"
    bench.server.requests.clear()
    assert not bench.provide().changed, "what is there is used, whatever is asked for"
    bench.server.interrupt(instances["bert-0"]["InstanceId"])
    bench.provide()
    assert {item["VpcId"] for item in bench.own_instances().values()} == {vpc}
    assert bench.remove().remaining == []
    bench.assert_no_resources()


def test_duplicate_network_after_lost_reply_is_removed(bench: Bench) -> None:
    """The list is stale for longer than on the real EC2."""
    sleep = bench.sleep

    def reveal_and_sleep(seconds: float) -> None:
        bench.server.hidden = 0
        sleep(seconds)

    bench.sleep = reveal_and_sleep  # type: ignore[method-assign]
    bench.server.hidden = 30
    bench.server.faults = [LostChange(action="CreateVpc", carried_out=True)]
    bench.provide(**OWN_NETWORK)
    for _turn in range(30):
        bench.server.client().describe_vpcs()
    assert [item[:3] for item in bench.network(bench.server.everything())].count("VPC") == 2
    bench.provide(**OWN_NETWORK)
    result = bench.server.everything()
    assert [item[:3] for item in bench.network(result)].count("VPC") == 1
    assert {item["VpcId"] for item in bench.own_instances(result).values()} <= set(result)
    bench.remove()
    bench.assert_no_resources()


def test_half_removed_network_is_repaired(bench: Bench) -> None:
    """The route leads to a gateway that was deleted."""
    bench.provide(**OWN_NETWORK)
    while "DeleteInternetGateway" not in bench.changes():
        run_interrupted(bench, "killed after a change", 1, bench.remove)
    bench.provide(zones=["us-east-1a"], **OWN_NETWORK)
    assert "route 0.0.0.0/0" in bench.network(bench.server.everything())
    bench.remove()
    bench.assert_no_resources()


def test_failed_network_creation_removes_all_resources(bench: Bench) -> None:
    for action in ("CreateVpc", "CreateInternetGateway", "CreateSubnet"):
        bench.server.faults = [Fault("LimitExceeded", action=action, times=None)]
        with pytest.raises(ClusterError, match="LimitExceeded"):
            bench.provide(**OWN_NETWORK)
        bench.server.faults = []
        bench.assert_no_resources()


def test_network_with_foreign_machine_is_kept(bench: Bench) -> None:
    bench.provide(**OWN_NETWORK)
    subnet = bench.own_instances()["bert-0"]["SubnetId"]
    run = bench.server.client().run_instances
    created = run(ImageId=IMAGE, InstanceType="g4dn.xlarge", MinCount=1, MaxCount=1, SubnetId=subnet)
    foreign_id = created["Instances"][0]["InstanceId"]
    result = bench.remove()
    assert result.remaining == [
        f"the VPC muster-bert is kept: it contains 'without a name' ({foreign_id}), not part of this cluster"
    ]
    assert bench.groups(bench.server.everything()) == []
    bench.server.client().terminate_instances(InstanceIds=[foreign_id])
    for _turn in range(2):
        bench.server.client().describe_instances()
    bench.remove()
    bench.assert_no_resources()


def test_network_with_foreign_interface_keeps_its_gateway(bench: Bench) -> None:
    """A database appears as a network interface without a machine."""
    bench.provide(**OWN_NETWORK)
    subnet = bench.own_instances()["bert-0"]["SubnetId"]
    created = bench.server.client().create_network_interface(SubnetId=subnet)
    foreign_id = created["NetworkInterface"]["NetworkInterfaceId"]
    result = bench.remove()
    assert result.remaining == [
        f"the VPC muster-bert is kept: it contains network interface {foreign_id}, not part of this cluster"
    ]
    assert not {"DetachInternetGateway", "DeleteSubnet"} & {action for action, _parameters in bench.server.requests}
    bench.server.client().delete_network_interface(NetworkInterfaceId=foreign_id)
    bench.remove()
    bench.assert_no_resources()


def test_moving_a_cluster_to_another_network_is_refused(bench: Bench) -> None:
    bench.provide()
    bench.server.requests.clear()
    with pytest.raises(PlanRefusedError, match=r"bert is in vpc-\w+, which is not its own network"):
        bench.provide(**OWN_NETWORK)
    bench.remove()
    bench.provide(**OWN_NETWORK)
    subnet = bench.server.client().describe_subnets()["Subnets"][0]["SubnetId"]
    bench.server.requests.clear()
    with pytest.raises(PlanRefusedError, match=r"bert has its own network \(vpc-\w+\), and subnet-\w+ is not a subnet"):
        bench.provide(subnet_id=subnet)
    assert bench.changes() == []


# --- EFA


def test_efa_interface_and_rules_are_created_for_types_with_efa(bench: Bench) -> None:
    expected = {"machine_types": ["g4dn.8xlarge"], "zones": ["us-east-1a"], "price_per_hour": 2.2}
    bench.provide(**expected)
    (parameters,) = launches(bench)
    assert parameters["NetworkInterface.1.InterfaceType"] == "efa"
    assert any("bert (g4dn.8xlarge on demand in us-east-1a, with EFA): " in line for line in bench.messages)
    result = bench.server.everything().values()
    (group,) = (item for item in result if item.get("GroupName") == "muster-bert" and "VpcId" in item)
    for rules in (group["IpPermissions"], group["IpPermissionsEgress"]):
        internal = [rule for rule in rules if rule["UserIdGroupPairs"]]
        assert [(rule["IpProtocol"], rule["UserIdGroupPairs"][0]["GroupId"]) for rule in internal] == [
            ("-1", group["GroupId"])
        ]
    bench.server.requests.clear()
    assert not bench.provide(**expected).changed
    bench.remove()
    bench.assert_no_resources()


def test_all_efa_cards_are_used_on_request(bench: Bench) -> None:
    bench.provide(machine_types=["p4d.24xlarge"], efa="all", price_per_hour=2.2)
    (parameters,) = launches(bench)
    keys = [f"NetworkInterface.{number}" for number in range(1, 6)]
    assert [
        (parameters[f"{key}.NetworkCardIndex"], parameters[f"{key}.DeviceIndex"], parameters[f"{key}.InterfaceType"])
        for key in keys
    ] == [("0", "0", "interface"), ("0", "1", "efa-only"), *((str(card), "0", "efa-only") for card in (1, 2, 3))]
    assert not any("AssociatePublicIpAddress" in key for key in parameters)
    assert any("with EFA on 4 network cards" in line for line in bench.messages)


def test_unused_efa_cards_are_mentioned(bench: Bench) -> None:
    bench.provide(machine_types=["p4d.24xlarge"], price_per_hour=2.2)
    assert any(
        "p4d.24xlarge has 4 network cards with EFA, but only one of them is used" in line for line in bench.messages
    )


def test_machines_are_tagged_with_their_location_in_the_network(bench: Bench) -> None:
    bench.server.network_nodes = [["nn-1", "nn-2"], ["nn-1", "nn-3"]]
    bench.provide()
    tags = {
        name: {tag["Key"]: tag["Value"] for tag in item["Tags"]}.get("muster:topology")
        for name, item in bench.own_instances().items()
    }
    assert tags == {"bert-0": "nn-1/nn-2", "bert-1": "nn-1/nn-3"}


def test_efa_none_creates_no_interface_and_efa_required_needs_a_type_with_efa(bench: Bench) -> None:
    with pytest.raises(PlanRefusedError, match=r"g4dn.xlarge does not support EFA, but provision_efa=required is set"):
        bench.provide(efa="required")
    bench.provide(machine_types=["g4dn.8xlarge"], efa="none", price_per_hour=2.2)
    (parameters,) = launches(bench)
    assert "NetworkInterface.1.InterfaceType" not in parameters
    assert "AuthorizeSecurityGroupEgress" not in bench.changes()


# --- Shortage


def test_types_and_zones_are_tried_in_order(bench: Bench) -> None:
    bench.server.faults = [
        Fault(SHORT, market="spot", instance_type="g5.xlarge", times=None),
        Fault(SHORT, market="spot", zone="us-east-1b", times=None),
    ]
    bench.provide(
        machine_types=["g5.xlarge", "g4dn.xlarge"], market="spot-else-on-demand", zones=["us-east-1b", "us-east-1a"]
    )
    instances = list(bench.own_instances().values())
    assert {(item["InstanceType"], item.get("InstanceLifecycle")) for item in instances} == {("g4dn.xlarge", "spot")}
    assert zones(bench) == {"us-east-1a"}
    attempts = [
        (parameters["InstanceType"], parameters["NetworkInterface.1.SubnetId"]) for parameters in launches(bench)
    ]
    assert [name for name, _subnet in attempts] == ["g5.xlarge", "g5.xlarge", "g4dn.xlarge", "g4dn.xlarge"]
    assert len({parameters["ClientToken"] for parameters in launches(bench)}) == 4


def test_missing_spot_quota_switches_to_on_demand_after_one_request(bench: Bench) -> None:
    bench.server.faults = [Fault("MaxSpotInstanceCountExceeded", market="spot", times=None)]
    bench.provide(market="spot-else-on-demand")
    assert [parameters.get("InstanceMarketOptions.MarketType") for parameters in launches(bench)] == ["spot", None]


def test_lack_of_capacity_removes_all_resources(bench: Bench) -> None:
    bench.server.faults = [Fault(SHORT, times=None)]
    with pytest.raises(ClusterError) as excinfo:
        bench.provide(zones=["us-east-1a"])
    assert "g4dn.xlarge on demand in us-east-1a: run_instances was rejected: Refused on purpose" in str(excinfo.value)
    assert "No resources of bert remain, 0 USD an hour" in str(excinfo.value)
    bench.assert_no_resources()
    bench.server.faults = [Fault(SHORT, times=3)]
    bench.provide(zones=["us-east-1a"], wait_minutes=20.0)
    assert sorted(bench.own_instances()) == ["bert-0", "bert-1"]


def test_permanent_refusal_is_not_retried_and_removes_all_resources(bench: Bench) -> None:
    bench.server.faults = [Fault("OptInRequired", times=None)]
    with pytest.raises(ClusterError, match="OptInRequired"):
        bench.provide()
    assert len(launches(bench)) == 1
    bench.assert_no_resources()


def test_node_lost_while_starting_moves_all_nodes_to_next_zone(bench: Bench) -> None:
    """All nodes must be in the same zone, so the next zone is tried."""
    bench.server.pending = 3
    sleep, first = bench.sleep, [True]

    def interrupt(seconds: float) -> None:
        sleep(seconds)
        if first and (instance_ids := [key for key in bench.server.left_over() if key.startswith("i-")]):
            first.clear()
            bench.server.interrupt(instance_ids[0])

    bench.sleep = interrupt  # type: ignore[method-assign]
    bench.provide(zones=["us-east-1a", "us-east-1b"], market="spot")
    assert zones(bench) == {"us-east-1b"}
    assert sorted(bench.own_instances()) == ["bert-0", "bert-1"]


def test_client_token_reused_with_other_parameters_finds_its_machines(bench: Bench) -> None:
    """The command is killed after the request and repeated a minute later, when the price in the tags has changed."""
    bench.server.hidden = 6
    assert run_interrupted(bench, "killed after a change", 4, bench.provide)
    bench.now += 100
    bench.server.prices["g4dn.xlarge"] = 0.6
    bench.provide()
    assert sorted(bench.own_instances()) == ["bert-0", "bert-1"]


def test_recreated_cluster_uses_new_client_tokens(bench: Bench) -> None:
    """AWS remembers a token for a day, and would return the terminated machines."""
    bench.provide()
    bench.remove()
    bench.server.an_hour_passes()
    bench.provide()
    assert sorted(bench.own_instances()) == ["bert-0", "bert-1"]
    assert len({parameters["ClientToken"] for parameters in launches(bench)}) == 2


# --- Stop and teardown


def test_machine_that_powers_itself_off_is_terminated(bench: Bench) -> None:
    """A terminated machine costs nothing and does not restart."""
    watch = read_watch_files("30m", "24h")
    bench.provide(first_boot=build_first_boot(KEY, watch))
    (parameters,) = launches(bench)
    assert base64.b64decode(parameters["UserData"]).decode() == build_first_boot(KEY, watch)
    for item in bench.own_instances().values():
        bench.server.guest_powers_off(item["InstanceId"])
    assert bench.server.costs() == []
    assert bench.own_instances() == {}
    assert bench.remove().remaining == []
    bench.assert_no_resources()


def test_stopped_cluster_is_started_again(bench: Bench) -> None:
    bench.provide()
    result = stop(bench.work())
    assert result.changed
    assert {item["State"]["Name"] for item in bench.own_instances().values()} == {"stopped"}
    assert (
        "bert: 2 machines are off; 0 USD an hour; disks, whether machines are on or off: 24.00 USD a month"
        in result.message
    )
    bench.server.requests.clear()
    bench.provide()
    assert bench.changes() == ["StartInstances"]
    assert {item["State"]["Name"] for item in bench.own_instances().values()} == {"running"}


def test_stopping_spot_machines_is_refused(bench: Bench) -> None:
    bench.provide(market="spot")
    bench.server.requests.clear()
    with pytest.raises(
        PlanRefusedError, match="bert-0, bert-1 of bert cannot be stopped: spot instances can only be removed"
    ):
        stop(bench.work())
    assert bench.changes() == []


def test_foreign_machine_in_security_group_is_kept_and_named(bench: Bench) -> None:
    bench.provide()
    group = next(
        parameters["GroupId"] for action, parameters in bench.server.requests if action.startswith("Authorize")
    )
    interface = {"DeviceIndex": 0, "SubnetId": bench.own_instances()["bert-0"]["SubnetId"], "Groups": [group]}
    created = bench.server.client().run_instances(
        ImageId=IMAGE, InstanceType="g4dn.xlarge", MinCount=1, MaxCount=1, NetworkInterfaces=[interface]
    )
    foreign_id = created["Instances"][0]["InstanceId"]
    result = bench.remove()
    assert result.remaining == [
        f"the security group muster-bert is kept: it contains 'without a name' ({foreign_id}), not part of this cluster"
    ]
    assert [key for key in bench.server.left_over() if key.startswith("i-")] == [foreign_id]
    assert bench.server.foreign_bytes() == bench.foreign


def test_protected_machine_is_named_and_the_others_are_removed(bench: Bench) -> None:
    bench.provide()
    protected_id = bench.own_instances()["bert-1"]["InstanceId"]
    protect = bench.server.client().modify_instance_attribute
    protect(InstanceId=protected_id, DisableApiTermination={"Value": True})
    result = bench.remove()
    assert list(bench.own_instances()) == ["bert-1"]
    assert result.remaining[0].startswith(f"machine bert-1 ({protected_id}): terminate_instances was rejected: ")
    assert result.message.startswith("bert has not been completely removed (0.53 USD an hour). Remaining: ")
    protect(InstanceId=protected_id, DisableApiTermination={"Value": False})
    assert bench.remove().message == "no resources of bert remain, 0 USD an hour"
    bench.assert_no_resources()


def test_teardown_works_without_the_record(bench: Bench) -> None:
    bench.provide()
    (bench.directory / "bert.json").unlink()
    assert bench.remove().remaining == []
    bench.assert_no_resources()
    assert not bench.remove().changed


def test_stop_and_teardown_change_nothing_while_nodes_are_in_use(bench: Bench) -> None:
    bench.provide()
    bench.server.requests.clear()

    def refuse(machines: Any) -> None:
        raise PlanRefusedError(f"{len(machines)} may be at work")

    for command in (stop, teardown):
        with pytest.raises(PlanRefusedError, match="2 may be at work"):
            command(bench.work(), confirm=refuse)
    assert bench.changes() == []
