"""The verification of a ROCm build of torch, with a stand-in for torch: it has not been verified on an AMD GPU."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._detached.result_line import StepError
from ansible_collections.muster.training.plugins.module_utils._torch import torch_proof

REQUEST: dict[str, Any] = {"version": "2.9.1", "build": "rocm6.4", "cuda": "", "gpus": 8}


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Install a fake ROCm build of torch with eight GPUs."""
    module = ModuleType("torch")
    vars(module).update(
        __version__="2.9.1+rocm6.4",
        version=SimpleNamespace(cuda=None, hip="6.4.43482-0f2d60242"),
        cuda=SimpleNamespace(is_available=lambda: True, device_count=lambda: 8),
    )
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


def test_the_requested_rocm_is_accepted(torch: Any) -> None:
    assert torch_proof.check_build(REQUEST) == "2.9.1+rocm6.4 True None"


@pytest.mark.parametrize(("hip", "platform"), [("7.1.25424", "ROCm 7.1.25424"), (None, "the CPU")])
def test_different_rocm_version_is_refused(torch: Any, hip: str | None, platform: str) -> None:
    torch.version.hip = hip
    with pytest.raises(StepError, match=f"for {platform} instead of ROCm 6.4. "):
        torch_proof.check_build(REQUEST)


def test_gpus_invisible_to_torch_are_named_with_a_remedy(torch: Any) -> None:
    torch.cuda.device_count = lambda: 0
    with pytest.raises(
        StepError, match=r"sees 0 of 8 GPUs .* amd-smi, whether the user is in the render and video groups"
    ):
        torch_proof.check_build(REQUEST)


class Matrix:
    """A matrix whose products are correct."""

    def repeat(self, *_sizes: int) -> Matrix:
        return self

    def new_ones(self, *_sizes: int) -> Matrix:
        return self

    def __matmul__(self, _other: Matrix) -> Matrix:
        return self

    def __eq__(self, _other: object) -> Any:
        return SimpleNamespace(all=lambda: True)


def test_each_gpu_multiplies_with_a_build_for_rocm(torch: Any) -> None:
    devices = []

    def arange(_end: float, device: str) -> Matrix:
        devices.append(device)
        return Matrix()

    torch.arange = arange
    assert torch_proof.check_products(REQUEST) == 8
    assert devices == [f"cuda:{index}" for index in range(8)]
    assert torch_proof.check_products({**REQUEST, "build": "cpu"}) == 0


def test_error_within_a_sentence_is_cut_after_a_word_and_has_no_final_period() -> None:
    missing = "RuntimeError: operator torchvision::nms does not exist"
    assert torch_proof.last_error(f"Traceback:\n{missing}.\n") == missing
    sentence = "ImportError: incompatible " + "versions " * 60 + "of both."
    cut = torch_proof.last_error(sentence)
    assert cut.startswith("ImportError: incompatible versions") and cut.endswith(" versions ...") and len(cut) <= 400
    assert torch_proof.last_error("") == ""
    assert torch_proof.last_lines("word " * 200 + "\nRuntimeError: no route.\n") == "RuntimeError: no route"
