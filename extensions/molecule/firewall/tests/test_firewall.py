"""Nodes reach each other on all ports, other machines only open ones, and a mistake locks nobody out."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from tests.lab import Lab
from tests.support import drive
from tests.support.drive import root_shell

CONVERGE = str(Path(__file__).parents[1] / "converge.yml")
NODES = ("node1", "node2", "node3", "node4")
EPHEMERAL = 45678
OPEN = 6006


def succeeds(lab: Lab, node: str, program: str) -> bool:
    """Return whether a Python program succeeds on a node."""
    return lab.exec(node, ["python3", "-c", program]).returncode == 0


@contextmanager
def listening(lab: Lab, *ports: int) -> Iterator[None]:
    """Listen on these ports of each node."""
    program = f"import socket, time; s = [socket.create_server(('', p)) for p in {ports}]; time.sleep(300)"
    with ExitStack() as stack:
        for node in NODES:
            root_shell(lab, node, f'systemd-run --quiet --collect --unit=listener python3 -c "{program}"')
            stack.callback(root_shell, lab, node, "systemctl stop listener")
        for node in NODES:
            probe = f"import socket; socket.create_connection(('127.0.0.1', {ports[-1]}), 1)"
            drive.eventually(f"{node} listens", partial(succeeds, lab, node, probe), 120)
        yield


def reachable_from_peers(lab: Lab, port: int) -> dict[str, list[str]]:
    """Return the nodes that each node can reach on a port, by node."""
    addresses = {node.name: node.address for node in lab.nodes}
    program = (
        "import socket, sys\n"
        f"for name, address in {addresses}.items():\n"
        f"    if not socket.socket().connect_ex((address, {port})): print(name)\n"
    ).replace("socket.socket()", "(lambda s: s.settimeout(2) or s)(socket.socket())")
    return {node: lab.exec(node, ["python3", "-c", program]).stdout.split() for node in NODES}


def reachable_from_controller(lab: Lab, port: int) -> list[str]:
    """Return the nodes that this machine, which is not a node, can reach on a port."""
    result = []
    for node in lab.nodes:
        with socket.socket() as connection:
            connection.settimeout(1)
            if connection.connect_ex((node.address, port)) == 0:
                result.append(node.name)
    return result


def login(lab: Lab, node: str) -> bool:
    """Return whether a new connection from this machine succeeds."""
    arguments = lab.ssh(node, "true", options=["-o", "ConnectTimeout=3", "-o", "ControlPath=none"])
    return subprocess.run(arguments, capture_output=True, timeout=120, check=False).returncode == 0


def rules(lab: Lab, node: str) -> str:
    """Return the rules in effect, without counters and handles."""
    ruleset = root_shell(lab, node, "nft list ruleset 2>/dev/null")
    return re.sub(r"counter packets \d+ bytes \d+", "counter", ruleset)


def has_rules(lab: Lab, node: str, expected: str) -> bool:
    """Return whether these rules are in effect."""
    return rules(lab, node) == expected


def boot(lab: Lab, *nodes: str) -> None:
    """Boot nodes, and wait until they accept logins."""

    def since(node: str) -> str:
        return lab.exec(node, ["stat", "--format=%Z", "/proc/1"]).stdout

    def is_back(node: str) -> bool:
        return since(node) not in ("", before[node]) and login(lab, node)

    before = {node: since(node) for node in nodes}
    for node in nodes:
        lab.exec(node, ["systemctl", "reboot"])
    for node in nodes:
        drive.eventually(f"{node} is back", partial(is_back, node), 120)


def test_peers_can_reach_all_ports_and_others_only_open_ones(lab: Lab) -> None:
    with listening(lab, OPEN, EPHEMERAL):
        assert reachable_from_peers(lab, EPHEMERAL) == {node: list(NODES) for node in NODES}
        assert reachable_from_controller(lab, EPHEMERAL) == []
        # node4 has its own firewall, which the role must not open to other machines.
        assert reachable_from_controller(lab, OPEN) == ["node1", "node2", "node3"]
    assert all(login(lab, node) for node in NODES)


def test_ping_is_accepted(lab: Lab) -> None:
    request = bytes.fromhex("0800f7ff00000000")  # an ICMP echo request without data, and its checksum
    for node in NODES[:3]:
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.getprotobyname("icmp")) as connection:
            connection.settimeout(3)
            connection.connect((lab.node(node).address, 0))
            connection.send(request)
            assert connection.recv(100)[20] == 0  # an echo reply, after the IP header


def test_rules_are_restored_after_reboot(breakable: Lab) -> None:
    lab = breakable
    before = {node: rules(lab, node) for node in ("node2", "node3")}
    assert all("accept" in text for text in before.values())

    boot(lab, *before)
    for node in before:
        drive.eventually(
            f"{node} has its rules", partial(has_rules, lab, node, before[node]), 30, partial(rules, lab, node)
        )


def test_rules_are_restored_after_nftables_reload(lab: Lab) -> None:
    before = rules(lab, "node4")
    assert before.count("muster") == 1
    for verb in ("reload", "restart"):
        root_shell(lab, "node4", f"systemctl {verb} nftables")
        drive.eventually("the rules are there", lambda: rules(lab, "node4") == before, 10, lambda: rules(lab, "node4"))


def test_rules_that_lock_out_the_controller_are_rolled_back(lab: Lab) -> None:
    """If only a foreign network may use SSH, new connections fail until the node rolls the rules back by itself."""
    root_shell(lab, "node3", "ufw delete allow 22/tcp")  # now only the rules of the role allow SSH on node3
    before = {node: rules(lab, node) for node in NODES}
    config = root_shell(lab, "node1", "cat /etc/muster/firewall.json")
    locked_out: dict[str, bool] = {}
    play = drive.start(
        CONVERGE,
        lab.inventory,
        options=("--limit", "node1,node3"),
        firewall_ssh_from=["192.0.2.0/24"],
        firewall_rollback_after=30,
    )
    play.wait_for("TASK .*Confirm over a new connection")
    for node in ("node1", "node3"):
        locked_out[node] = not login(lab, node)
    play.wait()
    assert locked_out == {"node1": True, "node3": True}, "or there was nothing to be saved from"
    assert play.rc != 0
    output = " ".join(play.output.split())
    for node in locked_out:
        assert (
            f"{node}: no new connection from this machine succeeded with the new rules, "
            "so they were rolled back after 30 s" in output
        )
        assert login(lab, node)
    assert {node: rules(lab, node) for node in NODES} == before
    assert root_shell(lab, "node1", "cat /etc/muster/firewall.json") == config
    with listening(lab, EPHEMERAL):
        assert reachable_from_peers(lab, EPHEMERAL)["node2"] == list(NODES)
        assert reachable_from_controller(lab, EPHEMERAL) == []


def test_unconfirmed_rules_are_removed_by_reboot(breakable: Lab) -> None:
    lab = breakable
    nodes = ("node1", "node3")
    before = {node: rules(lab, node) for node in nodes}
    files = {
        node: root_shell(lab, node, "cat /etc/default/ufw /etc/ufw/before*.rules 2>/dev/null || true") for node in nodes
    }
    for node in nodes:
        root_shell(lab, node, "systemctl disable muster_firewall")  # as on a node whose rules were never confirmed
        expected = {**json.loads(root_shell(lab, node, "cat /etc/muster/firewall.json")), "ssh_from": ["192.0.2.0/24"]}
        tried = root_shell(
            lab, node, f"echo '{json.dumps(expected)}' | python3 /usr/local/lib/muster/firewall.py try 300"
        )
        assert tried.splitlines()[0] == "applied"
        assert not login(lab, node)
    boot(lab, *nodes)
    for node in nodes:
        drive.eventually(f"{node} has the kept rules", partial(has_rules, lab, node, before[node]), 120)
        current = root_shell(lab, node, "cat /etc/default/ufw /etc/ufw/before*.rules 2>/dev/null || true")
        assert current == files[node]


def test_joining_node_is_admitted_and_removed_node_is_blocked(lab: Lab, tmp_path: Path) -> None:
    inventory = tmp_path / "three.yml"
    lines = lab.inventory.read_text().splitlines(keepends=True)
    index = next(number for number, line in enumerate(lines) if line.strip() == "node2:")
    inventory.write_text("".join(lines[:index] + lines[index + 4 :]))
    assert drive.run(CONVERGE, inventory).rc == 0
    with listening(lab, EPHEMERAL):
        reachable = reachable_from_peers(lab, EPHEMERAL)
        assert reachable["node1"] == list(NODES)  # node2 was not notified
        assert reachable["node2"] == ["node2"]
        assert drive.run(CONVERGE, lab.inventory).rc == 0
        assert reachable_from_peers(lab, EPHEMERAL) == {node: list(NODES) for node in NODES}


def test_firewall_managed_by_iptables_is_refused_and_unchanged(lab: Lab) -> None:
    rules_of_iptables = "iptables -A INPUT -p tcp --dport 22 -j ACCEPT; iptables -A INPUT -j REJECT"
    root_shell(lab, "node3", f"ufw --force disable; nft flush ruleset; {rules_of_iptables}")
    before = rules(lab, "node3")
    started = time.monotonic()
    play = drive.run(CONVERGE, lab.inventory, options=("--limit", "node3"))
    assert time.monotonic() - started < 60
    assert play.rc == 2
    assert "node3: this node's firewall is managed by iptables" in " ".join(play.output.split())
    assert rules(lab, "node3") == before
    assert login(lab, "node3")
