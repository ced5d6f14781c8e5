"""GPUs that are missing, unhealthy or in use."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.healthy import Facts, cluster, findings, gpus, nothing, spoilt


def smi(facts: dict[str, Facts], name: str, state: str, output: str = "", **driver: Any) -> None:
    """Make nvidia-smi list no GPU, and set versions of the driver."""
    item = facts[name]["gpus"]
    item.update(smi={"state": state, "output": output}, devices=[])
    item["driver"].update(driver)


def device(facts: dict[str, Facts], name: str, **values: Any) -> None:
    facts[name]["gpus"]["devices"][1].update(values)


def holder(facts: dict[str, Facts], name: str, **values: Any) -> None:
    process = {"pid": 4711, "command": "python train.py", "user": "ada", "orphan": False, "run": "", "memory_mib": None}
    facts[name]["gpus"]["processes"].append({**process, "devices": ["/dev/nvidia0"], **values})


def fewer(facts: dict[str, Facts], name: str, count: int) -> None:
    slots = facts[name]["gpu_count"]
    facts[name].update(gpus=gpus(count))
    facts[name]["gpu_count"] = slots  # as set in the inventory


def own_run(facts: dict[str, Facts], name: str) -> None:
    facts[name]["runs"] = [{"run_id": "bert", "address": "10.0.0.12", "directory": "/x/bert/node0", "pid": 1}]
    holder(facts, name, run="bert")


@pytest.mark.parametrize(
    ("spoil", "result"),
    [
        (nothing, []),
        (lambda f: smi(f, "node2", "hangs"), [("error", "nvidia-smi-hangs", ("node2",))]),
        (
            lambda f: smi(f, "node2", "mismatch", "NVML library version: 570.211", library="570.211.01"),
            [("error", "driver-mismatch", ("node2",))],
        ),
        # the version numbers alone show this, without nvidia-smi
        (
            lambda f: f["node2"]["gpus"]["driver"].update(library="570.211.01", on_disk="570.211.01"),
            [("error", "driver-mismatch", ("node2",))],
        ),
        (
            lambda f: f["node2"]["gpus"]["driver"].update(on_disk="575.57.08"),
            [("warning", "driver-pending", ("node2",))],
        ),
        (
            lambda f: smi(f, "node3", "no-driver", "couldn't communicate", loaded=None, on_disk=None),
            [("error", "driver-not-loaded", ("node3",))],
        ),
        (
            lambda f: smi(f, "node3", "gpu-lost", "GPU 0000:0B:00.0: Unknown Error"),
            [("error", "gpu-broken", ("node3",))],
        ),
        (
            lambda f: smi(f, "node3", "no-gpu", "No devices were found"),
            [("error", "gpu-broken", ("node3",))],
        ),
        (lambda f: device(f, "node4", error="GPU requires reset"), [("error", "gpu-broken", ("node4",))]),
        (lambda f: device(f, "node4", ecc_uncorrected=3), [("warning", "gpu-memory-errors", ("node4",))]),
        (lambda f: device(f, "node4", page_retirement_pending=True), [("warning", "gpu-memory-errors", ("node4",))]),
        (lambda f: fewer(f, "node1", 1), [("error", "gpu-count", ("node1",))]),
        (lambda f: fewer(f, "node1", 3), [("warning", "gpu-idle", ("node1",))]),
        (lambda f: holder(f, "node2"), [("error", "gpu-busy", ("node2",))]),
        (lambda f: holder(f, "node2", user="", command="[Not Found]"), [("error", "gpu-busy", ("node2",))]),
        (lambda f: device(f, "node2", memory_used_mib=58222), [("error", "gpu-busy", ("node2",))]),
        (lambda f: own_run(f, "node2"), [("error", "busy", ("node2",))]),
    ],
)
def test_gpu_problem_is_reported_for_its_node(spoil: Any, result: Any) -> None:
    assert spoilt(spoil, gpu_count=2) == result


def test_broken_driver_is_not_also_reported_as_gpu_count() -> None:
    def spoil(facts: dict[str, Facts]) -> None:
        smi(facts, "node2", "hangs")
        facts["node2"]["gpus"].update(count=0)

    assert ("error", "gpu-count", ("node2",)) not in spoilt(spoil, gpu_count=2)


def test_orphaned_gpu_process_is_reported_as_left_over() -> None:
    facts = cluster(2, gpu_count=1)
    holder(facts, "node2", orphan=True, run="old-run")
    [finding] = findings(facts)
    assert finding.problem == (
        "GPUs are in use by process 4711 of ada (python train.py, run old-run, its parent has exited)"
    )
    assert finding.remedy == "wait for it, or kill it: sudo kill 4711 (left over: its parent has exited)"


def test_a_command_is_shown_on_one_line_and_shortened() -> None:
    facts = cluster(2, gpu_count=1)
    holder(facts, "node2", command="python3 -c \nimport torch\nx = 1\n" + "y" * 90, memory_mib=31330)
    [finding] = findings(facts)
    text = "python3 -c import torch x = 1 " + "y" * 47 + "..."
    assert finding.problem == f"GPUs are in use by process 4711 of ada ({text}, 31330 MiB)"


def test_env_launcher_with_one_process_per_node_has_no_idle_gpu() -> None:
    facts = cluster(2, gpu_count=2)
    assert findings(facts, launcher="env", nproc_per_node=1) == []
    assert [finding.id for finding in findings(facts, nproc_per_node=1)] == ["gpu-idle"]


def test_gpu_without_driver_is_detected_on_the_pci_bus() -> None:
    def spoil(facts: dict[str, Facts]) -> None:
        for item in facts.values():
            item["gpus"].update(pci=8, nouveau=True)

    result = spoilt(spoil)
    assert result == [("error", "driver-not-loaded", tuple(cluster()))]


@pytest.mark.parametrize(("pci", "result"), [(0, []), (1, ["gpu-broken"]), (8, ["gpu-broken"])])
def test_gpus_on_the_bus_that_the_driver_misses_are_broken(pci: int, result: list[str]) -> None:
    facts = cluster(2)
    smi(facts, "node2", "no-gpu", "No devices were found", loaded="570.124.06")
    facts["node2"]["gpus"].update(pci=pci)
    reported = findings(facts, skip=["skew-driver"])
    assert [(finding.id, finding.nodes) for finding in reported] == [(item, ("node2",)) for item in result]
    for finding in reported:
        assert f"{pci} NVIDIA GPU" in finding.problem and "570.124.06" in finding.problem
        assert "No devices were found" in finding.problem and "dmesg" in finding.remedy


def test_unset_slots_are_counted_from_the_gpus() -> None:
    facts = cluster(2, gpu_count=2)
    nodes = [{"name": name, "address": f"10.0.0.{10 + number}", "slots": None} for number, name in enumerate(facts, 1)]
    assert findings(facts, nodes=nodes) == []
    bare = cluster(2)
    assert [finding.id for finding in findings(bare, nodes=nodes)] == ["no-gpu"]
    assert findings(bare, nodes=nodes, skip=["no-gpu"]) == []
