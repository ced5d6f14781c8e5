"""Links between GPUs and nodes, from sysfs trees and nvidia-smi output."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.module_utils._facts import gpu_links, rdma

# nvidia-smi 570 on an HGX H100, shortened.
SECTIONS = """
GPU 00000000:18:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    Fabric
        State                             : Completed
        Status                            : Success
        CliqueId                          : 0
GPU 00000000:2A:00.0
    Fabric
        State                             : In Progress
        Status                            : N/A
"""
LINKS = """GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)
\t Link 0: 26.562 GB/s
\t Link 1: 26.562 GB/s
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-2)
\t Link 0: <inactive>
"""


def test_states_of_the_fabric_are_parsed() -> None:
    assert gpu_links.parse_fabric("fabric.state, fabric.status\nCompleted, Success\nIn Progress, N/A\n") == [
        {"state": "Completed", "status": "Success"},
        {"state": "In Progress", "status": "N/A"},
    ]
    assert gpu_links.parse_fabric('Field "fabric.state" is not a valid field to query.\n') == []
    assert gpu_links.parse_fabric_sections(SECTIONS) == [
        {"state": "Completed", "status": "Success"},
        {"state": "In Progress", "status": "N/A"},
    ]


def test_active_links_are_counted() -> None:
    assert gpu_links.parse_links(LINKS) == 2
    assert gpu_links.parse_links("GPU 0: NVIDIA L40S (UUID: GPU-1)\n") == 0
    assert gpu_links.parse_links("Invalid combination of input arguments.\n") is None


def config_space(control: int | None) -> bytes:
    """Return a bridge's configuration space with extended capabilities: errors, and optionally access control."""
    space = bytearray(4096)
    following = 0x148 if control is not None else 0
    struct.pack_into("<I", space, 0x100, 0x0001 | 1 << 16 | following << 20)
    if control is not None:
        struct.pack_into("<IHH", space, 0x148, gpu_links.ACS | 1 << 16, 0x7F, control)
    return bytes(space)


@pytest.mark.parametrize(
    ("config", "redirects"),
    [
        (config_space(0x1D), True),
        (config_space(0x00), False),
        (config_space(None), False),
        (bytes(64), None),  # all that an unprivileged user can read
        (b"\xff" * 4096, False),  # a removed device
    ],
)
def test_redirection_is_read_from_the_configuration_space(config: bytes, redirects: bool | None) -> None:
    assert gpu_links.has_redirection(config) is redirects


def device(root: Path, path: str, vendor: str, kind: str, config: bytes) -> None:
    """Create a device below others, and its link among all devices of the bus."""
    directory = root / "devices" / path
    directory.mkdir(parents=True)
    for name, text in (("vendor", vendor), ("class", kind)):
        (directory / name).write_text(text + "\n")
    (directory / "config").write_bytes(config)
    bus = root / "bus"
    bus.mkdir(exist_ok=True)
    (bus / directory.name).symlink_to(directory)


def test_bridges_above_gpus_are_examined(tmp_path: Path) -> None:
    device(tmp_path, "pci0000:00/0000:00:01.0", "0x8086", "0x060400", config_space(0x1D))
    device(tmp_path, "pci0000:00/0000:00:01.0/0000:01:00.0", "0x10de", "0x030200", bytes(64))
    device(tmp_path, "pci0000:00/0000:00:02.0", "0x8086", "0x060400", config_space(0x1D))
    device(tmp_path, "pci0000:00/0000:00:02.0/0000:02:00.0", "0x10de", "0x068000", bytes(64))
    bus = str(tmp_path / "bus")
    assert gpu_links.read_redirections(bus) == ["0000:00:01.0"]
    assert gpu_links.count_switches(bus) == 1


def test_bridges_readable_only_by_root_are_unknown(tmp_path: Path) -> None:
    device(tmp_path, "pci0000:00/0000:00:01.0", "0x8086", "0x060400", bytes(64))
    device(tmp_path, "pci0000:00/0000:00:01.0/0000:01:00.0", "0x10de", "0x030200", bytes(64))
    assert gpu_links.read_redirections(str(tmp_path / "bus")) is None


@pytest.mark.parametrize(
    ("types", "expected"), [([], ""), (["identity"], "identity"), (["identity", "DMA-FQ"], "DMA-FQ")]
)
def test_iommu_translation_is_read(tmp_path: Path, types: list[str], expected: str) -> None:
    for number, kind in enumerate(types):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "type").write_text(kind + "\n")
    assert gpu_links.read_iommu(str(tmp_path)) == expected


def test_rdma_ports_are_read_from_sysfs(tmp_path: Path) -> None:
    port = tmp_path / "mlx5_0" / "ports" / "1"
    (port / "gids").mkdir(parents=True)
    (port / "gid_attrs" / "types").mkdir(parents=True)
    for name, text in (("state", "4: ACTIVE"), ("link_layer", "Ethernet")):
        (port / name).write_text(text + "\n")
    gids = ["fe80:0000:0000:0000:0000:0000:0000:0001", rdma.NO_GID, "0000:0000:0000:0000:0000:ffff:0a00:000a"]
    for index, gid in enumerate(gids):
        (port / "gids" / str(index)).write_text(gid + "\n")
    (port / "gid_attrs" / "types" / "0").write_text("IB/RoCE v1\n")
    (port / "gid_attrs" / "types" / "2").write_text("RoCE v2\n")
    second_port = tmp_path / "mlx5_1" / "ports" / "1"
    second_port.mkdir(parents=True)
    (second_port / "state").write_text("1: DOWN\n")
    (second_port / "link_layer").write_text("InfiniBand\n")
    first, second = rdma.read_ports(str(tmp_path))
    assert (first["name"], first["state"], first["link"]) == ("mlx5_0/1", "ACTIVE", "Ethernet")
    assert first["gids"] == [
        {"index": 0, "type": "IB/RoCE v1", "ipv4": False},
        {"index": 2, "type": "RoCE v2", "ipv4": True},
    ]
    assert (second["state"], second["link"], second["gids"]) == ("DOWN", "InfiniBand", [])
