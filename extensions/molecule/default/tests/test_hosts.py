"""The test hosts resemble rented Debian or Ubuntu machines, including their defects."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import pytest
import yaml
from testinfra.host import Host

from tests.lab import Lab, Node
from tests.lab.machine import eventually

testinfra_hosts = ["ansible://training"]


def test_own_name_is_loopback_and_peer_names_do_not_resolve(host: Host, lab: Lab) -> None:
    hostname = host.check_output("hostname")
    assert host.check_output(f"getent ahosts {hostname}").split()[0] == "127.0.1.1"
    peers = [node.name for node in lab.nodes if node.name != hostname]
    assert peers
    assert [peer for peer in peers if host.run(f"getent ahosts {peer}").rc == 0] == []
    assert lab.node(hostname).address in host.check_output("hostname -I").split()


def test_user_becomes_root_without_a_password(host: Host) -> None:
    assert host.check_output("id -un; sudo -n id -un").split() == ["muster", "root"]


def test_systemd_is_healthy_and_runs_transient_units(host: Host) -> None:
    assert host.check_output("systemctl is-system-running --wait") == "running"
    assert host.check_output("sudo systemd-run --unit=lab-test --collect --wait --pipe --quiet id -un") == "root"
    assert host.run("systemctl status lab-test").rc == 4


def test_sshd_has_default_connection_limits(host: Host) -> None:
    settings = host.check_output("sudo sshd -T").splitlines()
    assert "maxstartups 10:30:100" in settings
    assert "maxsessions 10" in settings


def test_launch_interpreter_imports_torch(lab: Lab) -> None:
    python = yaml.safe_load(lab.inventory.read_text())["training"]["vars"]["launch_python"]
    program = "import torch; print(torch.ones(2).sum())"
    completed = subprocess.run(
        lab.ssh("node1", f"{python} -c '{program}'"), capture_output=True, text=True, check=False
    )
    assert completed.stdout == "tensor(2.)\n", completed.stderr


def test_packages_can_be_installed(lab: Lab) -> None:
    node = lab.nodes[0].name
    assert lab.exec(node, ["apt-get", "update", "-qq"]).returncode == 0
    installed = lab.exec(node, ["apt-get", "install", "-qq", "--yes", "hello"])
    assert installed.returncode == 0, installed.stderr
    assert lab.exec(node, ["hello"]).stdout == "Hello, world!\n"


def test_wrong_host_key_is_refused(lab: Lab) -> None:
    first, second = lab.nodes[:2]
    arguments = lab.ssh(first.name, "true", options=["-o", f"HostKeyAlias={second.address}"])
    completed = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert completed.returncode == 255
    assert "Host key verification failed" in completed.stderr


# A server that reports how its only connection ended; a client that sends continuously.
SERVER = """
import socket
connection, _ = socket.create_server(("", 5999)).accept()
print("connected", flush=True)
connection.settimeout(4)
try:
    while connection.recv(9):
        pass
    print("end", flush=True)
except TimeoutError:
    print("silence", flush=True)
"""
CLIENT = """
import socket, time
deadline = time.monotonic() + 30
while time.monotonic() < deadline:
    try:
        connection = socket.create_connection(("{address}", 5999))
        break
    except ConnectionRefusedError:
        time.sleep(0.1)
while time.monotonic() < deadline:
    connection.send(b"x")
    time.sleep(0.1)
"""


@contextmanager
def _python(lab: Lab, node: str, program: str) -> Iterator[IO[str]]:
    """Run a program on a node, and yield its standard output."""
    arguments = lab.ssh(node, f"python3 -c {shlex.quote(program)}", options=["-n"])
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout
        finally:
            process.kill()


@pytest.mark.parametrize("event", ["cut_off", "power_off"])
def test_connection_to_lost_node_receives_nothing(breakable: Lab, event: str) -> None:
    lost, peer = breakable.nodes[0], breakable.nodes[1]
    with _python(breakable, peer.name, SERVER) as output, _python(
        breakable, lost.name, CLIENT.format(address=peer.address)
    ):
        assert output.readline() == "connected\n"
        getattr(breakable, event)(lost.name)
        assert output.readline() == "silence\n"


def test_isolated_node_is_reachable_only_from_this_machine(breakable: Lab) -> None:
    lost, peer = breakable.nodes[0], breakable.nodes[1]
    breakable.cut_off(lost.name)
    assert _is_reachable(breakable, lost)
    assert not _is_reachable(breakable, lost, through=peer)
    breakable.cut_off(lost.name, from_machine=True)
    assert not _is_reachable(breakable, lost)
    breakable.restore(lost.name)
    assert _is_reachable(breakable, lost)
    assert _is_reachable(breakable, lost, through=peer)


def test_node_returns_after_reboot_but_not_after_power_off(breakable: Lab) -> None:
    node = breakable.nodes[0]
    before = _boot(breakable, node)
    subprocess.run(breakable.ssh(node.name, "sudo systemctl reboot"), check=False)
    eventually(
        "The node is back", lambda: _is_reachable(breakable, node) and _boot(breakable, node) != before, timeout=120
    )
    breakable.power_off(node.name)
    assert not _is_reachable(breakable, node)
    assert not breakable.is_on(node.name)
    breakable.power_on(node.name)
    assert _is_reachable(breakable, node)


def test_node_gets_no_more_cpu_than_its_limit(breakable: Lab) -> None:
    node = breakable.nodes[0]
    breakable.limit_cpu(node.name, 0.1)
    program = "import time; t = time.monotonic()\nwhile time.monotonic() < t + 2: pass\nprint(time.process_time())"
    with _python(breakable, node.name, program) as output:
        assert float(output.read()) < 0.4


def test_process_list_shows_only_the_nodes_own_processes(lab: Lab) -> None:
    with _python(lab, lab.nodes[0].name, "import time; time.sleep(30)"):
        eventually("The process is listed", lambda: "time.sleep(30)" in _commands(lab, 0), timeout=120)
        assert "time.sleep(30)" not in _commands(lab, 1)
    first = lab.processes(lab.nodes[1].name)[0]
    # a systemd upgrade, for example by base_packages, restarts it under its other name
    assert (first.pid, first.user) == (1, "root") and first.command.split()[0] in ("/sbin/init", "/lib/systemd/systemd")


def test_command_resumes_after_sigstop(lab: Lab) -> None:
    # systemd stops all processes this way when a node shuts down: nsenter stops along with its child, and nothing
    # resumes it
    completed = lab.exec(lab.nodes[0].name, ["sh", "-c", "kill -STOP $$; echo goes on"], timeout=20)
    assert completed.stdout == "goes on\n"


def _commands(lab: Lab, node: int) -> str:
    return "\n".join(process.command for process in lab.processes(lab.nodes[node].name) if process.user == "muster")


def _is_reachable(lab: Lab, node: Node, through: Node | None = None) -> bool:
    """Return whether a node's sshd responds to this machine, or to a peer."""
    if through:
        program = f"import socket; socket.create_connection(('{node.address}', 22), timeout=2)"
        return lab.exec(through.name, ["python3", "-c", program]).returncode == 0
    arguments = lab.ssh(node.name, "true", options=["-o", "ConnectTimeout=2"])
    return subprocess.run(arguments, capture_output=True, check=False).returncode == 0


def _boot(lab: Lab, node: Node) -> str:
    return lab.exec(node.name, ["stat", "--format=%Z", "/proc/1"]).stdout
