"""The filter software_choice with the output of node_facts."""

from __future__ import annotations

from typing import Any

from ansible_collections.muster.training.plugins.filter.software_choice import FilterModule
from tests.unit import healthy

software_choice = FilterModule().filters()["software_choice"]


def facts(capability: list[int] | None = None, interpreter: str = "/usr/bin/python3", **software: Any) -> Any:
    """Return facts of two nodes, with GPUs if a capability is specified."""
    read = healthy.cluster(2, gpu_count=2 if capability else 0)
    for item in read.values():
        item["interpreter"] = interpreter
        item["software"].update(software)
        for device in item["gpus"]["devices"]:
            device["compute_capability"] = capability
    return read


def test_choice_includes_requirements_and_reasons() -> None:
    choice = software_choice(facts([6, 1]), packages=["torchvision"])
    assert {name: value for name, value in choice.items() if name != "reasons"} == {
        "refusal": "",
        "python": "python3",
        "version": "2.13.0",
        "build": "cu126",
        "cuda": "12.6",
        "requirements": ["torch==2.13.0", "torchvision==0.28.*"],
        "flash_attention": "",
    }
    assert choice["reasons"][0] == "Python 3.11: python3 of the nodes"
    assert software_choice(facts(), "2.5.1")["build"] == "cpu"


def test_python_of_an_existing_environment_is_kept() -> None:
    node_facts = facts(interpreter="/data/muster/env/bin/python", python="3.9.2")
    assert software_choice(node_facts, directory="/data/muster")["version"] == "2.8.0"
    assert software_choice(node_facts, directory="/data/muster/")["version"] == "2.8.0"
    assert software_choice(node_facts, directory="/opt/muster")["python"] == "3.12"


def test_missing_python_is_installed_except_with_venv() -> None:
    read = facts()
    for item in read.values():
        item["interpreter"] = ""
        del item["software"]
    assert software_choice(read)["python"] == "3.12"
    assert "python3 is missing on node1, node2" in software_choice(read, manager="venv")["refusal"]


def test_refusal_is_returned_without_a_choice() -> None:
    assert list(software_choice(facts(), "2.8.0", "12.4")) == ["refusal"]
    assert software_choice(facts(), "2.8.0", "12.4")["refusal"].startswith("torch 2.8.0 does not exist for CUDA 12.4")
