# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""keep.yml at a provider: after the loss of a machine, keep.yml creates a replacement through provision.yml.

The instances of the fake EC2 are addresses of this machine. Only site.yml is replaced, because it would set it up.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.muster.training.plugins.module_utils._run import stop as run_stop
from tests.support.ec2_server import EC2Server, Host
from tests.unit.playbooks.test_keep import JOB, log, replace_site
from tests.unit.supervised import eventually, free_port, own_network
from tests.unit.typed import CHECKOUT, begun, give_collection, killed, typed

ADDRESSES = [f"{own_network(41)}.{number}" for number in (1, 2, 3)]
CLUSTER = {
    "provision_cluster": "bert",
    "provision_nnodes": 2,
    "provision_machine_types": ["g4dn.xlarge"],
    "provision_ssh_from": ["203.0.113.7"],
    "provision_ssh_public_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGkUeJcbx0vDN5hXgL5sWm3YpMMmxYHcGEYfCjRTsk1U",
}


@pytest.fixture
def server() -> Iterator[EC2Server]:
    """Provide an account with another user's machine and three available addresses."""
    with EC2Server() as running:
        running.client().run_instances(
            ImageId="ami-0dee90000000000a2", InstanceType="g4dn.xlarge", MinCount=1, MaxCount=1
        )
        running.hosts = [Host(address, address) for address in ADDRESSES]
        running.mark_foreign()
        yield running


def write_project(directory: Path) -> None:
    """Write the settings of a run and an inventory of the cluster's instances, which are all this machine."""
    give_collection(directory)
    inventory = yaml.safe_load((CHECKOUT / "inventories" / "aws_ec2.yml").read_text())
    inventory["filters"]["tag:muster:cluster"] = "bert"
    inventory["compose"].update(ansible_connection="'local'", ansible_user=f"'{os.environ.get('USER', 'root')}'")
    (directory / "aws_ec2.yml").write_text(yaml.safe_dump(inventory, sort_keys=False))
    shutil.copy(CHECKOUT / "inventories" / "ranks.yml", directory)
    settings: dict[str, Any] = {
        "ansible_python_interpreter": "{{ ansible_playbook_python }}",
        "launch_python": "{{ ansible_playbook_python }}",
        "launch_node_directory": f"{directory}/nodes",
        "launch_master_port": free_port(),
        "launch_lifeline_port": free_port(),
        "launch_launcher": "env",
        "launch_script": f"{directory}/job.py",
        "launch_skip": ["busy"],
        "launch_restarts": 2,
        "launch_restart_wait": "30m",
        "launch_report": False,
    }
    (directory / "group_vars").mkdir()
    (directory / "group_vars" / "training.yml").write_text(yaml.safe_dump(settings))
    (directory / "group_vars" / "all.yml").write_text(yaml.safe_dump(CLUSTER))
    (directory / "job.py").write_text(JOB)


def instances(server: EC2Server) -> dict[str, Any]:
    """Return the running instances of the cluster by node name."""
    cluster_instances = [
        item for key, item in server.everything().items() if key.startswith("i-") and key not in server.foreign
    ]
    running = [item for item in cluster_instances if item["State"]["Name"] == "running"]
    return {tag["Value"]: item for item in running for tag in item["Tags"] if tag["Key"] == "muster:node"}


@pytest.mark.one_core
def test_machine_that_the_provider_reclaimed_is_created_again_and_joins(server: EC2Server, tmp_path: Path) -> None:
    write_project(tmp_path)
    collection = replace_site(tmp_path)
    keys = {"AWS_ACCESS_KEY_ID": server.access_key, "AWS_SECRET_ACCESS_KEY": server.secret_key}
    access = {"AWS_ENDPOINT_URL": server.url, **keys}
    command = ["ansible-playbook", "-i", "aws_ec2.yml", "-i", "ranks.yml"]
    foreign = server.foreign_bytes()
    created = typed(tmp_path, [*command, "muster.training.provision", "-e", "max_usd_per_hour=2"], **access)
    assert created.returncode == 0, created.stdout
    keep = None
    try:
        options = ["-e", "run_id=first", "-e", "detach=true", "-e", "nnodes=2"]
        launched = typed(tmp_path, [*command, "muster.training.launch", *options], **access)
        assert launched.returncode == 0, launched.stdout
        eventually(lambda: "rank 0" in log(tmp_path, "node0", 0) and "rank 1" in log(tmp_path, "node1", 0), 600)
        options = ["-e", "run_id=first", "-e", "keep_interval=1", "-e", "max_usd_per_hour=2"]
        environment = ["env", *(f"{name}={value}" for name, value in access.items())]
        keep = begun(tmp_path, [*environment, *command, "muster.training.keep", *options])
        record = tmp_path / "runs" / "first"
        eventually(lambda: (record / "keep.json").exists() or keep.poll() is not None, 240)
        before = instances(server)
        server.client().terminate_instances(InstanceIds=[before["bert-1"]["InstanceId"]])
        supervisor = json.loads((tmp_path / "nodes" / "first" / "node1" / "supervisor.json").read_text())
        os.kill(supervisor["pid"], signal.SIGKILL)
        eventually(lambda: "attempt 1 of rank 0" in log(tmp_path, "node0", 1) or keep.poll() is not None, 900)
        if keep.poll() is None:
            eventually(lambda: "attempt 1 of rank 1" in log(tmp_path, "node1", 1), 240)
        (tmp_path / "end").touch()
        output, _errors = keep.communicate(timeout=600)
        logs = "".join(path.read_text() for path in sorted((record / "keep").glob("**/*.log")))
        assert keep.returncode == 0, output + logs
        steps = [line.split(maxsplit=2)[2] for line in output.splitlines() if line.startswith("[keep] ")]
        assert steps[1:] == [
            "bert-1 lost: checking for 30 s before creating a machine",
            "bert-1 lost: creating machines until the cluster has 2 nodes",
            "setting up bert-1",
            "adding bert-1 to the run",
            "the run has ended",
        ], output + logs
        after = instances(server)
        assert sorted(after) == ["bert-0", "bert-1"] and after["bert-0"] == before["bert-0"]
        assert after["bert-1"]["InstanceId"] != before["bert-1"]["InstanceId"]
        assert 2 * 0.526 <= server.usd_per_hour() <= 2 and server.foreign_bytes() == foreign
        assert (collection / "bert-1.set-up").exists() and not (collection / "bert-0.set-up").exists()
        plan = json.loads((record / "plan.json").read_text())
        nodes = [(node["name"], node["address"]) for node in plan["nodes"]]
        assert nodes == [(name, after[name]["PrivateIpAddress"]) for name in ("bert-0", "bert-1")]
        secrets = [path for path in tmp_path.glob("nodes/**/*") if path.is_file() and contains(path, server.secret_key)]
        assert secrets == [], "no training node gets the credentials"
    finally:
        if keep is not None and keep.poll() is None:
            killed(keep)
        for name in ("bert-0", "bert-1"):
            request = {"run_id": "first", "runs_directory": f"{tmp_path}/nodes", "node": name, "user": ""}
            run_stop.stop({**request, "check": False, "replace": False})


def contains(path: Path, secret: str) -> bool:
    return secret.encode() in path.read_bytes()
