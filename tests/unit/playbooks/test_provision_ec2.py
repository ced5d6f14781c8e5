# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""provision.yml, cost.yml and teardown.yml with the EC2 inventory."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.client import AwsClient
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.cloud import Ec2Cloud
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.offers import Ec2Request
from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.settings import local_public_address
from ansible_collections.muster.training.plugins.plugin_utils._clouds.engine.provision import provision
from ansible_collections.muster.training.plugins.plugin_utils._clouds.journal import read_journal
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import PlanRefusedError
from tests.support.ec2_server import EC2Server

pytestmark = pytest.mark.one_core

CHECKOUT = Path(__file__).resolve().parents[3]
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGkUeJcbx0vDN5hXgL5sWm3YpMMmxYHcGEYfCjRTsk1U"
NODES = ["-e", "cluster=bert", "-e", "nnodes=3", "-e", "machine_types=g4dn.xlarge"]
KEYS = ["-e", "provision_ssh_from=203.0.113.7", "-e", f"provision_ssh_public_key='{KEY}'"]
REQUEST = Ec2Request(
    2, ["g4dn.xlarge"], image="ami-0dee90000000000a2", first_boot="#cloud-config", max_usd_per_hour=5.0
)


class Clients:
    """Session of boto3 for the fake server."""

    def __init__(self, server: EC2Server) -> None:
        self.server = server

    def client(self, service: str, **_given: object) -> object:
        return self.server.client(service)


@pytest.fixture(scope="module")
def server() -> Iterator[EC2Server]:
    """Provide an account with two of three nodes and a foreign machine."""
    with EC2Server() as started:
        started.client().run_instances(ImageId=REQUEST.image, InstanceType="g5.xlarge", MinCount=1, MaxCount=1)
        started.mark_foreign()
        yield started


@pytest.fixture
def directory(server: EC2Server, tmp_path: Path) -> Path:
    """Create a project whose cluster has two nodes."""
    (tmp_path / "aws_ec2.yml").write_text("plugin: amazon.aws.aws_ec2\nregions: [us-east-1]\n")
    records = tmp_path / ".muster" / "clusters"
    records.mkdir(parents=True)
    aws = AwsClient(Clients(server), "us-east-1", lambda _line: None)
    provision(Ec2Cloud("bert", aws, read_journal(records, "bert", "ec2"), show=lambda _line: None), REQUEST)
    return tmp_path


def play(server: EC2Server, directory: Path, name: str, *arguments: str) -> tuple[int, str]:
    command = [str(Path(sys.executable).with_name("ansible-playbook")), f"playbooks/{name}.yml"]
    completed = subprocess.run(
        [*command, "-i", str(directory / "aws_ec2.yml"), *arguments],
        cwd=CHECKOUT,
        env={
            **os.environ,
            "AWS_ENDPOINT_URL": server.url,
            "AWS_ACCESS_KEY_ID": server.access_key,
            "AWS_SECRET_ACCESS_KEY": server.secret_key,
            "HOME": str(directory),
        },
        stdin=subprocess.DEVNULL,
        check=False,
        capture_output=True,
        text=True,
    )
    assert server.secret_key not in completed.stdout + completed.stderr
    assert "Traceback" not in completed.stdout + completed.stderr
    return completed.returncode, completed.stdout + completed.stderr


def test_plan_cost_and_teardown_use_the_ec2_inventory(server: EC2Server, directory: Path) -> None:
    server.requests.clear()
    code, output = play(server, directory, "provision", *NODES, *KEYS, "--check", "--diff")
    assert code == 0, output
    for line in (
        "of type g4dn.xlarge, running, 0.53 USD an hour while it is on",
        "create: machine bert-2 of type g4dn.xlarge with 150 GB",
        "bert (g4dn.xlarge on demand in us-east-1a): 1.59 USD an hour",
        '+  "bert-2": "ready"',
    ):
        assert line in output, output
    for reservation in server.backend.reservations.values():
        for instance in reservation.instances:
            instance.launch_time -= datetime.timedelta(days=30)
    before = server.foreign_bytes()
    code, output = play(server, directory, "cost", "-e", "idle_watch_ttl=2d")
    assert code == 0, output
    assert (
        "more than its ttl of 48:00:00: 1.06 USD an hour. If it is no longer needed, remove it: teardown.yml -e "
        "cluster=bert" in output
    )
    row = next(line for line in output.splitlines() if line.startswith("bert "))
    assert row.split()[:5] == ["bert", "us-east-1", "2", "on", "g4dn.xlarge"]
    assert "outside clusters: 1 machine, 1 of them on, unknown an hour" in output
    code, output = play(server, directory, "teardown", "-e", "cluster=bert")
    assert code == 2
    assert "remove: security group muster-bert" in output
    assert "nothing was changed: the name bert was not typed" in output
    assert [action for action, _given in server.requests if not action.startswith(("Describe", "Get")) and action] == []
    code, output = play(server, directory, "teardown", "-e", "cluster=bert", "-e", "confirm=bert")
    assert code == 0, output
    assert "no resources of bert remain, 0 USD an hour" in output
    assert (server.left_over(), server.usd_per_hour(), server.foreign_bytes()) == ([], 0, before)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*NODES, *KEYS), "max_usd_per_hour is not set. Set a limit for the hourly cost of the cluster"),
        ((*NODES, "-e", "max_usd_per_hour=5"), "no SSH key is set, so no one could log in"),
        ((*NODES, *KEYS, "-e", "max_usd_per_hour=5", "-e", "region=us-east-9"), "did you mean us-east-"),
        (
            (*NODES, *KEYS, "--check", "-e", "provision_own_network=true", "-e", "provision_subnet_id=subnet-1"),
            "both a new network and the existing subnet subnet-1 are requested",
        ),
    ],
)
def test_wrong_arguments_are_refused_with_a_message(
    server: EC2Server, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    (tmp_path / "aws_ec2.yml").write_text("plugin: amazon.aws.aws_ec2\nregions: [us-east-1]\n")
    server.requests.clear()
    code, output = play(server, tmp_path, "provision", *arguments)
    assert (code, message in output) == (2, True), output
    assert {action for action, _given in server.requests} <= {"DescribeInstances"}, "the inventory's own"


def test_unreadable_own_address_asks_for_ssh_from(server: EC2Server) -> None:
    with pytest.raises(
        PlanRefusedError, match=r"Set the addresses that may connect by SSH: -e provision_ssh_from=203.0.113.7"
    ):
        local_public_address(server.url)
