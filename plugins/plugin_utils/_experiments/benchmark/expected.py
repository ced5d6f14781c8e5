# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Expected rates of GPUs and networks, each with its source. Pure.

None was measured with this collection: nobody has run its benchmark on these GPUs yet. Private to this collection,
controller only.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.documents import Expected

MEASURED = "the best measured by others (ml-engineering, MAMF)"
SHEET = "0.75 of the vendor's data sheet, without sparsity"
ALIKE = "estimated from similar GPUs: not measured for this table"


class Row(NamedTuple):
    """A model by its nvidia-smi name, a number type, and the dense TFLOP/s of a matmul."""

    model: str
    dtype: str
    tflops: float
    source: str
    sure: bool = True


GPUS = (
    Row(r"B200", "bfloat16", 1745.0, MEASURED),
    Row(r"GH200", "bfloat16", 829.0, MEASURED),
    Row(r"H100 PCIe", "bfloat16", 567.0, SHEET + ": 756", False),
    Row(r"H[12]00", "bfloat16", 794.5, MEASURED),
    Row(r"A100.*PCIe", "bfloat16", 253.0, MEASURED),
    Row(r"A100", "bfloat16", 271.0, MEASURED),
    Row(r"MI300X", "bfloat16", 668.0, MEASURED),
    Row(r"L40S", "bfloat16", 271.5, SHEET + ": 362"),
    Row(r"A40\b", "bfloat16", 112.0, SHEET + ": 149.7"),
    Row(r"RTX A6000", "bfloat16", 112.0, ALIKE, False),
    Row(r"A10G", "bfloat16", 52.0, ALIKE, False),
    Row(r"L4\b", "bfloat16", 66.0, ALIKE + "; its power is limited", False),
    Row(r"V100", "float16", 87.0, ALIKE, False),
    Row(r"T4\b", "float16", 30.0, ALIKE + "; its power is limited", False),
    Row(r"RTX 3070", "bfloat16", 35.0, ALIKE, False),
    Row(r"P4000", "float32", 4.5, ALIKE, False),
)
# The usual share of the line rate that arrives
LINE_SHARE = 0.9


def of_gpu(model: str, dtype: str) -> Expected | None:
    """The expected TFLOP/s of a matmul on a GPU model; None if the table does not have it."""
    for row in GPUS:
        if row.dtype == dtype and re.search(row.model, model, re.IGNORECASE):
            return {"value": row.tflops, "source": row.source, "sure": row.sure}
    return None


def of_network(
    given: float | None, infiniband: list[float], interface_mbps: float | None, name: str
) -> Expected | None:
    """The expected Gb/s per node and direction between nodes; None if unknown.

    given: the user's value (benchmark_network_gbps); infiniband: rates of a node's ports; interface_mbps: the speed its
    interface reports.
    """
    if given is not None and given > 0:
        return {"value": given * LINE_SHARE, "source": f"{LINE_SHARE:.0%} of benchmark_network_gbps", "sure": True}
    if infiniband:
        text = f"{LINE_SHARE:.0%} of the rates of the InfiniBand ports in /sys/class/infiniband"
        return {"value": sum(infiniband) * LINE_SHARE, "source": text, "sure": True}
    if interface_mbps is not None and interface_mbps > 0:
        slow = interface_mbps <= 25_000
        share = LINE_SHARE if slow else 0.35  # TCP by NCCL: 10 to 60 % of 100 Gb/s
        text = f"{share:.0%} of the speed of {name} in /sys/class/net" + (
            "" if slow else ": TCP does not fill such a line"
        )
        return {"value": interface_mbps / 1000 * share, "source": text, "sure": slow}
    return None
