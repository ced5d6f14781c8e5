"""The machines of a run in plan.json."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._plan.machines import (
    describe_machines,
    extract_hardware,
    extract_software,
)
from tests.unit import healthy


def test_hardware_of_a_node_summarizes_its_gpus() -> None:
    gpus = healthy.gpus(8)
    assert extract_hardware({"gpus": gpus}) == {
        "gpu": "H100 80GB HBM3",
        "gpus": 8,
        "memory_mib": 81559,
        "driver": "570.124.06",
    }
    gpus["devices"][3] |= {"name": "RTX A6000", "memory_mib": 49140}
    gpus["devices"][4] |= {"memory_mib": None}  # it shares the host's memory
    mixed = extract_hardware({"gpus": gpus})
    assert mixed is not None and (mixed["gpu"], mixed["memory_mib"]) == ("H100 80GB HBM3, RTX A6000", 49140)
    assert extract_hardware({"gpus": healthy.gpus(0)}) == {"gpu": "", "gpus": 0, "memory_mib": None, "driver": None}
    assert extract_hardware({}) is None


def test_software_of_a_node_gives_versions_or_none() -> None:
    facts = healthy.node("node1", ["node1"])
    assert extract_software(facts) == {"python": "3.11.9", "torch": "2.7.1", "cuda": "12.8"}
    facts["software"] |= {"python": None, "packages": {}, "cuda": None, "error": "it is not responding"}
    assert extract_software(facts) == {"python": None, "torch": None, "cuda": None}
    assert extract_software({}) is None


def test_machines_of_a_run_hold_prices_code_and_software() -> None:
    facts = healthy.cluster(2, gpu_count=1)
    facts["node2"]["checkout"] = {"commit": "a" * 40, "dirty": True}
    machines = describe_machines(facts, {"node1": 2.5, "node2": None}, "node1", "EUR", image=True)
    assert (machines["code"], machines["currency"]) == (None, "EUR"), "that of the first node counts"
    assert [machine["price_per_hour"] for machine in machines["nodes"].values()] == [2.5, None]
    assert machines["nodes"]["node1"]["software"] is None, "what an image holds nobody has looked at"
    assert describe_machines(facts, {}, "node2", "USD", image=False)["code"] == {"commit": "a" * 40, "dirty": True}
