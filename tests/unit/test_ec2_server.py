"""The wrapper around moto's EC2 adds what moto lacks, as boto3 sees it over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError, HTTPClientError

from tests.support.ec2_server import EC2Server, Fault, Host, broken_off


@pytest.fixture(scope="module")
def running() -> Iterator[EC2Server]:
    with EC2Server() as running:
        yield running


@pytest.fixture
def server(running: EC2Server) -> EC2Server:
    running.reset()
    return running


@pytest.fixture
def ec2(server: EC2Server) -> Any:
    return server.client()


def subnet(ec2: Any, zone: str = "us-east-1a") -> str:
    result = ec2.describe_subnets(Filters=[{"Name": "availability-zone", "Values": [zone]}])["Subnets"]
    return str(result[0]["SubnetId"])


def launch(ec2: Any, count: int = 1, **changes: Any) -> list[str]:
    changes["SubnetId"] = changes.get("SubnetId") or subnet(ec2)
    expected = {"ImageId": "ami-0dee90000000000a2", "InstanceType": "g4dn.xlarge", "MinCount": count, "MaxCount": count}
    reply = ec2.run_instances(**{**expected, **changes})
    return [instance["InstanceId"] for instance in reply["Instances"]]


def states(ec2: Any, **filters: Any) -> dict[str, str]:
    reservations = ec2.describe_instances(**filters)["Reservations"]
    return {i["InstanceId"]: i["State"]["Name"] for r in reservations for i in r["Instances"]}


def code(caught: pytest.ExceptionInfo[ClientError]) -> str:
    return str(caught.value.response["Error"]["Code"])


def test_client_token_creates_one_set_of_instances(server: EC2Server, ec2: Any) -> None:
    first = launch(ec2, 2, ClientToken="bert")
    assert launch(ec2, 2, ClientToken="bert") == first
    with pytest.raises(ClientError) as caught:
        launch(ec2, 3, ClientToken="bert")
    assert code(caught) == "IdempotentParameterMismatch"
    assert sorted(states(ec2)) == sorted(first)


def test_client_token_finds_instances_after_lost_reply(server: EC2Server, ec2: Any) -> None:
    server.faults = [Fault(carried_out=True)]
    with pytest.raises((ConnectionClosedError, HTTPClientError)):
        launch(ec2, ClientToken="bert")
    assert launch(ec2, ClientToken="bert") == list(states(ec2))


@pytest.mark.parametrize("carried_out", [True, False])
def test_only_the_first_launch_can_take_effect_after_a_cut_connection(
    server: EC2Server, ec2: Any, carried_out: bool
) -> None:
    zone = subnet(ec2)
    server.faults = broken_off(1, carried_out=carried_out)
    assert states(ec2) == {}
    for _turn in range(2):
        with pytest.raises((ConnectionClosedError, HTTPClientError)):
            launch(ec2, SubnetId=zone)
    server.faults = []
    assert len(states(ec2)) == int(carried_out)


def test_faults_apply_by_zone_market_and_type(server: EC2Server, ec2: Any) -> None:
    server.faults = [
        Fault("InsufficientInstanceCapacity", zone="us-east-1a", market="spot", times=None),
        Fault("VcpuLimitExceeded", instance_type="g5.xlarge"),
    ]
    spot = {"InstanceMarketOptions": {"MarketType": "spot", "SpotOptions": {"SpotInstanceType": "one-time"}}}
    for _turn in range(2):
        with pytest.raises(ClientError) as caught:
            launch(ec2, 2, **spot)
        assert code(caught) == "InsufficientInstanceCapacity"
        assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 500
    assert states(ec2) == {}
    assert len(launch(ec2, 2)) == len(launch(ec2, 2, SubnetId=subnet(ec2, "us-east-1b"), **spot)) == 2
    with pytest.raises(ClientError, match="VcpuLimitExceeded"):
        launch(ec2, InstanceType="g5.xlarge")
    assert launch(ec2, InstanceType="g5.xlarge")


def test_invalid_launch_is_refused(ec2: Any) -> None:
    with pytest.raises(ClientError, match="InvalidParameterValue.*g99.xlarge"):
        launch(ec2, InstanceType="g99.xlarge")
    with pytest.raises(ClientError, match="MinCount is greater"):
        launch(ec2, 2, MaxCount=1)
    with pytest.raises(ClientError, match="InvalidPlacementGroup.Unknown"):
        launch(ec2, Placement={"GroupName": "muster-bert"})


def test_placement_group_cannot_be_deleted_before_its_instances(ec2: Any) -> None:
    tags = [{"ResourceType": "placement-group", "Tags": [{"Key": "muster:cluster", "Value": "bert"}]}]
    ec2.create_placement_group(GroupName="muster-bert", Strategy="cluster", TagSpecifications=tags)
    with pytest.raises(ClientError, match="InvalidPlacementGroup.Duplicate"):
        ec2.create_placement_group(GroupName="muster-bert", Strategy="cluster")
    expected = [{"Name": "tag:muster:cluster", "Values": ["bert"]}]
    (output,) = ec2.describe_placement_groups(Filters=expected)["PlacementGroups"]
    assert (output["GroupName"], output["State"], output["Tags"]) == ("muster-bert", "available", tags[0]["Tags"])
    assert ec2.describe_placement_groups(Filters=[{"Name": "strategy", "Values": ["spread"]}])["PlacementGroups"] == []
    ids = launch(ec2, Placement={"GroupName": "muster-bert"})
    ec2.terminate_instances(InstanceIds=ids)
    with pytest.raises(ClientError, match="InvalidPlacementGroup.InUse"):
        ec2.delete_placement_group(GroupName="muster-bert")
    assert [states(ec2)[ids[0]] for _turn in range(2)] == ["shutting-down", "terminated"]
    ec2.delete_placement_group(GroupName="muster-bert")
    with pytest.raises(ClientError, match="InvalidPlacementGroup.Unknown"):
        ec2.describe_placement_groups(GroupNames=["muster-bert"])


def test_new_instance_appears_only_after_several_list_requests(server: EC2Server, ec2: Any) -> None:
    server.hidden = 2
    (instance,) = launch(ec2)
    assert states(ec2) == {}
    with pytest.raises(ClientError, match="InvalidInstanceID.NotFound"):
        states(ec2, InstanceIds=[instance])
    assert list(states(ec2)) == [instance]


def test_new_network_appears_later_and_is_kept_while_in_use(server: EC2Server, ec2: Any) -> None:
    server.hidden = 1
    vpc = ec2.create_vpc(CidrBlock="10.1.0.0/16")["Vpc"]["VpcId"]
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    own_subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.1.0.0/20")["Subnet"]["SubnetId"]
    for describe, part, key, expected in (
        (ec2.describe_vpcs, "Vpcs", "VpcId", vpc),
        (ec2.describe_internet_gateways, "InternetGateways", "InternetGatewayId", gateway),
        (ec2.describe_subnets, "Subnets", "SubnetId", own_subnet),
    ):
        assert [expected in [item[key] for item in describe()[part]] for _turn in range(2)] == [False, True]
    server.hidden = 0
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    ids = launch(ec2, SubnetId=own_subnet)
    needed = {"InternetGatewayId": gateway, "VpcId": vpc}
    with pytest.raises(ClientError, match="DependencyViolation"):
        ec2.detach_internet_gateway(**needed)
    ec2.terminate_instances(InstanceIds=ids)
    assert [states(ec2)[ids[0]] for _turn in range(2)] == ["shutting-down", "terminated"]
    ec2.delete_subnet(SubnetId=own_subnet)
    with pytest.raises(ClientError, match="DependencyViolation"):
        ec2.delete_vpc(VpcId=vpc)
    ec2.detach_internet_gateway(**needed)
    ec2.delete_vpc(VpcId=vpc)
    ec2.delete_internet_gateway(InternetGatewayId=gateway)
    assert server.left_over() == []


def test_instance_states_last_for_the_configured_number_of_list_requests(server: EC2Server, ec2: Any) -> None:
    server.pending, server.shutting_down = 1, 2
    (instance,) = launch(ec2)
    assert [states(ec2)[instance] for _turn in range(2)] == ["pending", "running"]
    (output,) = ec2.terminate_instances(InstanceIds=[instance])["TerminatingInstances"]
    assert output["CurrentState"] == {"Code": 32, "Name": "shutting-down"}
    assert states(ec2)[instance] == "shutting-down"
    ec2.terminate_instances(InstanceIds=[instance])
    assert [states(ec2)[instance] for _turn in range(2)] == ["shutting-down", "terminated"]
    ec2.terminate_instances(InstanceIds=[instance])
    assert states(ec2)[instance] == "terminated"


def test_resources_in_use_are_not_deleted(ec2: Any) -> None:
    (network,) = ec2.describe_vpcs()["Vpcs"]
    group = ec2.create_security_group(GroupName="muster-bert", Description="d", VpcId=network["VpcId"])["GroupId"]
    second_group = ec2.create_security_group(GroupName="other", Description="d", VpcId=network["VpcId"])["GroupId"]
    permissions = [{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}]
    for member in (group, second_group):
        ec2.authorize_security_group_ingress(GroupId=member, IpPermissions=permissions)
    ids = launch(ec2, SecurityGroupIds=[group])
    with pytest.raises(ClientError, match="DependencyViolation"):
        ec2.delete_subnet(SubnetId=subnet(ec2))
    with pytest.raises(ClientError, match="DependencyViolation"):
        ec2.delete_vpc(VpcId=network["VpcId"])
    ec2.delete_security_group(GroupId=second_group)
    ec2.terminate_instances(InstanceIds=ids)
    states(ec2)
    with pytest.raises(ClientError, match="DependencyViolation"):
        ec2.delete_security_group(GroupId=group)
    states(ec2)
    ec2.delete_security_group(GroupId=group)


def test_security_group_referenced_by_another_is_not_deleted(ec2: Any) -> None:
    (network,) = ec2.describe_vpcs()["Vpcs"]
    first, second = (
        ec2.create_security_group(GroupName=name, Description="d", VpcId=network["VpcId"])["GroupId"] for name in "ab"
    )
    rule = [{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": first}]}]
    ec2.authorize_security_group_ingress(GroupId=second, IpPermissions=rule)
    with pytest.raises(ClientError, match="DependencyViolation"):
        ec2.delete_security_group(GroupId=first)


def test_meter_ignores_foreign_resources_but_sees_changes_to_them(server: EC2Server, ec2: Any) -> None:
    name = [{"Key": "Name", "Value": "bert-2"}]
    strangers = launch(ec2, TagSpecifications=[{"ResourceType": "instance", "Tags": name}])
    server.mark_foreign()
    before = server.foreign_bytes()
    assert (server.usd_per_hour(), server.left_over()) == (0, [])
    own_ids = launch(ec2, 2)
    usd = server.usd_per_hour()
    assert usd > 2 * 0.526
    assert set(own_ids) < set(server.left_over())
    spot = launch(ec2, InstanceMarketOptions={"MarketType": "spot"})
    assert server.usd_per_hour() - usd < 0.526
    assert server.foreign_bytes() == before
    ec2.terminate_instances(InstanceIds=[*own_ids, *spot])
    states(ec2)
    states(ec2)
    assert (server.usd_per_hour(), server.left_over()) == (0, [])
    assert server.foreign_bytes() == before
    ec2.create_tags(Resources=strangers, Tags=[{"Key": "muster:cluster", "Value": "bert"}])
    assert server.foreign_bytes() != before


def test_interrupted_spot_instance_is_terminated(server: EC2Server, ec2: Any) -> None:
    (instance,) = launch(ec2, InstanceMarketOptions={"MarketType": "spot"})
    server.interrupt(instance)
    output = ec2.describe_instances()["Reservations"][0]["Instances"][0]
    assert (output["State"]["Name"], output["StateReason"]["Code"]) == (
        "shutting-down",
        "Server.SpotInstanceTermination",
    )
    assert states(ec2)[instance] == "terminated"


def test_powered_off_guest_is_stopped_or_terminated(server: EC2Server, ec2: Any) -> None:
    (stopped,) = launch(ec2)
    (terminated,) = launch(ec2, InstanceInitiatedShutdownBehavior="terminate")
    for instance in (stopped, terminated):
        server.guest_powers_off(instance)
    assert states(ec2) == {stopped: "stopped", terminated: "shutting-down"}


def test_new_instances_are_the_configured_test_hosts(server: EC2Server, ec2: Any) -> None:
    hosts = [Host("10.9.0.11", "198.51.100.11"), Host("10.9.0.12", "198.51.100.12")]
    server.reset(hosts)
    instances = ec2.run_instances(
        ImageId="ami-0dee90000000000a2", InstanceType="g4dn.xlarge", MinCount=2, MaxCount=2, SubnetId=subnet(ec2)
    )["Instances"]
    assert [instance["PrivateIpAddress"] for instance in instances] == ["10.9.0.11", "10.9.0.12"]
    (reservation,) = ec2.describe_instances()["Reservations"]
    messages = [Host(i["PrivateIpAddress"], i["PublicIpAddress"]) for i in reservation["Instances"]]
    assert messages == hosts
    with pytest.raises(ClientError, match="InsufficientInstanceCapacity"):
        launch(ec2)
    ec2.terminate_instances(InstanceIds=[instances[0]["InstanceId"]])
    states(ec2)
    states(ec2)
    assert launch(ec2)


def test_server_returns_prices_quotas_and_parameters(server: EC2Server) -> None:
    server.quotas = {"L-DB2E81BA": 8.0}
    pricing = server.client("pricing")
    expected = [{"Type": "TERM_MATCH", "Field": "instanceType", "Value": "g4dn.xlarge"}]
    (product,) = pricing.get_products(ServiceCode="AmazonEC2", Filters=expected)["PriceList"]
    assert '"USD": "0.5260000000"' in product
    expected[0]["Value"] = "p9.huge"
    assert pricing.get_products(ServiceCode="AmazonEC2", Filters=expected)["PriceList"] == []
    quotas = server.client("service-quotas")
    assert quotas.get_service_quota(ServiceCode="ec2", QuotaCode="L-DB2E81BA")["Quota"]["Value"] == 8
    with pytest.raises(ClientError, match="NoSuchResourceException"):
        quotas.get_service_quota(ServiceCode="ec2", QuotaCode="L-3819A6DF")
    name = next(iter(server.parameters))
    assert server.client("ssm").get_parameter(Name=name)["Parameter"]["Value"] == "ami-0dee90000000000a2"


def test_dry_run_launches_nothing(server: EC2Server, ec2: Any) -> None:
    with pytest.raises(ClientError, match="DryRunOperation"):
        launch(ec2, DryRun=True)
    assert server.left_over() == []
