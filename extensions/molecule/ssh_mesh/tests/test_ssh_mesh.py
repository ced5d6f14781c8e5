"""Every node can log in to every node, only as intended; existing configuration is unchanged."""

from __future__ import annotations

import re
import shlex
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.lab import Lab
from tests.support import drive
from tests.support.recap import unchanged

CHECKOUT = Path(__file__).resolve().parents[4]


def as_user(lab: Lab, node: str, command: str) -> tuple[int, str]:
    """Run a command as the user on a node; return its exit code and output, including stderr only if it failed.

    For example, mpirun sometimes warns about an internal race ("setpgid failed") and continues.
    """
    completed = lab.exec(node, ["runuser", "--login", "muster", "-c", command], timeout=120)
    return completed.returncode, (completed.stdout + (completed.stderr if completed.returncode else "")).strip()


def logins(lab: Lab, node: str, targets: Sequence[str]) -> dict[str, str]:
    """Return the output of `ssh TARGET hostname` for each target, all from one node."""
    command = "; ".join(
        f"echo {target} $(ssh -o BatchMode=yes {target} hostname 2>&1 | tail -n 1)" for target in targets
    )
    return dict(line.split(" ", 1) for line in as_user(lab, node, command)[1].splitlines())


def test_every_node_logs_in_to_every_node_by_name_and_address(lab: Lab) -> None:
    targets = {node.name: node.name for node in lab.nodes} | {node.address: node.name for node in lab.nodes}
    for node in lab.nodes:
        assert logins(lab, node.name, list(targets)) == targets, node.name


def test_ssh_client_configuration_applies_to_peers_only(lab: Lab) -> None:
    for node in lab.nodes:
        for peer in lab.nodes:
            settings = as_user(lab, node.name, f"ssh -G {peer.name}")[1].splitlines()
            assert {f"hostname {peer.address}", "port 2222", "user muster", "identityfile ~/.ssh/id_ed25519"} <= set(
                settings
            )
            assert "stricthostkeychecking ask" in settings
            assert not [line for line in settings if line.startswith("userknownhostsfile") and "null" in line]
    outside = as_user(lab, "node1", "ssh -G github.com")[1].splitlines()
    assert {"hostname github.com", "port 22", "stricthostkeychecking ask"} <= set(outside)


def test_host_with_another_identity_is_refused(lab: Lab) -> None:
    # node2 replies with its certificate, which is not valid for the name node3.
    code, output = as_user(lab, "node1", "ssh -o BatchMode=yes -o HostKeyAlias=node3 node2 true")
    assert code == 255
    assert "Host key verification failed" in output
    assert "not a listed principal" in output or "No ED25519 host key is known" in output


def test_login_as_another_user_is_refused(lab: Lab) -> None:
    code, output = as_user(lab, "node1", "ssh -o BatchMode=yes root@node2 true")
    assert code == 255
    assert "Permission denied" in output


def test_sshd_also_listens_on_mesh_port_and_is_otherwise_unchanged(lab: Lab) -> None:
    for node in lab.nodes:
        before = set(lab.exec(node.name, ["cat", "/var/tmp/sshd-before"]).stdout.splitlines())
        after = set(lab.exec(node.name, ["sshd", "-T"]).stdout.splitlines())
        assert before - after == {"hostcertificate none", "revokedkeys none"} & before
        assert {line.split()[0] for line in after - before} == {
            "port",
            "listenaddress",
            "hostcertificate",
            "revokedkeys",
        }
        assert {"passwordauthentication yes", "permitrootlogin without-password"} <= after
        listening = lab.exec(node.name, ["ss", "-Hltn"]).stdout
        assert {"0.0.0.0:22", "0.0.0.0:2222"} <= set(re.findall(r"0\.0\.0\.0:\d+", listening))


def test_ssh_files_have_safe_permissions(lab: Lab) -> None:
    expected = {
        "/home/muster/.ssh": "700 muster",
        "/home/muster/.ssh/id_ed25519": "600 muster",
        "/home/muster/.ssh/authorized_keys": "600 muster",
        "/etc/ssh/ssh_known_hosts": "644 root",
        "/etc/ssh/ssh_host_ed25519_key": "600 root",
    }
    for node in lab.nodes:
        listed = lab.exec(node.name, ["stat", "--format=%n:%a %U", *expected]).stdout.splitlines()
        assert dict(line.split(":") for line in listed) == expected
        home = int(lab.exec(node.name, ["stat", "--format=%a", "/home/muster"]).stdout, 8)
        assert not home & (stat.S_IWGRP | stat.S_IWOTH)


def test_private_keys_stay_where_they_were_made(lab: Lab) -> None:
    authority = lab.inventory.parent / "ssh_mesh"
    secret = (authority / "ca").read_text().splitlines()[3]
    assert stat.S_IMODE(authority.stat().st_mode) == 0o700
    assert [path for path in authority.rglob("*") if stat.S_IMODE(path.stat().st_mode) & 0o077] == []
    assert (authority / ".gitignore").read_text() == "*\n"
    for node in lab.nodes:
        key = lab.exec(node.name, ["cat", "/home/muster/.ssh/id_ed25519"]).stdout
        assert key.startswith("-----BEGIN OPENSSH PRIVATE KEY-----")
        assert not [
            path
            for path in authority.rglob("*")
            if path.is_file() and key.splitlines()[3].encode() in path.read_bytes()
        ]
        # a file that contains the key is created: a working search finds only this file
        search = f"echo {secret} > /var/tmp/planted; grep -rlF {secret} /etc/ssh /home /root /tmp /var/tmp"
        result = lab.exec(node.name, ["sh", "-c", search])
        assert lab.exec(node.name, ["rm", "/var/tmp/planted"]).returncode == 0
        assert (result.returncode, result.stdout.split()) == (0, ["/var/tmp/planted"]), result.stdout + result.stderr


def test_existing_key_is_kept(lab: Lab) -> None:
    assert lab.exec("node3", ["cat", "/home/muster/.ssh/id_ed25519.pub"]).stdout.rstrip().endswith(" mine")


def test_pdsh_rsync_and_mpirun_work_over_the_mesh(lab: Lab) -> None:
    code, output = as_user(lab, "node1", "PDSH_RCMD_TYPE=ssh pdsh -w node1,node2,node3 hostname")
    assert code == 0, output
    assert sorted(output.splitlines()) == [f"node{i}: node{i}" for i in (1, 2, 3)]

    code, output = as_user(
        lab, "node1", "echo one > sent && rsync -a sent node2: && rsync -a node2:sent received && cat received"
    )
    assert (code, output) == (0, "one")

    network = f"{lab.nodes[0].address.rpartition('.')[0]}.0/24"
    options = f"--mca oob_tcp_if_include {network} --mca btl_tcp_if_include {network}"
    code, output = as_user(lab, "node1", f"mpirun {options} --host node1,node2,node3 hostname")
    assert code == 0, output
    assert sorted(output.splitlines()) == ["node1", "node2", "node3"]


def _with_nodes(lab: Lab, path: Path, names: Sequence[str]) -> Path:
    """Write an inventory like the lab's with only these nodes; return its path."""
    inventory = yaml.safe_load(lab.inventory.read_text())
    hosts = inventory["training"]["hosts"]
    inventory["training"]["hosts"] = {name: hosts[name] for name in names}
    path.write_text(yaml.safe_dump(inventory))
    return path


def _mesh(inventory: Path, authority: Path, *options: str, **extra: Any) -> drive.Play:
    playbook = str(CHECKOUT / "extensions" / "molecule" / "ssh_mesh" / "converge.yml")
    play = drive.run(playbook, inventory, options=options, ssh_mesh_authority=str(authority), **extra)
    assert play.rc == 0, play.output
    return play


def _files(lab: Lab, node: str) -> str:
    completed = lab.exec(node, ["find", "/etc/ssh", "/home/muster/.ssh", "-type", "f", "-exec", "sha256sum", "{}", "+"])
    assert completed.returncode == 0 and "/etc/ssh/" in completed.stdout and "/.ssh/" in completed.stdout, (
        completed.stdout + completed.stderr
    )
    return "\n".join(sorted(completed.stdout.splitlines()))


def _validity(lab: Lab, node: str) -> float:
    """Return the days from now until the user's certificate expires."""
    command = "date -u -d $(TZ=UTC ssh-keygen -L -f .ssh/id_ed25519-cert.pub | sed -n 's/.* to //p') +%s; date +%s"
    end, now = as_user(lab, node, command)[1].split()
    return (int(end) - int(now)) / 86400


def test_next_run_completes_an_interrupted_one(lab: Lab) -> None:
    """Reload sshd when its files were written but not read."""
    path = "/etc/ssh/sshd_config.d/10-muster-ssh-mesh.conf"
    assert lab.exec("node2", ["bash", "-c", f"mv {path} /root/kept && systemctl reload ssh"]).returncode == 0
    drive.eventually("the port is closed", lambda: ":2222 " not in lab.exec("node2", ["ss", "-Hltn"]).stdout, 120)
    lab.exec("node2", ["cp", "/root/kept", path])
    options = ("--limit", "node2")
    playbook = str(CHECKOUT / "extensions" / "molecule" / "ssh_mesh" / "converge.yml")
    play = drive.run(playbook, lab.inventory, options=options)
    assert play.rc == 0, play.output
    assert ":2222 " in lab.exec("node2", ["ss", "-Hltn"]).stdout
    rerun = drive.run(playbook, lab.inventory, options=options)
    assert unchanged(rerun), rerun.output


def test_node_can_join_be_removed_and_return(lab: Lab, tmp_path: Path) -> None:
    """The mesh has its own authority, with certificates for a few hours; node4 is unknown to it at first."""
    two = _with_nodes(lab, tmp_path / "two.yml", ["node1", "node2"])
    three = _with_nodes(lab, tmp_path / "three.yml", ["node1", "node2", "node4"])
    addresses = {node.name: node.address for node in lab.nodes}
    short = {"ssh_mesh_valid_for": "4h", "ssh_mesh_renew_before": "2h"}

    _mesh(two, tmp_path / "ca", **short)
    assert logins(lab, "node1", ["node2"]) == {"node2": "node2"}
    assert (
        "Permission denied" in logins(lab, "node4", ["node1"])["node1"]
        or "verification failed" in logins(lab, "node4", ["node1"])["node1"]
    )
    assert "verification failed" in logins(lab, "node1", [addresses["node4"]])[addresses["node4"]]

    before = {node: _files(lab, node) for node in ("node1", "node2")}
    _mesh(three, tmp_path / "ca", "--limit", "node4", **short)
    assert {node: _files(lab, node) for node in before} == before, "a new node touches only itself"
    for node in before:
        assert logins(lab, "node4", [node]) == {node: node}
    # the other nodes trust the certificate authority only for the nodes in their known_hosts
    assert "verification failed" in logins(lab, "node1", [addresses["node4"]])[addresses["node4"]]
    _mesh(three, tmp_path / "ca", **short)
    for node in before:
        assert logins(lab, node, [addresses["node4"]]) == {addresses["node4"]: "node4"}

    _mesh(two, tmp_path / "ca", **short)  # node4 has left
    assert "Permission denied" in logins(lab, "node4", ["node1"])["node1"]
    refused = logins(lab, "node1", [addresses["node4"]])[addresses["node4"]]
    assert "revoked" in refused or "verification failed" in refused
    assert logins(lab, "node1", ["node2"]) == {"node2": "node2"}

    assert _validity(lab, "node1") < 4 / 24
    play = _mesh(three, tmp_path / "ca")  # it is reachable again, and 4 hours is less than 12 weeks: all are renewed
    names = [*before, "node4"]
    for node in names:
        assert logins(lab, node, names) == {name: name for name in names}
        assert _validity(lab, node) > 360
    secret = (tmp_path / "ca" / "ca").read_text().splitlines()[3]
    assert secret not in play.output


def test_machine_gets_no_certificate_for_a_name_that_it_chose_itself(lab: Lab, tmp_path: Path) -> None:
    """node3 has the hostname github.com; an earlier certificate for that name is revoked."""
    authority = tmp_path / "ca"
    pair = _with_nodes(lab, tmp_path / "pair.yml", ["node1", "node3"])
    playbook = tmp_path / "wrong.yml"
    names = "{{ [inventory_hostname, 'github.com'] }}"
    role = {"role": "muster.training.ssh_mesh", "vars": {"ssh_mesh_port": 2222, "__ssh_mesh_names": names}}
    playbook.write_text(yaml.safe_dump([{"hosts": "training", "gather_facts": False, "roles": [role]}]))
    certificate = "/etc/ssh/ssh_host_ed25519_key-cert.pub"
    stranger = (
        "ssh -o BatchMode=yes -o StrictHostKeyChecking=yes -o UserKnownHostsFile=/dev/null"
        f" -o HostName={lab.node('node3').address} -o HostKeyAlias=github.com muster@github.com hostname"
    )
    try:
        wrong = drive.run(str(playbook), pair, ssh_mesh_authority=str(authority))
        assert wrong.rc == 0, wrong.output
        principals = lab.exec("node3", ["ssh-keygen", "-L", "-f", certificate]).stdout
        assert "github.com" in principals
        assert lab.exec("node3", ["cp", certificate, "/var/tmp/wrong-cert.pub"]).returncode == 0
        lab.exec("node3", ["hostname", "github.com"])
        _mesh(pair, authority)
        principals = lab.exec("node3", ["ssh-keygen", "-L", "-f", certificate]).stdout
        assert "node3" in principals and "github" not in principals
        query = ["ssh-keygen", "-Q", "-f", "/etc/ssh/muster_ssh_mesh_revoked"]
        assert "REVOKED" in lab.exec("node3", [*query, "/var/tmp/wrong-cert.pub"]).stdout
        assert lab.exec("node3", [*query, certificate]).returncode == 0
        # the node cannot impersonate github.com, even with the earlier certificate
        lab.exec("node3", ["sh", "-c", f"cp /var/tmp/wrong-cert.pub {certificate} && systemctl reload ssh"])
        code, output = as_user(lab, "node1", stranger)
        assert code == 255 and "Host key verification failed" in output
    finally:
        lab.exec("node3", ["sh", "-c", "hostname node3; rm -f /var/tmp/wrong-cert.pub"])
        _mesh(lab.inventory, lab.inventory.parent / "ssh_mesh")


def test_faults_that_keep_a_node_out_are_named_before_any_change(lab: Lab, tmp_path: Path) -> None:
    """Each real fault is reported with the node's name before anything is changed."""
    playbook = str(CHECKOUT / "extensions" / "molecule" / "ssh_mesh" / "converge.yml")
    before = _files(lab, "node2")
    config_path = "/etc/ssh/sshd_config"
    faults = f"sed -i.orig 's/^Include/#Include/' {config_path}; echo RevokedKeys /etc/mine >> {config_path}"
    lab.exec("node2", ["sh", "-c", faults])
    try:
        play = drive.run(playbook, lab.inventory, ssh_mesh_user="muster", ssh_mesh_host_key="/etc/ssh/none")
    finally:
        lab.exec("node2", ["mv", "/etc/ssh/sshd_config.orig", "/etc/ssh/sshd_config"])
    assert play.rc == 2
    text = " ".join(play.output.split())
    for output in (
        "node2: sshd does not read /etc/ssh/sshd_config.d",
        "node2: sshd already uses /etc/mine as its list of revoked keys",
        "node2: the host key /etc/ssh/none.pub is missing",
    ):
        assert output in text, play.output
    assert "node1: sshd does not read" not in text
    assert "changed=0" in play.output and not re.search(r"changed=[1-9]", play.output)
    assert _files(lab, "node2") == before


def test_key_with_a_passphrase_is_refused(lab: Lab, tmp_path: Path) -> None:
    playbook = str(CHECKOUT / "extensions" / "molecule" / "ssh_mesh" / "converge.yml")
    make = f"ssh-keygen -q -t ed25519 -N {shlex.quote('a phrase')} -f .ssh/locked"
    assert as_user(lab, "node3", make)[0] == 0
    play = drive.run(
        playbook,
        lab.inventory,
        ssh_mesh_key=".ssh/locked",
        ssh_mesh_authority=str(tmp_path),
        options=("--limit", "node3"),
    )
    assert play.rc == 2
    assert "node3: the key /home/muster/.ssh/locked cannot be used without a prompt" in " ".join(play.output.split())
    as_user(lab, "node3", "rm .ssh/locked*")
