"""The verification that torch works, with the torch of this environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._detached.result_line import StepError
from ansible_collections.muster.training.plugins.module_utils._torch import torch_proof as verification


def request(tmp_path: Path, **more: Any) -> dict[str, Any]:
    import torch  # not at module level: it would cost each pytest process a second

    version = torch.__version__.partition("+")[0]
    cuda = torch.version.cuda or ""
    return {
        "marker": str(tmp_path / "proved"),
        "version": version,
        "build": "cpu",
        "cuda": cuda,
        "gpus": 0,
        **more,
    }


def test_torch_is_verified_only_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = request(tmp_path)
    summary = verification.verify(parameters)["summary"]
    assert summary.startswith(parameters["version"]) and summary.endswith("sum of two ranks by gloo")
    monkeypatch.setattr(verification, "check_build", lambda parameters: pytest.fail("proved again"))
    assert verification.verify(request(tmp_path))["summary"] == "verified before"


def test_package_for_another_torch_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This is the case with torchvision from PyPI and a CPU build of torch."""
    (tmp_path / "torchvision-0.28.0.dist-info").mkdir()
    (tmp_path / "torchvision-0.28.0.dist-info" / "METADATA").write_text("Name: torchvision\nVersion: 0.28.0\n")
    (tmp_path / "torchvision").mkdir()
    module = tmp_path / "torchvision" / "__init__.py"
    module.write_text("raise RuntimeError('operator torchvision::nms does not exist')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(StepError, match=r"torchvision 0\.28\.0 does not work with torch .*nms does not exist"):
        verification.check_companions()
    module.write_text("")
    (tmp_path / "torchvision" / "ops.py").write_text("def nms(boxes, scores, threshold): pass\n")
    assert "torchvision 0.28.0" in verification.check_companions()


def test_wrong_build_is_refused_and_not_marked_as_verified(tmp_path: Path) -> None:
    with pytest.raises(StepError, match=r"instead of 2\.5\.1 for CUDA 12\.4"):
        verification.verify(request(tmp_path, version="2.5.1", cuda="12.4"))
    assert not (tmp_path / "proved").exists()


def test_wrong_product_or_sum_is_detected(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import torch

    monkeypatch.setattr(verification, "RANK", verification.RANK.replace("rank + 1)", "rank + 2)"))
    with pytest.raises(StepError, match="a sum over two processes with gloo failed in process 0: 5.0 5.0"):
        verification.check_sum(0)
    monkeypatch.setattr(verification, "RANK", "import sys; sys.exit('no such device')")
    with pytest.raises(StepError, match="no such device"):
        verification.check_sum(0)
    monkeypatch.setattr(torch.Tensor, "__matmul__", lambda first, second: torch.zeros(2))
    with pytest.raises(StepError, match="a matrix product on cpu is wrong"):
        verification.check_products({"cuda": "", "build": "cpu"})
