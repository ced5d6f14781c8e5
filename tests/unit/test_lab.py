"""The parts of the lab that need no test host; scenario `default` tests the rest on real ones."""

from __future__ import annotations

import io
import shlex
import tarfile
from pathlib import Path

import pytest
import yaml

from tests.lab import Lab, LabError, Node, files, machine
from tests.lab.__main__ import launch_command

pytestmark = pytest.mark.one_core

HYBRID = """\
tmpfs /sys/fs/cgroup tmpfs rw 0 0
cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0
"""


def test_last_mount_determines_the_filesystem() -> None:
    assert machine.filesystem_at(HYBRID, "/sys/fs/cgroup") == "tmpfs"
    assert machine.filesystem_at(f"{HYBRID}cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n", "/sys/fs/cgroup") == "cgroup2"
    assert machine.filesystem_at(HYBRID, "/run/namespace") is None


@pytest.mark.parametrize("name", ["", "Lab", "a/b", "../lab", "-lab", "lab-", "a" * 21, "lab name"])
def test_bad_lab_name_is_refused(name: str) -> None:
    with pytest.raises(LabError, match="Lab name"):
        files.directory(name)


@pytest.mark.parametrize(("nodes", "refused"), [(-1, True), (0, True), (1, False), (64, False), (65, True)])
def test_a_lab_has_1_to_64_nodes(nodes: int, refused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def require_tools() -> None:
        raise LabError("reached")

    monkeypatch.setattr(machine, "require_tools", require_tools)
    with pytest.raises(LabError, match=f"^{nodes} nodes asked for: a lab has 1 to 64" if refused else "^reached$"):
        Lab.up(nodes)


def test_neighbor_tables_are_enlarged_for_many_nodes_until_they_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit, watches = tmp_path / "gc_thresh3", tmp_path / "max_user_instances"
    limit.write_text("1024\n")
    watches.write_text("128\n")
    (tmp_path / "state").mkdir()
    monkeypatch.setattr(machine, "NEIGHBOURS", limit)
    monkeypatch.setattr(machine, "WATCHES", watches)
    monkeypatch.setattr(machine, "STATE", tmp_path / "state")
    limits = []
    for nodes in (4, 32, 64):
        machine.ensure_limits(nodes)
        limits.append(limit.read_text())
    assert limits == ["1024\n", "2048\n", "8192\n"]
    assert watches.read_text() == "1024\n"
    for _again in range(2):
        machine.restore_limits()
        assert (limit.read_text(), watches.read_text()) == ("1024\n", "128\n")


def test_labs_with_different_names_have_different_directories() -> None:
    assert files.directory("lab").name == "lab"
    assert files.directory("other").name == "lab-other"


def test_inventory_has_node_variables_and_checks_host_keys() -> None:
    nodes = [Node("node1", "10.0.0.11", 2), Node("node2", "10.0.0.12")]
    training = yaml.safe_load(files.inventory("lab", nodes, Path("/venv/bin/python")))["training"]
    assert list(training["hosts"]) == ["node1", "node2"]
    assert training["hosts"]["node1"] == {"ansible_host": "10.0.0.11", "node_address": "10.0.0.11", "node_slots": 2}
    assert training["vars"]["launch_python"] == "/venv/bin/python"
    assert "StrictHostKeyChecking=yes" in training["vars"]["ansible_ssh_common_args"]
    assert "launch_python" not in yaml.safe_load(files.inventory("lab", nodes, None))["training"]["vars"]


def test_up_prints_a_command_that_starts_a_job() -> None:
    nodes = [Node("node1", "10.0.0.11", 2), Node("node2", "10.0.0.12"), Node("node3", "10.0.0.13")]
    inventory = files.directory("other") / "inventory.yml"
    script = files.CHECKOUT / "examples" / "ddp" / "train_ddp.py"
    text = files.inventory("other", nodes, Path("/venv/bin/python"), script)
    arguments = shlex.split(launch_command(inventory, text))
    assert arguments[:4] == [
        ".venv/bin/ansible-playbook",
        "playbooks/launch.yml",
        "-i",
        "build/lab-other/inventory.yml",
    ]
    assert arguments[4:] == ["-e", "nnodes=3"]
    assert yaml.safe_load(text)["training"]["vars"]["launch_script"] == str(script)
    assert (files.CHECKOUT / arguments[1]).exists() and script.exists()
    assert launch_command(inventory, files.inventory("other", nodes, None, script)) == "", "nothing to run it with"


def test_seed_is_the_same_for_the_same_settings(tmp_path: Path) -> None:
    key = tmp_path / "key"
    for path in (key, key.with_suffix(".pub")):
        path.write_text("key\n")
    seed = files.make_seed("node1", key, key.with_suffix(".pub"), [])
    assert files.make_seed("node1", key, key.with_suffix(".pub"), []) == seed
    with tarfile.open(fileobj=io.BytesIO(seed)) as archive:
        content = archive.extractfile("etc/hosts")
        assert content is not None
        assert "127.0.1.1 node1\n" in content.read().decode()
        assert archive.getmember("etc/ssh/ssh_host_ed25519_key").mode == 0o600
        assert archive.getmember("home/muster/.ssh/authorized_keys").uid == 1000
