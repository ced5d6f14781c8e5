# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reports of runs on AMD GPUs mention amd-smi, and omit the power limit, which their samples lack."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._plan.gpu_vendors import vendor_of_model
from ansible_collections.muster.training.plugins.plugin_utils._record.reader import read_record
from ansible_collections.muster.training.plugins.plugin_utils._report.report import compose_report
from tests.unit.plugins.plugin_utils.report.records import START, Sample, plan_of, write_record


def report_of(tmp_path: Path, sample: Any) -> Any:
    nodes = plan_of("first", 2, 2)["nodes"]
    for node in nodes:
        node["hardware"].update(gpu="AMD Instinct MI300X", memory_mib=196592, driver="6.10.5")
    directory = write_record(tmp_path, nodes=2, gpus=2, sample=sample, plan={"nodes": nodes})
    for path in directory.glob("logs/*/gpus.csv"):
        path.write_text(path.read_text().replace(", 400.00", ", [N/A]"))
    return compose_report(read_record(directory, directory.name), now=START)


def one_slow(node: int, gpu: int, _second: float) -> Sample:
    return (90.0, 36000.0, 70.0, 300.0 if (node, gpu) == (1, 0) else 700.0)


def with_a_hole(_node: int, gpu: int, second: float) -> Sample | None:
    return None if gpu and 150 < second < 330 else (90.0, 36000.0, 70.0, 700.0)


def vanishing(node: int, _gpu: int, second: float) -> Sample | None:
    return None if node and second > 300 else (90.0, 36000.0, 70.0, 700.0)


@pytest.mark.parametrize(
    ("sample", "finding_id", "text"),
    [
        (one_slow, "gpu-slow", "amd-smi metric --throttle --clock --temperature on gpu1"),
        (
            with_a_hole,
            "samples-missing",
            "amd-smi did not respond on gpu0 at times: look for 'amdgpu' in the output of",
        ),
        (vanishing, "samples-end", "amd-smi no longer showed the GPU"),
    ],
)
def test_findings_name_amd_smi(tmp_path: Path, sample: Any, finding_id: str, text: str) -> None:
    report = report_of(tmp_path, sample)
    finding = next(entry for entry in report["findings"] if entry["id"] == finding_id)
    assert text in finding["remedy"] and "nvidia" not in str(report["findings"])
    assert {gpu["power_limit_watts"] for gpu in report["gpus"]} == {None}


def test_a_report_without_samples_names_amd_smi(tmp_path: Path) -> None:
    report = report_of(tmp_path, lambda _node, _gpu, _second: None)
    assert "no GPU samples: amd-smi did not respond" in report["notes"]


def test_models_of_a_record_name_their_vendor() -> None:
    tools = [vendor_of_model(model).tool for model in ("AMD Instinct MI300X", "H100 80GB HBM3", "")]
    assert tools == ["amd-smi", "nvidia-smi", "nvidia-smi"]
