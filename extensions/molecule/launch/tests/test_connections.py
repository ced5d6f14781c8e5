"""Connection problems: each one is named, and a problem shared by many machines is reported once."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lab import Lab
from tests.support import drive

HOST_KEYS = (
    "-o GlobalKnownHostsFile=/dev/null -o StrictHostKeyChecking=yes -o IdentitiesOnly=yes -o UserKnownHostsFile="
)
SILENT = "nft add table inet silent; nft add chain inet silent in '{ type filter hook input priority 0; }'; \
nft add rule inet silent in tcp dport 2223 drop"
SUDOERS = "/etc/sudoers.d/90-muster"


def write_inventory(lab: Lab, directory: Path, hosts: dict[str, dict[str, Any]], **more: Any) -> Path:
    """Write an inventory like the lab's, with other hosts; return its path."""
    training = yaml.safe_load(lab.inventory.read_text())["training"]
    path = directory / "machines.yml"
    path.write_text(yaml.safe_dump({"training": {"hosts": hosts, "vars": {**training["vars"], **more}}}))
    return path


@pytest.mark.thorough
def test_wrong_user_on_64_machines_is_reported_once(lab: Lab, tmp_path: Path) -> None:
    addresses = [node.address for node in lab.nodes]
    hosts = {
        f"machine{n}": {"ansible_host": addresses[n % len(addresses)], "node_address": f"10.0.0.{n}"}
        for n in range(1, 65)
    }
    play = drive.run("ping.yml", write_inventory(lab, tmp_path, hosts, ansible_user="nobody"))
    assert play.rc == 2 and play.output.count("it rejects the login of nobody: Permission denied") == 1, play.output
    assert "none of the 64 nodes can be reached" in play.output and "correct ansible_user" in play.output, play.output
    assert len(play.output.splitlines()) < 25, play.output


def test_each_connection_problem_is_named_with_remedy(lab: Lab, tmp_path: Path) -> None:
    key = tmp_path / "another"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    first, second = lab.node("node1").address, lab.node("node2").address
    (tmp_path / "changed").write_text(f"{first} {key.with_suffix('.pub').read_text()}")
    # connections that are already open would also work with a different key
    base: dict[str, Any] = {"ansible_host": first, "ansible_ssh_args": "-o ControlMaster=no -o ControlPath=none"}
    hosts: dict[str, dict[str, Any]] = {
        "well": {},
        "user": {"ansible_user": "nobody"},
        "key": {"ansible_ssh_private_key_file": str(key)},
        "nokey": {"ansible_ssh_private_key_file": str(tmp_path / "none")},
        "unknown": {"ansible_ssh_common_args": f"{HOST_KEYS}/dev/null"},
        "changed": {"ansible_ssh_common_args": f"{HOST_KEYS}{tmp_path}/changed"},
        "refused": {"ansible_port": 2222},
        "silent": {"ansible_port": 2223},
        "name": {"ansible_host": "no-such-machine.invalid"},
        "route": {"ansible_host": first.rpartition(".")[0] + ".250"},
        "sudo": {"ansible_host": second, "ansible_become": True},
    }
    inventory = write_inventory(lab, tmp_path, {name: {**base, **more} for name, more in hosts.items()})
    drive.output_of(lab, "node1", "sh", "-c", SILENT)
    drive.output_of(lab, "node2", "sed", "-i", "s/NOPASSWD://", SUDOERS)
    try:
        play = drive.run("ping.yml", inventory, env={"ANSIBLE_TIMEOUT": "5", "ANSIBLE_HOST_KEY_CHECKING": "True"})
    finally:
        drive.output_of(lab, "node2", "sed", "-i", "s/ALL$/NOPASSWD:ALL/", SUDOERS)
        drive.output_of(lab, "node1", "nft", "delete", "table", "inet", "silent")
    assert play.rc == 2 and "1 of 11 machines responds" in play.output, play.output
    assert "UNREACHABLE!" not in play.output, play.output
    output = " ".join(play.output.split())
    for nodes, result, todo in (
        ("user", "it rejects the login of nobody: Permission denied", "correct ansible_user"),
        ("key", "it rejects the login of muster: Permission denied", "ansible_ssh_private_key_file"),
        ("nokey", f"cannot read the key file {tmp_path}/none: No such file", "correct ansible_ssh_private_key_file"),
        ("unknown", "its host key is not known to this machine", "StrictHostKeyChecking=accept-new"),
        ("changed", "its host key differs from the one that this machine has recorded", "ssh-keygen -f"),
        ("refused", "nothing is listening on its port 2222: Connection refused", "set ansible_port"),
        ("silent", "it did not respond in time", "its provider's firewall"),
        ("name", "this machine cannot resolve its name", "set ansible_host"),
        ("route", "it cannot be reached: No route to host", "check that the machine is running"),
        ("sudo", "sudo asks for a password", "--ask-become-pass"),
    ):
        finding = output.partition(f"ERROR unreachable {nodes} found: ")[2].partition("ERROR unreachable")[0]
        assert result in finding and todo in finding, (nodes, finding, play.output)
