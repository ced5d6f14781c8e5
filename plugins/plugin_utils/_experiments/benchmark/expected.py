# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Expected rates of GPUs and networks, with the source of each.

None was measured with this collection: its benchmark has not been run on these GPUs yet.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.documents import ExpectedRate

MEASURED = "the best result measured by others (ml-engineering, MAMF)"
DATA_SHEET = "0.75 of the vendor's data sheet value, without sparsity"
ESTIMATED = "estimated from similar GPUs: not measured for this table"


class GpuSpec(NamedTuple):
    """A GPU model's name in nvidia-smi, a number type, and the dense TFLOP/s of a matmul."""

    model: str
    dtype: str
    tflops: float
    source: str
    sure: bool = True


GPUS = (
    GpuSpec(r"B200", "bfloat16", 1745.0, MEASURED),
    GpuSpec(r"GH200", "bfloat16", 829.0, MEASURED),
    GpuSpec(r"H100 PCIe", "bfloat16", 567.0, DATA_SHEET + ": 756", False),
    GpuSpec(r"H[12]00", "bfloat16", 794.5, MEASURED),
    GpuSpec(r"A100.*PCIe", "bfloat16", 253.0, MEASURED),
    GpuSpec(r"A100", "bfloat16", 271.0, MEASURED),
    GpuSpec(r"MI300X", "bfloat16", 668.0, MEASURED),
    GpuSpec(r"L40S", "bfloat16", 271.5, DATA_SHEET + ": 362"),
    GpuSpec(r"A40\b", "bfloat16", 112.0, DATA_SHEET + ": 149.7"),
    GpuSpec(r"RTX A6000", "bfloat16", 112.0, ESTIMATED, False),
    GpuSpec(r"A10G", "bfloat16", 52.0, ESTIMATED, False),
    GpuSpec(r"L4\b", "bfloat16", 66.0, ESTIMATED + "; its power is limited", False),
    GpuSpec(r"V100", "float16", 87.0, ESTIMATED, False),
    GpuSpec(r"T4\b", "float16", 30.0, ESTIMATED + "; its power is limited", False),
    GpuSpec(r"RTX 3070", "bfloat16", 35.0, ESTIMATED, False),
    GpuSpec(r"P4000", "float32", 4.5, ESTIMATED, False),
)
# Fraction of the line rate that is typically achieved
LINE_SHARE = 0.9


def expected_gpu_rate(model: str, dtype: str) -> ExpectedRate | None:
    """Return the expected matmul TFLOP/s of a GPU model, or None if the table does not list the model."""
    for spec in GPUS:
        if spec.dtype == dtype and re.search(spec.model, model, re.IGNORECASE):
            return {"value": spec.tflops, "source": spec.source, "sure": spec.sure}
    return None


def expected_network_rate(
    configured_gbps: float | None, infiniband_gbps: list[float], interface_mbps: float | None, name: str
) -> ExpectedRate | None:
    """Return the expected Gb/s between nodes, per node and direction, or None if unknown.

    Args:
        configured_gbps: the user's benchmark_network_gbps.
        infiniband_gbps: rates of a node's ports.
        interface_mbps: the speed that its network interface reports.
        name: the name of that interface.
    """
    if configured_gbps is not None and configured_gbps > 0:
        return {
            "value": configured_gbps * LINE_SHARE,
            "source": f"{LINE_SHARE:.0%} of benchmark_network_gbps",
            "sure": True,
        }
    if infiniband_gbps:
        source = f"{LINE_SHARE:.0%} of the InfiniBand port rates in /sys/class/infiniband"
        return {"value": sum(infiniband_gbps) * LINE_SHARE, "source": source, "sure": True}
    if interface_mbps is not None and interface_mbps > 0:
        is_slow = interface_mbps <= 25_000
        share = LINE_SHARE if is_slow else 0.35  # TCP with NCCL: 10 to 60 % of 100 Gb/s
        source = f"{share:.0%} of the speed of {name} in /sys/class/net" + (
            "" if is_slow else ": TCP does not saturate such a link"
        )
        return {"value": interface_mbps / 1000 * share, "source": source, "sure": is_slow}
    return None
