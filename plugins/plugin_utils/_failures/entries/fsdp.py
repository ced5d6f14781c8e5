# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failures of FullyShardedDataParallel and fully_shard."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry

TOPIC = "FSDP"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="fsdp-mixed-dtypes",
        title="FSDP got weights of different types",
        example="ValueError: Must flatten tensors with uniform dtype but got torch.bfloat16 and torch.float32",
        texts=(
            r"Must flatten tensors with uniform dtype",
            r"`FlatParameter` requires uniform dtype",
        ),
        cause="FSDP joins the weights of a layer into one tensor, and some are bf16 or fp16 while others are "
        "fp32: adapters (LoRA), norms, quantised layers, or a model that was loaded in another "
        "precision on some ranks.",
        remedy="load all weights in one precision (torch_dtype=torch.bfloat16, and for QLoRA "
        "bnb_4bit_quant_storage=torch.bfloat16), cast the rest: model.to(torch.bfloat16); or use FSDP2 "
        "(fully_shard), which allows both. With accelerate: fsdp_cpu_ram_efficient_loading: true, "
        "fsdp_use_orig_params: true",
        source="axolotl-ai-cloud/axolotl#1494",
    ),
)
