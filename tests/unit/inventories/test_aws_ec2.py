# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""inventories/aws_ec2.yml unchanged, with the amazon.aws plugin, against moto's EC2 over HTTP."""

from __future__ import annotations

import ast
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from moto import server as moto_server
from moto.ec2.models import instance_types

from tests.unit.inventories.listing import EXAMPLES, list_training

SAMPLE = EXAMPLES / "aws_ec2.yml"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}


class Cloud:
    """An imagined AWS account."""

    def __init__(self, url: str) -> None:
        self.url = url

    def client(self, region: str = "us-east-1") -> Any:
        return boto3.client(
            "ec2",
            region_name=region,
            endpoint_url=self.url,
            aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        )

    def start(self, instance_type: str, *, region: str = "us-east-1", **request: Any) -> dict[str, Any]:
        """Start an instance and return it as AWS describes it."""
        client = self.client(region)
        image = client.describe_images()["Images"][0]["ImageId"]
        reply = client.run_instances(ImageId=image, InstanceType=instance_type, MinCount=1, MaxCount=1, **request)
        instance_id = reply["Instances"][0]["InstanceId"]
        described = client.describe_instances(InstanceIds=[instance_id])["Reservations"][0]["Instances"]
        return dict(described[0])


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    cloud = Cloud(f"http://{host}:{port}")
    try:
        # The account belongs to the process and not to the server.
        urllib.request.urlopen(urllib.request.Request(f"{cloud.url}/moto-api/reset", method="POST")).close()
        yield cloud
    finally:
        server.stop()


@pytest.fixture
def list_hosts(tmp_path: Path, cloud: Cloud) -> Any:
    """Return a function that runs ansible-inventory on a changed sample and ranks.yml, and returns training hosts."""

    def run(change: Any = lambda text: text) -> dict[str, dict[str, Any]]:
        text = change(SAMPLE.read_text())
        return list_training(tmp_path, SAMPLE.name, text, None, AWS_URL=cloud.url, **CREDENTIALS)

    return run


def test_running_gpu_instances_are_the_cluster(cloud: Cloud, list_hosts: Any) -> None:
    started = [cloud.start(name) for name in ("p4d.24xlarge", "g5.12xlarge", "g4dn.xlarge")]
    cloud.start("t3.medium")
    cloud.start("g5.xlarge", region="eu-west-1")
    stopped = cloud.start("g5.xlarge")
    cloud.client().stop_instances(InstanceIds=[stopped["InstanceId"]])
    hosts = list_hosts()
    assert set(hosts) == {instance["InstanceId"] for instance in started}
    slots = {"p4d.24xlarge": 8, "g5.12xlarge": 4, "g4dn.xlarge": 1}
    for instance in started:
        variables = hosts[instance["InstanceId"]]
        assert variables["ansible_host"] == instance["PublicIpAddress"]
        assert variables["ansible_user"] == "ubuntu"
        assert variables["node_address"] == instance["PrivateIpAddress"]
        assert variables["node_slots"] == slots[instance["InstanceType"]]
    # By ID, regardless of the order in AWS's reply, so that ranks are stable as long as the instances exist.
    assert [hosts[name]["node_rank"] for name in sorted(hosts)] == [0, 1, 2]


def test_instance_without_public_address_uses_its_private_address(cloud: Cloud, list_hosts: Any) -> None:
    client = cloud.client()
    subnet = client.describe_subnets()["Subnets"][0]["SubnetId"]
    interface = {"DeviceIndex": 0, "SubnetId": subnet, "AssociatePublicIpAddress": False}
    private = cloud.start("g5.xlarge", NetworkInterfaces=[interface])
    assert "PublicIpAddress" not in private
    assert list_hosts()[private["InstanceId"]]["ansible_host"] == private["PrivateIpAddress"]


def test_commented_out_filters_work(cloud: Cloud, list_hosts: Any) -> None:
    def tagged(**tags: str) -> dict[str, Any]:
        pairs = [{"Key": key, "Value": value} for key, value in tags.items()]
        return {"TagSpecifications": [{"ResourceType": "instance", "Tags": pairs}]}

    spot = cloud.start("g5.xlarge", **tagged(Name="same"), InstanceMarketOptions={"MarketType": "spot"})
    on_demand = cloud.start("g5.xlarge", **tagged(Name="same", cluster="bert"))
    assert set(list_hosts()) == {spot["InstanceId"], on_demand["InstanceId"]}
    assert set(list_hosts(uncomment('  # "tag:cluster": bert'))) == {on_demand["InstanceId"]}
    created = cloud.start("g5.xlarge", **tagged(**{"muster:cluster": "bert", "muster:usd-per-hour": "0.531"}))
    by_maker = list_hosts(uncomment('  # "tag:muster:cluster": bert'))
    assert {name: item["node_price_per_hour"] for name, item in by_maker.items()} == {created["InstanceId"]: 0.531}
    cloud.client().terminate_instances(InstanceIds=[created["InstanceId"]])
    assert "node_price_per_hour" not in list_hosts()[on_demand["InstanceId"]]
    assert set(list_hosts(only_spot)) == {spot["InstanceId"]}
    assert set(list_hosts(lambda text: only_spot(text).replace("== 'spot'", "!= 'spot'"))) == {on_demand["InstanceId"]}
    zone = on_demand["Placement"]["AvailabilityZone"]
    in_zone = uncomment("  # availability-zone: us-east-1a")
    assert on_demand["InstanceId"] in list_hosts(lambda text: in_zone(text).replace("us-east-1a", zone))
    with_name_tag = uncomment('  # - {name: instance-id, prefix: "tag:Name", separator: "-"}')
    with_names = list_hosts(lambda text: with_name_tag(text).replace("  - instance-id\n", ""))
    assert set(with_names) == {f"same-{spot['InstanceId']}", f"same-{on_demand['InstanceId']}"}


def test_nodes_of_a_cluster_have_their_names_and_ranks(cloud: Cloud, list_hosts: Any) -> None:
    """The nodes have the names from provision.yml, regardless of the order in AWS's reply."""
    foreign = cloud.start("g5.xlarge")["InstanceId"]
    for number in (10, 2, 1, 0):
        pairs = [{"Key": "muster:node", "Value": f"bert-{number}"}, {"Key": "Name", "Value": "renamed"}]
        cloud.start("g5.xlarge", TagSpecifications=[{"ResourceType": "instance", "Tags": pairs}])
    hosts = list_hosts()
    assert sorted(hosts, key=lambda name: int(hosts[name]["node_rank"])) == [
        *("bert-0", "bert-1", "bert-2", "bert-10"),
        foreign,
    ]


def uncomment(line: str) -> Any:
    def change(text: str) -> str:
        assert line in text
        return text.replace(line, line.replace("# ", "", 1))

    return change


def only_spot(text: str) -> str:
    """Replace the line of the training group by the one in the comment below it."""
    lines = text.splitlines()
    number = next(i for i, line in enumerate(lines) if line.startswith("  training:"))
    lines[number] = next(line for line in lines if line.startswith("  # training:")).replace("# ", "")
    return "\n".join(lines)


def test_gpu_table_agrees_with_aws() -> None:
    """moto carries AWS's own descriptions of its instance types."""
    expression = yaml.safe_load(SAMPLE.read_text())["compose"]["node_slots"]
    table = ast.literal_eval(expression.removesuffix("[aws_instance_type]"))
    described = {
        name: sum(gpu["Count"] for gpu in instance_types.INSTANCE_TYPES[name].get("GpuInfo", {}).get("Gpus", []))
        for name in table
        if name in instance_types.INSTANCE_TYPES
    }
    assert len(described) > 0.8 * len(table)
    assert {name: table[name] for name in described} == described
