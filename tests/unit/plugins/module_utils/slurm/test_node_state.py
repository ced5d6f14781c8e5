"""The node state for the slurm role, from program output and the kernel's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.module_utils._slurm import node_state


def make_cpus(directory: Path, cpus: list[tuple[int, int]]) -> str:
    """Create CPUs with these sockets and cores, as the kernel describes them."""
    for number, (socket, core) in enumerate(cpus):
        topology = directory / f"cpu{number}" / "topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text(f"{socket}\n")
        (topology / "core_id").write_text(f"{core}\n")
    return str(directory)


@pytest.mark.parametrize(
    ("cpus", "expected"),
    [
        ([(0, 0), (0, 1), (1, 0), (1, 1)], (2, 2, 1)),
        ([(0, 0), (0, 1), (0, 0), (0, 1)], (1, 2, 2)),
        ([(0, 0), (0, 0), (0, 1)], (1, 3, 1)),  # a core whose second hardware thread is missing
        ([], None),
    ],
)
def test_cpus(tmp_path: Path, cpus: list[tuple[int, int]], expected: tuple[int, int, int] | None) -> None:
    result = node_state.read_cpus(make_cpus(tmp_path, cpus))
    counts = (result["sockets"], result["cores"], result["threads"])
    assert counts == expected if expected else counts[0] == counts[2] == 1 and counts[1] >= 1


def test_gpus_are_in_numerical_order(tmp_path: Path) -> None:
    for number in (10, 2, 0):
        (tmp_path / f"nvidia{number}").touch()
    (tmp_path / "nvidiactl").touch()
    (tmp_path / "information").write_text("Model: \t\t NVIDIA GeForce RTX 4090\nIRQ: 5\n")
    result = node_state.read_gpus(f"{tmp_path}/nvidia[0-9]*", str(tmp_path / "information"))
    assert [Path(path).name for path in result["files"]] == ["nvidia0", "nvidia2", "nvidia10"]
    assert result["model"] == "NVIDIA GeForce RTX 4090"


def test_units() -> None:
    text = (
        "Id=munge.service\nActiveState=active\nUnitFileState=enabled\n\n"
        "Id=slurmd.service\nActiveState=inactive\nUnitFileState=\n"
    )
    assert node_state.parse_units(text) == {
        "munge": {"active": "active", "enabled": "enabled"},
        "slurmd": {"active": "inactive", "enabled": ""},
    }


@pytest.mark.parametrize(
    ("version", "expected"), [("22.05.8-4+deb12u3", "22.05.8"), ("1:24.11.5-4", "24.11.5"), ("none", "")]
)
def test_upstream_version_is_extracted(version: str, expected: str) -> None:
    assert node_state.upstream_version(version) == expected
