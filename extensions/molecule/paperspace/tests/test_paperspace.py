"""A cluster that the Paperspace API tells of: the test server says that the test hosts are its machines."""

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
    """Four hosts that nothing has touched, as they are rented."""
    with drive.own_lab("rented", nodes=4) as lab:
        yield lab


@pytest.fixture
def server(lab: Lab) -> Iterator[PaperspaceServer]:
    """An account whose machines are the test hosts, newest first, with one that is switched off."""
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
    """The project that init writes, told how to log in to the test hosts and what to run."""
    project = Project(tmp_path, "paperspace", {"PAPERSPACE_API_KEY": server.key, "PAPERSPACE_API_URL": server.url})
    project.set_up(lab, SETTINGS, lambda text, user: f"{text}\nuser: {user}\n")
    return project


def test_site_and_launch_work_on_rented_machines(lab: Lab, project: Project) -> None:
    """The two commands, as they stand in the manual."""
    project.run("ansible-playbook site.yml -i paperspace.yml")
    names = [node.name for node in lab.nodes]
    for node in lab.nodes:
        result = lab.exec(node.name, ["getent", "ahostsv4", *names]).stdout
        assert {str(other.address) for other in lab.nodes} == {line.split()[0] for line in result.splitlines()}
    output = project.run("ansible-playbook launch.yml -e nnodes=4")
    assert "own-name-loopback" not in output  # reported only while hosts are being discovered
    assert "step 4 sum 4 world 4" in output
    (record,) = (entry for entry in (project.directory / "runs").iterdir() if entry.is_dir() and not entry.is_symlink())
    verdict = json.loads((record / "result.json").read_text())
    assert verdict["state"] == "succeeded"
    # By age according to the API's clock, regardless of the order of its reply.
    hosts = [rank["host"] for node in verdict["nodes"] for rank in node["ranks"]]
    assert hosts == [node.name for node in lab.nodes[:4]]
    # The listeners from the network check before the launch exit by themselves after a while.
    drive.nothing_left(lab, hosts, within=60)
