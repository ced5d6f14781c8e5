"""A cluster listed by the Paperspace API: the test server presents the test hosts as its machines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import Lab
from tests.support import drive
from tests.support.paperspace_server.account import PaperspaceAccount
from tests.support.paperspace_server.objects import machine
from tests.support.paperspace_server.server import PaperspaceServer
from tests.support.rented import SETTINGS, Project


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Yield four untouched hosts, in the state in which machines are rented."""
    with drive.own_lab("rented", nodes=4) as lab:
        yield lab


@pytest.fixture
def server(lab: Lab) -> Iterator[PaperspaceServer]:
    """Yield an account whose machines are the test hosts, newest first, and one machine that is off."""
    accelerators = [{"name": "Ampere A6000", "memory": 48 * 1024**3, "count": 1}]
    machines = [
        machine(
            number, name=node.name, publicIp=str(node.address), privateIp=str(node.address), accelerators=accelerators
        )
        for number, node in enumerate(lab.nodes[:4])
    ]
    account = PaperspaceAccount([*reversed(machines), machine(9, name="asleep", state="off")])
    with PaperspaceServer(account, typing="observed") as running:
        yield running


@pytest.fixture
def project(lab: Lab, server: PaperspaceServer, tmp_path: Path) -> Project:
    """Return the project written by init, with settings for the login to the test hosts and the job."""
    project = Project(tmp_path, "paperspace", {"PAPERSPACE_API_KEY": server.key, "PAPERSPACE_API_URL": server.url})
    project.set_up(lab, SETTINGS, lambda text, user: f"{text}\nuser: {user}\n")
    return project


def test_site_and_launch_work_on_rented_machines(lab: Lab, project: Project) -> None:
    """Run the two commands exactly as in the manual."""
    project.run("ansible-playbook site.yml -i paperspace.yml")
    names = [node.name for node in lab.nodes]
    for node in lab.nodes:
        result = lab.exec(node.name, ["getent", "ahostsv4", *names]).stdout
        assert {str(peer.address) for peer in lab.nodes} == {line.split()[0] for line in result.splitlines()}
    output = project.run("ansible-playbook launch.yml -e nnodes=4")
    assert "own-name-loopback" not in output  # reported only while hosts are being discovered
    assert "step 4 sum 4 world 4" in output
    (record,) = (entry for entry in (project.directory / "runs").iterdir() if entry.is_dir() and not entry.is_symlink())
    verdict = json.loads((record / "result.json").read_text())
    assert verdict["state"] == "succeeded"
    # ordered by age according to the API's clock, not by the order of its reply
    hosts = [rank["host"] for node in verdict["nodes"] for rank in node["ranks"]]
    assert hosts == [node.name for node in lab.nodes[:4]]
    # The listeners from the network check before the launch exit by themselves after a while.
    drive.nothing_left(lab, hosts, within=60)
