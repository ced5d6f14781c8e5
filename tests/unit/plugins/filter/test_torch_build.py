"""The filter torch_build, on facts as node_facts has them."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.muster.training.plugins.filter.torch_build import FilterModule

torch_build = FilterModule().filters()["torch_build"]
GPUS = {"node1": {"pci": 2, "driver": {"loaded": "550.54.15"}}, "node2": {"pci": 0, "driver": {"loaded": None}}}


def test_a_build_with_its_requirements() -> None:
    assert torch_build(GPUS, "2.5.1", "12.4", ["torchvision"]) == {
        "build": "cu124",
        "cuda": "12.4",
        "requirements": ["torch==2.5.1", "torchvision==0.20.*"],
    }
    assert torch_build({"node2": GPUS["node2"]}, "2.5.1") == {
        "build": "cpu",
        "cuda": "",
        "requirements": ["torch==2.5.1"],
    }


def test_a_refusal_is_an_error_of_ansibles() -> None:
    with pytest.raises(AnsibleFilterError, match=r"there is no torch 2\.8\.0 for CUDA 12\.4"):
        torch_build(GPUS, "2.8.0", "12.4")
