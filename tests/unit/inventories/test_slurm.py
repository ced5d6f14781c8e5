# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""inventories/slurm.yml, with stand-ins for scontrol and ssh that print the same as Slurm 22.05 and 24.11."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._slurm.existing_cluster import (
    SlurmOutputError,
    parse_addresses,
    parse_nodes,
)
from tests.unit.inventories.listing import EXAMPLES, contract, list_training, run_inventory

TEXT = (EXAMPLES / "slurm.yml").read_text()
LOCAL = "plugin: muster.training.slurm\n"
NODES = (
    "NodeName=gpu2 Arch=x86_64 CoresPerSocket=32 CPUAlloc=0 CPUEfctv=128 CPUTot=128 CPULoad=0.10 "
    "AvailableFeatures=h100,ib ActiveFeatures=h100,ib Gres=gpu:h100:8(S:0-1) NodeAddr=10.0.0.12 NodeHostName=gpu2 "
    "Version=24.11.5 OS=Linux 6.1.0 #1 SMP RealMemory=2000000 AllocMem=0 FreeMem=1990000 Sockets=2 Boards=1 "
    "State=IDLE ThreadsPerCore=2 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=gpu,debug "
    "BootTime=2026-11-01T00:00:00 CfgTRES=cpu=128,mem=2000000M AllocTRES= Comment=(null)\n"
    "NodeName=gpu10 Gres=gpu:4 NodeAddr=c10 NodeHostName=c10 State=MIXED Partitions=gpu CPUTot=64 RealMemory=1000\n"
    "NodeName=gpu3 Gres=gpu:8 NodeAddr=10.0.0.13 State=IDLE+DRAIN Partitions=gpu "
    "Reason=broken fan State=IDLE [root@2026-11-27T10:00:00]\n"
    "NodeName=gpu4 Gres=gpu:8 NodeAddr=10.0.0.14 State=DOWN* Partitions=gpu Reason=Not responding [slurm@2026-11-27]\n"
    "NodeName=cpu1 Gres=(null) NodeAddr=10.0.0.21 State=IDLE Partitions=cpu\n"
)
GETENT = "#!/bin/sh\n[ \"$2\" = c10 ] && printf '10.0.0.20 STREAM c10\\n10.0.0.20 DGRAM\\n'\n"
# Runs the command here, as the login host would, and records its own arguments.
SSH = '#!/bin/sh\necho "$*" >> "$FAKE/ssh.log"\nwhile [ "$1" != -- ]; do shift; done\nshift 2\nexec sh -c "$1"\n'


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with stand-ins for the programs of the login host."""
    directory = tmp_path / "bin"
    directory.mkdir()
    (directory / "nodes").write_text(NODES)
    for name, text in (("scontrol", '#!/bin/sh\ncat "$FAKE/nodes"\n'), ("getent", GETENT), ("ssh", SSH)):
        (directory / name).write_text(text)
        (directory / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE", str(directory))
    return directory


def test_example_reaches_the_nodes_through_the_login_host(tmp_path: Path, fake: Path) -> None:
    hosts = list_training(tmp_path, "slurm.yml", TEXT, FAKE=str(fake))
    assert contract(hosts) == {
        "gpu2": {
            "ansible_host": "10.0.0.12",
            "ansible_user": "me",
            "node_address": "10.0.0.12",
            "node_rank": 0,
            "node_slots": 8,
        },
        "gpu10": {
            "ansible_host": "10.0.0.20",
            "ansible_user": "me",
            "node_address": "10.0.0.20",
            "node_rank": 1,
            "node_slots": 4,
        },
    }, "drained, down and other partitions' nodes are left out, and c10 is resolved on the login host"
    assert hosts["gpu2"]["ansible_ssh_common_args"] == "-o ProxyJump=me@login.example.org"
    assert "-- me@login.example.org scontrol show node --oneliner" in (fake / "ssh.log").read_text()


def test_all_nodes_of_the_local_cluster_are_listed(tmp_path: Path, fake: Path) -> None:
    text = LOCAL + "unusable: true\ngroups:\n  fast: \"'h100' in slurm_features | default([])\"\n"
    hosts = list_training(tmp_path, "slurm.yml", text, FAKE=str(fake))
    assert sorted(hosts) == ["cpu1", "gpu10", "gpu2", "gpu3", "gpu4"]
    assert "ansible_ssh_common_args" not in hosts["gpu2"] and "node_slots" not in hosts["cpu1"]
    assert hosts["gpu3"]["slurm_state"] == "IDLE+DRAIN"
    assert not (fake / "ssh.log").exists()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("partition: tpu\n", "no node is in the partition tpu. Partitions: cpu, debug, gpu."),
        ("login: -oProxyCommand=x\n", "`login` must be HOST or USER@HOST"),
    ],
)
def test_problems_are_explained(tmp_path: Path, fake: Path, options: str, expected: str) -> None:
    completed = run_inventory(tmp_path, "slurm.yml", LOCAL + options, FAKE=str(fake))
    assert expected in " ".join(completed.stderr.split())


def test_slurm_error_is_shown(tmp_path: Path, fake: Path) -> None:
    text = "#!/bin/sh\necho 'slurm_load_node: Unable to contact slurm controller (connect failure)' >&2\nexit 1\n"
    (fake / "scontrol").write_text(text)
    completed = run_inventory(tmp_path, "slurm.yml", LOCAL, FAKE=str(fake))
    assert completed.returncode != 0
    assert (
        "Unable to contact slurm controller (connect failure)" in completed.stderr
        and "on this machine" in completed.stderr
    )


@pytest.mark.parametrize("address", ["-oProxyCommand=touch", "a;b", "$(x)"])
def test_hostile_addresses_are_refused(address: str) -> None:
    with pytest.raises(SlurmOutputError, match="is not a node's name and address"):
        parse_nodes(f"NodeName=gpu1 NodeAddr={address} State=IDLE\n")


def test_reason_does_not_replace_other_fields() -> None:
    node = next(node for node in parse_nodes(NODES) if node.name == "gpu3")
    assert (node.state, node.reason, node.is_usable) == ("IDLE+DRAIN", "broken fan State=IDLE", False)


def test_loopback_addresses_do_not_count() -> None:
    text = "# a\n127.0.1.1 STREAM a\n10.0.0.1 STREAM a\n# b\n# c\n::1 STREAM c\n"
    assert parse_addresses(text) == {"a": "10.0.0.1"}
