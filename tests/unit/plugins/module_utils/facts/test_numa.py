# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NUMA nodes, from sysfs and procfs trees."""

from __future__ import annotations

import os
from pathlib import Path

from ansible_collections.muster.training.plugins.module_utils._facts.numa import read_numa

# An HGX H100 with two sockets: its GPUs' addresses, in nvidia-smi's order.
GPUS = {"0000:18:00.0": 0, "0000:2a:00.0": 0, "0000:9a:00.0": 1, "0000:ab:00.0": 1}


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def test_gpus_and_cpus_are_read(tmp_path: Path) -> None:
    for address, node in GPUS.items():
        write(tmp_path / "gpus" / address.upper() / "information", "Model: NVIDIA H100 80GB HBM3")
        write(tmp_path / "devices" / address / "numa_node", str(node))
    write(tmp_path / "nodes" / "node0" / "cpulist", "0-47,96-143")
    write(tmp_path / "nodes" / "node1" / "cpulist", "48-95,144-191")
    write(tmp_path / "nodes" / "node2" / "cpulist", "")  # memory only, as for a GH200's GPU
    expected = {"gpus": [0, 0, 1, 1], "cpus": {"0": "0-47,96-143", "1": "48-95,144-191"}}
    assert read_numa(*(str(tmp_path / name) for name in ("nodes", "gpus", "devices"))) == expected


def test_virtual_machine_without_topology_has_unknown_numa_nodes(tmp_path: Path) -> None:
    write(tmp_path / "gpus" / "0000:00:05.0" / "information", "Model: NVIDIA RTX A6000")
    write(tmp_path / "devices" / "0000:00:05.0" / "numa_node", "-1")
    assert read_numa(*(str(tmp_path / name) for name in ("nodes", "gpus", "devices"))) == {"gpus": [-1], "cpus": {}}
    assert read_numa("/nonexistent", "/nonexistent", "/nonexistent") == {"gpus": [], "cpus": {}}


def test_this_machine_can_be_read() -> None:
    assert set(read_numa()) == {"gpus", "cpus"}
    if os.path.exists("/sys/devices/system/node/node0/cpulist"):
        assert read_numa()["cpus"]
