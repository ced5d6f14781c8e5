"""The five commands, from nothing to a run and back to 0 USD per hour: the machines that the test server creates are
test hosts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.lab import Lab
from tests.support import drive
from tests.support.paperspace_server.account import HostAddresses, PaperspaceAccount
from tests.support.paperspace_server.server import PaperspaceServer
from tests.support.paperspace_server.strangers import add_foreign_resources, remaining_keys, serialize_foreign
from tests.support.rented import QUICK_ROLES, SETTINGS, WATCH, Project

CLUSTER = {
    "provision_cluster": "bert",
    "provision_nnodes": 2,
    "provision_region": "ny2",
    "provision_machine_types": ["C5"],
    "provision_template": "Ubuntu 22.04",
    **WATCH,
}


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Yield two untouched hosts that have not been rented yet."""
    with drive.own_lab("bare", nodes=2) as lab:
        yield lab


@pytest.fixture
def server(lab: Lab) -> Iterator[PaperspaceServer]:
    """Yield an account with foreign resources, and two hosts that can be rented."""
    hosts = [HostAddresses(private=str(node.address), public=str(node.address)) for node in lab.nodes[:2]]
    account = PaperspaceAccount(hosts=hosts)
    add_foreign_resources(account, "bert")
    with PaperspaceServer(account, typing="observed") as running:
        yield running


def test_cluster_is_provisioned_runs_a_job_and_is_torn_down(lab: Lab, server: PaperspaceServer, tmp_path: Path) -> None:
    project = Project(tmp_path, "paperspace", {"PAPERSPACE_API_KEY": server.key, "PAPERSPACE_API_URL": server.url})
    project.set_up(lab, SETTINGS, lambda text, user: f"{text}\nuser: {user}\ncluster: bert\n")
    (tmp_path / "group_vars" / "all.yml").write_text(yaml.safe_dump(CLUSTER))
    foreign = serialize_foreign(server.account)

    def machine_states() -> list[str]:
        machines = server.account.machines
        return [f"{item['name']} {item['state']}" for item in machines if item["id"] not in server.account.foreign_keys]

    output = project.run("ansible-playbook provision.yml --check")
    assert "create: machine bert-1 of type C5" in output
    assert "bert: 0.16 USD an hour, 3.84 USD a day" in output
    assert machine_states() == []

    output = project.run("ansible-playbook provision.yml -e max_usd_per_hour=1")
    assert "bert: 2 machines are ready; 0.16 USD an hour" in output
    assert machine_states() == ["bert-0 ready", "bert-1 ready"]
    for node in lab.nodes[:2]:
        assert lab.exec(node.name, ["systemctl", "is-active", "muster_idle_watch.timer"]).stdout.strip() == "active"
        settings = json.loads(lab.exec(node.name, ["cat", "/etc/muster/idle_watch.json"]).stdout)
        assert settings == {"after": "45m", "ttl": "off"}
    assert "paperspace" not in lab.exec(node.name, ["grep", "-rli", server.key, "/etc/muster", "/usr/local"]).stdout

    project.run(f"ansible-playbook site.yml --tags {QUICK_ROLES}")
    output = project.run("ansible-playbook launch.yml -e nnodes=2")
    assert "step 4 sum 2 world 2" in output
    assert "costs        0.18 USD an hour" in output, output  # includes the disks, as reported by the machines
    verdict = json.loads((tmp_path / "runs" / "latest" / "result.json").read_text())
    assert verdict["state"] == "succeeded"
    assert 0 < verdict["cost"] < 0.02
    assert verdict["currency"] == "USD"
    assert [node["name"] for node in verdict["nodes"]] == ["bert-0", "bert-1"]

    row = next(line for line in project.run("ansible-playbook cost.yml").splitlines() if line.startswith("bert "))
    assert row.split()[:5] == ["bert", "ny2", "2", "on", "C5"]

    output = project.run("ansible-playbook teardown.yml -e confirm=bert")
    assert "no resources of bert remain, 0 USD an hour" in output
    assert remaining_keys(server.account) == []
    assert server.account.usd_per_hour() == 0
    assert serialize_foreign(server.account) == foreign
