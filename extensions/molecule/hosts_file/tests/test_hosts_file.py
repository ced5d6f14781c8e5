"""Every name of the cluster resolves to its node_address on each node, with each lookup function that programs use."""

from __future__ import annotations

import json

from tests.lab import Lab

PROGRAM = """
import json, socket, sys
print(json.dumps({name: [
    socket.gethostbyname(name),
    sorted({found[4][0] for found in socket.getaddrinfo(name, 29500)}),
    socket.getfqdn(name),
] for name in sys.argv[1:]}))
"""


def test_every_node_resolves_every_name_to_its_node_address(lab: Lab) -> None:
    addresses = {node.name: node.address for node in lab.nodes}
    expected = {name: [address, [address], name] for name, address in addresses.items()}
    for node in lab.nodes:
        completed = lab.exec(node.name, ["python3", "-c", PROGRAM, *addresses])
        assert completed.returncode == 0, completed.stderr
        assert json.loads(completed.stdout) == expected, node.name


def test_own_hostname_resolves_locally_and_is_not_given_to_other_nodes(lab: Lab) -> None:
    names = ["psucgene3", "psucgene3.example.com"]
    address = lab.node("node3").address
    completed = lab.exec("node3", ["python3", "-c", PROGRAM, *names])
    assert completed.returncode == 0, completed.stderr
    assert json.loads(completed.stdout) == dict.fromkeys(names, [address, [address], "node3"])
    for node in ("node1", "node2", "node4"):
        assert "psucgene3" not in lab.exec(node, ["cat", "/etc/hosts"]).stdout


def test_fqdn_of_a_node_resolves_to_its_address(lab: Lab) -> None:
    """torchrun publishes getfqdn() as the address of the first node."""
    for node in lab.nodes:
        completed = lab.exec(
            node.name, ["python3", "-c", "import socket; print(socket.gethostbyname(socket.getfqdn()))"]
        )
        assert completed.stdout.strip() == node.address, completed.stderr


def test_file_has_one_block_and_keeps_foreign_lines(lab: Lab) -> None:
    for node in lab.nodes:
        text = lab.exec(node.name, ["cat", "/etc/hosts"]).stdout
        assert text.count("# BEGIN muster") == text.count("# END muster") == 1
        assert ("10.99.0.1 nas.example.com nas\n" in text) == (node.name != "node4")  # removed by cloud-init
        assert "127.0.1.1" not in text
        assert lab.exec(node.name, ["getent", "hosts", "localhost"]).stdout
    assert "# our file server\n" in lab.exec("node1", ["cat", "/etc/hosts"]).stdout
    assert "10.5.7.2" in lab.exec("node2", ["cat", "/etc/hosts"]).stdout  # the line contains other names
    mode = lab.exec("node1", ["stat", "--format=%a %U", "/etc/hosts"]).stdout
    assert mode == "644 root\n"


def test_cloud_init_keeps_hosts_file_at_next_boot(lab: Lab) -> None:
    before = lab.exec("node4", ["cat", "/etc/hosts"]).stdout
    for command in ("cloud-init init --local", "cloud-init init"):
        completed = lab.exec("node4", ["sh", "-c", f"rm -rf /var/lib/cloud/instance* && {command}"])
        assert completed.returncode == 0, completed.stderr
    assert lab.exec("node4", ["cat", "/etc/hosts"]).stdout == before
    log = lab.exec("node4", ["cat", "/var/log/cloud-init.log"]).stdout
    last_boot = log[log.rindex("running 'init' at") :]
    assert "update_hostname" in last_boot  # the list of modules still applies
    assert "update_etc_hosts" not in last_boot
