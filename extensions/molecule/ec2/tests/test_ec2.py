"""The five commands on EC2, from nothing to a run and back to 0 USD an hour: the fake server rents out test hosts."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.lab import Lab
from tests.support import drive
from tests.support.ec2_server import EC2Server, Host
from tests.support.rented import QUICK_ROLES, SETTINGS, WATCH, Project

CLUSTER = {
    "provision_cluster": "bert",
    "provision_nnodes": 2,
    "provision_machine_types": ["g4dn.xlarge"],
    "provision_own_network": True,
    "provision_ssh_public_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGkUeJcbx0vDN5hXgL5sWm3YpMMmxYHcGEYfCjRTsk1U",
    "provision_ssh_from": ["203.0.113.7"],
    **WATCH,
}


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Yield two untouched hosts that have not been rented yet."""
    with drive.own_lab("ec2", nodes=2) as lab:
        yield lab


@pytest.fixture
def server(lab: Lab) -> Iterator[EC2Server]:
    """Yield an account with a foreign machine, and two hosts that can be rented."""
    hosts = [Host(str(node.address), str(node.address)) for node in lab.nodes[:2]]
    with EC2Server() as running:
        running.client().run_instances(
            ImageId="ami-0dee90000000000a2", InstanceType="g4dn.xlarge", MinCount=1, MaxCount=1
        )
        running.hosts = hosts
        running.mark_foreign()
        running.requests.clear()
        yield running


def inventory(text: str, user: str) -> str:
    """Return the inventory limited to the instances of the cluster, with the test hosts' user."""
    expected = {'# "tag:muster:cluster": bert': '"tag:muster:cluster": bert', "\"'ubuntu'\"": f"\"'{user}'\""}
    for before, after in expected.items():
        assert text.count(before) == 1
        text = text.replace(before, after)
    return text


def test_cluster_is_provisioned_runs_a_job_and_is_torn_down(lab: Lab, server: EC2Server, tmp_path: Path) -> None:
    access = {
        "AWS_ENDPOINT_URL": server.url,
        "AWS_ACCESS_KEY_ID": server.access_key,
        "AWS_SECRET_ACCESS_KEY": server.secret_key,
    }
    project = Project(tmp_path, "aws_ec2", access)
    project.set_up(lab, SETTINGS, inventory)
    (tmp_path / "group_vars" / "all.yml").write_text(yaml.safe_dump(CLUSTER))
    foreign = server.foreign_bytes()

    output = project.run("ansible-playbook provision.yml --check")
    assert "create: VPC muster-bert with address block" in output
    assert "create: machine bert-1 of type g4dn.xlarge" in output
    assert "1.06 USD an hour, 25.49 USD a day" in output
    assert server.left_over() == []

    output = project.run("ansible-playbook provision.yml -e max_usd_per_hour=2")
    assert "bert: 2 machines are running; 1.06 USD an hour" in output
    instances = [
        item for key, item in server.everything().items() if key.startswith("i-") and key not in server.foreign
    ]
    assert sorted(item["PrivateIpAddress"] for item in instances) == sorted(str(node.address) for node in lab.nodes[:2])
    assert len({item["VpcId"] for item in instances} - server.foreign) == 1
    assert server.usd_per_hour() > 2 * 0.526
    for node in lab.nodes[:2]:
        assert lab.exec(node.name, ["systemctl", "is-active", "muster_idle_watch.timer"]).stdout.strip() == "active"
        settings = json.loads(lab.exec(node.name, ["cat", "/etc/muster/idle_watch.json"]).stdout)
        assert settings == {"after": "45m", "ttl": "off"}
    (request,) = [request for action, request in server.requests if action == "RunInstances"]
    assert "muster_idle_watch.timer" in base64.b64decode(request["UserData"]).decode()

    project.run(f"ansible-playbook site.yml --tags {QUICK_ROLES}")
    output = project.run("ansible-playbook launch.yml -e nnodes=2")
    assert "step 4 sum 2 world 2" in output
    assert "costs        1.06 USD an hour" in output, output
    verdict = json.loads((tmp_path / "runs" / "latest" / "result.json").read_text())
    assert verdict["state"] == "succeeded"
    assert 0 < verdict["cost"] < 0.12
    assert [node["name"] for node in verdict["nodes"]] == ["bert-0", "bert-1"], "in the order of their ranks"

    row = next(line for line in project.run("ansible-playbook cost.yml").splitlines() if line.startswith("bert "))
    assert row.split()[:5] == ["bert", "us-east-1", "2", "on", "g4dn.xlarge"]

    output = project.run("ansible-playbook teardown.yml -e confirm=bert")
    assert "no resources of bert remain, 0 USD an hour" in output
    assert server.left_over() == []
    assert server.usd_per_hour() == 0
    assert server.foreign_bytes() == foreign
