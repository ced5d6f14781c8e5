"""Clusters of AMD GPUs, and clusters whose nodes differ in vendor or processor."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._checks.catalogue import IDS
from tests.unit.healthy import Facts, cluster, findings, nothing, spoilt, together


def with_amd(*names: str) -> Any:
    """Turn nodes into nodes with AMD GPUs."""

    def spoil(facts: dict[str, Facts]) -> None:
        for name in names or tuple(facts):
            node = facts[name]
            count = node["gpus"]["count"]
            device = {
                "name": "AMD Instinct MI300X",
                "driver": "6.10.5",
                "memory_mib": 196592,
                "memory_used_mib": 283,
                "compute_mode": "Default",
                "ecc_uncorrected": 0,
                "page_retirement_pending": False,
                "error": "",
                "target": "gfx942",
                "pci": "0000:05:00.0",
            }
            node["gpus"] = {
                "vendor": "amd",
                "smi": {"state": "ok", "output": "", "path": "/opt/rocm/bin/amd-smi"},
                "devices": [{**device, "index": index, "uuid": f"amd-{name}-{index}"} for index in range(count)],
                "count": count,
                "pci": count,
                "driver": {"loaded": "6.10.5", "library": None, "on_disk": None},
                "nouveau": False,
                "processes": [],
                "rocm": "6.4.1",
                "groups": {"render": 993, "video": 44},
            }
            node["software"].update(cuda=None, hip="6.4.43482")
            node["software"]["packages"].pop("nccl", None)
            node.pop("links", None)
            node["health"].update(gpus=[], nvlinks=[], kernel_log=None)

    return spoil


def amd_state(name: str, state: str, output: str = "", **gpus: Any) -> Any:
    """Make amd-smi fail on a node."""

    def spoil(facts: dict[str, Facts]) -> None:
        facts[name]["gpus"]["smi"].update(state=state, output=output)
        facts[name]["gpus"].update(gpus)

    return spoil


def lost(gpus: int) -> dict[str, Any]:
    return {"devices": [], "count": 0, "pci": gpus}


def test_cluster_of_amd_gpus_has_no_findings() -> None:
    assert spoilt(with_amd(), gpu_count=8) == []


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (amd_state("node2", "hangs"), "amd-smi-hangs"),
        (amd_state("node2", "no-driver", "driver not initialized", **lost(8)), "amd-driver-not-loaded"),
        (
            amd_state("node2", "absent", driver={"loaded": None, "library": None, "on_disk": None}, **lost(8)),
            "amd-driver-not-loaded",
        ),
        (amd_state("node2", "absent", **lost(8)), "amd-smi-missing"),
        (amd_state("node2", "failed", "KeyError: 'x'", **lost(8)), "gpu-broken"),
    ],
)
def test_driver_findings_use_amd_terms(spoil: Any, expected: str) -> None:
    result = spoilt(together(with_amd(), spoil), gpu_count=8)
    assert ("error", expected, ("node2",)) in result
    assert expected in IDS
    facts = cluster(4, 8)
    together(with_amd(), spoil)(facts)
    texts = [finding.problem + finding.remedy for finding in findings(facts) if finding.id == expected]
    assert texts and not any("nvidia" in text.lower().replace("role nvidia_driver", "") for text in texts)


def test_memory_errors_and_foreign_processes_are_reported_with_amd_commands() -> None:
    facts = cluster(2, 8)
    with_amd()(facts)
    facts["node1"]["gpus"]["devices"][3]["ecc_uncorrected"] = 3
    facts["node2"]["gpus"]["devices"][0]["memory_used_mib"] = 90000
    by_id = {finding.id: finding for finding in findings(facts)}
    assert "amd-smi reset --gpureset" in by_id["gpu-memory-errors"].remedy
    assert "fuser -v /dev/kfd" in by_id["gpu-busy"].remedy


def test_differing_amd_drivers_are_a_warning() -> None:
    def spoil(facts: dict[str, Facts]) -> None:
        facts["node3"]["gpus"]["driver"]["loaded"] = "6.12.12"

    assert spoilt(together(with_amd(), spoil), gpu_count=8) == [("warning", "skew-amd-driver", ("node3",))]


def test_a_cluster_with_gpus_of_two_vendors_is_refused() -> None:
    facts = cluster(4, 8)
    with_amd("node3", "node4")(facts)
    (finding,) = [finding for finding in findings(facts) if finding.id == "mixed-gpus"]
    assert finding.severity == "error" and finding.nodes == ("node1", "node2", "node3", "node4")
    assert "node3, node4: AMD GPUs; node1, node2: NVIDIA GPUs" in finding.problem
    assert finding.remedy == "launch only on nodes of the same kind: -e nodes=node1,node2"


def test_a_cluster_with_two_processor_architectures_is_refused() -> None:
    def spoil(facts: dict[str, Facts]) -> None:
        for name, node in facts.items():
            node["architecture"] = "aarch64" if name == "node4" else "x86_64"

    assert ("error", "mixed-processors", ("node1", "node2", "node3", "node4")) in spoilt(spoil, gpu_count=8)
    assert spoilt(nothing, gpu_count=8) == []


@pytest.mark.parametrize(
    ("software", "vendor", "expected"),
    [
        ({"cuda": "12.8", "hip": None}, "amd", ["torch-other-vendor"]),
        ({"cuda": None, "hip": None}, "amd", ["torch-other-vendor"]),
        ({"cuda": None, "hip": "6.4.43482"}, "amd", []),
        ({"cuda": None, "hip": "6.4.43482"}, "nvidia", ["torch-other-vendor"]),
        ({"cuda": None, "hip": None}, "nvidia", ["torch-without-cuda"]),
    ],
)
def test_torch_must_be_built_for_the_vendor(software: dict[str, Any], vendor: str, expected: list[str]) -> None:
    facts = cluster(1, 8)
    if vendor == "amd":
        with_amd()(facts)
    facts["node1"]["software"].update(software)
    ids = [finding.id for finding in findings(facts)]
    assert ids == expected


def test_a_kernel_that_fails_and_a_missing_compiler_are_described_for_rocm() -> None:
    facts = cluster(1, 8)
    with_amd()(facts)
    facts["node1"]["imports"].update(
        cuda=[{"gpu": -1, "error": "RuntimeError: HIP error: invalid device function"}], features=["deepspeed-ops"]
    )
    facts["node1"]["compilers"]["nvcc"] = ""
    (finding,) = findings(facts)
    assert finding.id == "cuda-fails" and finding.problem.startswith("ROCm fails to initialize")
    assert finding.remedy.startswith("ansible-playbook site.yml --tags pytorch")
