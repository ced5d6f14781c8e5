"""Options and exit codes of preflight, the same checks before a launch, and the summary on one screen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import drive
from tests.support.cluster import Cluster
from tests.support.recap import unchanged

LOOPBACK = "sed -i '$a 127.0.1.1 node2' /etc/hosts"
RIGHT = "sed -i '/127.0.1.1/d' /etc/hosts"


def test_all_findings_are_reported_worst_first(cluster: Cluster, tmp_path: Path) -> None:
    cluster.fault("node2", LOOPBACK, RIGHT)
    cluster.fault("node3", "mount -o remount,size=64m /dev/shm", "mount -o remount,size=2g /dev/shm")
    cluster.fault("node4", "ip link set eth0 mtu 1400", "ip link set eth0 mtu 1500")
    target = tmp_path / "found.json"
    play = drive.run("preflight.yml", cluster.lab.inventory, preflight_json=str(target))
    assert play.rc == 2, play.output
    result = json.loads(target.read_text())
    assert (result["error_count"], result["warning_count"]) == (1, 2)
    assert [finding["id"] for finding in result["findings"]] == ["own-name-loopback", "mtu-mismatch", "shm-small"]
    assert [node["name"] for node in result["nodes"]] == cluster.names
    positions = [
        play.output.index(word) for word in ("own-name-loopback", "mtu-mismatch", "shm-small", "1 error, 2 warnings")
    ]
    assert positions == sorted(positions)


def test_strict_exits_1_on_warnings_and_checks_can_be_skipped(cluster: Cluster) -> None:
    cluster.fault("node3", "mount -o remount,size=64m /dev/shm", "mount -o remount,size=2g /dev/shm")
    lax = drive.run("preflight.yml", cluster.lab.inventory)
    assert lax.rc == 0 and "shm-small" in lax.output, lax.output
    strict = drive.run("preflight.yml", cluster.lab.inventory, preflight_strict=True)
    assert strict.rc == 1 and "in spite of preflight_strict" in strict.output, strict.output
    skipped = drive.run(
        "preflight.yml", cluster.lab.inventory, preflight_strict=True, options=("-e", "preflight_skip=[shm-small]")
    )
    assert skipped.rc == 0 and "no errors, no warnings" in skipped.output, skipped.output
    enough = drive.run(
        "preflight.yml", cluster.lab.inventory, preflight_strict=True, preflight_thresholds={"shm_gib": 0.05}
    )
    assert enough.rc == 0, enough.output


@pytest.mark.thorough  # tests/unit/plugins/plugin_utils/checks/test_catalogue.py
@pytest.mark.parametrize(
    ("skip", "message"),
    [
        ("shm-smal", "did you mean shm-small"),
        ("all", "cannot skip 'all': unknown check"),
        ("unreachable", "cannot be skipped"),
    ],
)
def test_unknown_or_mandatory_check_cannot_be_skipped(cluster: Cluster, skip: str, message: str) -> None:
    play = drive.run("preflight.yml", cluster.lab.inventory, preflight_skip=[skip])
    assert play.rc == 2 and message in play.output, play.output


@pytest.mark.thorough  # tests/unit/plugins/action/test_launch_plan.py
def test_nproc_per_node_below_1_is_refused(cluster: Cluster) -> None:
    for option in ("nproc_per_node=0", '{"nproc_per_node": 0}', "nproc_per_node=-1"):
        play = drive.run("preflight.yml", cluster.lab.inventory, options=("-e", option))
        assert play.rc == 2 and ", but must be 1 or more" in play.output, play.output


@pytest.mark.thorough  # tests/unit/playbooks/test_no_effect.py
def test_misspelled_variables_are_refused(cluster: Cluster) -> None:
    play = drive.run("preflight.yml", cluster.lab.inventory, preflight_stict=True)
    assert play.rc == 2 and "preflight_strict" in play.output, play.output


def test_preflight_can_check_part_of_the_cluster(cluster: Cluster) -> None:
    cluster.fault("node4", "ip link set eth0 mtu 1400", "ip link set eth0 mtu 1500")
    first = drive.run("preflight.yml", cluster.lab.inventory, nnodes=2, preflight_strict=True)
    assert first.rc == 0 and "preflight on 2 nodes: no errors, no warnings" in first.output, first.output
    selected = drive.run("preflight.yml", cluster.lab.inventory, nodes="node2,node4", preflight_strict=True)
    assert selected.rc == 1 and "mtu-mismatch" in selected.output, selected.output


def test_preflight_changes_nothing_and_has_no_leftovers(cluster: Cluster) -> None:
    drive.nothing_left(cluster.lab, cluster.names, within=40)  # an earlier preflight may still be waiting for a peer
    play = drive.run("preflight.yml", cluster.lab.inventory, options=("--diff",))
    assert unchanged(play), play.output
    drive.nothing_left(cluster.lab, cluster.names, within=15)
    checked = drive.run("preflight.yml", cluster.lab.inventory, options=("--check",))
    assert checked.rc == 0 and "no errors, no warnings" in checked.output, checked.output


def test_network_check_works_with_one_fork(cluster: Cluster) -> None:
    play = drive.run("preflight.yml", cluster.lab.inventory, options=("--forks", "1"))
    assert play.rc == 0 and "no errors, no warnings" in play.output, play.output
    drive.nothing_left(cluster.lab, cluster.names, within=15)


@pytest.mark.thorough  # tests/unit/plugins/module_utils/facts/test_peer_probe.py; test_catalogue.py with more forks
def test_blocked_peers_are_detected_with_one_fork(cluster: Cluster) -> None:
    text = "table inet fault {\nchain in { type filter hook input priority 0; ip saddr %s tcp dport != 22 drop; }\n}"
    cluster.fault("node3", f"nft -f - <<'END'\n{text % cluster.address('node2')}\nEND", "nft delete table inet fault")
    play = drive.run("preflight.yml", cluster.lab.inventory, options=("--forks", "1"))
    assert play.rc == 2 and "peers-blocked" in play.output and "from node2 to node3" in play.output, play.output
    drive.nothing_left(cluster.lab, cluster.names, within=80)  # the nodes wait for each other for up to four rounds


TRIVIAL: dict[str, Any] = {"launch_module": "this", "launch_launcher": "env"}


def test_a_launch_is_refused_for_the_same_faults(cluster: Cluster) -> None:
    node1 = cluster.address("node1")
    wrong = ("sed -i 's/.* node1$/10.255.255.1 node1/' /etc/hosts", f"sed -i 's/.* node1$/{node1} node1/' /etc/hosts")
    route = (f"ip route add unreachable {node1}/32", f"ip route delete unreachable {node1}/32")
    for name, (make, undo) in {"node2": (LOOPBACK, RIGHT), "node3": wrong, "node4": route}.items():
        cluster.fault(name, make, undo)
    play = drive.start("launch.yml", cluster.lab.inventory, **TRIVIAL).wait()
    assert play.rc == 2 and "nothing was started" in play.output, play.output
    for message in ("own-name-loopback on node2", "name-differs on node3", "no-route on node4", "10.255.255.1"):
        assert message in play.output, play.output
    cluster.mend()
    play = drive.start("launch.yml", cluster.lab.inventory, **TRIVIAL).wait()
    assert play.rc == 0 and "WARNING" not in play.output, play.output
    # node4 has been waiting for node1 since the launch was refused
    drive.nothing_left(cluster.lab, cluster.names, within=40)


@pytest.mark.thorough  # molecule/launch skips a check in test_full_disk.py
def test_a_launch_can_skip_single_checks(cluster: Cluster) -> None:
    cluster.fault("node2", LOOPBACK, RIGHT)
    play = drive.start("launch.yml", cluster.lab.inventory, **TRIVIAL, preflight_skip="own-name-loopback").wait()
    assert play.rc == 0 and "own-name-loopback" not in play.output, play.output
    drive.nothing_left(cluster.lab, cluster.names, within=40)


def test_ping_shows_which_machines_respond_and_their_gpus(cluster: Cluster) -> None:
    line = "0, GPU-0, NVIDIA L40S, 550.127.05, 46068 MiB, 1 MiB, Default"
    head = "index, uuid, name, driver_version, memory.total [MiB], memory.used [MiB], compute_mode"
    stub = f"#!/bin/sh\necho '{head}'\necho '{line}'"
    path = "/usr/local/bin/nvidia-smi"
    cluster.fault("node2", f"cat > {path} <<'END'\n{stub}\nEND\nchmod 755 {path}", f"rm {path}")
    play = drive.run("ping.yml", cluster.lab.inventory)
    assert play.rc == 0, play.output
    assert f"node2  {cluster.address('node2')}  yes      550.127.05  1 x L40S 45 GiB" in play.output, play.output
    assert "4 of 4 machines respond, 1 GPU" in play.output, play.output
    cluster.fault("node3", "systemctl stop ssh", "systemctl start ssh")
    cluster.log_in_anew("node3")
    play = drive.run("ping.yml", cluster.lab.inventory)
    assert play.rc == 2, play.output
    assert "3 of 4 machines respond" in play.output and "1 of 4 are not responding: node3" in play.output, play.output


def test_mounts_of_each_node_are_shown(cluster: Cluster) -> None:
    cluster.fault("node2", "mkdir -p /mnt/data; mount -t tmpfs -o size=64m tmpfs /mnt/data", "umount /mnt/data")
    play = drive.run("status.yml", cluster.lab.inventory, mounts=True, preflight_mounts=["/mnt/data"])
    assert play.rc == 0, play.output
    assert "node1  /mnt/data  NOT MOUNTED  -" in play.output, play.output
    assert "node2  /mnt/data  mounted      0.1 GiB  tmpfs tmpfs" in play.output, play.output
    assert "1 of 4 mounts can be used" in play.output


def test_public_key_is_installed_once_and_nothing_is_removed(cluster: Cluster, tmp_path: Path) -> None:
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1mnsPtKw7fkSnC0Yq5sUgyWIvzq0N1Yw5oFQ3cVvP0 me@laptop"
    (tmp_path / "id.pub").write_text(f"{key}\n")
    (tmp_path / "id").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nc2VjcmV0\n-----END OPENSSH PRIVATE KEY-----\n")
    path = "/home/muster/.ssh/authorized_keys"
    for name in cluster.names:
        cluster.fault(name, f"cp -p {path} {path}.kept", f"mv {path}.kept {path}")
    before = cluster.lab.exec("node1", ["cat", path]).stdout
    refused = drive.run("keys.yml", cluster.lab.inventory, key=str(tmp_path / "id"))
    assert refused.rc == 2 and "is not a public key" in refused.output and "c2VjcmV0" not in refused.output
    first = drive.run("keys.yml", cluster.lab.inventory, key=str(tmp_path / "id.pub"))
    assert first.rc == 0, first.output
    after = cluster.lab.exec("node1", ["cat", path]).stdout.splitlines()
    assert key in after and set(before.splitlines()) < set(after)
    second = drive.run("keys.yml", cluster.lab.inventory, key=str(tmp_path / "id.pub"))
    assert unchanged(second), second.output
